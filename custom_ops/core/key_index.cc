#include "core/key_index.h"

#include <algorithm>
#include <atomic>
#include <new>

namespace tfsparse {
namespace {

constexpr uint32_t kNumSubIndexes = 256;

// How many keys ahead the probes are prefetched. 8 to 32 measure alike.
constexpr size_t kAhead = 16;

constexpr size_t kFillNs = 5;  // a key

// The digits of `i` mirrored: 0, 1/2, 1/4, 3/4, ... so that neighbours are far apart in phase.
double VanDerCorput(uint32_t i) {
  double phase = 0;
  for (double digit = 0.5; i > 0; i >>= 1, digit /= 2) phase += (i & 1) * digit;
  return phase;
}

}  // namespace

KeyIndex::KeyIndex(BucketRange buckets) : buckets_(buckets) {
  const uint32_t num_subs = std::min(kNumSubIndexes, std::max(buckets.size(), 1u));
  subs_per_bucket_ = (uint64_t{num_subs} << 32) / std::max(buckets.size(), 1u);
  subs_.reserve(num_subs);
  uint32_t first = buckets.first;
  for (uint32_t bucket = buckets.first; bucket < buckets.last; ++bucket) {
    const bool last_of_sub = bucket + 1 == buckets.last ||
                             NumberOf(Hash{bucket + 1} << 48) != NumberOf(Hash{bucket} << 48);
    if (!last_of_sub) continue;
    const Hash last_hash = (Hash{bucket} << 48) | 0xffffffffffffu;
    subs_.emplace_back(Hash{first} << 48, last_hash,
                       VanDerCorput(static_cast<uint32_t>(subs_.size())));
    first = bucket + 1;
  }
}

void KeyIndex::Find(Span<const Hash> hashes, Location* locations) const {
  const SubIndex* subs[kAhead];
  const SubIndex::Slot* homes[kAhead];
  const size_t n = hashes.size();
  for (size_t i = 0; i < n + kAhead; ++i) {
    const size_t place = i % kAhead;
    if (i >= kAhead) {
      const size_t ready = i - kAhead;
      locations[ready] = subs[place]->Find(hashes[ready], homes[place]);
    }
    if (i < n) {
      subs[place] = &SubIndexOf(hashes[i]);
      homes[place] = subs[place]->Home(hashes[i]);
      tfsparse::Prefetch(homes[place]);
    }
  }
}

void KeyIndex::Fill(Span<const Hash> hashes, Executor* executor) {
  // Where the hashes of each sub-index begin.
  std::vector<size_t> begins = {0};
  for (size_t i = 1; i <= subs_.size(); ++i) {
    const auto* begin = std::partition_point(hashes.begin() + begins.back(), hashes.end(),
                                             [&](Hash hash) { return NumberOf(hash) < i; });
    begins.push_back(begin - hashes.begin());
  }
  std::atomic<bool> no_memory{false};
  executor->ParallelFor(subs_.size(), kFillNs * hashes.size() / subs_.size() + 1,
                        [&](size_t first, size_t last) {
                          try {
                            for (size_t i = first; i < last; ++i) {
                              subs_[i].Fill({hashes.data() + begins[i], begins[i + 1] - begins[i]},
                                            static_cast<Location>(begins[i]));
                            }
                          } catch (const std::bad_alloc&) {
                            no_memory = true;
                          }
                        });
  if (no_memory) throw std::bad_alloc();
}

size_t KeyIndex::size() const {
  size_t total = 0;
  for (const SubIndex& sub : subs_) total += sub.size();
  return total;
}

size_t KeyIndex::bytes() const {
  size_t total = 0;
  for (const SubIndex& sub : subs_) total += sub.bytes();
  return total;
}

}  // namespace tfsparse
