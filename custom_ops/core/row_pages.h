#ifndef TFSPARSE_CORE_ROW_PAGES_H_
#define TFSPARSE_CORE_ROW_PAGES_H_

#include <atomic>
#include <cstddef>
#include <vector>

#include "core/location.h"
#include "core/system_memory.h"
#include "core/types.h"

namespace tfsparse {

// RowPages owns the rows of a table: fixed-width float arrays with a number each, in pages of
// about 1 MiB (or of 64 rows, if these are larger) that never move, so that an address stays
// good while pages are added.
//
// Beside its row each number has a count of holders: the plans for which the row is still
// provisional. It lives here because it is touched together with the row, and only then.
//
// Allocate() and Free() need one caller at a time; row() may be called meanwhile, for rows that
// exist. What the rows hold is guarded by the table.
class RowPages {
 public:
  // `row_floats` > 0: parameter and optimizer slots together.
  explicit RowPages(size_t row_floats);
  RowPages(const RowPages&) = delete;
  RowPages& operator=(const RowPages&) = delete;

  // The number of a row that is not in use; its contents are whatever was there. Throws
  // std::bad_alloc and changes nothing when memory or numbers run out.
  uint32_t Allocate();
  // The same for `n` rows of an object that never gave one out: numbers 0 to n - 1.
  void AllocateFirst(size_t n);
  void Free(uint32_t row);

  float* row(uint32_t row) const { return page(row) + (row & row_mask_) * row_floats_; }
  uint8_t& holders(uint32_t row) const {
    return reinterpret_cast<uint8_t*>(page(row) + rows_per_page() * row_floats_)[row & row_mask_];
  }

  size_t row_floats() const { return row_floats_; }
  // Numbers given out so far are below this; some of them may have been freed.
  uint32_t end() const { return end_; }
  size_t num_free() const { return free_.size(); }
  size_t bytes() const;  // of pages in use, touched or not; the system gives others no memory yet

 private:
  float* page(uint32_t row) const {
    return pages_[row >> page_shift_].load(std::memory_order_acquire);
  }
  void MapSpan(size_t num_pages);
  size_t rows_per_page() const { return size_t{row_mask_} + 1; }

  size_t page_bytes() const { return rows_per_page() * (row_floats_ * sizeof(float) + 1); }

  size_t row_floats_;
  uint32_t page_shift_;
  uint32_t row_mask_;
  uint32_t end_ = 0;
  // One entry for every page there can ever be, so that it never moves either. It costs memory
  // only where it is used.
  SystemArray<std::atomic<float*>> pages_;
  // Where the pages are: several side by side, so that the system can back them by huge pages.
  std::vector<SystemArray<char>> spans_;
  char* spare_ = nullptr;  // the pages of the last span that are not in use yet
  size_t spare_pages_ = 0;
  std::vector<uint32_t> free_;  // has room for every row in use: Free() cannot fail
};

}  // namespace tfsparse

#endif  // TFSPARSE_CORE_ROW_PAGES_H_
