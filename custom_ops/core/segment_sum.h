#ifndef TFSPARSE_CORE_SEGMENT_SUM_H_
#define TFSPARSE_CORE_SEGMENT_SUM_H_

#include "core/executor.h"
#include "core/types.h"

namespace tfsparse {

// sums[p] = the sum of values[i] over all i with positions[i] == p, added in the order of i:
// the same bits on any number of threads.
//   values     [positions.size(), dim], row-major
//   positions  each in [0, num_sums)
//   sums       [num_sums, dim], row-major; zero where no position points
void SegmentSum(const float* values, Span<const int32_t> positions, size_t dim, size_t num_sums,
                Executor* executor, float* sums);

// out[i] = rows[positions[i]]: out [positions.size(), dim], rows [any, dim].
void Expand(const float* rows, Span<const int32_t> positions, size_t dim, Executor* executor,
            float* out);

}  // namespace tfsparse

#endif  // TFSPARSE_CORE_SEGMENT_SUM_H_
