#include "core/row_loader.h"

#include <cstring>
#include <new>

#include "core/mix.h"
#include "core/table.h"

namespace tfsparse {

Status RowLoader::Create(const Table& table, const std::string& optimizer,
                         const std::vector<float>& arguments, size_t num_rows,
                         std::unique_ptr<RowLoader>* loader) {
  if (num_rows > kMaxRows) {
    return InvalidArgument(
        "Table '" + table.options().name + "': one rank holds at most " + std::to_string(kMaxRows) +
        " rows. Received: " + std::to_string(num_rows) + "; load them on more ranks.");
  }
  try {
    std::unique_ptr<Optimizer> made;
    TFSPARSE_RETURN_IF_ERROR(MakeOptimizer(optimizer, arguments, &made));
    loader->reset(new RowLoader(table, optimizer, arguments, std::move(made), num_rows));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("Table '" + table.options().name + "': no memory to load " +
                             std::to_string(num_rows) + " rows; the table is as it was.");
  }
  return Status();
}

RowLoader::RowLoader(const Table& table, const std::string& optimizer_kind,
                     const std::vector<float>& arguments, std::unique_ptr<Optimizer> optimizer,
                     size_t num_rows)
    : table_name_(table.options().name),
      dim_(table.dim()),
      optimizer_kind_(optimizer_kind),
      optimizer_arguments_(arguments),
      optimizer_(std::move(optimizer)),
      columns_(ColumnsOf(dim_, *optimizer_)),
      pages_(std::make_unique<RowPages>(dim_ + optimizer_->slot_floats(dim_))),
      index_(BucketsOfRank(table.options().rank, table.options().num_ranks)) {
  size_t begin = 0;
  for (const Column& column : columns_) {
    begins_.push_back(begin);
    begin += column.floats;
  }
  if (num_rows == 0) return;
  hashes_ = MapArray<Hash>(num_rows);
  pages_->AllocateFirst(num_rows);
}

void RowLoader::SetKeys(size_t first, Span<const Key> keys) {
  TFSPARSE_CHECK(first + keys.size() <= num_rows());
  for (size_t i = 0; i < keys.size(); ++i) hashes_[first + i] = HashOf(keys[i]);
}

void RowLoader::SetColumn(size_t column, size_t first, size_t n, const float* values) {
  TFSPARSE_CHECK(column < columns_.size() && first + n <= num_rows());
  const size_t floats = columns_[column].floats;
  for (size_t i = 0; i < n; ++i) {
    float* const row = pages_->row(static_cast<uint32_t>(first + i));
    std::memcpy(row + begins_[column], values + i * floats, floats * sizeof(float));
  }
}

void RowLoader::SetRows(size_t first, size_t n, const float* rows) {
  TFSPARSE_CHECK(first + n <= num_rows());
  const size_t floats = pages_->row_floats();
  for (size_t i = 0; i < n; ++i) {
    std::memcpy(pages_->row(static_cast<uint32_t>(first + i)), rows + i * floats,
                floats * sizeof(float));
  }
}

void RowLoader::InitSlots(size_t first, size_t n) {
  TFSPARSE_CHECK(first + n <= num_rows());
  for (size_t i = 0; i < n; ++i) {
    optimizer_->InitSlots(dim_, pages_->row(static_cast<uint32_t>(first + i)) + dim_);
  }
}

Status RowLoader::Finish(Executor* executor) {
  const Span<const Hash> hashes(hashes_.get(), num_rows());
  for (size_t i = 0; i < hashes.size(); ++i) {
    const bool ascends = i == 0 || hashes[i - 1] < hashes[i];
    if (ascends && index_.buckets().Contains(hashes[i])) continue;
    return InvalidArgument("Table '" + table_name_ + "': keys must be of this rank's buckets, in " +
                           "the order of their hashes, each once. Received: key " +
                           std::to_string(KeyOf(hashes[i])) + " as number " + std::to_string(i) +
                           " of " + std::to_string(hashes.size()) + ".");
  }
  try {
    index_.Fill(hashes, executor);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("Table '" + table_name_ + "': no memory for an index of " +
                             std::to_string(hashes.size()) + " rows; the table is as it was.");
  }
  hashes_.reset();
  return Status();
}

}  // namespace tfsparse
