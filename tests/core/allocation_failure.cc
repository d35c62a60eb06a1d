#include "allocation_failure.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <new>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TFS_REPLACE_MALLOC 1
#else
#define TFS_REPLACE_MALLOC 0
#endif

namespace {

// Allocations until the one that fails; negative: none does.
thread_local int64_t countdown = -1;

bool FailsNow() { return countdown >= 0 && countdown-- == 0; }

}  // namespace

#if TFS_REPLACE_MALLOC
// The program's own definitions win over those of the C library, for operator new too. What
// they return comes from the library, so its free() and realloc() stay in place.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);

void* malloc(size_t size) { return FailsNow() ? nullptr : __libc_malloc(size); }
void* calloc(size_t count, size_t size) {
  return FailsNow() ? nullptr : __libc_calloc(count, size);
}
void* mmap(void* address, size_t size, int protection, int flags, int file, off_t offset) {
  if (FailsNow()) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, size, protection, flags, file, offset));
}
}
#else
void* operator new(size_t size) {
  void* memory = FailsNow() ? nullptr : std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif

namespace tfsparse {
namespace testing {

AllocationFailure::AllocationFailure(int64_t k) { countdown = k; }
AllocationFailure::~AllocationFailure() { countdown = -1; }
bool AllocationFailure::happened() const { return countdown < 0; }
bool MallocFails() { return TFS_REPLACE_MALLOC != 0; }

}  // namespace testing
}  // namespace tfsparse
