#ifndef TFSPARSE_KERNELS_TABLE_RESOURCE_H_
#define TFSPARSE_KERNELS_TABLE_RESOURCE_H_

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "core/key_grouper.h"
#include "core/table.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"

namespace tfsparse {

// A plan together with what the kernels need around it: keys arrive from several ranks and
// repeat, while the core stages distinct ones.
struct StagedPlan {
  std::shared_ptr<Plan> plan;
  std::vector<int32_t> positions;  // [m] into the plan's keys; empty when the keys were distinct
};

// TableResource is what a table's handle points to: the core's table, scratch memory, and the
// plans of steps under way.
//
// A lookup made inside the step leaves its plan here, because only keys and gradients pass
// through Keras between the forward pass and the update. TakePlan() finds the plan again by
// its keys, so the update needs no second search; where it is gone (gradients of several
// lookups were added, or another step came in between) the update stages its keys anew. The
// list is short, and what falls off its end is undone: a forward pass that is never applied
// leaves nothing behind.
class TableResource : public tensorflow::ResourceBase {
 public:
  explicit TableResource(std::shared_ptr<Table> table) : table_(std::move(table)) {}

  std::string DebugString() const override {
    return "tfsparse table '" + table_->options().name + "'";
  }

  Table* table() { return table_.get(); }

  void KeepPlan(std::shared_ptr<Plan> plan);

  // The kept plan that was staged for exactly these keys, which is then kept no longer, or
  // null. The newest wins.
  std::shared_ptr<Plan> TakePlan(Span<const Key> keys);

  // Forgets all kept plans.
  void DropPlans();

  // Runs work(grouper) with the shared scratch memory; one at a time.
  template <typename Work>
  void WithGrouper(const Work& work) {
    std::lock_guard<std::mutex> lock(grouper_mutex_);
    work(&grouper_);
  }

 private:
  std::shared_ptr<Table> table_;
  std::mutex grouper_mutex_;
  KeyGrouper grouper_;
  std::mutex plans_mutex_;
  std::deque<std::shared_ptr<Plan>> plans_;  // oldest first
};

// The table of input 0; the caller holds a reference while it is in use.
tensorflow::Status GetTable(tensorflow::OpKernelContext* ctx,
                            tensorflow::core::RefCountPtr<TableResource>* table);

}  // namespace tfsparse

#endif  // TFSPARSE_KERNELS_TABLE_RESOURCE_H_
