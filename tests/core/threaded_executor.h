#ifndef TFSPARSE_TESTS_CORE_THREADED_EXECUTOR_H_
#define TFSPARSE_TESTS_CORE_THREADED_EXECUTOR_H_

#include <algorithm>
#include <thread>
#include <vector>

#include "core/executor.h"

namespace tfsparse {
namespace testing {

// Splits every loop into equal ranges, however small, each on a thread of its own.
class ThreadedExecutor : public Executor {
 public:
  explicit ThreadedExecutor(size_t num_threads) : num_threads_(num_threads) {}

  void ParallelFor(size_t n, size_t /*unit_ns*/, LoopBody work) override {
    const size_t piece = (n + num_threads_ - 1) / num_threads_;
    std::vector<std::thread> threads;
    for (size_t begin = 0; begin < n; begin += piece) {
      threads.emplace_back([&work, begin, end = std::min(n, begin + piece)] { work(begin, end); });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  size_t num_threads_;
};

}  // namespace testing
}  // namespace tfsparse

#endif  // TFSPARSE_TESTS_CORE_THREADED_EXECUTOR_H_
