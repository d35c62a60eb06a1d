// Each kernel: the table, the inputs, the outputs, one call of the core, its status.

#include "core/mix.h"
#include "kernels/convert.h"
#include "kernels/plan_variant.h"
#include "kernels/table_resource.h"

namespace tfsparse {
namespace {

namespace tf = ::tensorflow;
using TablePtr = tf::core::RefCountPtr<TableResource>;

class TableOp : public Kernel {
 public:
  explicit TableOp(tf::OpKernelConstruction* ctx) : Kernel(ctx) {
    int64_t dim, rank, num_ranks, seed;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("table_name", &options_.name));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("dim", &dim));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("rank", &rank));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("num_ranks", &num_ranks));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("seed", &seed));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("initializer", &options_.initializer));
    options_.initializer_arguments.clear();  // GetAttr appends
    OP_REQUIRES_OK(ctx, ctx->GetAttr("initializer_arguments", &options_.initializer_arguments));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("default_value", &options_.default_value));
    options_.dim = static_cast<size_t>(dim);
    options_.rank = static_cast<uint32_t>(rank);
    options_.num_ranks = static_cast<uint32_t>(num_ranks);
    options_.seed = static_cast<uint64_t>(seed);
  }

  void Run(tf::OpKernelContext* ctx) override {
    std::shared_ptr<Table> table;
    OP_REQUIRES_OK(ctx, ToTensorFlow(Table::Create(options_, &table)));
    tf::Tensor handle(tf::DT_RESOURCE, tf::TensorShape({}));
    handle.scalar<tf::ResourceHandle>()() = tf::ResourceHandle::MakeRefCountingHandle(
        new TableResource(std::move(table)), ctx->device()->name());
    ctx->set_output(0, handle);
  }

 private:
  TableOptions options_;
};

class BindOp : public Kernel {
 public:
  explicit BindOp(tf::OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("optimizer", &optimizer_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("arguments", &arguments_));
  }

  void Run(tf::OpKernelContext* ctx) override {
    TablePtr table;
    OP_REQUIRES_OK(ctx, GetTable(ctx, &table));
    OP_REQUIRES_OK(ctx, ToTensorFlow(table->table()->Bind(optimizer_, arguments_)));
  }

 private:
  std::string optimizer_;
  std::vector<float> arguments_;
};

class StageOp : public Kernel {
 public:
  explicit StageOp(tf::OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("distinct", &distinct_));
  }

  void Run(tf::OpKernelContext* ctx) override {
    TablePtr table;
    OP_REQUIRES_OK(ctx, GetTable(ctx, &table));
    Span<const Key> keys;
    OP_REQUIRES_OK(ctx, ListFrom(ctx, 1, &keys));
    tf::Tensor* output;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, tf::TensorShape({}), &output));
    PoolExecutor executor(ctx);
    auto staged = std::make_shared<StagedPlan>();
    Status status;
    if (distinct_) {
      status = table->table()->Stage(keys, &executor, &staged->plan);
    } else {
      table->WithGrouper([&](KeyGrouper* grouper) {
        grouper->Group(keys, 1);
        staged->positions = grouper->positions();
        status = table->table()->Stage(grouper->unique(), &executor, &staged->plan);
      });
    }
    OP_REQUIRES_OK(ctx, ToTensorFlow(status));
    table->KeepPlan(staged->plan);
    output->scalar<tf::Variant>()() = PlanVariant{std::move(staged)};
  }

 private:
  bool distinct_;
};

// The plan of input i, which must be of the table.
tf::Status PlanFrom(tf::OpKernelContext* ctx, int i, Table* table,
                    std::shared_ptr<const StagedPlan>* staged) {
  tf::Variant variant;
  TF_RETURN_IF_ERROR(ScalarFrom(ctx, i, &variant));
  const auto* plan = variant.get<PlanVariant>();
  if (plan == nullptr) {
    return tf::errors::InvalidArgument(
        "`plan` must come from Tfsparse>Stage. Received: ", variant.DebugString(), ".");
  }
  *staged = plan->staged;
  const Table* of = plan->staged->plan->table();
  if (of == table) return tf::OkStatus();
  return tf::errors::InvalidArgument("Table '", table->options().name,
                                     "': `plan` must have been staged on this table. Received: a "
                                     "plan of table '",
                                     of->options().name, "'.");
}

