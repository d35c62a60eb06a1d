#ifndef TFSPARSE_SCHEMA_SHAPES_H_
#define TFSPARSE_SCHEMA_SHAPES_H_

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tfsparse {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::NoOutputs;

// An error unless input `i` has (or may still turn out to have) the rank.
inline absl::Status CheckRank(InferenceContext* c, int i, int rank) {
  tensorflow::shape_inference::ShapeHandle unused;
  return c->WithRank(c->input(i), rank, &unused);
}

// Output 0 is [num_rows, the attribute `dim`].
inline absl::Status RowsShape(InferenceContext* c, DimensionHandle num_rows) {
  int64_t dim;
  TF_RETURN_IF_ERROR(c->GetAttr("dim", &dim));
  c->set_output(0, c->Matrix(num_rows, c->MakeDim(dim)));
  return absl::OkStatus();
}

}  // namespace tfsparse

#endif  // TFSPARSE_SCHEMA_SHAPES_H_
