// The ops on both sides of an exchange of keys. Kernels: kernels/exchange_ops.cc.

#include "schema/shapes.h"
#include "tensorflow/core/framework/op.h"

namespace tfsparse {

// In and out: a list, and how much of it is of each rank. The header comes in too.
absl::Status ListAndCounts(InferenceContext* c) {
  TF_RETURN_IF_ERROR(CheckRank(c, 0, 1));
  TF_RETURN_IF_ERROR(CheckRank(c, 1, 1));
  TF_RETURN_IF_ERROR(CheckRank(c, 2, 0));
  c->set_output(0, c->Vector(c->UnknownDim()));
  c->set_output(1, c->input(1));
  return absl::OkStatus();
}

REGISTER_OP("Tfsparse>WriteMessages")
    .Input("keys: int64")
    .Input("counts: int32")
    .Input("header: int64")
    .Output("message: int64")
    .Output("message_counts: int32")
    .SetShapeFn(ListAndCounts)
    .Doc(R"doc(
Puts a header before the keys for each rank; its bits are in core/key_message.h.

keys: [u], those for rank 0 first.
counts: [num_ranks], keys for each.
message: [u + num_ranks].
message_counts: [num_ranks], numbers for each.
)doc");

REGISTER_OP("Tfsparse>ReadMessages")
    .Input("message: int64")
    .Input("message_counts: int32")
    .Input("header: int64")
    .Attr("table_name: string")
    .Output("keys: int64")
    .Output("counts: int32")
    .SetShapeFn(ListAndCounts)
    .Doc(R"doc(
Takes the headers off, and fails on every rank alike if these do not go together.

message: what WriteMessages of all ranks made for this one.
message_counts: [num_ranks], numbers from each.
header: this rank's own.
keys: [m], those of rank 0 first.
counts: [num_ranks], keys of each.
)doc");

}  // namespace tfsparse
