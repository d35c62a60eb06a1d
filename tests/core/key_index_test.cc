#include "core/key_index.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "random.h"
#include "testing.h"

namespace tfsparse {
namespace {

using testing::Random;

constexpr Hash kAllOnes = ~Hash{0};

Hash LowestOf(BucketRange range) { return Hash{range.first} << 48; }
Hash HighestOf(BucketRange range) { return (Hash{range.last - 1} << 48) | 0xffffffffffffu; }
Hash RandomHash(BucketRange range, Random* random) {
  return (Hash{range.first + random->Below(range.size())} << 48) | (random->Next() >> 16);
}

// The first, a middle and the last shard of several numbers of ranks.
std::vector<BucketRange> Shards() {
  std::vector<BucketRange> shards;
  for (uint32_t num_ranks : {1u, 2u, 3u, 7u, 200u, 300u, 65536u}) {
    for (uint32_t rank : {0u, num_ranks / 2, num_ranks - 1}) {
      shards.push_back(BucketsOfRank(rank, num_ranks));
    }
  }
  return shards;
}

TEST(KeyIndex, FindsWhatWasInsertedInEveryShard) {
  for (BucketRange range : Shards()) {
    Random random;
    KeyIndex index(range);
    std::unordered_map<Hash, Location> reference = {{LowestOf(range), 1}, {HighestOf(range), 2}};
    while (reference.size() < 5000) {
      reference.emplace(RandomHash(range, &random), static_cast<Location>(reference.size()));
    }
    for (const auto& [hash, location] : reference) index.Insert(hash, location);
    EXPECT_EQ(index.size(), 5000u);
    for (auto& [hash, location] : reference) {
      ASSERT_EQ(index.Find(hash), location);
      if (location % 3 == 0) index.Assign(hash, location += 10000);
    }
    for (auto it = reference.begin(); it != reference.end();) {
      if (it->second % 2 == 1) {
        index.Erase(it->first);
        ASSERT_EQ(index.Find(it->first), kNowhere);
        it = reference.erase(it);
      } else {
        ++it;
      }
    }
    EXPECT_EQ(index.size(), reference.size());
    for (const auto& [hash, location] : reference) ASSERT_EQ(index.Find(hash), location);
  }
}

TEST(KeyIndex, BatchedFindEqualsSingleFind) {
  for (BucketRange range : Shards()) {
    Random random;
    KeyIndex index(range);
    std::vector<Hash> hashes = {LowestOf(range), HighestOf(range)};
    for (Location i = 0; i < 3000; ++i) {
      hashes.push_back(RandomHash(range, &random));
      hashes.push_back(RandomHash(range, &random));
      index.Insert(hashes.back(), i);
    }
    for (size_t n : {size_t{0}, size_t{1}, size_t{15}, size_t{16}, size_t{17}, hashes.size()}) {
      std::vector<Location> batched(n + 1, 77);
      index.Find(Span<const Hash>(hashes.data(), n), batched.data());
      for (size_t i = 0; i < n; ++i) ASSERT_EQ(batched[i], index.Find(hashes[i]));
      EXPECT_EQ(batched[n], 77u);
    }
  }
}

TEST(KeyIndex, VisitsInHashOrderFromAnywhere) {
  for (BucketRange range : Shards()) {
    Random random;
    KeyIndex index(range);
    std::vector<Hash> hashes = {LowestOf(range), HighestOf(range)};
    for (int i = 0; i < 1000; ++i) hashes.push_back(RandomHash(range, &random));
    for (Hash hash : hashes) index.Insert(hash, static_cast<Location>(hash % 1000003));
    std::sort(hashes.begin(), hashes.end());
    std::vector<Hash> starts = {
        0, kAllOnes, LowestOf(range), HighestOf(range), HighestOf(range) + 1, LowestOf(range) - 1};
    for (int i = 0; i < 20; ++i) starts.push_back(random.Next());
    for (int i = 0; i < 20; ++i) starts.push_back(hashes[random.Below(hashes.size())]);
    for (Hash from : starts) {
      std::vector<Hash> seen;
      index.VisitFrom(from, [&](Hash hash, Location location) {
        EXPECT_EQ(location, static_cast<Location>(hash % 1000003));
        seen.push_back(hash);
        return seen.size() < 300;
      });
      const auto begin = std::lower_bound(hashes.begin(), hashes.end(), from);
      const auto end = hashes.end() - begin > 300 ? begin + 300 : hashes.end();
      ASSERT_TRUE(seen == std::vector<Hash>(begin, end));
    }
  }
}

TEST(KeyIndex, KeyCostsAtMost16Bytes) {
  Random random;
  KeyIndex index(BucketRange{});
  for (size_t size : {100000, 1000000, 1500000, 2000000, 3000000, 4000000}) {
    while (index.size() < size) {
      // Hashes drawn at random differ: two of 2^22 are equal once in 2^21 seeds.
      for (size_t i = size - index.size(); i > 0; --i) index.Insert(random.Next(), 0);
    }
    EXPECT_NEAR(static_cast<double>(index.bytes()) / size, 14.8, 1.2);
  }
}

TEST(KeyIndex, KeyOfASmallShardCostsAtMost16Bytes) {
  for (uint32_t num_ranks : {2u, 3u, 7u, 200u}) {
    const BucketRange range = BucketsOfRank(num_ranks / 2, num_ranks);
    Random random;
    KeyIndex index(range);
    for (size_t i = 0; i < 300000; ++i) index.Insert(RandomHash(range, &random), 0);
    EXPECT_TRUE(index.bytes() <= 16 * index.size());
  }
}

// With uniform hashes equal thresholds would let all sub-indexes grow in one batch, which then
// moves every key. Staggered, a batch that makes the index larger by a factor f meets
// log(f) / log(1.15) of them. A sub-index that grows gets 15 % more bytes, which tells how many.
TEST(KeyIndex, NoBatchMovesMuchMoreThanItsShare) {
  for (uint32_t num_ranks : {1u, 2u, 3u, 7u}) {
    const BucketRange range = BucketsOfRank(num_ranks - 1, num_ranks);
    Random random;
    KeyIndex index(range);
    constexpr size_t kBatch = 10000;
    for (size_t size = 0; size < 1000000; size += kBatch) {
      const auto before = static_cast<double>(index.bytes());
      for (size_t i = 0; i < kBatch; ++i) index.Insert(RandomHash(range, &random), 0);
      if (size < 100000) continue;
      const double moved = (static_cast<double>(index.bytes()) / before - 1) / 0.15;
      const double share = std::log(1.0 + static_cast<double>(kBatch) / size) / std::log(1.15);
      EXPECT_TRUE(moved <= 1.5 * share + 0.02);
    }
  }
}

}  // namespace
}  // namespace tfsparse
