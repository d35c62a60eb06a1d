#include "core/key_grouper.h"

#include <algorithm>

#include "core/ownership.h"
#include "core/prefetch.h"

namespace tfsparse {
namespace {

constexpr size_t kAhead = 16;
constexpr int32_t kFree = -1;

}  // namespace

void KeyGrouper::Group(Span<const Key> keys, uint32_t num_ranks) {
  MakeUnique(keys);
  if (num_ranks > 1) {
    SortByOwner(num_ranks);
  } else {
    counts_.assign(1, static_cast<int32_t>(unique_.size()));
  }
}

bool KeyGrouper::unchanged() const {
  if (unique_.size() != positions_.size()) return false;
  for (size_t i = 0; i < positions_.size(); ++i) {
    if (positions_[i] != static_cast<int32_t>(i)) return false;
  }
  return true;
}

void KeyGrouper::MakeUnique(Span<const Key> keys) {
  const size_t n = keys.size();
  size_t num_slots = 64;
  while (num_slots < 2 * n) num_slots *= 2;
  slots_.assign(num_slots, kFree);
  positions_.resize(n);
  unique_.clear();
  unique_.reserve(n);
  const size_t mask = num_slots - 1;
  size_t homes[kAhead];
  for (size_t i = 0; i < n + kAhead; ++i) {
    if (i >= kAhead) {
      const Key key = keys[i - kAhead];
      size_t slot = homes[i % kAhead];
      while (slots_[slot] != kFree && unique_[slots_[slot]] != key) slot = (slot + 1) & mask;
      if (slots_[slot] == kFree) {
        slots_[slot] = static_cast<int32_t>(unique_.size());
        unique_.push_back(key);
      }
      positions_[i - kAhead] = slots_[slot];
    }
    if (i < n) {
      // The low bits: the keys of one rank have their top bits in common, and would crowd.
      homes[i % kAhead] = HashOf(keys[i]) & mask;
      Prefetch(&slots_[homes[i % kAhead]]);
    }
  }
}

void KeyGrouper::SortByOwner(uint32_t num_ranks) {
  counts_.assign(num_ranks, 0);
  for (Key key : unique_) ++counts_[OwnerOf(HashOf(key), num_ranks)];
  next_.resize(num_ranks);
  int32_t start = 0;
  for (uint32_t rank = 0; rank < num_ranks; ++rank) {
    next_[rank] = start;
    start += counts_[rank];
  }
  sorted_.resize(unique_.size());
  moved_.resize(unique_.size());
  for (size_t i = 0; i < unique_.size(); ++i) {
    const int32_t to = next_[OwnerOf(HashOf(unique_[i]), num_ranks)]++;
    sorted_[to] = unique_[i];
    moved_[i] = to;
  }
  unique_.swap(sorted_);
  for (int32_t& position : positions_) position = moved_[position];
}

}  // namespace tfsparse
