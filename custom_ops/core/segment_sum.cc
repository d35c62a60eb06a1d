#include "core/segment_sum.h"

#include <algorithm>
#include <cstring>

#include "core/multiversion.h"
#include "core/prefetch.h"

namespace tfsparse {
namespace {

constexpr size_t kAhead = 16;

TFSPARSE_MULTIVERSION
void AddRow(size_t dim, const float* __restrict from, float* __restrict to) {
  for (size_t j = 0; j < dim; ++j) to[j] += from[j];
}

}  // namespace

void SegmentSum(const float* values, Span<const int32_t> positions, size_t dim, size_t num_sums,
                Executor* executor, float* sums) {
  const size_t n = positions.size();
  // Each thread owns a range of sums and passes over all positions, so no sum is split.
  const size_t unit_ns = 1 + n * dim / (4 * std::max(num_sums, size_t{1}));
  executor->ParallelFor(num_sums, unit_ns, [&](size_t begin, size_t end) {
    std::memset(sums + begin * dim, 0, (end - begin) * dim * sizeof(float));
    for (size_t i = 0; i < n; ++i) {
      if (i + kAhead < n) PrefetchRow(sums + positions[i + kAhead] * dim, dim * sizeof(float));
      const auto p = static_cast<size_t>(positions[i]);
      if (p < begin || p >= end) continue;
      AddRow(dim, values + i * dim, sums + p * dim);
    }
  });
}

void Expand(const float* rows, Span<const int32_t> positions, size_t dim, Executor* executor,
            float* out) {
  executor->ParallelFor(positions.size(), 5 + dim / 4, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      if (i + kAhead < end) {
        PrefetchRow(rows + positions[i + kAhead] * dim, dim * sizeof(float));
      }
      std::memcpy(out + i * dim, rows + positions[i] * dim, dim * sizeof(float));
    }
  });
}

}  // namespace tfsparse
