// Random sequences of calls against ReferenceTable, which knows no plans and no look-ahead.
#include <algorithm>
#include <deque>
#include <set>

#include "core/mix.h"
#include "core/ownership.h"
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

constexpr float kDefault = 0.25f;
constexpr float kLow = -0.5f;
constexpr float kHigh = 1.5f;

const Rule kRules[] = {{"sgd", {}}, {"adagrad", {0.1f, 1e-7f}}, {"adam", {0.1f, 0.01f, 1e-7f}}};

TablePointer UniformTable(size_t dim, uint32_t rank, uint32_t num_ranks) {
  TableOptions options;
  options.name = "t";
  options.dim = dim;
  options.rank = rank;
  options.num_ranks = num_ranks;
  options.seed = 77;
  options.initializer = "uniform";
  options.initializer_arguments = {kLow, kHigh};
  options.default_value = kDefault;
  return testing::MakeTable(options);
}

// The first `n` keys that a rank owns, with negative ones and high bits among them.
Keys KeysOfRank(size_t n, uint32_t rank, uint32_t num_ranks) {
  Keys keys;
  for (Key i = 0; keys.size() < n; ++i) {
    const Key key = i % 3 == 0 ? -i : i % 3 == 1 ? i : i * (Key{1} << 40);
    if (OwnerOf(HashOf(key), num_ranks) == rank) keys.push_back(key);
  }
  return keys;
}

Keys DistinctKeys(const Keys& pool, size_t n, Random* random) {
  std::set<Key> seen;
  Keys keys;
  while (keys.size() < n) {
    const Key key = pool[random->Below(pool.size())];
    if (seen.insert(key).second) keys.push_back(key);
  }
  return keys;
}

Floats RandomGradients(size_t n, Random* random) {
  Floats gradients(n);
  for (float& gradient : gradients) gradient = random->Between(-2, 2);
  return gradients;
}

// A table, its reference, and up to five plans that are alive.
class Pair {
 public:
  Pair(size_t dim, const Rule& rule, uint32_t rank, uint32_t num_ranks, uint64_t stream)
      : random_(stream),
        rule_(rule),
        pool_(KeysOfRank(300, rank, num_ranks)),
        table_(UniformTable(dim, rank, num_ranks)),
        reference_(dim, kLow, kHigh, 77) {}

  void Run(size_t num_operations) {
    const size_t bound_at = random_.Below(num_operations / 4);
    for (size_t i = 0; i < num_operations; ++i) {
      if (i == bound_at) Bind();
      switch (random_.Below(8)) {
        case 0:
        case 1:
        case 2:
          if (plans_.size() < 5) Stage();
          break;
        case 3:
        case 4:
          if (!plans_.empty()) EndOne();
          break;
        case 5:
          if (!plans_.empty()) CheckRead(plans_[random_.Below(plans_.size())]);
          break;
        case 6:
          CheckLookup();
          break;
        default:
          CheckSizes();
          CheckScan();
      }
    }
    plans_.clear();
    CheckSizes();
    EXPECT_TRUE(RowsOf(*table_) == reference_.Rows());
    EXPECT_TRUE(reference_.size() > 100);
  }

 private:
  struct Staged {
    Keys keys;
    PlanPointer plan;
  };

  void Bind() {
    EXPECT_OK(table_->Bind(rule_.kind, rule_.arguments));
    reference_.Bind(rule_);
    bound_ = true;
  }

  void Stage() {
    const Keys keys = DistinctKeys(pool_, random_.Below(40), &random_);
    plans_.push_back({keys, testing::Stage(table_.get(), keys)});
  }

  // Mostly the oldest plan, as in training; sometimes any, as when an exception unwinds.
  void EndOne() {
    const auto it = plans_.begin() + (random_.OneIn(3) ? random_.Below(plans_.size()) : 0);
    const Staged staged = std::move(*it);
    plans_.erase(it);
    const Floats gradients = RandomGradients(staged.keys.size() * table_->dim(), &random_);
    if (!bound_) {
      const Status status = table_->Apply(0.1f, gradients.data(), &executor_, staged.plan.get());
      EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    } else if (!random_.OneIn(4)) {
      testing::Apply(table_.get(), staged.plan.get(), 0.1f, gradients);
      reference_.Apply(staged.keys, 0.1f, gradients);
    }
  }

  void CheckRead(const Staged& staged) {
    EXPECT_EQ(testing::Read(*table_, *staged.plan), reference_.ReadOrNew(staged.keys));
    if (staged.keys.empty()) return;
    std::vector<int32_t> positions;
    Keys repeated;
    for (int i = 0; i < 50; ++i) {
      positions.push_back(static_cast<int32_t>(random_.Below(staged.keys.size())));
      repeated.push_back(staged.keys[positions.back()]);
    }
    Floats out(50 * table_->dim());
    EXPECT_OK(table_->Read(*staged.plan, positions, &executor_, out.data()));
    EXPECT_EQ(out, reference_.ReadOrNew(repeated));
  }

  void CheckLookup() {
    Keys keys;
    for (int i = 0; i < 60; ++i) keys.push_back(pool_[random_.Below(pool_.size())]);
    EXPECT_EQ(testing::Lookup(*table_, keys), reference_.ReadOr(keys, kDefault));
  }

  void CheckSizes() {
    std::set<Key> provisional;
    for (const Staged& staged : plans_) {
      for (Key key : staged.keys) {
        if (!reference_.Contains(key)) provisional.insert(key);
      }
    }
    EXPECT_EQ(table_->size(), reference_.size());
    EXPECT_EQ(table_->Stats().provisional_rows, provisional.size());
  }

