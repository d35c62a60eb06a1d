#include "core/table.h"

#include <cmath>
#include <limits>

#include "core/mix.h"
#include "random.h"
#include "reference_table.h"
#include "table_calls.h"
#include "threaded_executor.h"

namespace tfsparse {
namespace {

using testing::Apply;
using testing::Floats;
using testing::Keys;
using testing::Lookup;
using testing::MakeTable;
using testing::PlanPointer;
using testing::Random;
using testing::Read;
using testing::RowsOf;
using testing::SetRows;
using testing::Stage;
using testing::TablePointer;
using testing::ThreadedExecutor;

TablePointer SgdTable(size_t dim, float initial) {
  TablePointer table = MakeTable(dim, initial);
  EXPECT_OK(table->Bind("sgd", {}));
  return table;
}

TEST(Table, StepSubtractsTheGradientOfEachKey) {
  const TablePointer table = SgdTable(2, 1.0f);
  Apply(table.get(), Stage(table.get(), {7, -7}).get(), 0.5f, {2, 4, 6, 8});
  EXPECT_EQ(Lookup(*table, {-7, 7}), (Floats{-2, -3, 0, -1}));
  Apply(table.get(), Stage(table.get(), {9, 7}).get(), 1.0f, {1, 1, 10, 20});
  EXPECT_EQ(Lookup(*table, {7, 9, -7}), (Floats{-10, -21, 0, 0, -2, -3}));
  EXPECT_EQ(table->size(), 3u);
}

TEST(Table, NewTableIsEmpty) {
  const TablePointer table = MakeTable(3, 0.0f);
  EXPECT_EQ(table->size(), 0u);
  EXPECT_EQ(table->row_floats(), 3u);
  EXPECT_TRUE(RowsOf(*table).empty());
  EXPECT_EQ(table->Stats().rows, 0u);
  EXPECT_EQ(table->Stats().index_bytes, 0u);
  EXPECT_EQ(table->Stats().page_bytes, 0u);
}

TEST(Table, AbsentKeysReadTheDefaultAndStayAbsent) {
  const TablePointer table = MakeTable(2, 5.0f);
  EXPECT_EQ(Lookup(*table, {1, 2, 1}), Floats(6, -1.0f));
  EXPECT_EQ(table->size(), 0u);
  EXPECT_EQ(table->Stats().page_bytes, 0u);
}

TEST(Table, EmptyBatchIsAStep) {
  const TablePointer table = SgdTable(2, 1.0f);
  const PlanPointer plan = Stage(table.get(), {});
  EXPECT_EQ(Read(*table, *plan), Floats{});
  EXPECT_EQ(Lookup(*table, {}), Floats{});
  Apply(table.get(), plan.get(), 1.0f, {});
  EXPECT_EQ(table->size(), 0u);
}

TEST(Table, ApplyWithoutOptimizerIsRefused) {
  const TablePointer table = MakeTable(2, 1.0f);
  const PlanPointer plan = Stage(table.get(), {3});
  SerialExecutor executor;
  const Floats gradients = {1, 1};
  const Status status = table->Apply(1.0f, gradients.data(), &executor, plan.get());
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_TRUE(status.message().find("'t'") != std::string::npos);
  EXPECT_EQ(table->size(), 0u);
  EXPECT_OK(table->Bind("sgd", {}));
  Apply(table.get(), plan.get(), 1.0f, gradients);  // the plan is as good as before
  EXPECT_EQ(Lookup(*table, {3}), (Floats{0, 0}));
}

TEST(Table, BindAddsSlotsToRowsThatExist) {
  const TablePointer table = MakeTable(2, 1.0f);
  const PlanPointer first = Stage(table.get(), {1, 2});
  const PlanPointer second = Stage(table.get(), {2, 3});
  Stage(table.get(), {4, 5, 6, 7});  // dropped: its rows are free while the slots are added
  EXPECT_EQ(table->row_floats(), 2u);
  EXPECT_OK(table->Bind("adagrad", {7.0f, 0.0f}));
  EXPECT_EQ(table->row_floats(), 4u);
  EXPECT_EQ(table->Stats().row_bytes, 16u);
  EXPECT_EQ(Read(*table, *first), Floats(4, 1.0f));
  Apply(table.get(), first.get(), 4.0f, {3, 3, 3, 3});
  EXPECT_EQ(Read(*table, *second), (Floats{-2, -2, 1, 1}));
  Apply(table.get(), second.get(), 5.0f, {3, 3, 3, 3});
  const PlanPointer third = Stage(table.get(), {4, 5, 6, 7, 8});
  EXPECT_EQ(Read(*table, *third), Floats(10, 1.0f));
  const auto rows = RowsOf(*table);
  EXPECT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows.at(HashOf(1)), (Floats{-2, -2, 16, 16}));
  EXPECT_EQ(rows.at(HashOf(2)), (Floats{-5, -5, 25, 25}));
  EXPECT_EQ(rows.at(HashOf(3)), (Floats{-2.75f, -2.75f, 16, 16}));
}

TEST(Table, RowsThatAreFreeStayFreeWhenBound) {
  const TablePointer table = MakeTable(300, 1.0f);  // 1,024 rows a page
  Keys keys;
  for (Key key = 0; key < 1000; ++key) keys.push_back(key);
  Stage(table.get(), keys);
  EXPECT_OK(table->Bind("sgd", {}));
  const size_t page_bytes = table->Stats().page_bytes;
  Apply(table.get(), Stage(table.get(), keys).get(), 1.0f, Floats(300000, 1.0f));
  EXPECT_EQ(table->Stats().page_bytes, page_bytes);
}

TEST(Table, SetRowsGivesNewAndOldKeysTheirValues) {
  const TablePointer table = MakeTable(2, 1.0f);
  SetRows(table.get(), Stage(table.get(), {1, 2}).get(), {1, 2, 3, 4});  // no rule yet
  EXPECT_EQ(Lookup(*table, {2, 1, 3}), (Floats{3, 4, 1, 2, -1, -1}));
  EXPECT_OK(table->Bind("adagrad", {7.0f, 0.0f}));
  Apply(table.get(), Stage(table.get(), {2, 1}).get(), 4.0f, {3, 3, 3, 3});
  EXPECT_EQ(RowsOf(*table).at(HashOf(2)), (Floats{0, 1, 16, 16}));
  SetRows(table.get(), Stage(table.get(), {2, 5}).get(), {9, 8, 7, 6});
  SetRows(table.get(), Stage(table.get(), {1, 6}).get(), {1, 2, 3, 4, 5, 6, 7, 8});
  const auto rows = RowsOf(*table);
  EXPECT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows.at(HashOf(2)), (Floats{9, 8, 7, 7}));
  EXPECT_EQ(rows.at(HashOf(5)), (Floats{7, 6, 7, 7}));
  EXPECT_EQ(rows.at(HashOf(1)), (Floats{1, 2, 3, 4}));
  EXPECT_EQ(rows.at(HashOf(6)), (Floats{5, 6, 7, 8}));
}

