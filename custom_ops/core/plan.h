#ifndef TFSPARSE_CORE_PLAN_H_
#define TFSPARSE_CORE_PLAN_H_

#include <memory>
#include <vector>

#include "core/location.h"
#include "core/types.h"

namespace tfsparse {

class Table;

// Plan says where the rows of some keys are, and keeps what it created from being seen: a key
// that was new gets a row at once, with its first values, but until a step is applied to the
// row it is provisional, and size(), lookups and scans pass over it.
//
// A plan ends by Table::Apply(), which commits its rows, or by its destruction, which undoes
// them; so nothing can leak, whatever becomes of the step. Several plans may hold the same
// provisional row (the batch after this one has the key too). The row is then committed by the
// first that is applied, and undone only when the last of them has been dropped.
//
// After another plan has committed a row, this one still lists it as provisional; Drop() and
// Commit() tell by its count of holders, zero then. So a committed row must not be freed and
// reserved anew while a plan lists it.
//
// When the rows of a table are replaced, the plans of before have lost theirs: to read or to
// apply them fails, and to drop them does nothing.
//
// A plan keeps its table alive. Only Table looks inside; it may be destroyed on any thread.
class Plan {
 public:
  explicit Plan(std::shared_ptr<Table> table) : table_(std::move(table)) {}
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const Table* table() const { return table_.get(); }

  // The keys it was staged for, mixed, in the caller's order.
  const std::vector<Hash>& hashes() const { return hashes_; }

 private:
  friend class Table;
  std::shared_ptr<Table> table_;
  uint64_t generation_ = 0;  // of the table's rows
  std::vector<Hash> hashes_;
  std::vector<uint32_t> rows_;         // [hashes_.size()]: row numbers
  std::vector<uint32_t> provisional_;  // the positions in hashes_ whose rows it holds so
};

}  // namespace tfsparse

#endif  // TFSPARSE_CORE_PLAN_H_
