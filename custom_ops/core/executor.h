#ifndef TFSPARSE_CORE_EXECUTOR_H_
#define TFSPARSE_CORE_EXECUTOR_H_

#include <cstddef>
#include <type_traits>

namespace tfsparse {

// LoopBody refers to a callable work(begin, end) of the caller, who keeps it alive. Unlike a
// std::function it allocates nothing, so that loops cannot fail for want of memory.
class LoopBody {
 public:
  template <typename Work, typename = std::enable_if_t<!std::is_same_v<Work, LoopBody>>>
  LoopBody(const Work& work)  // NOLINT
      : work_(&work), call_([](const void* called, size_t begin, size_t end) {
          (*static_cast<const Work*>(called))(begin, end);
        }) {}

  void operator()(size_t begin, size_t end) const { call_(work_, begin, end); }

 private:
  const void* work_;
  void (*call_)(const void* called, size_t begin, size_t end);
};

// Runs the parts of a loop, on threads that belong to the caller: the core starts none. A
// kernel passes TensorFlow's pool, a test the serial one. Results never depend on which.
class Executor {
 public:
  virtual ~Executor() = default;

  // Calls work(begin, end) on ranges that tile [0, n), and returns when all are done. Ranges
  // may run together. `unit_ns`: rough time of one unit, so that small loops stay whole.
  virtual void ParallelFor(size_t n, size_t unit_ns, LoopBody work) = 0;
};

class SerialExecutor : public Executor {
 public:
  void ParallelFor(size_t n, size_t /*unit_ns*/, LoopBody work) override {
    if (n > 0) work(0, n);
  }
};

}  // namespace tfsparse

#endif  // TFSPARSE_CORE_EXECUTOR_H_
