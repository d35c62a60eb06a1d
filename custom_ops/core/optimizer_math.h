#ifndef TFSPARSE_CORE_OPTIMIZER_MATH_H_
#define TFSPARSE_CORE_OPTIMIZER_MATH_H_

#include <cmath>

// The formulas of the optimizers, one element at a time, written once for host and device code.
// They are Keras's: elements of one row are independent, so any order and width of execution
// gives the same bits.
#if defined(__CUDACC__)
#define TFSPARSE_HOST_DEVICE __host__ __device__
#else
#define TFSPARSE_HOST_DEVICE
#endif

namespace tfsparse {

TFSPARSE_HOST_DEVICE inline void SgdElement(float gradient, float learning_rate, float* parameter) {
  *parameter -= learning_rate * gradient;
}

// Duchi, Hazan, Singer 2011, with Keras's epsilon inside the root.
TFSPARSE_HOST_DEVICE inline void AdagradElement(float gradient, float learning_rate, float epsilon,
                                                float* accumulator, float* parameter) {
  *accumulator += gradient * gradient;
  *parameter -= learning_rate * gradient / sqrtf(*accumulator + epsilon);
}

// Kingma, Ba 2015, in the efficient form at the end of their section 2. `step_size` is
// learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t), where t counts the updates of this row.
TFSPARSE_HOST_DEVICE inline void AdamElement(float gradient, float step_size,
                                             float one_minus_beta_1, float one_minus_beta_2,
                                             float epsilon, float* m, float* v, float* parameter) {
  *m += (gradient - *m) * one_minus_beta_1;
  *v += (gradient * gradient - *v) * one_minus_beta_2;
  *parameter -= *m * step_size / (sqrtf(*v) + epsilon);
}

}  // namespace tfsparse

#endif  // TFSPARSE_CORE_OPTIMIZER_MATH_H_
