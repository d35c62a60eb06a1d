#ifndef TFSPARSE_TESTS_CORE_TABLE_CALLS_H_
#define TFSPARSE_TESTS_CORE_TABLE_CALLS_H_

#include <map>
#include <memory>
#include <vector>

#include "core/table.h"
#include "testing.h"

// Calls of a table that must succeed, with vectors in and out.
namespace tfsparse {
namespace testing {

using Keys = std::vector<Key>;
using Floats = std::vector<float>;
using PlanPointer = std::shared_ptr<Plan>;
using TablePointer = std::shared_ptr<Table>;

inline TablePointer MakeTable(const TableOptions& options) {
  TablePointer table;
  EXPECT_OK(Table::Create(options, &table));
  return table;
}

// Rows of `dim` floats that begin at `initial`; absent keys read -1.
inline TablePointer MakeTable(size_t dim, float initial) {
  TableOptions options;
  options.name = "t";
  options.dim = dim;
  options.initializer_arguments = {initial};
  options.default_value = -1;
  return MakeTable(options);
}

inline PlanPointer Stage(Table* table, const Keys& keys) {
  SerialExecutor executor;
  PlanPointer plan;
  EXPECT_OK(table->Stage(keys, &executor, &plan));
  return plan;
}

inline void Apply(Table* table, Plan* plan, float learning_rate, const Floats& gradients) {
  SerialExecutor executor;
  EXPECT_OK(table->Apply(learning_rate, gradients.data(), &executor, plan));
}

inline void SetRows(Table* table, Plan* plan, const Floats& values) {
  SerialExecutor executor;
  const size_t floats = values.size() / plan->hashes().size();
  EXPECT_OK(table->SetRows(values.data(), floats, &executor, plan));
}

inline Floats Read(const Table& table, const Plan& plan) {
  SerialExecutor executor;
  Floats out(plan.hashes().size() * table.dim());
  EXPECT_OK(table.Read(plan, &executor, out.data()));
  return out;
}

inline Floats Lookup(const Table& table, const Keys& keys) {
  SerialExecutor executor;
  Floats out(keys.size() * table.dim());
  EXPECT_OK(table.Lookup(keys, &executor, out.data()));
  return out;
}

// The committed rows, slots included.
inline std::map<Hash, Floats> RowsOf(const Table& table) {
  std::map<Hash, Floats> rows;
  table.Scan(0, [&](Hash hash, Span<const float> row) {
    rows[hash] = Floats(row.begin(), row.end());
    return true;
  });
  return rows;
}

}  // namespace testing
}  // namespace tfsparse

#endif  // TFSPARSE_TESTS_CORE_TABLE_CALLS_H_
