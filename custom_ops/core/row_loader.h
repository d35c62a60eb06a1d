#ifndef TFSPARSE_CORE_ROW_LOADER_H_
#define TFSPARSE_CORE_ROW_LOADER_H_

#include <memory>
#include <string>
#include <vector>

#include "core/executor.h"
#include "core/key_index.h"
#include "core/optimizer.h"
#include "core/row_pages.h"
#include "core/status.h"
#include "core/system_memory.h"

namespace tfsparse {

class Table;

// RowLoader builds what a table is to hold, aside; Table::Replace() then puts it in the place of
// what the table holds, at once. Until then the table knows nothing of it.
//
// Rows are numbered in the order of their keys' hashes. The calls before Finish() may run
// together as long as they are for different rows; together they must give every row its key,
// its parameter and its slots. What they leave out is zeros.
class RowLoader {
 public:
  // For rows of `table` under `optimizer` (see MakeOptimizer), which becomes the table's.
  static Status Create(const Table& table, const std::string& optimizer,
                       const std::vector<float>& arguments, size_t num_rows,
                       std::unique_ptr<RowLoader>* loader);

  size_t num_rows() const { return pages_->end(); }
  // As Table::columns() of a table with the optimizer.
  const std::vector<Column>& columns() const { return columns_; }

  // The rows from number `first` on. They must exist.
  void SetKeys(size_t first, Span<const Key> keys);
  // Floats of columns()[column]: values [n, floats].
  void SetColumn(size_t column, size_t first, size_t n, const float* values);
  // All columns: rows [n, floats of a row].
  void SetRows(size_t first, size_t n, const float* rows);
  // What slots of a new row hold.
  void InitSlots(size_t first, size_t n);

  // Builds the index. Fails unless the keys are of the table's shard and their hashes ascend.
  Status Finish(Executor* executor);

 private:
  friend class Table;
  RowLoader(const Table& table, const std::string& optimizer_kind,
            const std::vector<float>& arguments, std::unique_ptr<Optimizer> optimizer,
            size_t num_rows);

  std::string table_name_;
  size_t dim_;
  std::string optimizer_kind_;
  std::vector<float> optimizer_arguments_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<Column> columns_;
  std::vector<size_t> begins_;  // where in a row each column begins
  std::unique_ptr<RowPages> pages_;
  SystemArray<Hash> hashes_;  // [num_rows()], until Finish()
  KeyIndex index_;
};

}  // namespace tfsparse

#endif  // TFSPARSE_CORE_ROW_LOADER_H_
