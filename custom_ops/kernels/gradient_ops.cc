// Each kernel: the inputs, one call of the core, the outputs.

#include <algorithm>
#include <limits>

#include "core/segment_sum.h"
#include "kernels/convert.h"
#include "kernels/table_resource.h"

namespace tfsparse {
namespace {

namespace tf = ::tensorflow;
using TablePtr = tf::core::RefCountPtr<TableResource>;

// Positions come from other ops of ours, but a wrong one would read or write foreign memory.
tf::Status CheckPositions(Span<const int32_t> positions, size_t limit) {
  uint32_t largest = 0;
  for (int32_t position : positions) largest = std::max(largest, static_cast<uint32_t>(position));
  if (!positions.empty() && largest >= limit) {
    return tf::errors::InvalidArgument("`positions` must be in [0, ", limit,
                                       "). Received: ", static_cast<int32_t>(largest), ".");
  }
  return tf::OkStatus();
}

tf::Status KeysFrom(tf::OpKernelContext* ctx, Span<const Key>* keys) {
  TF_RETURN_IF_ERROR(ListFrom(ctx, 1, keys));
  if (keys->size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return tf::errors::InvalidArgument(
        "A batch holds at most 2^31 - 1 keys. Received: ", keys->size(), ".");
  }
  return tf::OkStatus();
}

class GroupKeysOp : public Kernel {
 public:
  using Kernel::Kernel;

  void Run(tf::OpKernelContext* ctx) override {
    TablePtr table;
    OP_REQUIRES_OK(ctx, GetTable(ctx, &table));
    Span<const Key> keys;
    OP_REQUIRES_OK(ctx, KeysFrom(ctx, &keys));
    table->WithGrouper([&](KeyGrouper* grouper) {
      grouper->Group(keys, table->table()->options().num_ranks);
      OP_REQUIRES_OK(ctx, OutputList<Key>(ctx, 0, grouper->unique()));
      OP_REQUIRES_OK(ctx, OutputList<int32_t>(ctx, 1, grouper->positions()));
      OP_REQUIRES_OK(ctx, OutputList<int32_t>(ctx, 2, grouper->counts()));
    });
  }
};

class SumByKeyOp : public Kernel {
 public:
  using Kernel::Kernel;

  void Run(tf::OpKernelContext* ctx) override {
    TablePtr table;
    OP_REQUIRES_OK(ctx, GetTable(ctx, &table));
    Span<const Key> keys;
    OP_REQUIRES_OK(ctx, KeysFrom(ctx, &keys));
    const size_t dim = table->table()->dim();
    const float* values;
    OP_REQUIRES_OK(ctx, RowsFrom(ctx, 2, keys.size(), dim, &values));
    table->WithGrouper([&](KeyGrouper* grouper) {
      grouper->Group(keys, table->table()->options().num_ranks);
      const size_t num_sums = grouper->unique().size();
      OP_REQUIRES_OK(ctx, OutputList<Key>(ctx, 0, grouper->unique()));
      OP_REQUIRES_OK(ctx, OutputList<int32_t>(ctx, 2, grouper->counts()));
      if (grouper->unchanged()) {
        ctx->set_output(1, ctx->input(2));
        return;
      }
      float* sums;
      OP_REQUIRES_OK(ctx, AllocateRows(ctx, 1, num_sums, dim, &sums));
      PoolExecutor executor(ctx);
      SegmentSum(values, grouper->positions(), dim, num_sums, &executor, sums);
    });
  }
};

class ExpandOp : public Kernel {
 public:
  using Kernel::Kernel;

  void Run(tf::OpKernelContext* ctx) override {
    TablePtr table;
    OP_REQUIRES_OK(ctx, GetTable(ctx, &table));
    const size_t num_rows = ctx->input(1).dims() == 2 ? ctx->input(1).dim_size(0) : 0;
    const size_t dim = table->table()->dim();
    const float* rows;
    OP_REQUIRES_OK(ctx, RowsFrom(ctx, 1, num_rows, dim, &rows));
    Span<const int32_t> positions;
    OP_REQUIRES_OK(ctx, ListFrom(ctx, 2, &positions));
    OP_REQUIRES_OK(ctx, CheckPositions(positions, num_rows));
    float* values;
    OP_REQUIRES_OK(ctx, AllocateRows(ctx, 0, positions.size(), dim, &values));
    PoolExecutor executor(ctx);
    Expand(rows, positions, dim, &executor, values);
  }
};

class AnchoredOp : public Kernel {
 public:
  using Kernel::Kernel;
  void Run(tf::OpKernelContext* ctx) override { ctx->set_output(0, ctx->input(1)); }
};

class SegmentSumOp : public Kernel {
 public:
  using Kernel::Kernel;

  void Run(tf::OpKernelContext* ctx) override {
    Span<const int32_t> positions;
    OP_REQUIRES_OK(ctx, ListFrom(ctx, 1, &positions));
    const size_t dim = ctx->input(0).dims() == 2 ? ctx->input(0).dim_size(1) : 0;
    const float* values;
    OP_REQUIRES_OK(ctx, RowsFrom(ctx, 0, positions.size(), dim, &values));
    int32_t num_sums;
    OP_REQUIRES_OK(ctx, ScalarFrom(ctx, 2, &num_sums));
    OP_REQUIRES(
        ctx, num_sums >= 0,
        tf::errors::InvalidArgument("`num_sums` must not be negative. Received: ", num_sums, "."));
    OP_REQUIRES_OK(ctx, CheckPositions(positions, num_sums));
    float* sums;
    OP_REQUIRES_OK(ctx, AllocateRows(ctx, 0, num_sums, dim, &sums));
    PoolExecutor executor(ctx);
    SegmentSum(values, positions, dim, num_sums, &executor, sums);
  }
};

TFSPARSE_REGISTER("GroupKeys", GroupKeysOp);
TFSPARSE_REGISTER("SumByKey", SumByKeyOp);
TFSPARSE_REGISTER("Expand", ExpandOp);
TFSPARSE_REGISTER("Anchored", AnchoredOp);
TFSPARSE_REGISTER("SegmentSum", SegmentSumOp);

}  // namespace
}  // namespace tfsparse