class ReadPlanOp : public Kernel {
 public:
  using Kernel::Kernel;

  void Run(tf::OpKernelContext* ctx) override {
    TablePtr table;
    OP_REQUIRES_OK(ctx, GetTable(ctx, &table));
    std::shared_ptr<const StagedPlan> plan;
    OP_REQUIRES_OK(ctx, PlanFrom(ctx, 1, table->table(), &plan));
    const StagedPlan& staged = *plan;
    const bool distinct = staged.positions.empty();
    PoolExecutor executor(ctx);
    float* rows;
    const size_t num_keys = distinct ? staged.plan->hashes().size() : staged.positions.size();
    OP_REQUIRES_OK(ctx, AllocateRows(ctx, 0, num_keys, table->table()->dim(), &rows));
    OP_REQUIRES_OK(ctx, ToTensorFlow(distinct ? table->table()->Read(*staged.plan, &executor, rows)
                                              : table->table()->Read(*staged.plan, staged.positions,
                                                                     &executor, rows)));
  }
};

class LookupOp : public Kernel {
 public:
  using Kernel::Kernel;

  void Run(tf::OpKernelContext* ctx) override {
    TablePtr table;
    OP_REQUIRES_OK(ctx, GetTable(ctx, &table));
    Span<const Key> keys;
    OP_REQUIRES_OK(ctx, ListFrom(ctx, 1, &keys));
    float* rows;
    OP_REQUIRES_OK(ctx, AllocateRows(ctx, 0, keys.size(), table->table()->dim(), &rows));
    PoolExecutor executor(ctx);
    OP_REQUIRES_OK(ctx, ToTensorFlow(table->table()->Lookup(keys, &executor, rows)));
  }
};

class ApplyOp : public Kernel {
 public:
  using Kernel::Kernel;

  void Run(tf::OpKernelContext* ctx) override {
    TablePtr table;
    OP_REQUIRES_OK(ctx, GetTable(ctx, &table));
    Span<const Key> keys;
    OP_REQUIRES_OK(ctx, ListFrom(ctx, 1, &keys));
    const float* gradients;
    OP_REQUIRES_OK(ctx, RowsFrom(ctx, 2, keys.size(), table->table()->dim(), &gradients));
    float learning_rate;
    OP_REQUIRES_OK(ctx, ScalarFrom(ctx, 3, &learning_rate));
    PoolExecutor executor(ctx);
    std::shared_ptr<Plan> plan = table->TakePlan(keys);
    if (plan == nullptr) {
      OP_REQUIRES_OK(ctx, ToTensorFlow(table->table()->Stage(keys, &executor, &plan)));
    }
    OP_REQUIRES_OK(
        ctx, ToTensorFlow(table->table()->Apply(learning_rate, gradients, &executor, plan.get())));
  }
};

class SetRowsOp : public Kernel {
 public:
  using Kernel::Kernel;

  void Run(tf::OpKernelContext* ctx) override {
    TablePtr table;
    OP_REQUIRES_OK(ctx, GetTable(ctx, &table));
    std::shared_ptr<const StagedPlan> staged;
    OP_REQUIRES_OK(ctx, PlanFrom(ctx, 1, table->table(), &staged));
    OP_REQUIRES(ctx, staged->positions.empty(),
                tf::errors::InvalidArgument("`plan` must have been staged with distinct keys."));
    Plan* const plan = staged->plan.get();
    const bool with_slots =
        ctx->input(2).dims() == 2 &&
        ctx->input(2).dim_size(1) != static_cast<int64_t>(table->table()->dim());
    const size_t floats = with_slots ? table->table()->row_floats() : table->table()->dim();
    const float* rows;
    OP_REQUIRES_OK(ctx, RowsFrom(ctx, 2, plan->hashes().size(), floats, &rows));
    PoolExecutor executor(ctx);
    OP_REQUIRES_OK(ctx, ToTensorFlow(table->table()->SetRows(rows, floats, &executor, plan)));
  }
};

