#include "core/table.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <new>

#include "core/prefetch.h"

namespace tfsparse {
namespace {

constexpr size_t kMaxDim = 65536;
constexpr float kMaxLearningRate = 1e12f;  // so that no step makes a row infinite

// How many rows ahead a loop over rows prefetches.
constexpr size_t kAhead = 16;

// Keys of one piece of a lookup: their locations stay in the first-level cache.
constexpr size_t kPiece = 256;

constexpr size_t kProbeNs = 20;
size_t RowNs(size_t row_floats) { return 10 + row_floats / 4; }

// RowPages counts the holders of a provisional row in a byte.
constexpr int kMaxHolders = 255;
struct TooManyHolders {};

}  // namespace

Status TableOptions::Validate() const {
  if (dim < 1 || dim > kMaxDim) {
    return InvalidArgument("Table '" + name + "': `dim` must be between 1 and " +
                           std::to_string(kMaxDim) + ". Received: " + std::to_string(dim) + ".");
  }
  if (num_ranks < 1 || num_ranks > kNumBuckets || rank >= num_ranks) {
    return InvalidArgument("Table '" + name +
                           "': needs a rank below the number of ranks, and at "
                           "most " +
                           std::to_string(kNumBuckets) + " of these. Received: rank " +
                           std::to_string(rank) + " of " + std::to_string(num_ranks) + ".");
  }
  return Status();
}

Plan::~Plan() { table_->Drop(this); }

Status Table::Create(const TableOptions& options, std::shared_ptr<Table>* table) {
  TFSPARSE_RETURN_IF_ERROR(options.Validate());
  try {
    std::shared_ptr<Table> created(new Table(options));
    TFSPARSE_RETURN_IF_ERROR(MakeInitializer(options.initializer, options.initializer_arguments,
                                             options.seed, &created->initializer_));
    TFSPARSE_RETURN_IF_ERROR(MakeOptimizer("none", {}, &created->optimizer_));
    *table = std::move(created);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("Table '" + options.name + "': no memory for an empty table.");
  }
  return Status();
}

Table::Table(const TableOptions& options)
    : options_(options),
      pages_(std::make_unique<RowPages>(options.dim)),
      index_(BucketsOfRank(options.rank, options.num_ranks)) {}

Status Table::Stage(Span<const Key> keys, Executor* executor, std::shared_ptr<Plan>* plan) {
  const size_t n = keys.size();
  try {
    auto staged = std::make_shared<Plan>(shared_from_this());
    staged->hashes_.resize(n);
    staged->rows_.resize(n);
    std::vector<Hash>& hashes = staged->hashes_;
    std::vector<Location>& locations = staged->rows_;
    {
      std::shared_lock<std::shared_mutex> lock(index_mutex_);
      staged->generation_ = generation_;
      std::atomic<bool> in_shard{true};
      executor->ParallelFor(n, kProbeNs, [&](size_t begin, size_t end) {
        const Span<Hash> piece(&hashes[begin], end - begin);
        if (HashKeys(&keys[begin], piece)) {
          index_.Find(piece, &locations[begin]);
        } else {
          in_shard = false;
        }
      });
      if (!in_shard) return ForeignKeys();
    }
    std::vector<uint32_t> unsettled;
    for (size_t i = 0; i < n; ++i) {
      if (IsProvisional(locations[i])) unsettled.push_back(static_cast<uint32_t>(i));
    }
    staged->provisional_.reserve(unsettled.size());
    if (!unsettled.empty()) {
      std::unique_lock<std::shared_mutex> lock(index_mutex_);
      TFSPARSE_RETURN_IF_ERROR(CheckGeneration(*staged));
      for (size_t i = 0; i < unsettled.size(); ++i) {
        if (i + kAhead < unsettled.size()) index_.Prefetch(hashes[unsettled[i + kAhead]]);
        Reserve(unsettled[i], staged.get());
      }
    }
    *plan = std::move(staged);
  } catch (const std::bad_alloc&) {
    return OutOfMemory();  // the half-made plan has undone itself
  } catch (const TooManyHolders&) {
    return FailedPrecondition("Table '" + options_.name + "': " + std::to_string(kMaxHolders) +
                              " plans hold one new key already; apply or drop some of them.");
  }
  return Status();
}

bool Table::HashKeys(const Key* keys, Span<Hash> hashes) const {
  const BucketRange& buckets = index_.buckets();
  bool in_shard = true;
  for (size_t i = 0; i < hashes.size(); ++i) {
    hashes[i] = HashOf(keys[i]);
    in_shard &= buckets.Contains(hashes[i]);
  }
  return in_shard;
}

void Table::Reserve(size_t position, Plan* plan) {
  const Hash hash = plan->hashes_[position];
  const Location found = index_.Find(hash);
  if (found != kNowhere && !IsProvisional(found)) {  // committed since the first probe
    plan->rows_[position] = found;
    return;
  }
  uint32_t row;
  if (found != kNowhere) {
    row = RowOf(found);
    if (pages_->holders(row) == kMaxHolders) throw TooManyHolders();
  } else {
    row = pages_->Allocate();
    try {
      index_.Insert(hash, row | kProvisional);
    } catch (...) {
      pages_->Free(row);
      throw;
    }
    float* const floats = pages_->row(row);
    initializer_->Fill(hash, dim(), floats);
    optimizer_->InitSlots(dim(), floats + dim());
    pages_->holders(row) = 0;
    ++num_provisional_;
  }
  ++pages_->holders(row);
  plan->rows_[position] = row;
  plan->provisional_.push_back(static_cast<uint32_t>(position));
}

void Table::Commit(Plan* plan) {
  std::unique_lock<std::shared_mutex> lock(index_mutex_);
  const std::vector<uint32_t>& positions = plan->provisional_;
  for (size_t i = 0; i < positions.size(); ++i) {
    if (i + kAhead < positions.size()) index_.Prefetch(plan->hashes_[positions[i + kAhead]]);
    const uint32_t position = positions[i];
    const uint32_t row = plan->rows_[position];
    if (pages_->holders(row) == 0) continue;  // an earlier plan has committed it
    pages_->holders(row) = 0;
    index_.Assign(plan->hashes_[position], row);
    --num_provisional_;
  }
  plan->provisional_.clear();
}

void Table::Drop(Plan* plan) {
  if (plan->provisional_.empty()) return;
  std::unique_lock<std::shared_mutex> lock(index_mutex_);
  if (plan->generation_ != generation_) return;
  for (uint32_t position : plan->provisional_) {
    const uint32_t row = plan->rows_[position];
    if (pages_->holders(row) == 0 || --pages_->holders(row) > 0) continue;
    index_.Erase(plan->hashes_[position]);
    pages_->Free(row);
    --num_provisional_;
  }
}

Status Table::Read(const Plan& plan, Executor* executor, float* out) const {
  TFSPARSE_CHECK(plan.table_.get() == this);
  std::shared_lock<std::shared_mutex> lock(rows_mutex_);
  TFSPARSE_RETURN_IF_ERROR(CheckGeneration(plan));
  executor->ParallelFor(plan.rows_.size(), RowNs(dim()), [&](size_t begin, size_t end) {
    CopyRows(Span<const Location>(&plan.rows_[begin], end - begin), out + begin * dim());
  });
  return Status();
}

Status Table::Read(const Plan& plan, Span<const int32_t> positions, Executor* executor,
                   float* out) const {
  TFSPARSE_CHECK(plan.table_.get() == this);
  std::shared_lock<std::shared_mutex> lock(rows_mutex_);
  TFSPARSE_RETURN_IF_ERROR(CheckGeneration(plan));
  executor->ParallelFor(positions.size(), RowNs(dim()), [&](size_t begin, size_t end) {
    Location locations[kPiece];
    for (size_t start = begin; start < end; start += kPiece) {
      const size_t n = std::min(kPiece, end - start);
      for (size_t i = 0; i < n; ++i) locations[i] = plan.rows_[positions[start + i]];
      CopyRows(Span<const Location>(locations, n), out + start * dim());
    }
  });
  return Status();
}

void Table::CopyRows(Span<const Location> locations, float* out) const {
  const size_t bytes = dim() * sizeof(float);
  const size_t n = locations.size();
  for (size_t i = 0; i < n; ++i) {
    if (i + kAhead < n && locations[i + kAhead] != kNowhere) {
      PrefetchRow(pages_->row(RowOf(locations[i + kAhead])), bytes);
    }
    float* const to = out + i * dim();
    if (IsProvisional(locations[i])) {  // kNowhere included
      std::fill_n(to, dim(), options_.default_value);
    } else {
      std::memcpy(to, pages_->row(locations[i]), bytes);
    }
  }
}

Status Table::Lookup(Span<const Key> keys, Executor* executor, float* out) const {
  std::shared_lock<std::shared_mutex> rows_lock(rows_mutex_);
  std::shared_lock<std::shared_mutex> lock(index_mutex_);
  std::atomic<bool> in_shard{true};
  executor->ParallelFor(keys.size(), kProbeNs + RowNs(dim()), [&](size_t begin, size_t end) {
    Hash hashes[kPiece];
    Location locations[kPiece];
    for (size_t start = begin; start < end; start += kPiece) {
      const Span<Hash> piece(hashes, std::min(kPiece, end - start));
      if (!HashKeys(&keys[start], piece)) {
        in_shard = false;
        return;
      }
      index_.Find(piece, locations);
      CopyRows(Span<const Location>(locations, piece.size()), out + start * dim());
    }
  });
  return in_shard ? Status() : ForeignKeys();
}

Status Table::Apply(float learning_rate, const float* gradients, Executor* executor, Plan* plan) {
  TFSPARSE_CHECK(plan->table_.get() == this);
  std::unique_lock<std::shared_mutex> lock(rows_mutex_);
  if (optimizer_kind_ == "none") {
    return FailedPrecondition("Table '" + options_.name +
                              "': has no optimizer yet; bind one before the first step.");
  }
  if (!(learning_rate >= 0.0f && learning_rate <= kMaxLearningRate)) {
    return InvalidArgument("Table '" + options_.name +
                           "': `learning_rate` must be in [0, 1e12]. Received: " +
                           std::to_string(learning_rate) + ".");
  }
  TFSPARSE_RETURN_IF_ERROR(CheckGeneration(*plan));
  const size_t n = plan->rows_.size();
  const size_t row_bytes = pages_->row_floats() * sizeof(float);
  executor->ParallelFor(n, RowNs(2 * pages_->row_floats()), [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      if (i + kAhead < end) PrefetchRow(pages_->row(plan->rows_[i + kAhead]), row_bytes);
      optimizer_->Apply(dim(), learning_rate, gradients + i * dim(), pages_->row(plan->rows_[i]));
    }
  });
  Commit(plan);
  return Status();
}

