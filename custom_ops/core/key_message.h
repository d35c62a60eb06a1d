#ifndef TFSPARSE_CORE_KEY_MESSAGE_H_
#define TFSPARSE_CORE_KEY_MESSAGE_H_

#include <string>

#include "core/status.h"
#include "core/types.h"

namespace tfsparse {

// What one rank sends another when it asks for rows: a header, then keys.
//
//     rank 0: [header, key, key, key]    rank 1: [header]    rank 2: [header, key]
//
// The header says what the sender is about. Every rank gets the headers of all ranks, so all
// come to the same decision at the same step: they go on, or they all fail.

// The lowest bits of a header. The others say which table is looked up: exchanges that are run
// eagerly meet in the order of their calls, whatever their names.
constexpr int64_t kTrains = 1;   // the sender trains; without it, it only reads
constexpr int64_t kRefused = 2;  // the sender has refused its input and will fail
constexpr int kNumBits = 2;

// Writes the messages to all ranks, one behind the other.
//   keys     grouped by receiver
//   counts   [num_ranks], keys for each; they add up to keys.size()
//   message  [keys.size() + counts.size()]
void WriteMessages(Span<const Key> keys, Span<const int32_t> counts, int64_t header,
                   int64_t* message);

// Reads the messages from all ranks and compares their headers with this rank's own.
//   message  one behind the other
//   counts   [num_ranks], length of each, its header included
//   keys     [message.size() - counts.size()], those of rank 0 first; undefined after an error
// InvalidArgument when other ranks look up another table or have refused their input, or when some
// ranks train while others read; it names `table` and the ranks. Not when this rank itself has
// refused its input: it fails by an error of its own, which says more.
Status ReadMessages(Span<const int64_t> message, Span<const int32_t> counts, int64_t own_header,
                    const std::string& table, Key* keys);

}  // namespace tfsparse

#endif  // TFSPARSE_CORE_KEY_MESSAGE_H_