TEST(Table, SetRowsCommitsWhatOtherPlansHold) {
  const TablePointer table = SgdTable(1, 1.0f);
  const PlanPointer plan = Stage(table.get(), {1, 2});
  SetRows(table.get(), Stage(table.get(), {2}).get(), {5});
  EXPECT_EQ(table->size(), 1u);
  EXPECT_EQ(Read(*table, *plan), (Floats{1, 5}));
  Apply(table.get(), plan.get(), 1.0f, {1, 1});
  EXPECT_EQ(Lookup(*table, {1, 2}), (Floats{0, 4}));
}

TEST(Table, RebindingAnotherRuleFails) {
  const TablePointer table = MakeTable(1, 0.0f);
  EXPECT_EQ(table->Bind("lion", {}).code(), Code::kInvalidArgument);
  EXPECT_OK(table->Bind("adagrad", {0.5f, 1.0f}));
  Apply(table.get(), Stage(table.get(), {1}).get(), 1.0f, {2});
  const auto rows = RowsOf(*table);
  EXPECT_OK(table->Bind("adagrad", {0.5f, 1.0f}));
  EXPECT_EQ(table->Bind("adagrad", {0.6f, 1.0f}).code(), Code::kFailedPrecondition);
  EXPECT_EQ(table->Bind("sgd", {}).code(), Code::kFailedPrecondition);
  EXPECT_EQ(table->Bind("none", {}).code(), Code::kFailedPrecondition);
  EXPECT_TRUE(RowsOf(*table) == rows);
}