Status Table::SetRows(const float* values, size_t floats, Executor* executor, Plan* plan) {
  TFSPARSE_CHECK(plan->table_.get() == this);
  std::unique_lock<std::shared_mutex> lock(rows_mutex_);
  TFSPARSE_CHECK(floats == dim() || floats == pages_->row_floats());
  TFSPARSE_RETURN_IF_ERROR(CheckGeneration(*plan));
  executor->ParallelFor(plan->rows_.size(), RowNs(floats), [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      float* const row = pages_->row(plan->rows_[i]);
      std::memcpy(row, values + i * floats, floats * sizeof(float));
      if (floats == dim()) optimizer_->InitSlots(dim(), row + dim());
    }
  });
  Commit(plan);
  return Status();
}

size_t Table::size() const {
  std::shared_lock<std::shared_mutex> lock(index_mutex_);
  return index_.size() - num_provisional_;
}

size_t Table::row_floats() const {
  std::shared_lock<std::shared_mutex> lock(rows_mutex_);
  return pages_->row_floats();
}

void Table::Scan(Hash from, const Visitor& visit) const {
  std::shared_lock<std::shared_mutex> rows_lock(rows_mutex_);
  std::shared_lock<std::shared_mutex> lock(index_mutex_);
  index_.VisitFrom(from, [&](Hash hash, Location location) {
    return IsProvisional(location) ||
           visit(hash, Span<const float>(pages_->row(location), pages_->row_floats()));
  });
}

