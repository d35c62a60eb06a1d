// The threads that a table allows together: one stages, one applies, others read.
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "core/mix.h"
#include "random.h"
#include "reference_table.h"
#include "table_calls.h"

namespace tfsparse {
namespace {

using testing::Floats;
using testing::Keys;
using testing::PlanPointer;
using testing::Random;
using testing::ReferenceTable;
using testing::RowsOf;
using testing::Rule;
using testing::TablePointer;

constexpr size_t kDim = 8;
constexpr size_t kKeys = 3000;
constexpr size_t kSteps = 400;
constexpr size_t kMostAlive = 5;
constexpr float kInitial = 2.0f;
constexpr float kDefault = -1.0f;
const Rule kRule = {"adagrad", {0.5f, 0.0f}};

// A batch of consecutive keys. All floats of a gradient are equal and positive, so that the
// parameters of a row are equal at every moment, and so are its accumulators.
struct Batch {
  Keys keys;
  Floats gradients;
  bool applied;
};

std::vector<Batch> MakeBatches() {
  Random random;
  std::vector<Batch> batches(kSteps);
  for (size_t step = 0; step < kSteps; ++step) {
    Batch& batch = batches[step];
    batch.applied = step % 4 != 3;
    const auto first = static_cast<Key>(random.Below(kKeys - 64));
    for (Key key = first; key < first + 64; ++key) {
      batch.keys.push_back(key);
      batch.gradients.insert(batch.gradients.end(), kDim, random.Between(0.1f, 1.0f));
    }
  }
  return batches;
}

// Hands plans in order from one thread to another.
class PlanQueue {
 public:
  void Push(PlanPointer plan) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return plans_.size() < kMostAlive - 1; });
    plans_.push_back(std::move(plan));
    changed_.notify_all();
  }
  PlanPointer Pop() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return !plans_.empty(); });
    PlanPointer plan = std::move(plans_.front());
    plans_.pop_front();
    changed_.notify_all();
    return plan;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<PlanPointer> plans_;
};

// What the threads found wrong; the harness counts on one thread only.
class Faults {
 public:
  void Check(bool held, const char* what) {
    if (!held) fault_ = what;
  }
  const char* first() const { return fault_; }

 private:
  std::atomic<const char*> fault_{nullptr};
};

bool AllEqual(const float* floats, size_t n) {
  for (size_t i = 1; i < n; ++i) {
    if (floats[i] != floats[0]) return false;
  }
  return true;
}

// Each plan has a twin that ends here, as one whose step was cancelled.
void StageAll(Table* table, const std::vector<Batch>& batches, PlanQueue* queue, Faults* faults) {
  SerialExecutor executor;
  for (const Batch& batch : batches) {
    PlanPointer plan;
    faults->Check(table->Stage(batch.keys, &executor, &plan).ok(), "Stage failed");
    PlanPointer twin;
    faults->Check(table->Stage(batch.keys, &executor, &twin).ok(), "Stage failed");
    queue->Push(std::move(plan));
  }
}

void ApplyAll(Table* table, const std::vector<Batch>& batches, PlanQueue* queue,
              ReferenceTable* reference, Faults* faults) {
  SerialExecutor executor;
  Floats read(64 * kDim);
  for (const Batch& batch : batches) {
    const PlanPointer plan = queue->Pop();
    faults->Check(table->Read(*plan, &executor, read.data()).ok(), "Read failed");
    faults->Check(read == reference->ReadOrNew(batch.keys), "a plan read something stale");
    if (!batch.applied) continue;
    const Status status = table->Apply(0.1f, batch.gradients.data(), &executor, plan.get());
    faults->Check(status.ok(), "Apply failed");
    reference->Apply(batch.keys, 0.1f, batch.gradients);
  }
}

void LookUpUntil(const std::atomic<bool>& done, const Table& table, Faults* faults) {
  Random random(1);
  SerialExecutor executor;
  Keys keys(300);
  Floats rows(keys.size() * kDim);
  size_t size = 0;
  for (int i = 0; i < 2000 && !done; ++i) {
    for (Key& key : keys) key = static_cast<Key>(random.Below(kKeys));
    faults->Check(table.Lookup(keys, &executor, rows.data()).ok(), "Lookup failed");
    for (size_t j = 0; j < keys.size(); ++j) {
      const float* row = &rows[j * kDim];
      faults->Check(AllEqual(row, kDim), "a lookup saw half an update");
      faults->Check(row[0] < kInitial, "a lookup saw a row before its first step");
    }
    const size_t grown = table.size();
    faults->Check(grown >= size && grown <= kKeys, "the size went back");
    size = grown;
  }
}

void ScanUntil(const std::atomic<bool>& done, const Table& table, Faults* faults) {
  Random random(2);
  for (int i = 0; i < 500 && !done; ++i) {
    Hash from = random.Next();
    int left = 200;
    table.Scan(from, [&](Hash hash, Span<const float> row) {
      faults->Check(hash >= from, "a scan went back");
      from = hash + 1;
      faults->Check(AllEqual(row.data(), kDim) && AllEqual(row.data() + kDim, kDim),
                    "a scan saw half an update");
      faults->Check(row[kDim] > 0.5f, "a scan saw a row before its first step");
      return --left > 0;
    });
    faults->Check(table.Stats().provisional_rows <= (kMostAlive + 1) * 64, "too many rows wait");
  }
}

