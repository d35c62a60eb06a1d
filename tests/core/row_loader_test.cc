#include "core/row_loader.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "allocation_failure.h"
#include "core/mix.h"
#include "random.h"
#include "table_calls.h"
#include "threaded_executor.h"

namespace tfsparse {
namespace {

using testing::AllocationFailure;
using testing::Apply;
using testing::Floats;
using testing::Keys;
using testing::PlanPointer;
using testing::Random;
using testing::RowsOf;
using testing::Stage;
using testing::TablePointer;
using Rows = std::map<Hash, Floats>;
using LoaderPointer = std::unique_ptr<RowLoader>;

constexpr size_t kDim = 3;
const std::vector<float> kAdam = {0.1f, 0.001f, 1e-7f};

TablePointer MakeShard(uint32_t rank, uint32_t num_ranks) {
  TableOptions options;
  options.name = "t";
  options.dim = kDim;
  options.rank = rank;
  options.num_ranks = num_ranks;
  options.default_value = -1;
  return testing::MakeTable(options);
}

TablePointer MakeShard() { return MakeShard(0, 1); }

// Random rows of Adam, [parameter, m, v, updates], of keys that a shard owns.
Rows MakeRows(const BucketRange& buckets, size_t n, uint64_t stream = 0) {
  Random random(stream);
  Rows rows;
  while (rows.size() < n) {
    const Hash hash = random.Next();
    if (!buckets.Contains(hash)) continue;
    Floats& row = rows[hash];
    for (size_t i = 0; i < 3 * kDim + 1; ++i) row.push_back(random.Between(-1, 1));
  }
  return rows;
}

LoaderPointer MakeLoader(const Table& table, size_t num_rows) {
  LoaderPointer loader;
  EXPECT_OK(RowLoader::Create(table, "adam", kAdam, num_rows, &loader));
  return loader;
}

// Gives the loader rows, from number `first` on, column by column.
void Load(const Rows& rows, size_t first, RowLoader* loader) {
  Keys keys;
  for (const auto& [hash, row] : rows) keys.push_back(KeyOf(hash));
  loader->SetKeys(first, keys);
  size_t begin = 0;
  for (size_t column = 0; column < loader->columns().size(); ++column) {
    const size_t floats = loader->columns()[column].floats;
    Floats values;
    for (const auto& [hash, row] : rows) {
      values.insert(values.end(), row.begin() + begin, row.begin() + begin + floats);
    }
    loader->SetColumn(column, first, rows.size(), values.data());
    begin += floats;
  }
}

void ReplaceRows(const Rows& rows, Table* table) {
  LoaderPointer loader = MakeLoader(*table, rows.size());
  Load(rows, 0, loader.get());
  SerialExecutor executor;
  EXPECT_OK(loader->Finish(&executor));
  EXPECT_OK(table->Replace(std::move(loader)));
}

// What WithRows() shows of all buckets of a shard, in two halves.
Rows ShownRows(const Table& table, uint32_t rank, uint32_t num_ranks) {
  const BucketRange all = BucketsOfRank(rank, num_ranks);
  const uint32_t middle = (all.first + all.last) / 2;
  Rows shown;
  for (const BucketRange& buckets : {BucketRange{all.first, middle}, {middle, all.last}}) {
    table.WithRows(buckets, [&](Span<const Table::StillRow> rows, const auto& columns) {
      size_t floats = 0;
      for (const Column& column : columns) floats += column.floats;
      Hash last = 0;
      for (const Table::StillRow& row : rows) {
        EXPECT_TRUE(row.hash >= last);
        EXPECT_TRUE(buckets.Contains(row.hash));
        last = row.hash;
        shown[row.hash] = Floats(row.floats, row.floats + floats);
      }
    });
  }
  return shown;
}

TEST(RowLoader, LoadedRowsAreTheTable) {
  const uint32_t shards[][2] = {{0, 1}, {1, 3}, {2, 3}, {40000, 65536}};
  for (const auto& [rank, num_ranks] : shards) {
    for (size_t n : {0, 1, 700, 20000}) {
      if (num_ranks == 65536 && n > 700) continue;
      const Rows rows = MakeRows(BucketsOfRank(rank, num_ranks), n);
      const TablePointer table = MakeShard(rank, num_ranks);
      ReplaceRows(rows, table.get());
      EXPECT_TRUE(RowsOf(*table) == rows);
      EXPECT_TRUE(ShownRows(*table, rank, num_ranks) == rows);
      EXPECT_EQ(table->size(), n);
      EXPECT_EQ(table->Stats().provisional_rows, 0u);
      const std::vector<int64_t> counts = table->CountByBucket();
      int64_t total = 0;
      for (int64_t count : counts) total += count;
      EXPECT_EQ(counts.size(), BucketsOfRank(rank, num_ranks).size());
      EXPECT_EQ(static_cast<size_t>(total), n);
      for (const auto& [hash, row] : rows) {
        EXPECT_TRUE(counts[BucketOf(hash) - BucketsOfRank(rank, num_ranks).first] > 0);
      }
    }
  }
}

TEST(RowLoader, ThreadsMayLoadPartsTogether) {
  const Rows rows = MakeRows(BucketRange(), 9000);
  const TablePointer table = MakeShard();
  LoaderPointer loader = MakeLoader(*table, rows.size());
  std::vector<Rows> parts(4);
  size_t number = 0;
  for (const auto& row : rows) parts[number++ * parts.size() / rows.size()].insert(row);
  std::vector<std::thread> threads;
  size_t first = 0;
  for (const Rows& part : parts) {
    threads.emplace_back([&, first] { Load(part, first, loader.get()); });
    first += part.size();
  }
  for (std::thread& thread : threads) thread.join();
  testing::ThreadedExecutor executor(3);
  EXPECT_OK(loader->Finish(&executor));
  EXPECT_OK(table->Replace(std::move(loader)));
  EXPECT_TRUE(RowsOf(*table) == rows);
}

TEST(RowLoader, LoadedTableGoesOnAsIfItHadGrown) {
  const Rows rows = MakeRows(BucketRange(), 5000);
  const TablePointer table = MakeShard();
  ReplaceRows(rows, table.get());
  Keys keys;
  Random random(7);
  for (size_t i = 0; i < 5000; ++i) keys.push_back(static_cast<Key>(random.Next()));
  const PlanPointer plan = Stage(table.get(), keys);
  Apply(table.get(), plan.get(), 0.0f, Floats(keys.size() * kDim, 1.0f));
  EXPECT_EQ(table->size(), 10000u);
  const auto now = RowsOf(*table);
  for (const auto& [hash, row] : rows) EXPECT_TRUE(now.at(hash) == row);
  EXPECT_TRUE(table->Stats().index_bytes <= 10000 * 16 + 256 * 33 * 12);
}

TEST(RowLoader, ReplacedRowsAreGoneAndTheirPlansVoid) {
  const TablePointer table = MakeShard();
  ReplaceRows(MakeRows(BucketRange(), 100, 1), table.get());
  PlanPointer outstanding = Stage(table.get(), {1, 2, 3});
  PlanPointer dropped = Stage(table.get(), {3, 4});
  const Rows rows = MakeRows(BucketRange(), 50, 2);
  ReplaceRows(rows, table.get());
  EXPECT_TRUE(RowsOf(*table) == rows);
  EXPECT_EQ(table->Stats().provisional_rows, 0u);

  SerialExecutor executor;
  Floats floats(3 * kDim);
  EXPECT_EQ(table->Read(*outstanding, &executor, floats.data()).code(), Code::kFailedPrecondition);
  EXPECT_EQ(table->Read(*outstanding, std::vector<int32_t>{0}, &executor, floats.data()).code(),
            Code::kFailedPrecondition);
  EXPECT_EQ(table->Apply(0.1f, floats.data(), &executor, outstanding.get()).code(),
            Code::kFailedPrecondition);
  const PlanPointer fresh = Stage(table.get(), {3});
  dropped.reset();
  outstanding.reset();
  EXPECT_EQ(table->Stats().provisional_rows, 1u);
  EXPECT_TRUE(RowsOf(*table) == rows);
}

TEST(RowLoader, RowsMayBeReplacedBesideAStagerAndAReader) {
  const TablePointer table = MakeShard();
  const Rows old_rows = MakeRows(BucketRange(), 300, 1), new_rows = MakeRows(BucketRange(), 300, 2);
  ReplaceRows(old_rows, table.get());
  std::atomic<bool> done{false};
  std::atomic<int> faults{0};
  std::thread stager([&] {
    SerialExecutor executor;
    for (Key key = 0; !done; ++key) {
      PlanPointer plan;
      const Status status = table->Stage(Keys{key, key + 1}, &executor, &plan);
      if (!status.ok() && status.code() != Code::kFailedPrecondition) ++faults;
    }
  });
  std::thread reader([&] {
    while (!done) {
      const Rows rows = RowsOf(*table);
      if (rows != old_rows && rows != new_rows) ++faults;
    }
  });
  for (int i = 0; i < 50; ++i) ReplaceRows(i % 2 == 0 ? new_rows : old_rows, table.get());
  done = true;
  stager.join();
  reader.join();
  EXPECT_EQ(faults.load(), 0);
  EXPECT_TRUE(RowsOf(*table) == old_rows);
  EXPECT_EQ(table->Stats().provisional_rows, 0u);
}

TEST(RowLoader, EmptyLoaderEmptiesTheTable) {
  const TablePointer table = MakeShard();
  ReplaceRows(MakeRows(BucketRange(), 100), table.get());
  ReplaceRows({}, table.get());
  EXPECT_EQ(table->size(), 0u);
  EXPECT_EQ(table->Stats().page_bytes, 0u);
}

TEST(RowLoader, RefusesKeysThatAreForeignRepeatedOrOutOfOrder) {
  const TablePointer table = MakeShard(1, 2);
  const Rows rows = MakeRows(BucketsOfRank(1, 2), 10);
  Keys sound;
  for (const auto& [hash, row] : rows) sound.push_back(KeyOf(hash));
  Keys repeated = sound, swapped = sound, foreign = sound;
  repeated[5] = repeated[4];
  std::swap(swapped[5], swapped[6]);
  foreign[0] = KeyOf(12345);  // of bucket 0
  for (const Keys& keys : {repeated, swapped, foreign}) {
    LoaderPointer loader = MakeLoader(*table, keys.size());
    loader->SetKeys(0, keys);
    SerialExecutor executor;
    const Status status = loader->Finish(&executor);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_TRUE(status.message().find("'t'") != std::string::npos);
  }
}

TEST(RowLoader, AnotherOptimizerIsRefusedAndNothingChanges) {
  const TablePointer table = MakeShard();
  EXPECT_OK(table->Bind("adagrad", {0.1f, 0.0f}));
  const PlanPointer plan = Stage(table.get(), {1, 2});
  Apply(table.get(), plan.get(), 0.1f, Floats(2 * kDim, 1.0f));
  const auto before = RowsOf(*table);
  LoaderPointer loader = MakeLoader(*table, 0);
  SerialExecutor executor;
  EXPECT_OK(loader->Finish(&executor));
  EXPECT_EQ(table->Replace(std::move(loader)).code(), Code::kFailedPrecondition);
  EXPECT_TRUE(RowsOf(*table) == before);
}

TEST(RowLoader, InitSlotsGivesThemTheirFirstValues) {
  const TablePointer table = MakeShard();
  LoaderPointer loader;
  EXPECT_OK(RowLoader::Create(*table, "adagrad", {0.25f, 0.0f}, 2, &loader));
  const Hash hashes[] = {5, 6};
  loader->SetKeys(0, Keys{KeyOf(hashes[0]), KeyOf(hashes[1])});
  loader->SetColumn(0, 0, 2, Floats(2 * kDim, 9.0f).data());
  loader->InitSlots(0, 2);
  SerialExecutor executor;
  EXPECT_OK(loader->Finish(&executor));
  EXPECT_OK(table->Replace(std::move(loader)));
  const Floats wanted = {9, 9, 9, 0.25f, 0.25f, 0.25f};
  for (const auto& [hash, row] : RowsOf(*table)) EXPECT_EQ(row, wanted);
}

TEST(RowLoader, TooManyRowsAreRefused) {
  const TablePointer table = MakeShard();
  LoaderPointer loader;
  EXPECT_EQ(RowLoader::Create(*table, "none", {}, size_t{1} << 31, &loader).code(),
            Code::kInvalidArgument);
}

TEST(RowLoader, FailedAllocationLeavesTheTableAsItWas) {
  const Rows old_rows = MakeRows(BucketRange(), 100, 1);
  const Rows new_rows = MakeRows(BucketRange(), 3000, 2);
  int k = 0;
  for (bool happened = true; happened; ++k) {
    ASSERT_TRUE(k < 2000);
    const TablePointer table = MakeShard();
    ReplaceRows(old_rows, table.get());
    LoaderPointer loader;
    SerialExecutor executor;
    Status status;
    {
      AllocationFailure failure(k);
      status = RowLoader::Create(*table, "adam", kAdam, new_rows.size(), &loader);
      happened = failure.happened();
    }
    if (status.ok()) {
      Load(new_rows, 0, loader.get());
      AllocationFailure failure(happened ? 1 << 20 : k);
      status = loader->Finish(&executor);
      happened = happened || failure.happened();
    }
    EXPECT_EQ(status.code(), happened ? Code::kResourceExhausted : Code::kOk);
    EXPECT_TRUE(RowsOf(*table) == old_rows);
  }
  // Under a sanitizer those of operator new alone are counted, not one for each sub-index.
  EXPECT_TRUE(k > (testing::MallocFails() ? 256 : 10));
}

}  // namespace
}  // namespace tfsparse
