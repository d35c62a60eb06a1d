#include "core/sub_index.h"

#include <algorithm>
#include <map>
#include <new>

#include "allocation_failure.h"
#include "random.h"
#include "testing.h"

namespace tfsparse {
namespace {

using testing::Random;

constexpr Hash kAllOnes = ~Hash{0};
using Reference = std::map<Hash, Location>;

std::vector<std::pair<Hash, Location>> EntriesFrom(const SubIndex& index, Hash from,
                                                   size_t most = ~size_t{0}) {
  std::vector<std::pair<Hash, Location>> entries;
  index.VisitFrom(from, [&](Hash hash, Location location) {
    entries.emplace_back(hash, location);
    return entries.size() < most;
  });
  return entries;
}

void ExpectSame(const SubIndex& index, const Reference& reference) {
  EXPECT_EQ(index.size(), reference.size());
  const auto entries = EntriesFrom(index, 0);
  EXPECT_TRUE(std::equal(
      entries.begin(), entries.end(), reference.begin(), reference.end(),
      [](const auto& a, const auto& b) { return a.first == b.first && a.second == b.second; }));
  for (const auto& [hash, location] : reference) ASSERT_EQ(index.Find(hash), location);
}

// Inserts, finds, assigns and erases hashes that draw() gives, in phases that grow and shrink.
template <typename Draw>
void ExpectBehavesAsMap(SubIndex* index, size_t num_operations, const Draw& draw) {
  Random random;
  Reference reference;
  for (size_t i = 0; i < num_operations; ++i) {
    const Hash hash = draw(&random);
    const bool present = reference.count(hash) > 0;
    ASSERT_EQ(index->Find(hash), present ? reference[hash] : kNowhere);
    const bool shrinking = i % 1000 >= 700;
    if (!present && !shrinking) {
      const auto location = static_cast<Location>(random.Below(kMaxRows));
      index->Insert(hash, location);
      reference[hash] = location;
    } else if (present && shrinking) {
      index->Erase(hash);
      reference.erase(hash);
    } else if (present) {
      const Location location = static_cast<Location>(random.Below(kMaxRows)) | kProvisional;
      index->Assign(hash, location);
      reference[hash] = location;
    }
    if (i % (num_operations / 20) == 0) ExpectSame(*index, reference);
  }
  ExpectSame(*index, reference);
  while (!reference.empty()) {
    index->Erase(reference.begin()->first);
    reference.erase(reference.begin());
    if (reference.size() % 500 == 0) ExpectSame(*index, reference);
  }
}

TEST(SubIndex, FilledEqualsInserted) {
  // From 50 on hashes that are neighbours, which no number of homes sets apart.
  for (size_t n : {0, 1, 13, 14, 1000, 20000}) {
    for (const Hash stride : {Hash{1}, kAllOnes / (n + 2)}) {
      SubIndex filled(0, kAllOnes, 0.5), inserted(0, kAllOnes, 0.5);
      std::vector<Hash> hashes;
      for (size_t i = 0; i < std::min<size_t>(n, stride == 1 ? 300 : n); ++i) {
        hashes.push_back(50 + i * stride);
      }
      filled.Fill(hashes, 7);
      Reference reference;
      for (size_t i = 0; i < hashes.size(); ++i) {
        inserted.Insert(hashes[i], 7 + i);
        reference[hashes[i]] = 7 + i;
      }
      ExpectSame(filled, reference);
      EXPECT_EQ(filled.bytes(), inserted.bytes());
      if (hashes.empty()) continue;
      filled.Insert(3, 1);
      reference[3] = 1;
      filled.Erase(hashes.back());
      reference.erase(hashes.back());
      ExpectSame(filled, reference);
    }
  }
}

TEST(SubIndex, EmptyFindsNothingAndCostsNothing) {
  const SubIndex index(0, kAllOnes, 0);
  for (Hash hash : {Hash{0}, Hash{12345}, kAllOnes}) EXPECT_EQ(index.Find(hash), kNowhere);
  EXPECT_EQ(index.size(), 0u);
  EXPECT_EQ(index.bytes(), 0u);
  EXPECT_TRUE(EntriesFrom(index, 0).empty());
}

TEST(SubIndex, ZeroAndAllOnesAreOrdinaryHashes) {
  SubIndex index(0, kAllOnes, 0);
  index.Insert(kAllOnes, 7);
  EXPECT_EQ(index.Find(0), kNowhere);
  EXPECT_EQ(index.Find(kAllOnes), 7u);
  EXPECT_EQ(index.Find(kAllOnes - 1), kNowhere);
  index.Insert(0, 8);
  index.Insert(kAllOnes - 1, 9);
  ExpectSame(index, {{0, 8}, {kAllOnes - 1, 9}, {kAllOnes, 7}});
  index.Assign(kAllOnes, 10);
  index.Erase(kAllOnes - 1);
  ExpectSame(index, {{0, 8}, {kAllOnes, 10}});
  index.Erase(kAllOnes);
  index.Erase(0);
  ExpectSame(index, {});
}

TEST(SubIndex, BehavesAsMapOnUniformHashes) {
  SubIndex index(0, kAllOnes, 0);
  std::vector<Hash> known;
  ExpectBehavesAsMap(&index, 40000, [&](Random* random) {
    if (known.empty() || random->OneIn(2)) {
      known.push_back(random->Next());
      return known.back();
    }
    return known[random->Below(known.size())];
  });
}

TEST(SubIndex, BehavesAsMapOnARangeOfOneBucket) {
  const Hash first = Hash{0xabcd} << 48;
  SubIndex index(first, first | 0xffffffffffffu, 0.3);
  ExpectBehavesAsMap(&index, 20000,
                     [&](Random* random) { return first + (Hash{random->Below(3000)} << 36); });
}

// Ten neighbours share a home, so that runs reach over the homes of the next ones.
TEST(SubIndex, BehavesAsMapOnCrowdedHashes) {
  SubIndex index(0, kAllOnes, 0.7);
  ExpectBehavesAsMap(&index, 20000, [](Random* random) {
    return (Hash{random->Below(100)} << 57) + random->Below(10);
  });
}

// All have one of the last homes, and stand in the slack behind it.
TEST(SubIndex, BehavesAsMapAtTheEndOfItsRange) {
  for (Hash last : {kAllOnes, (Hash{1} << 56) - 1}) {
    SubIndex index(last - ((Hash{1} << 56) - 1), last, 0);
    ExpectBehavesAsMap(&index, 5000, [&](Random* random) { return last - random->Below(40); });
  }
}

// Ids can be chosen so that their hashes crowd anywhere. That may cost time, never the memory:
// 2,000 hashes take 2,000 / 0.75 homes and at most twice as many slots behind as there are hashes.
TEST(SubIndex, HashesCrowdedAtTheEndOfItsRangeFit) {
  for (Hash step : {Hash{1}, Hash{1} << 34, Hash{1} << 41}) {
    SubIndex index(Hash{255} << 56, kAllOnes, 0);
    Reference reference;
    for (Location i = 0; i < 2000; ++i) {
      index.Insert(kAllOnes - i * step, i);
      reference[kAllOnes - i * step] = i;
      ASSERT_TRUE(index.bytes() <= (2700 + 4001) * 12);
    }
    ExpectSame(index, reference);
  }
}

TEST(SubIndex, HoldsTwoHundredThousandHashes) {
  const Hash last = (Hash{1} << 56) - 1;
  SubIndex index(0, last, 0.5);
  Random random;
  Reference reference;
  while (reference.size() < 200000) {
    const Hash hash = random.Next() & last;
    const auto location = static_cast<Location>(reference.size());
    if (reference.emplace(hash, location).second) index.Insert(hash, location);
  }
  ExpectSame(index, reference);
  for (auto it = reference.begin(); it != reference.end();) {
    if (random.OneIn(2)) {
      index.Erase(it->first);
      it = reference.erase(it);
    } else {
      ++it;
    }
  }
  ExpectSame(index, reference);
}

TEST(SubIndex, VisitStopsAndResumesAnywhere) {
  Random random;
  SubIndex index(1000, kAllOnes, 0);
  Reference reference;
  for (Location i = 0; i < 1000; ++i) {
    const Hash hash = i < 100 ? 2000 + i : random.Next();
    if (reference.emplace(hash, i).second) index.Insert(hash, i);
  }
  for (Hash from : {Hash{0}, Hash{1000}, Hash{1999}, Hash{2050}, Hash{1} << 62, kAllOnes}) {
    Reference seen;
    while (true) {
      const auto block = EntriesFrom(index, from, 7);
      seen.insert(block.begin(), block.end());
      if (block.size() < 7) break;
      from = block.back().first + 1;
    }
    const Hash first_seen = seen.empty() ? kAllOnes : seen.begin()->first;
    EXPECT_TRUE(seen == Reference(reference.lower_bound(first_seen), reference.end()));
  }
  for (const auto& [hash, location] : reference) {
    ASSERT_EQ(EntriesFrom(index, hash, 1).at(0).second, location);
    const auto next = reference.upper_bound(hash);
    const auto after = EntriesFrom(index, hash + 1, 1);
    ASSERT_EQ(after.size(), next == reference.end() ? 0u : 1u);
    if (!after.empty()) ASSERT_EQ(after[0].first, next->first);
  }
}

TEST(SubIndex, KeyCostsAtMost16BytesWhileItGrows) {
  for (double phase : {0.0, 0.5, 0.999}) {
    Random random;
    SubIndex index(0, kAllOnes, phase);
    for (Location i = 0; i < 100000; ++i) {
      index.Insert(random.Next(), i);
      if (index.size() > 4096) ASSERT_TRUE(index.bytes() <= 16 * index.size());
    }
  }
}

TEST(SubIndex, InsertWithoutMemoryChangesNothing) {
  if (!testing::MallocFails()) return;
  Random random;
  SubIndex index(0, kAllOnes, 0);
  Reference reference;
  int failures = 0;
  while (reference.size() < 1000) {
    const Hash hash = random.Next();
    bool failed = false;
    try {
      testing::AllocationFailure failure(0);
      index.Insert(hash, 1);
    } catch (const std::bad_alloc&) {
      failed = true;
    }
    if (failed) {
      ++failures;
      ExpectSame(index, reference);
      index.Insert(hash, 1);
    }
    reference[hash] = 1;
  }
  ExpectSame(index, reference);
  EXPECT_TRUE(failures > 20);  // 16 homes to 1,150 in steps of 15 %
}

TEST(SubIndex, PhaseShiftsTheGrowth) {
  std::vector<size_t> sizes_at_growth;
  for (double phase : {0.0, 0.25, 0.5, 0.75}) {
    Random random;
    SubIndex index(0, kAllOnes, phase);
    for (Location i = 0; i < 10000; ++i) index.Insert(random.Next(), i);
    const size_t bytes = index.bytes();
    while (index.bytes() == bytes) index.Insert(random.Next(), 0);
    sizes_at_growth.push_back(index.size());
  }
  // A quarter of a growth by 15 % is 3.6 %.
  std::sort(sizes_at_growth.begin(), sizes_at_growth.end());
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_NEAR(static_cast<double>(sizes_at_growth[i]) / sizes_at_growth[i - 1], 1.036, 0.004);
  }
}

}  // namespace
}  // namespace tfsparse