TEST(TableThreads, StagerApplierAndReadersEndInTheSerialState) {
  TableOptions options;
  options.name = "t";
  options.dim = kDim;
  options.initializer_arguments = {kInitial};
  options.default_value = kDefault;
  const TablePointer table = testing::MakeTable(options);
  ASSERT_OK(table->Bind(kRule.kind, kRule.arguments));
  const std::vector<Batch> batches = MakeBatches();
  ReferenceTable reference(kDim, kInitial, kInitial, 0);
  reference.Bind(kRule);
  PlanQueue queue;
  Faults faults;
  std::atomic<bool> done{false};
  std::thread looker(LookUpUntil, std::cref(done), std::cref(*table), &faults);
  std::thread scanner(ScanUntil, std::cref(done), std::cref(*table), &faults);
  std::thread stager(StageAll, table.get(), std::cref(batches), &queue, &faults);
  std::thread applier(ApplyAll, table.get(), std::cref(batches), &queue, &reference, &faults);
  stager.join();
  applier.join();
  done = true;
  looker.join();
  scanner.join();
  EXPECT_EQ(std::string(faults.first() ? faults.first() : ""), "");
  EXPECT_TRUE(RowsOf(*table) == reference.Rows());
  EXPECT_EQ(table->Stats().provisional_rows, 0u);
  EXPECT_TRUE(table->size() > 2000);
}

// Starts another thread's work and then probes, which takes long enough for that to come between.
class SignallingExecutor : public SerialExecutor {
 public:
  explicit SignallingExecutor(std::atomic<bool>* started) : started_(started) {}
  void ParallelFor(size_t n, size_t unit_ns, LoopBody work) override {
    *started_ = true;
    SerialExecutor::ParallelFor(n, unit_ns, work);
  }

 private:
  std::atomic<bool>* started_;
};

// The stager finds key 1 provisional; before it has the index alone, the row is committed, or is
// dropped and belongs to nobody.
TEST(TableThreads, PlanMayEndBetweenTheTwoProbesOfTheStager) {
  const TablePointer table = testing::MakeTable(1, 10.0f);
  ASSERT_OK(table->Bind("sgd", {}));
  Keys many(20000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<Key>(i + 1000000);
  testing::Apply(table.get(), testing::Stage(table.get(), many).get(), 0.0f,
                 Floats(many.size(), 1.0f));
  size_t committed = many.size();
  for (Key key = 0; key < 60; ++key) {
    PlanPointer first = testing::Stage(table.get(), {key});
    many[0] = key;
    std::atomic<bool> started{false};
    std::thread ender([&] {
      while (!started) std::this_thread::yield();
      if (key % 2 == 0) testing::Apply(table.get(), first.get(), 1.0f, {3});
      first.reset();
    });
    SignallingExecutor executor(&started);
    PlanPointer second;
    const Status staged = table->Stage(many, &executor, &second);
    ender.join();
    ASSERT_OK(staged);
    if (key % 2 == 0) ++committed;
    ASSERT_EQ(table->Stats().provisional_rows, key % 2);
    ASSERT_EQ(testing::Read(*table, *second)[0], key % 2 == 0 ? 7.0f : 10.0f);
    second.reset();
    ASSERT_EQ(table->Stats().provisional_rows, 0u);
    ASSERT_EQ(table->size(), committed);
  }
}

// Slots are added while another thread stages and drops: a row keeps its number and its values.
TEST(TableThreads, BindMayRunBesideTheStager) {
  for (int round = 0; round < 20; ++round) {
    const TablePointer table = testing::MakeTable(3, 1.0f);
    std::vector<PlanPointer> kept;
    std::thread stager([&] {
      SerialExecutor executor;
      for (Key first = 0; first < 4000; first += 40) {
        Keys keys;
        for (Key key = first; key < first + 40; ++key) keys.push_back(key);
        PlanPointer plan;
        if (!table->Stage(keys, &executor, &plan).ok()) return;
        if (first % 80 == 0) kept.push_back(plan);
      }
    });
    const Status bound = table->Bind("adagrad", {7.0f, 0.0f});
    stager.join();
    ASSERT_OK(bound);
    ASSERT_EQ(kept.size(), 50u);
    for (const PlanPointer& plan : kept) {
      testing::Apply(table.get(), plan.get(), 4.0f, Floats(120, 3.0f));  // 1 - 4 * 3 / 4
    }
    EXPECT_EQ(table->size(), 2000u);
    for (const auto& [hash, row] : RowsOf(*table)) {
      ASSERT_EQ(row, (Floats{-2, -2, -2, 16, 16, 16}));
      ASSERT_TRUE(KeyOf(hash) % 80 < 40);
    }
  }
}

}  // namespace
}  // namespace tfsparse
