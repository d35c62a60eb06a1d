#include "core/sub_index.h"

#include <cmath>
#include <cstring>
#include <new>

#include "core/status.h"

namespace tfsparse {
namespace {

// 0.87 / 1.15 = 0.756: after every growth a key still costs less than 16 bytes.
constexpr double kGrowth = 1.15;
constexpr double kMaxLoad = 0.87;
constexpr double kFirstCapacity = 16;

// Free slots behind the last home, for keys pushed beyond it. At load 0.87 a run longer than
// this is met about once in 10^4 indexes; then they are doubled. More homes would not help where
// hashes crowd: ids can be chosen so that 40 hashes are neighbours, in any number of homes.
constexpr uint32_t kSlack = 32;

uint64_t ScaleFor(uint32_t capacity, uint64_t span) {
  // The largest scale with HomeOf(last) < capacity: capacity * 2^64 / (span + 1).
  const unsigned __int128 scale =
      (static_cast<unsigned __int128>(capacity) << 64) / (static_cast<unsigned __int128>(span) + 1);
  return scale > ~uint64_t{0} ? ~uint64_t{0} : static_cast<uint64_t>(scale);
}

SubIndex::Slot MakeSlot(Hash hash, Location location) {
  return {static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32), location};
}

}  // namespace

SubIndex::SubIndex(Hash first, Hash last, double phase)
    : first_(first),
      span_(last - first),
      slots_(EmptySlots()),
      ideal_capacity_(kFirstCapacity * std::pow(kGrowth, phase)) {}

SubIndex::Slot* SubIndex::EmptySlots() {
  static Slot empty = {~uint32_t{0}, ~uint32_t{0}, kNowhere};
  return &empty;
}

SubIndex::Slots SubIndex::Allocate(size_t num_slots) {
  auto* slots = static_cast<Slot*>(std::malloc(num_slots * sizeof(Slot)));
  if (slots == nullptr) throw std::bad_alloc();
  std::memset(slots, 0xff, num_slots * sizeof(Slot));
  return Slots(slots);
}

SubIndex::Slot* SubIndex::Locate(Hash hash) {
  auto* slot = const_cast<Slot*>(FirstNotLess(hash, Home(hash)));
  TFSPARSE_CHECK(slot->hash() == hash && slot->location != kNowhere);
  return slot;
}

void SubIndex::Insert(Hash hash, Location location) {
  if (size_ + 1 > kMaxLoad * capacity_) {
    Rebuild(static_cast<uint32_t>(std::ceil(ideal_capacity_)), kSlack);
    ideal_capacity_ *= kGrowth;
  }
  while (true) {
    auto* slot = const_cast<Slot*>(FirstNotLess(hash, Home(hash)));
    Slot* free_slot = slot;
    while (free_slot->location != kNowhere) ++free_slot;
    if (free_slot != slots_.get() + num_slots_ - 1) {
      std::memmove(slot + 1, slot, (free_slot - slot) * sizeof(Slot));
      *slot = MakeSlot(hash, location);
      ++size_;
      return;
    }
    Rebuild(capacity_, 2 * (num_slots_ - capacity_ - 1));  // a run has used up the slack
  }
}

void SubIndex::Assign(Hash hash, Location location) { Locate(hash)->location = location; }

void SubIndex::Erase(Hash hash) {
  Slot* hole = Locate(hash);
  // Slots behind the hole move back while that brings them nearer to their homes.
  Slot* next = hole + 1;
  while (next->location != kNowhere && Home(next->hash()) < next) ++next;
  std::memmove(hole, hole + 1, (next - hole - 1) * sizeof(Slot));
  *(next - 1) = {~uint32_t{0}, ~uint32_t{0}, kNowhere};
  --size_;
}

void SubIndex::Fill(Span<const Hash> hashes, Location first) {
  TFSPARSE_CHECK(size_ == 0);
  if (hashes.empty()) return;
  uint32_t capacity = capacity_;
  double ideal_capacity = ideal_capacity_;
  while (hashes.size() > kMaxLoad * capacity) {  // as if they had been inserted one by one
    capacity = static_cast<uint32_t>(std::ceil(ideal_capacity));
    ideal_capacity *= kGrowth;
  }
  const auto for_each = [&](const auto& place) {
    for (size_t i = 0; i < hashes.size(); ++i) {
      if (!place(hashes[i], first + static_cast<Location>(i))) return;
    }
  };
  RebuildFrom(for_each, capacity, kSlack);
  ideal_capacity_ = ideal_capacity;
  size_ = static_cast<uint32_t>(hashes.size());
}

void SubIndex::Rebuild(uint32_t capacity, uint32_t slack) {
  RebuildFrom([this](const auto& place) { VisitFrom(first_, place); }, capacity, slack);
}

template <typename ForEach>
void SubIndex::RebuildFrom(const ForEach& for_each, uint32_t capacity, uint32_t slack) {
  const uint64_t scale = ScaleFor(capacity, span_);
  for (;; slack *= 2) {
    const uint32_t num_slots = capacity + slack + 1;
    Slots rebuilt = Allocate(num_slots);
    size_t next_free = 0;
    bool fits = true;
    for_each([&](Hash hash, Location location) {
      const size_t home = HomeOf(hash, scale);
      const size_t at = home > next_free ? home : next_free;
      fits = at < num_slots - 1;
      if (fits) rebuilt[at] = MakeSlot(hash, location);
      next_free = at + 1;
      return fits;
    });
    if (!fits) continue;
    slots_ = std::move(rebuilt);
    num_slots_ = num_slots;
    capacity_ = capacity;
    scale_ = scale;
    return;
  }
}

}  // namespace tfsparse
