#ifndef TFSPARSE_CORE_OWNERSHIP_H_
#define TFSPARSE_CORE_OWNERSHIP_H_

#include "core/mix.h"

namespace tfsparse {

// Keys fall into 65,536 logical buckets, the top 16 bits of their hash. Buckets are the unit
// in which a table is spread over ranks, stored and moved; the number is frozen.
constexpr uint32_t kNumBuckets = 1u << 16;

inline uint32_t BucketOf(Hash hash) { return static_cast<uint32_t>(hash >> 48); }

// Consecutive buckets [first, last). Rank r of n owns BucketsOfRank(r, n); the ranges of all
// ranks tile [0, kNumBuckets), in rank order and within one bucket of equal size.
struct BucketRange {
  uint32_t first = 0;
  uint32_t last = kNumBuckets;

  uint32_t size() const { return last - first; }
  bool Contains(Hash hash) const { return BucketOf(hash) >= first && BucketOf(hash) < last; }
};

inline uint32_t FirstBucketOfRank(uint32_t rank, uint32_t num_ranks) {
  return static_cast<uint32_t>((uint64_t{rank} * kNumBuckets + num_ranks - 1) / num_ranks);
}

inline BucketRange BucketsOfRank(uint32_t rank, uint32_t num_ranks) {
  return {FirstBucketOfRank(rank, num_ranks), FirstBucketOfRank(rank + 1, num_ranks)};
}

// The rank whose BucketsOfRank() holds `hash`. It grows with the hash, so keys in hash order
// are also in rank order.
inline uint32_t OwnerOf(Hash hash, uint32_t num_ranks) {
  return static_cast<uint32_t>((uint64_t{BucketOf(hash)} * num_ranks) >> 16);
}

}  // namespace tfsparse

#endif  // TFSPARSE_CORE_OWNERSHIP_H_