// Among three ranks, key 0 belongs to rank 0, keys 1 and 42 to rank 1 (ownership_test.cc).
TEST(Table, KeysOfAnotherRankAreRefused) {
  TableOptions options;
  options.name = "t";
  options.dim = 2;
  options.rank = 1;
  options.num_ranks = 3;
  const TablePointer table = MakeTable(options);
  EXPECT_OK(table->Bind("sgd", {}));
  SerialExecutor serial;
  ThreadedExecutor threaded(3);
  Floats out(6);
  for (Executor* executor : {static_cast<Executor*>(&serial), static_cast<Executor*>(&threaded)}) {
    for (const Keys& keys : {Keys{0}, Keys{1, 0, 42}, Keys{1, 42, 2}}) {
      PlanPointer plan;
      const Status staged = table->Stage(keys, executor, &plan);
      EXPECT_EQ(staged.code(), Code::kInvalidArgument);
      EXPECT_TRUE(staged.message().find("rank 1 of 3") != std::string::npos);
      EXPECT_TRUE(plan == nullptr);
      EXPECT_EQ(table->Lookup(keys, executor, out.data()).code(), Code::kInvalidArgument);
      EXPECT_EQ(table->Stats().provisional_rows, 0u);
      EXPECT_EQ(table->Stats().index_bytes, 0u);
    }
  }
  Apply(table.get(), Stage(table.get(), {1, 42}).get(), 1.0f, Floats(4, 1.0f));
  EXPECT_EQ(table->size(), 2u);
}

