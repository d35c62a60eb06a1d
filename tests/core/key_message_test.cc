#include "core/key_message.h"

#include "testing.h"

namespace tfsparse {
namespace {

using Numbers = std::vector<int64_t>;
using Counts = std::vector<int32_t>;

bool Contains(const Status& status, const std::string& words) {
  return status.message().find(words) != std::string::npos;
}

TEST(KeyMessage, EachRankGetsAHeaderAndItsKeys) {
  Numbers message(6);
  WriteMessages(Numbers{7, 8, -1}, Counts{2, 0, 1}, kTrains, message.data());
  EXPECT_EQ(message, (Numbers{1, 7, 8, 1, 1, -1}));
}

TEST(KeyMessage, KeysComeOutInTheOrderOfRanks) {
  Numbers keys(3);
  const Status status =
      ReadMessages(Numbers{1, 7, 8, 1, 1, -1}, Counts{3, 1, 2}, kTrains, "items", keys.data());
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(keys, (Numbers{7, 8, -1}));
}

TEST(KeyMessage, EveryValueIsAnOrdinaryKey) {
  const Numbers sent = {0, 1, 2, 3, -1, INT64_MAX, INT64_MIN};
  Numbers message(sent.size() + 1);
  WriteMessages(sent, Counts{7}, 0, message.data());
  Numbers keys(sent.size());
  EXPECT_TRUE(ReadMessages(message, Counts{8}, 0, "items", keys.data()).ok());
  EXPECT_EQ(keys, sent);
}

TEST(KeyMessage, ARefusalFailsOnEveryOtherRankAndNamesTheCulprits) {
  const Numbers message = {kTrains, kTrains | kRefused, kTrains, kRefused};
  Key* const none = nullptr;
  const Status other = ReadMessages(message, Counts{1, 1, 1, 1}, kTrains, "items", none);
  EXPECT_TRUE(other.code() == Code::kInvalidArgument);
  EXPECT_TRUE(Contains(other, "Table 'items': bad input on ranks 1, 3;"));
  // It has an error of its own.
  EXPECT_TRUE(ReadMessages(message, Counts{1, 1, 1, 1}, kTrains | kRefused, "items", none).ok());
}

TEST(KeyMessage, TrainingOnSomeRanksOnlyFailsAndNamesThem) {
  Numbers keys(1);
  const Numbers message = {0, kTrains, 5, 0};
  for (int64_t own : {int64_t{0}, kTrains}) {
    const Status status = ReadMessages(message, Counts{1, 2, 1}, own, "items", keys.data());
    EXPECT_TRUE(status.code() == Code::kInvalidArgument);
    EXPECT_TRUE(Contains(status, "training on rank 1, evaluation (or lookup) on ranks 0, 2"));
  }
}

TEST(KeyMessage, AnotherTableFailsOnBothSides) {
  const Numbers message = {4 | kTrains, 8 | kTrains};
  const Status one = ReadMessages(message, Counts{1, 1}, 4 | kTrains, "items", nullptr);
  EXPECT_TRUE(Contains(one, "Table 'items': rank 1 look up another table"));
  const Status other = ReadMessages(message, Counts{1, 1}, 8 | kTrains, "users", nullptr);
  EXPECT_TRUE(Contains(other, "Table 'users': rank 0 look up another table"));
}

TEST(KeyMessage, ManyRanksAreNotAllNamed) {
  const Numbers message(300, kRefused);
  const Status status = ReadMessages(message, Counts(300, 1), 0, "items", nullptr);
  EXPECT_TRUE(Contains(status, "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 292 more;"));
}

TEST(KeyMessage, MalformedMessagesAreRefused) {
  Numbers keys(4);
  for (const Counts& counts :
       {Counts{0, 4}, Counts{2, 3}, Counts{-1, 4}, Counts{5}, Counts{1, 2}}) {
    const Status status = ReadMessages(Numbers{0, 1, 0, 2}, counts, 0, "items", keys.data());
    EXPECT_TRUE(status.code() == Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace tfsparse
