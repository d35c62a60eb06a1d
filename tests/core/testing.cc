#include "testing.h"

#include <cstring>
#include <exception>

#include "random.h"

namespace tfsparse {
namespace testing {
namespace {

constexpr int kShownFailures = 10;

struct Test {
  const char* name;
  void (*run)();
};

std::vector<Test>& Tests() {  // a function: tests register before main()
  static std::vector<Test> tests;
  return tests;
}

int failures_of_this_test = 0;

}  // namespace

bool Register(const char* name, void (*test)()) {
  Tests().push_back({name, test});
  return true;
}

void Fail(const char* file, int line, const std::string& what) {
  if (++failures_of_this_test > kShownFailures) return;
  std::printf("%s:%d: %s\n", file, line, what.c_str());
}

bool Expect(bool held, const std::string& what, const char* file, int line) {
  if (!held) Fail(file, line, what);
  return held;
}

}  // namespace testing
}  // namespace tfsparse

// Runs the tests whose names contain argv[1], or all of them.
int main(int argc, char** argv) {
  using namespace tfsparse::testing;  // NOLINT
  int passed = 0;
  int failed = 0;
  std::printf("random tests use seed %llu\n", static_cast<unsigned long long>(kSeed));
  for (const Test& test : Tests()) {
    if (argc > 1 && std::strstr(test.name, argv[1]) == nullptr) continue;
    failures_of_this_test = 0;
    try {
      test.run();
    } catch (const std::exception& e) {
      Fail(test.name, 0, std::string("threw ") + e.what());
    }
    if (failures_of_this_test > kShownFailures) {
      std::printf("and %d more\n", failures_of_this_test - kShownFailures);
    }
    std::printf("%s %s\n", failures_of_this_test == 0 ? "ok" : "FAILED", test.name);
    std::fflush(stdout);
    (failures_of_this_test == 0 ? passed : failed) += 1;
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}
