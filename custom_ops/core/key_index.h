#ifndef TFSPARSE_CORE_KEY_INDEX_H_
#define TFSPARSE_CORE_KEY_INDEX_H_

#include <vector>

#include "core/executor.h"
#include "core/ownership.h"
#include "core/prefetch.h"
#include "core/sub_index.h"

namespace tfsparse {

// KeyIndex maps the hashes of one shard to locations: 256 sub-indexes, each over consecutive
// buckets, so that the whole is in hash order too and a growth moves 1/256 of the keys.
//
// It owns no rows and takes no locks. Find() and VisitFrom() may run together; Insert(),
// Assign() and Erase() may run together only on different sub-indexes.
class KeyIndex {
 public:
  explicit KeyIndex(BucketRange buckets);

  // locations[i] = the location of hashes[i], or kNowhere. All hashes must be in the shard.
  void Find(Span<const Hash> hashes, Location* locations) const;
  Location Find(Hash hash) const { return SubIndexOf(hash).Find(hash); }
  void Prefetch(Hash hash) const { tfsparse::Prefetch(SubIndexOf(hash).Home(hash)); }

  void Insert(Hash hash, Location location) { SubIndexOf(hash).Insert(hash, location); }
  void Assign(Hash hash, Location location) { SubIndexOf(hash).Assign(hash, location); }
  void Erase(Hash hash) { SubIndexOf(hash).Erase(hash); }

  // Fills an empty index: the i-th of `hashes`, which ascend, gets location i. Throws
  // std::bad_alloc when there is no memory; some of them are then in the index.
  void Fill(Span<const Hash> hashes, Executor* executor);

  // Calls visit(hash, location) for all hashes >= `from` in hash order, until it returns false.
  template <typename Visitor>
  void VisitFrom(Hash from, const Visitor& visit) const {
    if (BucketOf(from) >= buckets_.last) return;
    const size_t start = BucketOf(from) < buckets_.first ? 0 : NumberOf(from);
    for (size_t i = start; i < subs_.size(); ++i) {
      if (!subs_[i].VisitFrom(from, visit)) return;
    }
  }

  const BucketRange& buckets() const { return buckets_; }
  size_t size() const;   // keys, provisional ones included
  size_t bytes() const;  // of slots

 private:
  size_t NumberOf(Hash hash) const {
    return (uint64_t{BucketOf(hash) - buckets_.first} * subs_per_bucket_) >> 32;
  }
  const SubIndex& SubIndexOf(Hash hash) const { return subs_[NumberOf(hash)]; }
  SubIndex& SubIndexOf(Hash hash) { return subs_[NumberOf(hash)]; }

  BucketRange buckets_;
  uint64_t subs_per_bucket_;  // 32-bit fixed point
  std::vector<SubIndex> subs_;
};

}  // namespace tfsparse

#endif  // TFSPARSE_CORE_KEY_INDEX_H_
