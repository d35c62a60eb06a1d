#include "core/row_pages.h"

#include <algorithm>
#include <new>
#include <set>

#include "allocation_failure.h"
#include "random.h"
#include "testing.h"

namespace tfsparse {
namespace {

using testing::Random;

const size_t kWidths[] = {1, 3, 16, 1025};

size_t RowsToTry(size_t row_floats) { return row_floats > 1000 ? 5000 : 150000; }  // some pages

// What a test writes into float j of a row, to find it again.
float Mark(uint32_t row, size_t j) { return static_cast<float>((row * 31 + j) % 65521); }

TEST(RowPages, NumbersCountUpFromZero) {
  RowPages pages(3);
  EXPECT_EQ(pages.end(), 0u);
  EXPECT_EQ(pages.bytes(), 0u);
  for (uint32_t row = 0; row < 200000; ++row) ASSERT_EQ(pages.Allocate(), row);
  EXPECT_EQ(pages.end(), 200000u);
  EXPECT_EQ(pages.row_floats(), 3u);
}

TEST(RowPages, AddressesStayWhilePagesAreAdded) {
  for (size_t width : kWidths) {
    RowPages pages(width);
    std::vector<float*> addresses;
    for (uint32_t row = 0; row < RowsToTry(width); ++row) {
      pages.Allocate();
      addresses.push_back(pages.row(row));
      std::fill_n(addresses.back(), width, Mark(row, 0));
    }
    for (uint32_t row = 0; row < addresses.size(); ++row) {
      ASSERT_EQ(pages.row(row), addresses[row]);
    }
  }
}

TEST(RowPages, RowsAndHoldersDoNotOverlap) {
  for (size_t width : kWidths) {
    RowPages pages(width);
    const size_t n = RowsToTry(width);
    for (uint32_t row = 0; row < n; ++row) {
      pages.Allocate();
      ASSERT_EQ(pages.holders(row), 0);
      for (size_t j = 0; j < width; ++j) pages.row(row)[j] = Mark(row, j);
      pages.holders(row) = static_cast<uint8_t>(row % 251);
    }
    for (uint32_t row = 0; row < n; ++row) {
      ASSERT_EQ(pages.holders(row), row % 251);
      for (size_t j = 0; j < width; ++j) ASSERT_EQ(pages.row(row)[j], Mark(row, j));
    }
  }
}

TEST(RowPages, FreedRowsAreUsedAgainBeforeNewOnes) {
  RowPages pages(16);
  for (int i = 0; i < 1000; ++i) pages.Allocate();
  std::set<uint32_t> freed;
  for (uint32_t row = 0; row < 1000; row += 3) {
    pages.Free(row);
    freed.insert(row);
  }
  EXPECT_EQ(pages.num_free(), freed.size());
  while (!freed.empty()) ASSERT_EQ(freed.erase(pages.Allocate()), 1u);
  EXPECT_EQ(pages.num_free(), 0u);
  EXPECT_EQ(pages.end(), 1000u);
  EXPECT_EQ(pages.Allocate(), 1000u);
}

TEST(RowPages, NoTwoLivingRowsShareANumber) {
  Random random;
  RowPages pages(1);
  std::vector<uint32_t> living;
  std::set<uint32_t> numbers;
  for (int i = 0; i < 200000; ++i) {
    if (living.empty() || random.Below(5) < 3) {
      living.push_back(pages.Allocate());
      ASSERT_TRUE(numbers.insert(living.back()).second);
    } else {
      std::swap(living[random.Below(living.size())], living.back());
      pages.Free(living.back());
      numbers.erase(living.back());
      living.pop_back();
    }
    ASSERT_EQ(pages.end() - pages.num_free(), living.size());
  }
}

TEST(RowPages, AllRowsCanBeFreed) {
  RowPages pages(3);
  for (int i = 0; i < 100000; ++i) pages.Allocate();
  for (uint32_t row = 0; row < 100000; ++row) pages.Free(row);
  EXPECT_EQ(pages.num_free(), 100000u);
}

TEST(RowPages, AllocateWithoutMemoryChangesNothing) {
  RowPages pages(1025);
  int failures = 0;
  for (uint32_t row = 0; row < 5000; ++row) {
    for (int k = 0; pages.end() == row; ++k) {
      try {
        testing::AllocationFailure failure(k);
        pages.Allocate();
      } catch (const std::bad_alloc&) {
        ASSERT_EQ(pages.end(), row);
        ++failures;
      }
    }
    ASSERT_EQ(pages.end(), row + 1);
  }
  // The list of free rows for each of 40 pages, and the memory of pages and the list of it.
  EXPECT_TRUE(failures >= (testing::MallocFails() ? 60 : 40));
}

// Pages are about 1 MiB: 16 floats and a count of holders take 65 bytes a row.
TEST(RowPages, BytesCountWholePages) {
  RowPages pages(16);
  pages.Allocate();
  const size_t page_bytes = pages.bytes();
  EXPECT_TRUE(page_bytes > 500000 && page_bytes < 1100000);
  for (int i = 1; i < 100000; ++i) pages.Allocate();
  EXPECT_EQ(pages.bytes() % page_bytes, 0u);
  EXPECT_TRUE(pages.bytes() >= 100000 * 65 && pages.bytes() < 100000 * 65 + page_bytes);
}

}  // namespace
}  // namespace tfsparse
