// What plans promise each other: only applied steps show, and nothing leaks.
#include "core/plan.h"

#include "core/mix.h"
#include "table_calls.h"

namespace tfsparse {
namespace {

using testing::Apply;
using testing::Floats;
using testing::Keys;
using testing::Lookup;
using testing::PlanPointer;
using testing::Read;
using testing::RowsOf;
using testing::Stage;
using testing::TablePointer;

// One float a row, beginning at 10; absent keys read -1.
TablePointer SgdTable() {
  TablePointer table = testing::MakeTable(1, 10.0f);
  EXPECT_OK(table->Bind("sgd", {}));
  return table;
}

void ExpectRows(const Table& table, size_t committed, size_t provisional) {
  EXPECT_EQ(table.size(), committed);
  EXPECT_EQ(table.Stats().rows, committed);
  EXPECT_EQ(table.Stats().provisional_rows, provisional);
  EXPECT_EQ(RowsOf(table).size(), committed);
}

TEST(Plan, StagedRowIsInvisibleUntilApplied) {
  const TablePointer table = SgdTable();
  const PlanPointer plan = Stage(table.get(), {1, 2});
  ExpectRows(*table, 0, 2);
  EXPECT_EQ(Read(*table, *plan), (Floats{10, 10}));
  Apply(table.get(), plan.get(), 1.0f, {3, 4});
  ExpectRows(*table, 2, 0);
  EXPECT_EQ(Lookup(*table, {2, 1}), (Floats{6, 7}));
}

TEST(Plan, LookupOfProvisionalKeyReadsDefault) {
  const TablePointer table = SgdTable();
  const PlanPointer plan = Stage(table.get(), {1});
  EXPECT_EQ(Lookup(*table, {1, 2}), (Floats{-1, -1}));
}

TEST(Plan, DroppedPlanLeavesNothing) {
  const TablePointer table = SgdTable();
  Apply(table.get(), Stage(table.get(), {1, 2}).get(), 1.0f, {0, 0});
  const auto rows = RowsOf(*table);
  const size_t page_bytes = table->Stats().page_bytes;
  for (int i = 0; i < 100; ++i) {
    Keys keys = {1};
    for (Key key = 0; key < 1000; ++key) keys.push_back(1000 + key + 1000 * i);
    Stage(table.get(), keys);
    ExpectRows(*table, 2, 0);
  }
  EXPECT_TRUE(RowsOf(*table) == rows);
  EXPECT_EQ(table->Stats().page_bytes, page_bytes);  // the rows were used again
}

TEST(Plan, KeyComesBackFreshAfterADrop) {
  const TablePointer table = SgdTable();
  Stage(table.get(), {1});
  Apply(table.get(), Stage(table.get(), {2}).get(), 1.0f, {3});  // the freed row
  EXPECT_EQ(Read(*table, *Stage(table.get(), {1, 2})), (Floats{10, 7}));
}

TEST(Plan, TwoPlansShareAProvisionalRowAndTheFirstDropKeepsIt) {
  const TablePointer table = SgdTable();
  PlanPointer first = Stage(table.get(), {1, 2});
  PlanPointer second = Stage(table.get(), {2, 3});
  ExpectRows(*table, 0, 3);
  first.reset();
  ExpectRows(*table, 0, 2);
  EXPECT_EQ(Read(*table, *second), (Floats{10, 10}));
  Apply(table.get(), second.get(), 1.0f, {1, 2});
  ExpectRows(*table, 2, 0);
  EXPECT_EQ(Lookup(*table, {1, 2, 3}), (Floats{-1, 9, 8}));
}

TEST(Plan, TwoPlansShareAProvisionalRowAndTheSecondDropKeepsIt) {
  const TablePointer table = SgdTable();
  PlanPointer first = Stage(table.get(), {1, 2});
  PlanPointer second = Stage(table.get(), {2, 3});
  second.reset();
  ExpectRows(*table, 0, 2);
  Apply(table.get(), first.get(), 1.0f, {1, 2});
  ExpectRows(*table, 2, 0);
  EXPECT_EQ(Lookup(*table, {1, 2, 3}), (Floats{9, 8, -1}));
}

TEST(Plan, LastDropOfASharedRowFreesIt) {
  const TablePointer table = SgdTable();
  PlanPointer first = Stage(table.get(), {1});
  PlanPointer second = Stage(table.get(), {1});
  PlanPointer third = Stage(table.get(), {1});
  second.reset();
  first.reset();
  ExpectRows(*table, 0, 1);
  third.reset();
  ExpectRows(*table, 0, 0);
}

TEST(Plan, FirstAppliedPlanCommitsForBoth) {
  const TablePointer table = SgdTable();
  PlanPointer first = Stage(table.get(), {1});
  PlanPointer second = Stage(table.get(), {1, 2});
  Apply(table.get(), first.get(), 1.0f, {3});
  ExpectRows(*table, 1, 1);
  EXPECT_EQ(Read(*table, *second), (Floats{7, 10}));  // the value after the earlier step
  second.reset();
  ExpectRows(*table, 1, 0);
  EXPECT_EQ(Lookup(*table, {1}), Floats{7});
}

TEST(Plan, LaterPlanMayBeAppliedFirst) {
  const TablePointer table = SgdTable();
  PlanPointer first = Stage(table.get(), {1});
  PlanPointer second = Stage(table.get(), {1});
  Apply(table.get(), second.get(), 1.0f, {3});
  Apply(table.get(), first.get(), 1.0f, {2});
  first.reset();
  second.reset();
  ExpectRows(*table, 1, 0);
  EXPECT_EQ(Lookup(*table, {1}), Floats{5});
}

TEST(Plan, EndOfAnAppliedPlanChangesNothing) {
  const TablePointer table = SgdTable();
  PlanPointer plan = Stage(table.get(), {1});
  Apply(table.get(), plan.get(), 1.0f, {3});
  PlanPointer later = Stage(table.get(), {1, 2});
  plan.reset();
  ExpectRows(*table, 1, 1);
  EXPECT_EQ(Read(*table, *later), (Floats{7, 10}));
}

// A count of holders in a byte came round to zero, and the row was then neither committed nor
// freed. How many plans may hold a new key is bounded, and one more is an error.
TEST(Plan, ManyPlansOfOneNewKeyAreHeldOrRefused) {
  for (const size_t wanted : {256, 300}) {
    const TablePointer table = SgdTable();
    SerialExecutor executor;
    std::vector<PlanPointer> plans;
    Status status;
    while (plans.size() < wanted && status.ok()) {
      PlanPointer plan;
      status = table->Stage(Keys{1, 100 + static_cast<Key>(plans.size())}, &executor, &plan);
      if (status.ok()) plans.push_back(plan);
    }
    EXPECT_TRUE(plans.size() >= 200);
    EXPECT_TRUE(status.ok() || status.code() == Code::kFailedPrecondition);
    for (; plans.size() > 1; plans.pop_back()) ExpectRows(*table, 0, 1 + plans.size());
    PlanPointer again = Stage(table.get(), {1});
    Apply(table.get(), plans[0].get(), 1.0f, {3, 3});
    ExpectRows(*table, 2, 0);
    EXPECT_EQ(Read(*table, *again), Floats{7});
  }
}

TEST(Plan, PlanKeepsItsTableAlive) {
  TablePointer table = SgdTable();
  const PlanPointer plan = Stage(table.get(), {1});
  std::weak_ptr<Table> weak = table;
  table.reset();
  EXPECT_TRUE(!weak.expired());
  EXPECT_EQ(Read(*weak.lock(), *plan), Floats{10});
}

TEST(Plan, HashesAreThoseOfItsKeysInOrder) {
  const TablePointer table = SgdTable();
  const PlanPointer plan = Stage(table.get(), {42, -1});
  EXPECT_EQ(plan->hashes(), (std::vector<Hash>{0xa759ea27d4727622u, 0xb4d055fcf2cbbd7bu}));
}

}  // namespace
}  // namespace tfsparse
