#include "kernels/table_resource.h"

#include <algorithm>

namespace tfsparse {
namespace {

// A layer called four times in a step still finds each of its plans.
constexpr size_t kMaxKeptPlans = 4;

bool StagedFor(const Plan& plan, Span<const Key> keys) {
  return std::equal(keys.begin(), keys.end(), plan.hashes().begin(), plan.hashes().end(),
                    [](Key key, Hash hash) { return HashOf(key) == hash; });
}

}  // namespace

void TableResource::KeepPlan(std::shared_ptr<Plan> plan) {
  std::shared_ptr<Plan> dropped;  // is undone outside the lock
  std::lock_guard<std::mutex> lock(plans_mutex_);
  plans_.push_back(std::move(plan));
  if (plans_.size() > kMaxKeptPlans) {
    dropped = std::move(plans_.front());
    plans_.pop_front();
  }
}

std::shared_ptr<Plan> TableResource::TakePlan(Span<const Key> keys) {
  std::lock_guard<std::mutex> lock(plans_mutex_);
  for (auto it = plans_.rbegin(); it != plans_.rend(); ++it) {
    if (!StagedFor(**it, keys)) continue;
    std::shared_ptr<Plan> plan = std::move(*it);
    plans_.erase(std::next(it).base());
    return plan;
  }
  return nullptr;
}

void TableResource::DropPlans() {
  std::deque<std::shared_ptr<Plan>> dropped;  // are undone outside the lock
  std::lock_guard<std::mutex> lock(plans_mutex_);
  plans_.swap(dropped);
}

tensorflow::Status GetTable(tensorflow::OpKernelContext* ctx,
                            tensorflow::core::RefCountPtr<TableResource>* table) {
  return tensorflow::LookupResource(ctx, tensorflow::HandleFromInput(ctx, 0), table);
}

}  // namespace tfsparse
