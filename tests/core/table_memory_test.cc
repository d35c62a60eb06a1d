// Every allocation of a call fails once: the call says so, and the table is as it was.
#include "allocation_failure.h"
#include "core/mix.h"
#include "table_calls.h"

namespace tfsparse {
namespace {

using testing::AllocationFailure;
using testing::Floats;
using testing::Keys;
using testing::PlanPointer;
using testing::RowsOf;
using testing::Stage;
using testing::TablePointer;

constexpr size_t kDim = 300;  // 1,024 rows a page

// Of the last bucket only, so that one sub-index holds all keys and grows with them.
constexpr uint32_t kRanks = 65536;

Keys LastKeys(size_t begin, size_t end) {
  Keys keys;
  for (size_t i = begin; i < end; ++i) keys.push_back(KeyOf(Hash{kRanks - 1} << 48 | Mix(i) >> 16));
  return keys;
}

// `num_rows` committed rows, each 1 - 3.
TablePointer FilledTable(size_t num_rows) {
  TableOptions options;
  options.name = "t";
  options.dim = kDim;
  options.rank = kRanks - 1;
  options.num_ranks = kRanks;
  options.initializer_arguments = {1.0f};
  const TablePointer table = testing::MakeTable(options);
  EXPECT_OK(table->Bind("sgd", {}));
  testing::Apply(table.get(), Stage(table.get(), LastKeys(0, num_rows)).get(), 1.0f,
                 Floats(num_rows * kDim, 3.0f));
  return table;
}

// Calls try_once(k) for k = 0, 1, 2, ... until it says that there was no k-th allocation, and
// returns how many there were.
template <typename TryOnce>
int Sweep(const TryOnce& try_once) {
  int k = 0;
  while (try_once(k)) ++k;
  return k;
}

void ExpectUsable(Table* table) {
  const size_t size = table->size();
  const Keys keys = LastKeys(10000, 10400);
  testing::Apply(table, Stage(table, keys).get(), 2.0f, Floats(400 * kDim, 1.0f));
  EXPECT_EQ(table->size(), size + 400);
  EXPECT_EQ(testing::Lookup(*table, keys), Floats(400 * kDim, -1.0f));
}

TEST(TableMemory, FailedStageLeavesTheTableAsItWas) {
  const int allocations = Sweep([](int k) {
    const TablePointer table = FilledTable(900);  // there is room for 124 more in the page
    const PlanPointer outstanding = Stage(table.get(), LastKeys(890, 950));
    const auto rows = RowsOf(*table);
    const Keys keys = LastKeys(880, 1200);
    SerialExecutor executor;
    PlanPointer plan;
    Status status;
    bool happened;
    {
      AllocationFailure failure(k);
      status = table->Stage(keys, &executor, &plan);
      happened = failure.happened();
    }
    if (!happened) {
      EXPECT_OK(status);
      return false;
    }
    EXPECT_EQ(status.code(), Code::kResourceExhausted);
    EXPECT_TRUE(status.message().find("'t'") != std::string::npos);
    EXPECT_TRUE(plan == nullptr);
    EXPECT_EQ(table->Stats().provisional_rows, 50u);
    EXPECT_TRUE(RowsOf(*table) == rows);
    Floats wanted(10 * kDim, -2.0f);
    wanted.resize(60 * kDim, 1.0f);
    EXPECT_EQ(testing::Read(*table, *outstanding), wanted);
    EXPECT_OK(table->Stage(keys, &executor, &plan));
    EXPECT_EQ(table->Stats().provisional_rows, 300u);
    ExpectUsable(table.get());
    return true;
  });
  // The plan, its three vectors, the keys to settle, a page, its list, and growths of the index.
  EXPECT_TRUE(allocations >= (testing::MallocFails() ? 9 : 5));
}

// The index fails to grow after the row was taken: the row must go back.
TEST(TableMemory, FailedStagesLeakNoRows) {
  size_t full = 100;  // keys that fit in the index before it grows
  {
    const TablePointer table = FilledTable(full);
    const size_t bytes = table->Stats().index_bytes;
    std::vector<PlanPointer> plans;
    for (; table->Stats().index_bytes == bytes; ++full) {
      plans.push_back(Stage(table.get(), LastKeys(full, full + 1)));
    }
    --full;
  }
  const TablePointer table = FilledTable(full);
  const size_t page_bytes = table->Stats().page_bytes;
  const Keys key = LastKeys(full, full + 1);
  SerialExecutor executor;
  Sweep([&](int k) {
    for (int i = 0; i < 1100; ++i) {
      PlanPointer plan;
      AllocationFailure failure(k);
      const Status status = table->Stage(key, &executor, &plan);
      if (!failure.happened()) return false;
      EXPECT_EQ(status.code(), Code::kResourceExhausted);
    }
    return true;
  });
  EXPECT_EQ(table->Stats().page_bytes, page_bytes);
}

TEST(TableMemory, FailedFirstStageLeavesTheTableEmpty) {
  Keys keys;
  for (Key key = 0; key < 100; ++key) keys.push_back(key);
  Sweep([&](int k) {
    const TablePointer table = testing::MakeTable(2, 0.0f);
    SerialExecutor executor;
    PlanPointer plan;
    Status status;
    bool happened;
    {
      AllocationFailure failure(k);
      status = table->Stage(keys, &executor, &plan);
      happened = failure.happened();
    }
    EXPECT_EQ(status.code(), happened ? Code::kResourceExhausted : Code::kOk);
    EXPECT_EQ(table->Stats().provisional_rows, happened ? 0u : 100u);
    EXPECT_EQ(table->size(), 0u);
    if (happened) EXPECT_OK(table->Stage(keys, &executor, &plan));
    return happened;
  });
}

TEST(TableMemory, FailedBindLeavesTheTableUnbound) {
  const int allocations = Sweep([](int k) {
    TablePointer table = testing::MakeTable(1, 1.0f);
    Keys keys;
    for (Key key = 0; key < 100; ++key) keys.push_back(key);
    const PlanPointer plan = Stage(table.get(), keys);
    const std::vector<float> arguments = {0.5f, 0.25f, 0.0f};
    Status status;
    bool happened;
    {
      AllocationFailure failure(k);
      status = table->Bind("adam", arguments);
      happened = failure.happened();
    }
    EXPECT_EQ(status.code(), happened ? Code::kResourceExhausted : Code::kOk);
    EXPECT_EQ(table->row_floats(), happened ? 1u : 4u);
    EXPECT_OK(
        table->Bind(happened ? "adagrad" : "adam", happened ? Floats{7.0f, 0.0f} : arguments));
    testing::Apply(table.get(), plan.get(), 4.0f, Floats(100, 3.0f));
    EXPECT_EQ(testing::Lookup(*table, keys), Floats(100, happened ? -2.0f : -3.0f));
    return happened;
  });
  EXPECT_TRUE(allocations >= 5);
}

TEST(TableMemory, FailedCreateSaysSo) {
  TableOptions options;
  options.name = "a name that is too long to stand inside of a string object";
  options.dim = 4;
  const int allocations = Sweep([&](int k) {
    TablePointer table;
    AllocationFailure failure(k);
    const Status status = Table::Create(options, &table);
    EXPECT_EQ(status.code(), failure.happened() ? Code::kResourceExhausted : Code::kOk);
    EXPECT_EQ(table == nullptr, failure.happened());
    return failure.happened();
  });
  EXPECT_TRUE(allocations >= 5);
}

}  // namespace
}  // namespace tfsparse
