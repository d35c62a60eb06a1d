#ifndef TFSPARSE_CORE_TABLE_H_
#define TFSPARSE_CORE_TABLE_H_

#include <functional>
#include <memory>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/executor.h"
#include "core/initializer.h"
#include "core/key_index.h"
#include "core/optimizer.h"
#include "core/plan.h"
#include "core/row_loader.h"
#include "core/row_pages.h"
#include "core/status.h"

namespace tfsparse {

struct TableOptions {
  std::string name;   // for error messages
  size_t dim = 0;     // floats of the parameter, 1 to 65,536
  uint32_t rank = 0;  // this shard holds BucketsOfRank(rank, num_ranks)
  uint32_t num_ranks = 1;
  uint64_t seed = 0;
  std::string initializer = "constant";  // see MakeInitializer()
  std::vector<float> initializer_arguments = {0.0f};
  float default_value = 0.0f;  // what lookups of absent keys read

  Status Validate() const;
};

struct TableStats {
  size_t rows = 0;              // committed
  size_t provisional_rows = 0;  // reserved by plans that have not ended
  size_t row_bytes = 0;         // of one row: parameters and slots
  size_t index_bytes = 0;
  size_t page_bytes = 0;
};

// Table is one rank's shard of an embedding table: an index from key to row, and the rows,
// each [parameters (dim) | optimizer slots].
//
// The state of a table is defined by the applied steps alone. Calls have a phase:
//   stage  Stage()                    reserves rows, changes nothing that others can see
//   apply  Apply(), SetRows(), Bind(), Replace(): the only calls that change the state
//   read   all others
// One call of each changing phase at a time; a stager, an applier and any number of readers may
// run together. Keys passed to one Stage() call must be distinct and belong to this shard.
//
// How two threads could go wrong, and do not: the stager finds key 7 provisional, held by plan
// A; the applier drops A, which frees the row; the stager hands out a freed row. Therefore
// Stage() takes what it finds under the shared lock only for committed rows, which stay; it
// settles the rest under the exclusive lock, by a second probe.
class Table : public std::enable_shared_from_this<Table> {
 public:
  static Status Create(const TableOptions& options, std::shared_ptr<Table>* table);

  // Stage. On an error nothing is reserved. At most 255 plans that are alive may hold one new key.
  Status Stage(Span<const Key> keys, Executor* executor, std::shared_ptr<Plan>* plan);

  // Read. Copies the parameters of the plan's rows to out [keys, dim].
  Status Read(const Plan& plan, Executor* executor, float* out) const;

  // Read. The same for keys that repeat: out[i] = the row of the plan's key positions[i].
  Status Read(const Plan& plan, Span<const int32_t> positions, Executor* executor,
              float* out) const;

  // Apply. Updates each row of the plan by its gradient, gradients [keys, dim], and commits the
  // plan. A table without an optimizer refuses, and so does any for a rate outside of [0, 1e12].
  Status Apply(float learning_rate, const float* gradients, Executor* executor, Plan* plan);

  // Apply. Gives the rows of the plan values from elsewhere and commits the plan: values
  // [keys, floats], with `floats` = dim, and slots begin anew, or row_floats(), slots included.
  Status SetRows(const float* values, size_t floats, Executor* executor, Plan* plan);

  // Read. Copies the parameters of committed keys, and the default for all others, to out
  // [keys, dim]. Keys may repeat.
  Status Lookup(Span<const Key> keys, Executor* executor, float* out) const;

  // Read. The number of committed rows.
  size_t size() const;

  // Read. Calls visit(hash, row) for committed rows in the order of their hashes, beginning
  // with the first that is not smaller than `from`, until it returns false. A row comes whole,
  // slots included. `visit` must not call the table.
  using Visitor = std::function<bool(Hash hash, Span<const float> row)>;
  void Scan(Hash from, const Visitor& visit) const;

  // Read. What a row consists of, in its order; and the optimizer as it was bound, or "none".
  std::vector<Column> columns() const;
  std::pair<std::string, std::vector<float>> optimizer() const;

  // Read. How many committed rows each bucket of the shard has.
  std::vector<int64_t> CountByBucket() const;

  // Read. Calls work(rows) with the committed rows of some buckets of the shard in the order of
  // their hashes; nothing changes them meanwhile. `work` must not call the table.
  struct StillRow {
    Hash hash;
    const float* floats;  // [row_floats()]
  };
  using RowsWork = std::function<void(Span<const StillRow> rows, const std::vector<Column>&)>;
  void WithRows(BucketRange buckets, const RowsWork& work) const;

  // Read.
  TableStats Stats() const;

  // Apply. Gives the table its optimizer, once; rows that exist get slots. Binding it again
  // with equal arguments does nothing, with others it fails.
  Status Bind(const std::string& optimizer, const std::vector<float>& arguments);

  // Apply. Replaces all rows, and the optimizer, by what was loaded; provisional rows and the
  // plans that hold them are void. Fails, and changes nothing, if the table has another
  // optimizer than the loaded rows.
  Status Replace(std::unique_ptr<RowLoader> loaded);

  const TableOptions& options() const { return options_; }
  size_t dim() const { return options_.dim; }
  size_t row_floats() const;  // read

 private:
  friend class Plan;
  friend class RowLoader;

  explicit Table(const TableOptions& options);

  // False when a key belongs to another rank.
  bool HashKeys(const Key* keys, Span<Hash> hashes) const;

  // The parts of Stage() and Apply() that need the index alone.
  void Reserve(size_t position, Plan* plan);
  void Commit(Plan* plan);
  void Drop(Plan* plan);

  Status CheckOptimizer(const std::string& kind, const std::vector<float>& arguments) const;
  Status CheckGeneration(const Plan& plan) const;
  void CopyRows(Span<const Location> locations, float* out) const;
  Status ForeignKeys() const;
  Status OutOfMemory() const;

  TableOptions options_;
  std::unique_ptr<Initializer> initializer_;

  // Lock order: rows before index.
  mutable std::shared_mutex rows_mutex_;  // what the rows hold, and their width
  std::unique_ptr<Optimizer> optimizer_;
  std::string optimizer_kind_ = "none";
  std::vector<float> optimizer_arguments_;
  std::unique_ptr<RowPages> pages_;

  mutable std::shared_mutex index_mutex_;  // the index, and which rows exist
  KeyIndex index_;
  size_t num_provisional_ = 0;
  uint64_t generation_ = 0;  // grows when all rows are replaced; changed with both mutexes held
};

}  // namespace tfsparse

#endif  // TFSPARSE_CORE_TABLE_H_
