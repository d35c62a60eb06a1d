#ifndef TFSPARSE_TESTS_CORE_ALLOCATION_FAILURE_H_
#define TFSPARSE_TESTS_CORE_ALLOCATION_FAILURE_H_

#include <cstdint>

namespace tfsparse {
namespace testing {

// While it lives, allocation number `k` (from 0) of this thread fails; all others succeed. It
// reaches operator new, and malloc, calloc and mmap except under a sanitizer, which owns those.
class AllocationFailure {
 public:
  explicit AllocationFailure(int64_t k);
  ~AllocationFailure();
  AllocationFailure(const AllocationFailure&) = delete;
  AllocationFailure& operator=(const AllocationFailure&) = delete;

  bool happened() const;
};

// Whether malloc, calloc and mmap can be made to fail in this build.
bool MallocFails();

}  // namespace testing
}  // namespace tfsparse

#endif  // TFSPARSE_TESTS_CORE_ALLOCATION_FAILURE_H_