std::vector<Column> Table::columns() const {
  std::shared_lock<std::shared_mutex> lock(rows_mutex_);
  return ColumnsOf(dim(), *optimizer_);
}

std::pair<std::string, std::vector<float>> Table::optimizer() const {
  std::shared_lock<std::shared_mutex> lock(rows_mutex_);
  return {optimizer_kind_, optimizer_arguments_};
}

std::vector<int64_t> Table::CountByBucket() const {
  std::shared_lock<std::shared_mutex> lock(index_mutex_);
  const BucketRange& buckets = index_.buckets();
  std::vector<int64_t> counts(buckets.size());
  index_.VisitFrom(0, [&](Hash hash, Location location) {
    if (!IsProvisional(location)) ++counts[BucketOf(hash) - buckets.first];
    return true;
  });
  return counts;
}

void Table::WithRows(BucketRange buckets, const RowsWork& work) const {
  std::shared_lock<std::shared_mutex> rows_lock(rows_mutex_);
  std::shared_lock<std::shared_mutex> lock(index_mutex_);
  std::vector<StillRow> rows;
  index_.VisitFrom(Hash{buckets.first} << 48, [&](Hash hash, Location location) {
    if (!buckets.Contains(hash)) return false;
    if (!IsProvisional(location)) rows.push_back({hash, pages_->row(location)});
    return true;
  });
  work(rows, ColumnsOf(dim(), *optimizer_));
}

