#ifndef TFSPARSE_CORE_PREFETCH_H_
#define TFSPARSE_CORE_PREFETCH_H_

#include <cstddef>

namespace tfsparse {

inline void Prefetch(const void* address) { __builtin_prefetch(address); }

// All cache lines of `bytes` bytes, at most eight: the hardware follows a longer row itself.
inline void PrefetchRow(const void* address, size_t bytes) {
  const char* const start = static_cast<const char*>(address);
  const size_t end = bytes < 512 ? bytes : 512;
  for (size_t offset = 0; offset < end; offset += 64) __builtin_prefetch(start + offset);
}

}  // namespace tfsparse

#endif  // TFSPARSE_CORE_PREFETCH_H_