TEST(Table, NoKeyValueIsReserved) {
  const Keys keys = {0,
                     -1,
                     -2,
                     -3,
                     1,
                     std::numeric_limits<Key>::min(),
                     std::numeric_limits<Key>::max(),
                     KeyOf(1),              // the hash after 0's
                     KeyOf(~Hash{0}),       // of the highest hash
                     KeyOf(~Hash{0} - 1)};  // and its neighbour
  const TablePointer table = SgdTable(1, 0.0f);
  for (size_t i = 0; i < keys.size(); ++i) {
    const Floats rest(keys.size() - i, -1.0f);
    EXPECT_EQ(Lookup(*table, Keys(keys.begin() + i, keys.end())), rest);
    Apply(table.get(), Stage(table.get(), {keys[i]}).get(), 1.0f, {-1.0f - i});
  }
  EXPECT_EQ(table->size(), 10u);
  EXPECT_EQ(Lookup(*table, keys), (Floats{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(RowsOf(*table).size(), 10u);
  Apply(table.get(), Stage(table.get(), keys).get(), 1.0f, Floats(10, 1.0f));
  EXPECT_EQ(Lookup(*table, keys), (Floats{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(Table, ScanYieldsHashOrderAndResumes) {
  const TablePointer table = SgdTable(1, 0.0f);
  Keys keys;
  for (Key key = 0; key < 5000; ++key) keys.push_back(key);
  Apply(table.get(), Stage(table.get(), keys).get(), 1.0f, Floats(5000, 1.0f));
  const PlanPointer unseen = Stage(table.get(), {6000, 6001, 6002});
  std::vector<Hash> hashes;
  size_t in_block = 7;
  while (in_block == 7) {
    in_block = 0;
    table->Scan(hashes.empty() ? 0 : hashes.back() + 1, [&](Hash hash, Span<const float> row) {
      EXPECT_EQ(row[0], -1.0f);
      EXPECT_TRUE(hashes.empty() || hash > hashes.back());
      hashes.push_back(hash);
      return ++in_block < 7;
    });
  }
  EXPECT_EQ(hashes.size(), 5000u);
  for (Hash hash : hashes) ASSERT_TRUE(KeyOf(hash) >= 0 && KeyOf(hash) < 5000);
}

TEST(Table, RatesThatCannotBeMeantAreRefusedAndChangeNothing) {
  const TablePointer table = SgdTable(1, 3.0f);
  Apply(table.get(), Stage(table.get(), {1}).get(), 1.0f, {2});
  const float gradient = 1.0f;
  SerialExecutor executor;
  for (float rate : {-1.0f, 2e12f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    const PlanPointer plan = Stage(table.get(), {1});
    EXPECT_EQ(table->Apply(rate, &gradient, &executor, plan.get()).code(), Code::kInvalidArgument);
    EXPECT_EQ(Lookup(*table, {1}), Floats{1.0f});
  }
}

TEST(Table, ReadByPositionsRepeatsRows) {
  const TablePointer table = SgdTable(2, 0.0f);
  Apply(table.get(), Stage(table.get(), {10, 11, 12}).get(), 1.0f, {0, 0, -1, -2, -2, -4});
  const PlanPointer plan = Stage(table.get(), {12, 11, 10});
  std::vector<int32_t> positions;
  Floats wanted;
  for (int i = 0; i < 1000; ++i) {
    positions.push_back(i % 3);
    for (int j : {1, 2}) wanted.push_back(static_cast<float>((2 - i % 3) * j));
  }
  for (size_t num_threads : {1, 3}) {
    ThreadedExecutor executor(num_threads);
    Floats out(2000, -7.0f);
    EXPECT_OK(table->Read(*plan, positions, &executor, out.data()));
    EXPECT_EQ(out, wanted);
  }
}

TEST(Table, ThreadsOfTheExecutorChangeNothing) {
  Random random;
  TableOptions options;
  options.dim = 5;
  options.initializer = "uniform";
  options.initializer_arguments = {-1, 1};
  const TablePointer one = MakeTable(options);
  const TablePointer many = MakeTable(options);
  SerialExecutor serial;
  ThreadedExecutor threaded(3);
  for (const TablePointer& table : {one, many}) {
    EXPECT_OK(table->Bind("adam", {0.1f, 0.001f, 1e-7f}));
  }
  for (int step = 0; step < 20; ++step) {
    Keys keys;
    Floats gradients;
    for (int i = 0; i < 300; ++i) {
      keys.push_back(static_cast<Key>(i * 5 + random.Below(5)));
      for (int j = 0; j < 5; ++j) gradients.push_back(random.Between(-1, 1));
    }
    Floats reads[2] = {Floats(1500), Floats(1500)};
    for (int t = 0; t < 2; ++t) {
      Table* table = t == 0 ? one.get() : many.get();
      Executor* executor = t == 0 ? static_cast<Executor*>(&serial) : &threaded;
      PlanPointer plan;
      EXPECT_OK(table->Stage(keys, executor, &plan));
      EXPECT_OK(table->Read(*plan, executor, reads[t].data()));
      EXPECT_OK(table->Apply(0.1f, gradients.data(), executor, plan.get()));
    }
    EXPECT_EQ(reads[0], reads[1]);
    Floats looked_up(1500);
    EXPECT_OK(many->Lookup(keys, &threaded, looked_up.data()));
    EXPECT_EQ(looked_up, Lookup(*one, keys));
  }
  EXPECT_TRUE(RowsOf(*one) == RowsOf(*many));
}

TEST(Table, StatsCountRowsAndBytes) {
  const TablePointer table = SgdTable(16, 0.0f);
  Keys keys;
  for (Key key = 0; key < 1000; ++key) keys.push_back(key);
  Apply(table.get(), Stage(table.get(), keys).get(), 1.0f, Floats(16000, 1.0f));
  const PlanPointer plan = Stage(table.get(), {1, -1, -2});
  const TableStats stats = table->Stats();
  EXPECT_EQ(stats.rows, 1000u);
  EXPECT_EQ(stats.provisional_rows, 2u);
  EXPECT_EQ(stats.row_bytes, 64u);
  EXPECT_TRUE(stats.index_bytes >= 1002 * 12);
  EXPECT_TRUE(stats.page_bytes >= 1002 * 64);
}

TEST(Table, ImpossibleOptionsAreRefused) {
  TableOptions good;
  good.name = "users";
  good.dim = 4;
  TablePointer table;
  EXPECT_OK(Table::Create(good, &table));
  const auto refused = [&](void (*spoil)(TableOptions*)) {
    TableOptions options = good;
    spoil(&options);
    table.reset();
    const Status status = Table::Create(options, &table);
    return status.code() == Code::kInvalidArgument && table == nullptr;
  };
  EXPECT_TRUE(refused([](TableOptions* options) { options->dim = 0; }));
  EXPECT_TRUE(refused([](TableOptions* options) { options->dim = 65537; }));
  EXPECT_TRUE(refused([](TableOptions* options) { options->num_ranks = 0; }));
  EXPECT_TRUE(refused([](TableOptions* options) { options->rank = 1; }));
  EXPECT_TRUE(refused([](TableOptions* options) { options->num_ranks = 65537; }));
  EXPECT_TRUE(refused([](TableOptions* options) { options->initializer = "normal"; }));
  EXPECT_TRUE(refused([](TableOptions* options) { options->initializer_arguments = {}; }));
  good.dim = 0;
  EXPECT_TRUE(good.Validate().message().find("'users'") != std::string::npos);
  good.dim = 65536;
  EXPECT_OK(good.Validate());
}

}  // namespace
}  // namespace tfsparse
