#ifndef TFSPARSE_CORE_SUB_INDEX_H_
#define TFSPARSE_CORE_SUB_INDEX_H_

#include <cstdlib>
#include <memory>

#include "core/location.h"
#include "core/types.h"

namespace tfsparse {

// SubIndex maps the hashes of one range to locations, by ordered linear probing (Amble and
// Knuth, 1974): the home slot of a hash is its place in the range scaled to the capacity, and
// the slots read from left to right are in hash order, with gaps. Hence
//   - a search ends at the first hash that is not smaller, hit or miss alike;
//   - erasing shifts back and leaves no tombstone;
//   - growing copies from left to right, and a scan yields hash order, which is bucket order.
//
// It owns 12 bytes a slot and no rows. Load lies between 0.75 and 0.87, that is, at most 16
// bytes a key beside the slack of 33 slots. Nothing is allocated before the first key. Not
// thread-safe: Find() calls may run together; every other call needs the index alone.
class SubIndex {
 public:
  // A slot is free when its location is kNowhere; its hash is then all ones, which ends every
  // search. 12 bytes, so the 64-bit hash is kept in halves.
  struct Slot {
    uint32_t hash_low;
    uint32_t hash_high;
    Location location;

    Hash hash() const { return (Hash{hash_high} << 32) | hash_low; }
  };

  // `first`, `last`: the hashes it will be asked for, inclusive. `phase` in [0, 1): with uniform
  // hashes equal indexes would all grow in the same batch, so each gets another phase of the
  // growth cycle.
  SubIndex(Hash first, Hash last, double phase);

  // The location of `hash`, or kNowhere. `home` comes from Home(), so that a caller can
  // prefetch it for a whole batch first.
  const Slot* Home(Hash hash) const { return slots_.get() + HomeOf(hash, scale_); }
  Location Find(Hash hash, const Slot* home) const {
    const Slot* slot = FirstNotLess(hash, home);
    return slot->hash() == hash ? slot->location : kNowhere;
  }
  Location Find(Hash hash) const { return Find(hash, Home(hash)); }

  // Adds `hash`, which must be absent. Throws std::bad_alloc and changes nothing when there is
  // no memory to grow.
  void Insert(Hash hash, Location location);

  // Fills an empty index: the i-th of `hashes`, which ascend, gets location first + i. Throws
  // std::bad_alloc and changes nothing when there is no memory.
  void Fill(Span<const Hash> hashes, Location first);

  // Changes the location of `hash`, which must be present.
  void Assign(Hash hash, Location location);

  // Removes `hash`, which must be present.
  void Erase(Hash hash);

  // Calls visit(hash, location) for all hashes >= `from` in hash order, until it returns false.
  // Returns false if it was stopped.
  template <typename Visitor>
  bool VisitFrom(Hash from, const Visitor& visit) const {
    if (size_ == 0) return true;
    const Slot* const end = slots_.get() + num_slots_;
    for (const Slot* slot = from <= first_ ? slots_.get() : Home(from); slot != end; ++slot) {
      if (slot->location == kNowhere || slot->hash() < from) continue;
      if (!visit(slot->hash(), slot->location)) return false;
    }
    return true;
  }

  size_t size() const { return size_; }
  size_t bytes() const { return capacity_ == 0 ? 0 : num_slots_ * sizeof(Slot); }

 private:
  struct Free {
    void operator()(Slot* slots) const {
      if (slots != EmptySlots()) std::free(slots);
    }
  };
  using Slots = std::unique_ptr<Slot[], Free>;

  static Slot* EmptySlots();  // one free slot, shared by all indexes that hold no key yet
  static Slots Allocate(size_t num_slots);

  // floor((hash - first) / 2^64 * scale): where `hash` would stand without collisions.
  size_t HomeOf(Hash hash, uint64_t scale) const {
    return static_cast<size_t>((static_cast<unsigned __int128>(hash - first_) * scale) >> 64);
  }
  static const Slot* FirstNotLess(Hash hash, const Slot* slot) {
    while (slot->hash() < hash) ++slot;
    return slot;
  }
  Slot* Locate(Hash hash);
  // Moves everything to new slots: `capacity` homes, and `slack` slots behind them or more.
  void Rebuild(uint32_t capacity, uint32_t slack);
  // The same with what for_each(place) hands to place(hash, location) in hash order, until that
  // returns false. It may be called more than once.
  template <typename ForEach>
  void RebuildFrom(const ForEach& for_each, uint32_t capacity, uint32_t slack);

  Hash first_;
  uint64_t span_;           // hashes in the range, minus one
  uint64_t scale_ = 0;      // capacity_ slots over the range, as 64-bit fixed point
  Slots slots_;             // [num_slots_]; the last is always free
  uint32_t num_slots_ = 1;  // capacity_, slack for the run at the end, one sentinel
  uint32_t capacity_ = 0;   // homes
  uint32_t size_ = 0;
  double ideal_capacity_;  // of the next growth; keeps the phase through rounding
};

}  // namespace tfsparse

#endif  // TFSPARSE_CORE_SUB_INDEX_H_
