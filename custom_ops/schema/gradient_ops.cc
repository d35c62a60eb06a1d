// The ops between the ids of a batch and the distinct keys a table works on, and back.
// Kernels: kernels/gradient_ops.cc.

#include "schema/shapes.h"
#include "tensorflow/core/framework/op.h"

namespace tfsparse {

// Ops that need no row take the table all the same, for its scratch memory and because
// TensorFlow orders the ops of one resource: exchanges of one table never overlap.

REGISTER_OP("Tfsparse>GroupKeys")
    .Input("table: resource")
    .Input("keys: int64")
    .Output("unique: int64")
    .Output("positions: int32")
    .Output("counts: int32")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRank(c, 1, 1));
      c->set_output(0, c->Vector(c->UnknownDim()));
      c->set_output(1, c->input(1));
      c->set_output(2, c->Vector(c->UnknownDim()));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Makes keys unique and groups them by owner rank.

keys: [n].
unique: [u], keys of rank 0 first; within a rank in the order of first appearance.
positions: [n], keys[i] == unique[positions[i]].
counts: [num_ranks], how many of `unique` each rank owns.
)doc");

REGISTER_OP("Tfsparse>SumByKey")
    .Input("table: resource")
    .Input("keys: int64")
    .Input("values: float")
    .Output("unique: int64")
    .Output("sums: float")
    .Output("counts: int32")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRank(c, 1, 1));
      TF_RETURN_IF_ERROR(CheckRank(c, 2, 2));
      c->set_output(0, c->Vector(c->UnknownDim()));
      const auto dim = c->RankKnown(c->input(2)) ? c->Dim(c->input(2), 1) : c->UnknownDim();
      c->set_output(1, c->Matrix(c->UnknownDim(), dim));
      c->set_output(2, c->Vector(c->UnknownDim()));
      return absl::OkStatus();
    })
    .Doc(R"doc(
GroupKeys, and the values of equal keys added in their order.

keys: [n].
values: [n, dim].
sums: [u, dim], for `unique` [u].
)doc");

REGISTER_OP("Tfsparse>Expand")
    .Input("table: resource")
    .Input("rows: float")
    .Input("positions: int32")
    .Output("values: float")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRank(c, 1, 2));
      TF_RETURN_IF_ERROR(CheckRank(c, 2, 1));
      const auto dim = c->RankKnown(c->input(1)) ? c->Dim(c->input(1), 1) : c->UnknownDim();
      const auto n = c->RankKnown(c->input(2)) ? c->Dim(c->input(2), 0) : c->UnknownDim();
      c->set_output(0, c->Matrix(n, dim));
      return absl::OkStatus();
    })
    .Doc(R"doc(
values[i] = rows[positions[i]].

rows: [u, dim].
positions: [n], each in [0, u).
values: [n, dim].
)doc");

REGISTER_OP("Tfsparse>Anchored")
    .Input("anchor: float")
    .Input("rows: float")
    .Input("keys: int64")
    .Input("samples: int64")
    .Attr("table_name: string")
    .Output("anchored: float")
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->input(1));
      return absl::OkStatus();
    })
    .Doc(R"doc(
The rows, as something that depends on the anchor: their gradient becomes the anchor's.

The gradient is registered in Python: sparse, of `keys`, as described in embedding/table.py.
)doc");

REGISTER_OP("Tfsparse>SegmentSum")
    .Input("values: float")
    .Input("positions: int32")
    .Input("num_sums: int32")
    .Output("sums: float")
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRank(c, 0, 2));
      TF_RETURN_IF_ERROR(CheckRank(c, 1, 1));
      TF_RETURN_IF_ERROR(CheckRank(c, 2, 0));
      const auto dim = c->RankKnown(c->input(0)) ? c->Dim(c->input(0), 1) : c->UnknownDim();
      c->set_output(0, c->Matrix(c->UnknownDim(), dim));
      return absl::OkStatus();
    })
    .Doc(R"doc(
sums[p] = the sum of values[i] with positions[i] == p, added in the order of i.

values: [n, dim].
positions: [n], each in [0, num_sums).
sums: [num_sums, dim].
)doc");

}  // namespace tfsparse
