#include "kernels/convert.h"

#include <new>

namespace tfsparse {

namespace tf = ::tensorflow;

tf::Status ToTensorFlow(const Status& status) {
  switch (status.code()) {
    case Code::kOk:
      return tf::OkStatus();
    case Code::kInvalidArgument:
      return tf::errors::InvalidArgument(status.message());
    case Code::kFailedPrecondition:
      return tf::errors::FailedPrecondition(status.message());
    case Code::kResourceExhausted:
      return tf::errors::ResourceExhausted(status.message());
  }
  return tf::errors::Internal(status.message());
}

void Kernel::Compute(tf::OpKernelContext* ctx) {
  try {
    Run(ctx);
  } catch (const std::bad_alloc&) {
    ctx->SetStatus(tf::errors::ResourceExhausted(
        name(), ": no memory for this batch; the table is as it was before."));
  }
}

void PoolExecutor::ParallelFor(size_t n, size_t unit_ns, LoopBody work) {
  constexpr int64_t kCyclesPerNs = 3;
  auto* const pool = ctx_->device()->tensorflow_cpu_worker_threads()->workers;
  pool->ParallelFor(static_cast<int64_t>(n), static_cast<int64_t>(unit_ns) * kCyclesPerNs,
                    [&work](int64_t begin, int64_t end) {
                      work(static_cast<size_t>(begin), static_cast<size_t>(end));
                    });
}

tf::Status RowsFrom(tf::OpKernelContext* ctx, int i, size_t num_rows, size_t dim,
                    const float** rows) {
  const tf::Tensor& tensor = ctx->input(i);
  const tf::TensorShape wanted({static_cast<int64_t>(num_rows), static_cast<int64_t>(dim)});
  if (tensor.shape() != wanted) {
    return tf::errors::InvalidArgument(
        "Input ", i, " of ", ctx->op_kernel().name(), " must have shape ", wanted.DebugString(),
        ", one row per key. Received: ", tensor.shape().DebugString(), ".");
  }
  *rows = tensor.flat<float>().data();
  return tf::OkStatus();
}

tf::Status AllocateRows(tf::OpKernelContext* ctx, int i, size_t num_rows, size_t dim,
                        float** rows) {
  tf::Tensor* tensor;
  TF_RETURN_IF_ERROR(ctx->allocate_output(
      i, tf::TensorShape({static_cast<int64_t>(num_rows), static_cast<int64_t>(dim)}), &tensor));
  *rows = tensor->flat<float>().data();
  return tf::OkStatus();
}

}  // namespace tfsparse
