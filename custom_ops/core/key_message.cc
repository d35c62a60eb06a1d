#include "core/key_message.h"

#include <algorithm>
#include <vector>

namespace tfsparse {
namespace {

// "rank 3", or "ranks 0, 3 and 5 more".
std::string Named(const std::vector<size_t>& ranks) {
  constexpr size_t kMaxNamed = 8;
  std::string names = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < std::min(ranks.size(), kMaxNamed); ++i) {
    names += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  }
  if (ranks.size() > kMaxNamed) {
    names += " and " + std::to_string(ranks.size() - kMaxNamed) + " more";
  }
  return names;
}

}  // namespace

void WriteMessages(Span<const Key> keys, Span<const int32_t> counts, int64_t header,
                   int64_t* message) {
  const Key* from = keys.begin();
  for (int32_t count : counts) {
    *message++ = header;
    message = std::copy_n(from, count, message);
    from += count;
  }
}

Status ReadMessages(Span<const int64_t> message, Span<const int32_t> counts, int64_t own_header,
                    const std::string& table, Key* keys) {
  std::vector<size_t> elsewhere, refused, training, reading;
  const int64_t* from = message.begin();
  int64_t left = static_cast<int64_t>(message.size());
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    const int32_t count = counts[rank];
    left -= count;
    if (count < 1 || left < 0 || (rank + 1 == counts.size() && left > 0)) {
      return InvalidArgument(
          "Table '" + table + "': the messages must be " + std::to_string(counts.size()) +
          " headers with keys. Received: " + std::to_string(message.size()) + " numbers, " +
          std::to_string(count) + " of them from rank " + std::to_string(rank) + ".");
    }
    if (*from >> kNumBits != own_header >> kNumBits) elsewhere.push_back(rank);
    if (*from & kRefused) refused.push_back(rank);
    (*from & kTrains ? training : reading).push_back(rank);
    keys = std::copy(from + 1, from + count, keys);
    from += count;
  }
  if (own_header & kRefused) return Status();
  if (!elsewhere.empty()) {
    return InvalidArgument("Table '" + table + "': " + Named(elsewhere) +
                           " look up another table at the same time. All ranks must look up the "
                           "same ones in the same order. Nothing was changed, on any rank.");
  }
  if (!refused.empty()) {
    return InvalidArgument("Table '" + table + "': bad input on " + Named(refused) +
                           "; the error there says what is wrong. Nothing was changed, on any "
                           "rank.");
  }
  if (!training.empty() && !reading.empty()) {
    return InvalidArgument("Table '" + table + "': all ranks must train together and evaluate " +
                           "together. Received: training on " + Named(training) +
                           ", evaluation (or lookup) on " + Named(reading) +
                           ". Is validation done, or a step left out, on some ranks only? "
                           "Nothing was changed, on any rank.");
  }
  return Status();
}

}  // namespace tfsparse