class SizeOp : public Kernel {
 public:
  using Kernel::Kernel;

  void Run(tf::OpKernelContext* ctx) override {
    TablePtr table;
    OP_REQUIRES_OK(ctx, GetTable(ctx, &table));
    tf::Tensor* size;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, tf::TensorShape({}), &size));
    size->scalar<int64_t>()() = static_cast<int64_t>(table->table()->size());
  }
};

class ScanOp : public Kernel {
 public:
  using Kernel::Kernel;

  void Run(tf::OpKernelContext* ctx) override {
    TablePtr table;
    OP_REQUIRES_OK(ctx, GetTable(ctx, &table));
    int64_t start, max_rows;
    OP_REQUIRES_OK(ctx, ScalarFrom(ctx, 1, &start));
    OP_REQUIRES_OK(ctx, ScalarFrom(ctx, 2, &max_rows));
    OP_REQUIRES(ctx, max_rows > 0,
                tf::errors::InvalidArgument("`max_rows` must be positive. Received: ", max_rows));
    std::vector<Key> keys;
    std::vector<float> rows;
    size_t row_floats = table->table()->row_floats();
    auto next = static_cast<Hash>(start);
    bool done = true;
    table->table()->Scan(next, [&](Hash hash, Span<const float> row) {
      if (static_cast<int64_t>(keys.size()) == max_rows) {
        next = hash;
        done = false;
        return false;
      }
      keys.push_back(KeyOf(hash));
      rows.insert(rows.end(), row.begin(), row.end());
      row_floats = row.size();
      return true;
    });
    OP_REQUIRES_OK(ctx, OutputList<Key>(ctx, 0, keys));
    float* out;
    OP_REQUIRES_OK(ctx, AllocateRows(ctx, 1, keys.size(), row_floats, &out));
    std::copy(rows.begin(), rows.end(), out);
    tf::Tensor* tensor;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(2, tf::TensorShape({}), &tensor));
    tensor->scalar<int64_t>()() = static_cast<int64_t>(next);
    OP_REQUIRES_OK(ctx, ctx->allocate_output(3, tf::TensorShape({}), &tensor));
    tensor->scalar<bool>()() = done;
  }
};

class StatsOp : public Kernel {
 public:
  using Kernel::Kernel;

  void Run(tf::OpKernelContext* ctx) override {
    TablePtr table;
    OP_REQUIRES_OK(ctx, GetTable(ctx, &table));
    const TableStats stats = table->table()->Stats();
    const std::vector<int64_t> numbers = {
        static_cast<int64_t>(stats.rows), static_cast<int64_t>(stats.provisional_rows),
        static_cast<int64_t>(stats.row_bytes), static_cast<int64_t>(stats.index_bytes),
        static_cast<int64_t>(stats.page_bytes)};
    OP_REQUIRES_OK(ctx, OutputList<int64_t>(ctx, 0, numbers));
  }
};

TFSPARSE_REGISTER("Table", TableOp);
TFSPARSE_REGISTER("Bind", BindOp);
TFSPARSE_REGISTER("Stage", StageOp);
TFSPARSE_REGISTER("ReadPlan", ReadPlanOp);
TFSPARSE_REGISTER("Lookup", LookupOp);
TFSPARSE_REGISTER("Apply", ApplyOp);
TFSPARSE_REGISTER("SetRows", SetRowsOp);
TFSPARSE_REGISTER("Size", SizeOp);
TFSPARSE_REGISTER("Scan", ScanOp);
TFSPARSE_REGISTER("Stats", StatsOp);

}  // namespace
}  // namespace tfsparse
