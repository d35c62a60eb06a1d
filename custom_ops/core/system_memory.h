#ifndef TFSPARSE_CORE_SYSTEM_MEMORY_H_
#define TFSPARSE_CORE_SYSTEM_MEMORY_H_

#include <sys/mman.h>

#include <cstddef>
#include <memory>
#include <new>

namespace tfsparse {

// Memory straight from the system: zeroed, resident only where it was touched, and given back
// at once when it is freed. malloc keeps blocks of such a size for its own later use, so that a
// program would stay as large as the tables it once had.
struct UnmapMemory {
  size_t bytes;
  void operator()(void* memory) const { ::munmap(memory, bytes); }
};
template <typename T>
using SystemArray = std::unique_ptr<T[], UnmapMemory>;

// `n` elements of a type for which zeroed bytes are a value. Throws std::bad_alloc.
template <typename T>
SystemArray<T> MapArray(size_t n) {
  const size_t bytes = n * sizeof(T);
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return SystemArray<T>(static_cast<T*>(memory), UnmapMemory{bytes});
}

// The same, of huge pages where the system has them: for arrays of many MiB that are filled from
// their beginning on, which takes a fraction of the page faults, and are freed as a whole.
template <typename T>
SystemArray<T> MapFilledArray(size_t n) {
  SystemArray<T> array = MapArray<T>(n);
  ::madvise(array.get(), n * sizeof(T), MADV_HUGEPAGE);  // a wish: small pages do as well
  return array;
}

}  // namespace tfsparse

#endif  // TFSPARSE_CORE_SYSTEM_MEMORY_H_
