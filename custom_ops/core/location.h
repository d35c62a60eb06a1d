#ifndef TFSPARSE_CORE_LOCATION_H_
#define TFSPARSE_CORE_LOCATION_H_

#include <cstdint>

namespace tfsparse {

// Where the row of a key is, in 32 bits: a row number, and above it
//   bit 31  the row is provisional: a plan reserved it and no step has been applied to it yet;
//   bit 30  kept free for the tier.
// So one rank holds at most 2^30 rows of one table.
using Location = uint32_t;

constexpr Location kProvisional = 1u << 31;
constexpr Location kRowMask = (1u << 30) - 1;
constexpr Location kNowhere = 0xffffffffu;  // no row; never a valid location
constexpr uint64_t kMaxRows = kRowMask;     // row number 2^30 - 1 stays free

inline uint32_t RowOf(Location location) { return location & kRowMask; }
inline bool IsProvisional(Location location) { return (location & kProvisional) != 0; }

}  // namespace tfsparse

#endif  // TFSPARSE_CORE_LOCATION_H_
