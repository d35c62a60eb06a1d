// The ops that make a table, look at it and change it. Kernels: kernels/table_ops.cc.

#include "schema/shapes.h"
#include "tensorflow/core/framework/op.h"

namespace tfsparse {

using tensorflow::shape_inference::ScalarShape;

REGISTER_OP("Tfsparse>Table")
    .Attr("table_name: string")
    .Attr("dim: int")
    .Attr("rank: int")
    .Attr("num_ranks: int")
    .Attr("seed: int")
    .Attr("initializer: string")
    .Attr("initializer_arguments: list(float)")
    .Attr("default_value: float")
    .Output("table: resource")
    .SetIsStateful()
    .SetShapeFn(ScalarShape)
    .Doc(R"doc(
Makes one rank's shard of a table, empty and without an optimizer.

The shard lives as long as the handle. See core/table.h for the options.

table: the handle every other op takes.
)doc");

REGISTER_OP("Tfsparse>Bind")
    .Input("table: resource")
    .Attr("optimizer: string")
    .Attr("arguments: list(float)")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Gives the table its optimizer; rows that exist get slots.

Binding the same optimizer again does nothing; another one is an error.
)doc");

REGISTER_OP("Tfsparse>Stage")
    .Input("table: resource")
    .Input("keys: int64")
    .Attr("distinct: bool = false")
    .Output("plan: variant")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRank(c, 1, 1));
      return ScalarShape(c);
    })
    .Doc(R"doc(
Finds the rows of keys and reserves provisional ones for keys that are new.

keys: [m], all owned by this rank. They may repeat, unless `distinct` promises otherwise.
plan: where the rows are; it owns the provisional rows.
)doc");

REGISTER_OP("Tfsparse>ReadPlan")
    .Input("table: resource")
    .Input("plan: variant")
    .Attr("dim: int")
    .Output("rows: float")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) { return RowsShape(c, c->UnknownDim()); })
    .Doc(R"doc(
Copies the parameters of a plan's rows.

rows: [m, dim], in the order of the keys the plan was staged for.
)doc");

REGISTER_OP("Tfsparse>Lookup")
    .Input("table: resource")
    .Input("keys: int64")
    .Attr("dim: int")
    .Output("rows: float")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRank(c, 1, 1));
      return RowsShape(c, c->Dim(c->input(1), 0));
    })
    .Doc(R"doc(
Copies the parameters of committed keys, and the table's default for all others.

keys: [m], all owned by this rank; they may repeat.
rows: [m, dim].
)doc");

REGISTER_OP("Tfsparse>Apply")
    .Input("table: resource")
    .Input("keys: int64")
    .Input("gradients: float")
    .Input("learning_rate: float")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRank(c, 1, 1));
      TF_RETURN_IF_ERROR(CheckRank(c, 2, 2));
      TF_RETURN_IF_ERROR(CheckRank(c, 3, 0));
      return NoOutputs(c);
    })
    .Doc(R"doc(
Applies one step of the bound optimizer to the rows of keys, and commits them.

keys: [u], distinct, owned by this rank; new ones get a row.
gradients: [u, dim], summed over everything that used the key in this step.
)doc");

REGISTER_OP("Tfsparse>SetRows")
    .Input("table: resource")
    .Input("plan: variant")
    .Input("rows: float")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRank(c, 1, 0));
      TF_RETURN_IF_ERROR(CheckRank(c, 2, 2));
      return NoOutputs(c);
    })
    .Doc(R"doc(
Gives the rows of a plan their values, and commits them.

plan: of distinct keys, [u].
rows: [u, dim], and slots begin as those of new rows; or [u, floats of a row], slots included.
)doc");

REGISTER_OP("Tfsparse>Size")
    .Input("table: resource")
    .Output("size: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarShape)
    .Doc("The number of committed rows of this rank.");

REGISTER_OP("Tfsparse>Scan")
    .Input("table: resource")
    .Input("start: int64")
    .Input("max_rows: int64")
    .Output("keys: int64")
    .Output("rows: float")
    .Output("next: int64")
    .Output("done: bool")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(CheckRank(c, 1, 0));
      TF_RETURN_IF_ERROR(CheckRank(c, 2, 0));
      c->set_output(0, c->Vector(c->UnknownDim()));
      c->set_output(1, c->Matrix(c->UnknownDim(), c->UnknownDim()));
      c->set_output(2, c->Scalar());
      c->set_output(3, c->Scalar());
      return absl::OkStatus();
    })
    .Doc(R"doc(
The next block of committed rows, in the order of the keys' hashes.

start: 0 for the first block, afterwards `next` of the block before.
keys: [r], r <= max_rows.
rows: [r, row_floats], parameters and slots.
done: true when nothing follows this block.
)doc");

REGISTER_OP("Tfsparse>Stats")
    .Input("table: resource")
    .Output("stats: int64")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Vector(5));
      return absl::OkStatus();
    })
    .Doc("Of this rank: rows, provisional rows, bytes of one row, of the index, of the pages.");

}  // namespace tfsparse