TableStats Table::Stats() const {
  std::shared_lock<std::shared_mutex> rows_lock(rows_mutex_);
  std::shared_lock<std::shared_mutex> lock(index_mutex_);
  TableStats stats;
  stats.provisional_rows = num_provisional_;
  stats.rows = index_.size() - num_provisional_;
  stats.row_bytes = pages_->row_floats() * sizeof(float);
  stats.index_bytes = index_.bytes();
  stats.page_bytes = pages_->bytes();
  return stats;
}

Status Table::Bind(const std::string& kind, const std::vector<float>& arguments) {
  std::unique_lock<std::shared_mutex> rows_lock(rows_mutex_);
  if (kind == optimizer_kind_ && arguments == optimizer_arguments_) return Status();
  TFSPARSE_RETURN_IF_ERROR(CheckOptimizer(kind, arguments));
  std::unique_lock<std::shared_mutex> lock(index_mutex_);
  try {
    std::unique_ptr<Optimizer> optimizer;
    TFSPARSE_RETURN_IF_ERROR(MakeOptimizer(kind, arguments, &optimizer));
    auto pages = std::make_unique<RowPages>(dim() + optimizer->slot_floats(dim()));
    // Same numbers in the new pages, so the index and the plans stay right. Rows that are free
    // are copied with the others and freed again below.
    for (uint32_t row = 0; row < pages_->end(); ++row) {
      TFSPARSE_CHECK(pages->Allocate() == row);
      std::memcpy(pages->row(row), pages_->row(row), dim() * sizeof(float));
      optimizer->InitSlots(dim(), pages->row(row) + dim());
      pages->holders(row) = pages_->holders(row);
    }
    std::vector<float> copied_arguments = arguments;
    std::string copied_kind = kind;
    while (pages_->num_free() > 0) pages->Free(pages_->Allocate());
    pages_ = std::move(pages);
    optimizer_ = std::move(optimizer);
    optimizer_kind_ = std::move(copied_kind);
    optimizer_arguments_ = std::move(copied_arguments);
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }
  return Status();
}

Status Table::Replace(std::unique_ptr<RowLoader> loaded) {
  TFSPARSE_CHECK(loaded->dim_ == dim() && loaded->index_.size() == loaded->num_rows());
  {
    std::unique_lock<std::shared_mutex> rows_lock(rows_mutex_);
    TFSPARSE_RETURN_IF_ERROR(CheckOptimizer(loaded->optimizer_kind_, loaded->optimizer_arguments_));
    std::unique_lock<std::shared_mutex> lock(index_mutex_);
    std::swap(pages_, loaded->pages_);
    std::swap(index_, loaded->index_);
    std::swap(optimizer_, loaded->optimizer_);
    std::swap(optimizer_kind_, loaded->optimizer_kind_);
    std::swap(optimizer_arguments_, loaded->optimizer_arguments_);
    num_provisional_ = 0;
    ++generation_;
  }
  return Status();  // the old rows go with `loaded`, after the locks
}

Status Table::CheckOptimizer(const std::string& kind, const std::vector<float>& arguments) const {
  if (optimizer_kind_ == "none") return Status();
  if (kind == optimizer_kind_ && arguments == optimizer_arguments_) return Status();
  return FailedPrecondition("Table '" + options_.name + "': its rows carry the slots of \"" +
                            optimizer_kind_ + "\" and cannot change to \"" + kind +
                            "\", or to other arguments of it.");
}

Status Table::CheckGeneration(const Plan& plan) const {
  if (plan.generation_ == generation_) return Status();
  return FailedPrecondition("Table '" + options_.name +
                            "': its rows were replaced since this step looked them up; look them "
                            "up again.");
}

Status Table::ForeignKeys() const {
  return InvalidArgument("Table '" + options_.name + "': rank " + std::to_string(options_.rank) +
                         " of " + std::to_string(options_.num_ranks) +
                         " was asked for keys that another rank owns.");
}

Status Table::OutOfMemory() const {
  return ResourceExhausted("Table '" + options_.name + "' on rank " +
                           std::to_string(options_.rank) +
                           ": no memory for more rows; the table is as it was before the call.");
}

}  // namespace tfsparse