  void CheckScan() {
    const Hash from = random_.Next();
    const size_t most = 1 + random_.Below(100);
    std::vector<std::pair<Hash, Floats>> seen;
    table_->Scan(from, [&](Hash hash, Span<const float> row) {
      seen.emplace_back(hash, Floats(row.begin(), row.end()));
      return seen.size() < most;
    });
    const auto rows = reference_.Rows();
    auto it = rows.lower_bound(from);
    for (const auto& [hash, row] : seen) {
      ASSERT_TRUE(it != rows.end());
      ASSERT_EQ(hash, it->first);
      ASSERT_EQ(row, it->second);
      ++it;
    }
    EXPECT_TRUE(seen.size() == most || it == rows.end());
  }

  Random random_;
  SerialExecutor executor_;
  Rule rule_;
  bool bound_ = false;
  Keys pool_;
  TablePointer table_;
  ReferenceTable reference_;
  std::vector<Staged> plans_;
};

TEST(TableRandom, AnySequenceOfCallsAgreesWithTheReference) {
  uint64_t stream = 0;
  for (size_t dim : {1, 3, 16, 33}) {
    for (const Rule& rule : kRules) {
      for (auto [rank, num_ranks] : {std::pair(0u, 1u), std::pair(0u, 3u), std::pair(2u, 3u)}) {
        Pair(dim, rule, rank, num_ranks, ++stream).Run(400);
      }
    }
  }
}

struct Batch {
  Keys keys;
  Floats gradients;
  float learning_rate;
  bool skipped;  // as for a step with gradients that are not finite
};

std::vector<Batch> RandomBatches(size_t num_batches, const Keys& pool, size_t dim, Random* random) {
  std::vector<Batch> batches;
  for (size_t i = 0; i < num_batches; ++i) {
    const Keys keys = DistinctKeys(pool, random->Below(50), random);
    batches.push_back({keys, RandomGradients(keys.size() * dim, random),
                       random->Between(0.01f, 0.1f), random->OneIn(5)});
  }
  return batches;
}

// Trains with `depth` batches staged ahead of the one that is applied; `reads` gets what each
// step read.
TablePointer Train(const std::vector<Batch>& batches, size_t depth, size_t dim, const Rule& rule,
                   uint32_t rank, uint32_t num_ranks, std::vector<Floats>* reads) {
  const TablePointer table = UniformTable(dim, rank, num_ranks);
  EXPECT_OK(table->Bind(rule.kind, rule.arguments));
  std::deque<PlanPointer> plans;
  size_t next = 0;
  for (const Batch& batch : batches) {
    for (; next < batches.size() && plans.size() <= depth; ++next) {
      plans.push_back(testing::Stage(table.get(), batches[next].keys));
    }
    reads->push_back(testing::Read(*table, *plans.front()));
    if (!batch.skipped) {
      testing::Apply(table.get(), plans.front().get(), batch.learning_rate, batch.gradients);
    }
    plans.pop_front();
  }
  return table;
}

TEST(TableRandom, LookAheadChangesNothing) {
  for (size_t dim : {1, 16}) {
    for (const Rule& rule : kRules) {
      for (auto [rank, num_ranks] : {std::pair(0u, 1u), std::pair(1u, 3u)}) {
        Random random(dim);
        const auto batches = RandomBatches(80, KeysOfRank(400, rank, num_ranks), dim, &random);
        ReferenceTable reference(dim, kLow, kHigh, 77);
        reference.Bind(rule);
        std::vector<Floats> wanted_reads;
        for (const Batch& batch : batches) {
          wanted_reads.push_back(reference.ReadOrNew(batch.keys));
          if (batch.skipped) continue;
          reference.Apply(batch.keys, batch.learning_rate, batch.gradients);
        }
        for (size_t depth = 0; depth <= 4; ++depth) {
          std::vector<Floats> reads;
          const auto table = Train(batches, depth, dim, rule, rank, num_ranks, &reads);
          EXPECT_TRUE(reads == wanted_reads);
          EXPECT_TRUE(RowsOf(*table) == reference.Rows());
          EXPECT_EQ(table->Stats().provisional_rows, 0u);
        }
      }
    }
  }
}

TEST(TableRandom, RanksTogetherHoldTheRowsOfOne) {
  const size_t dim = 3;
  Random random;
  const auto batches = RandomBatches(40, KeysOfRank(400, 0, 1), dim, &random);
  std::vector<Floats> reads;
  const auto one = RowsOf(*Train(batches, 0, dim, kRules[2], 0, 1, &reads));
  for (uint32_t num_ranks : {2u, 3u, 7u}) {
    std::map<Hash, Floats> all;
    for (uint32_t rank = 0; rank < num_ranks; ++rank) {
      std::vector<Batch> shares;
      for (const Batch& batch : batches) {
        Batch share{{}, {}, batch.learning_rate, batch.skipped};
        for (size_t i = 0; i < batch.keys.size(); ++i) {
          if (OwnerOf(HashOf(batch.keys[i]), num_ranks) != rank) continue;
          share.keys.push_back(batch.keys[i]);
          const auto gradient = batch.gradients.begin() + i * dim;
          share.gradients.insert(share.gradients.end(), gradient, gradient + dim);
        }
        shares.push_back(share);
      }
      const auto shard = RowsOf(*Train(shares, 2, dim, kRules[2], rank, num_ranks, &reads));
      EXPECT_TRUE(all.empty() || shard.begin()->first > all.rbegin()->first);
      all.insert(shard.begin(), shard.end());
    }
    EXPECT_TRUE(all == one);
  }
}

}  // namespace
}  // namespace tfsparse
