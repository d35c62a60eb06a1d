#include "core/key_grouper.h"

#include <algorithm>
#include <chrono>
#include <new>

#include "allocation_failure.h"
#include "core/ownership.h"
#include "random.h"
#include "testing.h"

namespace tfsparse {
namespace {

using testing::Random;
using Keys = std::vector<Key>;

// Rank after rank, each key where it is seen first.
Keys ReferenceUnique(const Keys& keys, uint32_t num_ranks) {
  Keys unique;
  for (uint32_t rank = 0; rank < num_ranks; ++rank) {
    for (Key key : keys) {
      if (OwnerOf(HashOf(key), num_ranks) != rank) continue;
      if (std::find(unique.begin(), unique.end(), key) == unique.end()) unique.push_back(key);
    }
  }
  return unique;
}

void ExpectGrouped(KeyGrouper* grouper, const Keys& keys, uint32_t num_ranks) {
  grouper->Group(keys, num_ranks);
  EXPECT_EQ(grouper->unique(), ReferenceUnique(keys, num_ranks));
  EXPECT_EQ(grouper->unchanged(), keys == grouper->unique());
  ASSERT_EQ(grouper->positions().size(), keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    ASSERT_EQ(grouper->unique().at(grouper->positions()[i]), keys[i]);
  }
  std::vector<int32_t> counts(num_ranks, 0);
  for (Key key : grouper->unique()) ++counts[OwnerOf(HashOf(key), num_ranks)];
  EXPECT_EQ(grouper->counts(), counts);
}

TEST(KeyGrouper, NoKeysGiveNoKeys) {
  KeyGrouper grouper;
  for (uint32_t num_ranks = 1; num_ranks <= 5; ++num_ranks) {
    ExpectGrouped(&grouper, {}, num_ranks);
    EXPECT_TRUE(grouper.unchanged());
  }
}

// The owners of 0, 1, 2, -1 and 42 among three ranks are 0, 1, 2, 2 and 1 (ownership_test.cc).
TEST(KeyGrouper, GroupsByRankInOrderOfFirstAppearance) {
  KeyGrouper grouper;
  grouper.Group(Keys{-1, 42, 0, 42, 2, 1, -1}, 3);
  EXPECT_EQ(grouper.unique(), (Keys{0, 42, 1, -1, 2}));
  EXPECT_EQ(grouper.positions(), (std::vector<int32_t>{3, 1, 0, 1, 4, 2, 3}));
  EXPECT_EQ(grouper.counts(), (std::vector<int32_t>{1, 2, 2}));
  EXPECT_TRUE(!grouper.unchanged());
}

TEST(KeyGrouper, OneRankKeepsTheOrderOfFirstAppearance) {
  KeyGrouper grouper;
  grouper.Group(Keys{5, -3, 5, 9, -3}, 1);
  EXPECT_EQ(grouper.unique(), (Keys{5, -3, 9}));
  EXPECT_EQ(grouper.positions(), (std::vector<int32_t>{0, 1, 0, 2, 1}));
  EXPECT_EQ(grouper.counts(), (std::vector<int32_t>{3}));
}

TEST(KeyGrouper, AgreesWithTheReferenceOnRandomKeys) {
  Random random;
  KeyGrouper grouper;  // one for all, as a kernel keeps it
  for (int round = 0; round < 100; ++round) {
    const size_t n = random.Below(400);
    const size_t num_distinct = 1 + random.Below(round % 2 == 0 ? 30 : 1000);
    Keys keys;
    for (size_t i = 0; i < n; ++i) {
      keys.push_back(static_cast<Key>((random.Below(num_distinct) - 10) << (round % 5 * 14)));
    }
    ExpectGrouped(&grouper, keys, 1 + static_cast<uint32_t>(random.Below(5)));
  }
}

TEST(KeyGrouper, SingleKeyIsUnchanged) {
  KeyGrouper grouper;
  for (Key key : {Key{0}, Key{-1}, INT64_MIN, INT64_MAX}) {
    ExpectGrouped(&grouper, {key}, 4);
    EXPECT_TRUE(grouper.unchanged());
  }
}

TEST(KeyGrouper, TenThousandEqualKeysBecomeOne) {
  KeyGrouper grouper;
  grouper.Group(Keys(10000, 7), 3);
  EXPECT_EQ(grouper.unique(), Keys{7});
  EXPECT_EQ(grouper.positions(), std::vector<int32_t>(10000, 0));
  EXPECT_TRUE(!grouper.unchanged());
}

TEST(KeyGrouper, GroupingTwiceChangesNothing) {
  Random random;
  KeyGrouper grouper;
  for (uint32_t num_ranks = 1; num_ranks <= 5; ++num_ranks) {
    Keys keys;
    for (int i = 0; i < 3000; ++i) keys.push_back(static_cast<Key>(random.Below(1000)));
    grouper.Group(keys, num_ranks);
    const Keys unique = grouper.unique();
    const std::vector<int32_t> counts = grouper.counts();
    grouper.Group(unique, num_ranks);
    EXPECT_TRUE(grouper.unchanged());
    EXPECT_EQ(grouper.unique(), unique);
    EXPECT_EQ(grouper.counts(), counts);
  }
}

// Keys that arrive at their owner lie in one range of hashes. A grouper that places them by the
// top bits of these needs n^2 / 2 probes: a second instead of a millisecond.
TEST(KeyGrouper, IsUsableAfterAnyAllocationFailed) {
  const Keys keys = {5, 6, 5, 7};
  for (uint32_t num_ranks : {1u, 2u}) {
    bool happened = true;
    for (int k = 0; happened; ++k) {
      KeyGrouper grouper;
      {
        testing::AllocationFailure failure(k);
        try {
          grouper.Group(keys, num_ranks);
        } catch (const std::bad_alloc&) {
        }
        happened = failure.happened();
      }
      ExpectGrouped(&grouper, keys, num_ranks);
    }
  }
}

TEST(KeyGrouper, KeysOfOneRankGroupAsFastAsAnyKeys) {
  constexpr size_t kKeys = 50000;
  Random random;
  KeyGrouper grouper;
  const auto seconds = [&](uint32_t num_ranks) {
    Keys keys;
    for (size_t i = 0; i < kKeys; ++i) keys.push_back(KeyOf(random.Next() / num_ranks));
    double best = 1e9;
    for (int i = 0; i < 5; ++i) {
      const auto start = std::chrono::steady_clock::now();
      grouper.Group(keys, num_ranks);
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      best = std::min(best, taken.count());
    }
    EXPECT_EQ(grouper.counts()[0], static_cast<int32_t>(kKeys));
    return best;
  };
  const double of_any_keys = seconds(1);
  EXPECT_TRUE(seconds(64) < 30 * of_any_keys);
}

}  // namespace
}  // namespace tfsparse
