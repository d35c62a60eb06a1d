#include "core/ownership.h"

#include "testing.h"

namespace tfsparse {
namespace {

constexpr uint32_t kBuckets = 65536;

std::vector<uint32_t> RankCounts() {
  std::vector<uint32_t> counts;
  for (uint32_t n = 1; n <= 130; ++n) counts.push_back(n);
  for (uint32_t n : {255u, 256u, 257u, 1000u, 4096u, 32767u, 65535u, 65536u}) counts.push_back(n);
  return counts;
}

TEST(Ownership, RangesTileAllBuckets) {
  for (uint32_t n : RankCounts()) {
    uint32_t next = 0;
    for (uint32_t rank = 0; rank < n; ++rank) {
      const BucketRange range = BucketsOfRank(rank, n);
      ASSERT_EQ(range.first, next);
      ASSERT_TRUE(range.size() == kBuckets / n || range.size() == kBuckets / n + 1);
      next = range.last;
    }
    EXPECT_EQ(next, kBuckets);
  }
}

TEST(Ownership, OwnerIsTheRankWhoseRangeHoldsTheHash) {
  for (uint32_t n : RankCounts()) {
    for (uint32_t rank = 0; rank < n; ++rank) {
      const BucketRange range = BucketsOfRank(rank, n);
      const Hash lowest = Hash{range.first} << 48;
      const Hash highest = (Hash{range.last - 1} << 48) | 0xffffffffffffu;
      ASSERT_EQ(OwnerOf(lowest, n), rank);
      ASSERT_EQ(OwnerOf(highest, n), rank);
      ASSERT_TRUE(range.Contains(lowest) && range.Contains(highest));
      if (rank > 0) ASSERT_TRUE(!range.Contains(lowest - 1));
      if (rank + 1 < n) ASSERT_TRUE(!range.Contains(highest + 1));
    }
  }
}

// floor(bucket * num_ranks / 65536), the bucket being the top 16 bits of the golden hash of the
// key in mix_test.cc: 0x0000, 0x5692, 0xdbd2, 0xb4d0, 0xa759.
TEST(Ownership, OwnersAreFrozen) {
  struct Golden {
    Key key;
    uint32_t of_2, of_3, of_7, of_128, of_65536;
  };
  for (const Golden& golden : {Golden{0, 0, 0, 0, 0, 0x0000}, Golden{1, 0, 1, 2, 43, 0x5692},
                               Golden{2, 1, 2, 6, 109, 0xdbd2}, Golden{-1, 1, 2, 4, 90, 0xb4d0},
                               Golden{42, 1, 1, 4, 83, 0xa759}}) {
    EXPECT_EQ(OwnerOf(HashOf(golden.key), 1), 0u);
    EXPECT_EQ(OwnerOf(HashOf(golden.key), 2), golden.of_2);
    EXPECT_EQ(OwnerOf(HashOf(golden.key), 3), golden.of_3);
    EXPECT_EQ(OwnerOf(HashOf(golden.key), 7), golden.of_7);
    EXPECT_EQ(OwnerOf(HashOf(golden.key), 128), golden.of_128);
    EXPECT_EQ(OwnerOf(HashOf(golden.key), 65536), golden.of_65536);
  }
}

TEST(Ownership, ThreeRanksShareTheBucketsAs21846And21845And21845) {
  EXPECT_EQ(BucketsOfRank(0, 3).last, 21846u);
  EXPECT_EQ(BucketsOfRank(1, 3).last, 43691u);
  EXPECT_EQ(BucketsOfRank(2, 3).last, 65536u);
}

}  // namespace
}  // namespace tfsparse
