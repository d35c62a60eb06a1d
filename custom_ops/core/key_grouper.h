#ifndef TFSPARSE_CORE_KEY_GROUPER_H_
#define TFSPARSE_CORE_KEY_GROUPER_H_

#include <vector>

#include "core/types.h"

namespace tfsparse {

// KeyGrouper makes the keys of a batch unique and groups them by the rank that owns them. It
// owns the result and its scratch memory, and reuses both. One call at a time.
class KeyGrouper {
 public:
  // Afterwards:
  //   unique()      each distinct key once; keys of rank 0 first, then rank 1, ...; within a
  //                 rank in the order of first appearance. Grouping unique() again changes
  //                 nothing.
  //   positions()   [keys.size()]: keys[i] == unique()[positions()[i]].
  //   counts()      [num_ranks]: how many unique keys each rank owns.
  // keys.size() must be below 2^31.
  void Group(Span<const Key> keys, uint32_t num_ranks);

  const std::vector<Key>& unique() const { return unique_; }
  const std::vector<int32_t>& positions() const { return positions_; }
  const std::vector<int32_t>& counts() const { return counts_; }
  // The keys were distinct and grouped already: unique() equals them.
  bool unchanged() const;

 private:
  void MakeUnique(Span<const Key> keys);
  void SortByOwner(uint32_t num_ranks);

  std::vector<Key> unique_;
  std::vector<int32_t> positions_;
  std::vector<int32_t> counts_;
  std::vector<int32_t> slots_;  // open addressing, a power of two; position in unique_, or -1
  std::vector<Key> sorted_;
  std::vector<int32_t> moved_;
  std::vector<int32_t> next_;
};

}  // namespace tfsparse

#endif  // TFSPARSE_CORE_KEY_GROUPER_H_
