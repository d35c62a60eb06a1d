#include "core/segment_sum.h"

#include "random.h"
#include "testing.h"
#include "threaded_executor.h"

namespace tfsparse {
namespace {

using testing::Random;
using testing::ThreadedExecutor;
using Floats = std::vector<float>;

TEST(SegmentSum, AddsValuesOfEqualPositions) {
  SerialExecutor executor;
  const Floats values = {1, 2, 3, 4, 5, 6};
  const std::vector<int32_t> positions = {2, 0, 2};
  Floats sums(6, -7.0f);
  SegmentSum(values.data(), positions, 2, 3, &executor, sums.data());
  EXPECT_EQ(sums, (Floats{3, 4, 0, 0, 6, 8}));
}

TEST(SegmentSum, SumsThatNoPositionTouchesAreZero) {
  ThreadedExecutor executor(3);
  Floats sums(8, -7.0f);
  SegmentSum(nullptr, std::vector<int32_t>{}, 2, 4, &executor, sums.data());
  EXPECT_EQ(sums, Floats(8, 0.0f));
  SegmentSum(nullptr, std::vector<int32_t>{}, 2, 0, &executor, nullptr);
}

// 2^24 + 1 is 2^24 in floats, so the order of additions shows.
TEST(SegmentSum, AddsInTheOrderOfTheValues) {
  SerialExecutor executor;
  Floats sum(1);
  const Floats small_last = {16777216, 1, 1};
  const Floats small_first = {1, 1, 16777216};
  SegmentSum(small_last.data(), std::vector<int32_t>(3, 0), 1, 1, &executor, sum.data());
  EXPECT_EQ(sum[0], 16777216.0f);
  SegmentSum(small_first.data(), std::vector<int32_t>(3, 0), 1, 1, &executor, sum.data());
  EXPECT_EQ(sum[0], 16777218.0f);
}

TEST(SegmentSum, AnyNumberOfThreadsGivesTheBitsOfTheNaiveLoop) {
  for (size_t dim : {1, 3, 4, 16, 17, 64, 200}) {
    Random random;
    const size_t num_sums = 50;
    const size_t n = 1000;
    Floats values(n * dim);
    for (float& value : values) value = random.Between(-1, 1);
    std::vector<int32_t> positions(n);
    for (int32_t& position : positions) {
      position = static_cast<int32_t>(random.Below(num_sums - 5));  // the last five stay empty
    }
    Floats naive(num_sums * dim, 0.0f);
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < dim; ++j) naive[positions[i] * dim + j] += values[i * dim + j];
    }
    for (size_t num_threads : {1, 2, 3, 7, 50, 100}) {
      ThreadedExecutor executor(num_threads);
      Floats sums(num_sums * dim, -7.0f);
      SegmentSum(values.data(), positions, dim, num_sums, &executor, sums.data());
      ASSERT_EQ(sums, naive);
    }
  }
}

TEST(SegmentSum, OnePositionCollectsAll) {
  ThreadedExecutor executor(4);
  const Floats values(30000, 0.5f);
  Floats sum(3);
  SegmentSum(values.data(), std::vector<int32_t>(10000, 0), 3, 1, &executor, sum.data());
  EXPECT_EQ(sum, Floats(3, 5000.0f));
}

TEST(Expand, CopiesTheRowOfEachPosition) {
  SerialExecutor executor;
  const Floats rows = {1, 2, 3, 4};
  Floats out(6);
  Expand(rows.data(), std::vector<int32_t>{1, 0, 1}, 2, &executor, out.data());
  EXPECT_EQ(out, (Floats{3, 4, 1, 2, 3, 4}));
}

TEST(Expand, AnyNumberOfThreadsGivesTheSame) {
  Random random;
  const size_t dim = 5;
  Floats rows(100 * dim);
  for (float& value : rows) value = random.Between(-1, 1);
  std::vector<int32_t> positions(777);
  for (int32_t& position : positions) position = static_cast<int32_t>(random.Below(100));
  Floats naive;
  for (int32_t position : positions) {
    for (size_t j = 0; j < dim; ++j) naive.push_back(rows[position * dim + j]);
  }
  for (size_t num_threads : {1, 2, 3, 7, 100}) {
    ThreadedExecutor executor(num_threads);
    Floats out(777 * dim, -7.0f);
    Expand(rows.data(), positions, dim, &executor, out.data());
    ASSERT_EQ(out, naive);
  }
}

}  // namespace
}  // namespace tfsparse
