// The ops by which the rows of a table go to files and come back. Kernels:
// kernels/checkpoint_ops.cc. What is in the files: custom_ops/README.md.

#include "schema/shapes.h"
#include "tensorflow/core/framework/op.h"

namespace tfsparse {

using tensorflow::shape_inference::ScalarShape;
using tensorflow::shape_inference::UnknownShape;

REGISTER_OP("Tfsparse>Describe")
    .Input("table: resource")
    .Output("optimizer: string")
    .Output("arguments: float")
    .Output("columns: string")
    .Output("floats: int64")
    .SetIsStateful()
    .SetShapeFn(UnknownShape)
    .Doc(R"doc(
What a row consists of.

optimizer: as it was bound, or "none"; a scalar.
arguments: [a], of the optimizer.
columns: [c], names of the parts of a row, in their order.
floats: [c], of each part.
)doc");

REGISTER_OP("Tfsparse>CountByBucket")
    .Input("table: resource")
    .Output("counts: int64")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Vector(c->UnknownDim()));
      return absl::OkStatus();
    })
    .Doc("The committed rows in each bucket of this rank, int64 [buckets].");

REGISTER_OP("Tfsparse>WriteRows")
    .Input("table: resource")
    .Input("path: string")
    .Input("prefix: string")
    .Input("first_bucket: int64")
    .Input("last_bucket: int64")
    .Input("num_rows: int64")
    .Output("checksums: int64")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      for (int i = 1; i <= 5; ++i) TF_RETURN_IF_ERROR(CheckRank(c, i, 0));
      c->set_output(0, c->Vector(c->UnknownDim()));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Writes a file: a prefix, the keys of some buckets, and each column of their rows.

first_bucket, last_bucket: the buckets [first, last), of this rank.
num_rows: how many rows they have; if that is not so any more, the op fails.
checksums: [2 + columns], the CRC-32C of the prefix, of the keys, and of each column.
)doc");

REGISTER_OP("Tfsparse>Checksum")
    .Input("path: string")
    .Input("begin: int64")
    .Input("end: int64")
    .Output("checksum: int64")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      for (int i = 0; i <= 2; ++i) TF_RETURN_IF_ERROR(CheckRank(c, i, 0));
      return ScalarShape(c);
    })
    .Doc("The CRC-32C of the bytes [begin, end) of a file.");

REGISTER_OP("Tfsparse>RowLoader")
    .Input("table: resource")
    .Input("num_rows: int64")
    .Attr("optimizer: string")
    .Attr("arguments: list(float)")
    .Output("loader: variant")
    .SetIsStateful()
    .SetShapeFn(ScalarShape)
    .Doc(R"doc(
Makes room, beside the table, for rows that will replace those of the table.

optimizer, arguments: what the table will then have, as in Bind; "none" for none.
)doc");

REGISTER_OP("Tfsparse>ReadRows")
    .Input("loader: variant")
    .Input("path: string")
    .Input("num_rows: int64")
    .Input("begin: int64")
    .Input("end: int64")
    .Input("first: int64")
    .Input("offsets: int64")
    .Input("checksums: int64")
    .Attr("columns: list(string)")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      for (int i = 1; i <= 5; ++i) TF_RETURN_IF_ERROR(CheckRank(c, i, 0));
      for (int i = 6; i <= 7; ++i) TF_RETURN_IF_ERROR(CheckRank(c, i, 1));
      return NoOutputs(c);
    })
    .Doc(R"doc(
Reads rows from a file that WriteRows has written.

The whole file is checked against its checksums, whatever part of it is taken.

num_rows: of the file.
begin, end: the rows [begin, end) of the file are taken,
first: and become the rows of the loader from this number on.
columns: those to read. Slots of which no column is read begin as those of new rows.
offsets: [1 + columns], where in the file the keys and the columns begin.
checksums: [1 + columns], theirs.
)doc");

REGISTER_OP("Tfsparse>FinishLoader")
    .Input("loader: variant")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc("Builds the index of what was loaded; fails if it cannot be rows of this rank.");

REGISTER_OP("Tfsparse>LoadRows")
    .Input("table: resource")
    .Input("keys: int64")
    .Input("rows: float")
    .Input("optimizer: string")
    .Input("arguments: float")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRank(c, 1, 1));
      TF_RETURN_IF_ERROR(CheckRank(c, 2, 2));
      TF_RETURN_IF_ERROR(CheckRank(c, 3, 0));
      TF_RETURN_IF_ERROR(CheckRank(c, 4, 1));
      return NoOutputs(c);
    })
    .Doc(R"doc(
Puts rows in the place of all rows of the table.

keys: [n], of this rank, in the order of their hashes, as Scan gives them.
rows: [n, row_floats].
optimizer, arguments: of Describe. After "none" a table that has an optimizer keeps it, and
  slots begin as those of new rows.
)doc");

REGISTER_OP("Tfsparse>ReplaceRows")
    .Input("table: resource")
    .Input("loader: variant")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc("Puts what was loaded and finished in the place of all rows, and of the optimizer.");

}  // namespace tfsparse
