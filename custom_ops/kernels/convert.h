#ifndef TFSPARSE_KERNELS_CONVERT_H_
#define TFSPARSE_KERNELS_CONVERT_H_

#include <algorithm>

#include "core/executor.h"
#include "core/status.h"
#include "core/types.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tfsparse {

// Between TensorFlow's types and the core's.

#define TFSPARSE_REGISTER(op, kernel) \
  REGISTER_KERNEL_BUILDER(Name("Tfsparse>" op).Device(::tensorflow::DEVICE_CPU), kernel)

tensorflow::Status ToTensorFlow(const Status& status);

// What all kernels derive from: running out of memory in Run() is an error of the op. The core's
// calls say so themselves; this is for what kernels allocate around them.
class Kernel : public tensorflow::OpKernel {
 public:
  using tensorflow::OpKernel::OpKernel;
  void Compute(tensorflow::OpKernelContext* ctx) final;

 protected:
  virtual void Run(tensorflow::OpKernelContext* ctx) = 0;
};

// Runs the core's loops on the pool of the op's device.
class PoolExecutor : public Executor {
 public:
  explicit PoolExecutor(tensorflow::OpKernelContext* ctx) : ctx_(ctx) {}
  void ParallelFor(size_t n, size_t unit_ns, LoopBody work) override;

 private:
  tensorflow::OpKernelContext* ctx_;
};

// A view of input `i`, which must have rank 1 (a list of T) ...
template <typename T>
tensorflow::Status ListFrom(tensorflow::OpKernelContext* ctx, int i, Span<const T>* list) {
  const tensorflow::Tensor& tensor = ctx->input(i);
  if (tensor.dims() != 1) {
    return tensorflow::errors::InvalidArgument("Input ", i, " of ", ctx->op_kernel().name(),
                                               " must have rank 1. Received: shape ",
                                               tensor.shape().DebugString(), ".");
  }
  *list = Span<const T>(tensor.flat<T>().data(), tensor.NumElements());
  return tensorflow::OkStatus();
}

// ... or be a scalar. In a graph the shape function has seen to that; eagerly nothing has.
template <typename T>
tensorflow::Status ScalarFrom(tensorflow::OpKernelContext* ctx, int i, T* scalar) {
  const tensorflow::Tensor& tensor = ctx->input(i);
  if (tensor.dims() != 0) {
    return tensorflow::errors::InvalidArgument("Input ", i, " of ", ctx->op_kernel().name(),
                                               " must be a scalar. Received: shape ",
                                               tensor.shape().DebugString(), ".");
  }
  *scalar = tensor.scalar<T>()();
  return tensorflow::OkStatus();
}

// ... or shape [num_rows, dim].
tensorflow::Status RowsFrom(tensorflow::OpKernelContext* ctx, int i, size_t num_rows, size_t dim,
                            const float** rows);

// Output `i` as [num_rows, dim] float32, to be filled.
tensorflow::Status AllocateRows(tensorflow::OpKernelContext* ctx, int i, size_t num_rows,
                                size_t dim, float** rows);

// Output `i` as a copy of `list`.
template <typename T>
tensorflow::Status OutputList(tensorflow::OpKernelContext* ctx, int i, Span<const T> list) {
  tensorflow::Tensor* tensor;
  TF_RETURN_IF_ERROR(ctx->allocate_output(
      i, tensorflow::TensorShape({static_cast<int64_t>(list.size())}), &tensor));
  std::copy(list.begin(), list.end(), tensor->flat<T>().data());
  return tensorflow::OkStatus();
}

}  // namespace tfsparse

#endif  // TFSPARSE_KERNELS_CONVERT_H_
