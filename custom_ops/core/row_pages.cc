#include "core/row_pages.h"

#include <algorithm>
#include <new>

#include "core/status.h"

namespace tfsparse {
namespace {

constexpr size_t kPageBytes = 1 << 20;
constexpr uint32_t kMinPageShift = 6;  // bounds the directory: 2^24 entries, 128 MiB of addresses
constexpr uint32_t kMaxPageShift = 16;
constexpr size_t kMaxSpanPages = 64;

uint32_t PageShiftFor(size_t row_floats) {
  uint32_t shift = kMinPageShift;
  while (shift < kMaxPageShift && (row_floats * sizeof(float) << (shift + 1)) <= kPageBytes) {
    ++shift;
  }
  return shift;
}

}  // namespace

RowPages::RowPages(size_t row_floats)
    : row_floats_(row_floats),
      page_shift_(PageShiftFor(row_floats)),
      row_mask_((1u << page_shift_) - 1),
      pages_(MapArray<std::atomic<float*>>((kMaxRows >> page_shift_) + 1)) {}

uint32_t RowPages::Allocate() {
  if (!free_.empty()) {
    const uint32_t row = free_.back();
    free_.pop_back();
    return row;
  }
  if (end_ >= kMaxRows) throw std::bad_alloc();
  if ((end_ & row_mask_) == 0) {
    free_.reserve(end_ + rows_per_page());
    const size_t page = end_ >> page_shift_;
    if (spare_pages_ == 0) MapSpan(std::clamp<size_t>(page / 8, 1, kMaxSpanPages));
    pages_[page].store(reinterpret_cast<float*>(spare_), std::memory_order_release);
    spare_ += page_bytes();
    --spare_pages_;
  }
  return end_++;
}

void RowPages::AllocateFirst(size_t n) {
  TFSPARSE_CHECK(end_ == 0);
  if (n > kMaxRows) throw std::bad_alloc();
  if (n == 0) return;
  const size_t num_pages = (n + row_mask_) >> page_shift_;
  free_.reserve(num_pages << page_shift_);
  MapSpan(num_pages);
  while (spare_pages_ > 0) {
    pages_[num_pages - spare_pages_].store(reinterpret_cast<float*>(spare_));
    spare_ += page_bytes();
    --spare_pages_;
  }
  end_ = static_cast<uint32_t>(n);
}

void RowPages::MapSpan(size_t num_pages) {
  spans_.push_back(MapFilledArray<char>(num_pages * page_bytes()));
  spare_ = spans_.back().get();
  spare_pages_ = num_pages;
}

void RowPages::Free(uint32_t row) {
  TFSPARSE_CHECK(row < end_ && free_.size() < end_);
  free_.push_back(row);
}

size_t RowPages::bytes() const {
  const size_t num_pages = (size_t{end_} + row_mask_) >> page_shift_;
  return num_pages * page_bytes();
}

}  // namespace tfsparse
