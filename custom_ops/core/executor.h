#ifndef TFSPARSE_CORE_EXECUTOR_H_
#define TFSPARSE_CORE_EXECUTOR_H_

#include <cstddef>
#include <functional>

namespace tfsparse {

// Runs the parts of a loop, on threads that belong to the caller: the core starts none. A
// kernel passes TensorFlow's pool, a test the serial one. Results never depend on which.
class Executor {
 public:
  virtual ~Executor() = default;

  // Calls work(begin, end) on ranges that tile [0, n), and returns when all are done. Ranges
  // may run together. `unit_ns`: rough time of one unit, so that small loops stay whole.
  virtual void ParallelFor(size_t n, size_t unit_ns,
                           const std::function<void(size_t begin, size_t end)>& work) = 0;
};

class SerialExecutor : public Executor {
 public:
  void ParallelFor(size_t n, size_t /*unit_ns*/,
                   const std::function<void(size_t begin, size_t end)>& work) override {
    if (n > 0) work(0, n);
  }
};

}  // namespace tfsparse

#endif  // TFSPARSE_CORE_EXECUTOR_H_
