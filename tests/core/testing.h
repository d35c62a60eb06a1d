#ifndef TFSPARSE_TESTS_CORE_TESTING_H_
#define TFSPARSE_TESTS_CORE_TESTING_H_

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

// A harness of one header, because the core's tests depend on nothing but the standard library.
//
//   TEST(SubIndex, ErasedHashIsAbsent) { ... }     registers itself; the name is a promise
//   EXPECT_EQ(got, wanted);                        records file, line and values, and goes on
//   ASSERT_EQ(got, wanted);                        the same, and returns
//
// Random tests draw from random.h, whose seed main() prints.
namespace tfsparse {
namespace testing {

bool Register(const char* name, void (*test)());
void Fail(const char* file, int line, const std::string& what);

template <typename T>
std::string Show(const T& value) {
  std::ostringstream out;
  out.precision(9);
  if constexpr (std::is_enum_v<T>) {
    out << static_cast<int64_t>(value);
  } else {
    out << value;
  }
  return out.str();
}

template <typename T>
std::string Show(const std::vector<T>& values) {
  std::string shown = "{";
  for (size_t i = 0; i < values.size() && i < 20; ++i) shown += (i ? ", " : "") + Show(values[i]);
  return shown + (values.size() > 20 ? ", ...} of " + std::to_string(values.size()) : "}");
}

template <typename A, typename B>
bool Equal(const A& a, const B& b) {
  if constexpr (std::is_integral_v<A> && std::is_integral_v<B>) {
    return a == static_cast<A>(b) && static_cast<B>(a) == b;
  } else {
    return a == b;
  }
}

template <typename A, typename B>
bool ExpectEqual(const A& a, const B& b, const char* shown, const char* file, int line) {
  if (Equal(a, b)) return true;
  Fail(file, line, std::string(shown) + ": " + Show(a) + " != " + Show(b));
  return false;
}

bool Expect(bool held, const std::string& what, const char* file, int line);

}  // namespace testing
}  // namespace tfsparse

#define TEST(suite, name)                                              \
  static void suite##_##name();                                        \
  [[maybe_unused]] static const bool suite##_##name##_known =          \
      ::tfsparse::testing::Register(#suite "." #name, suite##_##name); \
  static void suite##_##name()

#define TFS_EQ(a, b) ::tfsparse::testing::ExpectEqual((a), (b), #a " == " #b, __FILE__, __LINE__)
#define TFS_TRUE(a) ::tfsparse::testing::Expect(static_cast<bool>(a), #a, __FILE__, __LINE__)
#define TFS_OK(status) TFS_EQ((status).message(), "")
#define TFS_RETURN_UNLESS(held) \
  do {                          \
    if (!(held)) return;        \
  } while (false)

#define EXPECT_EQ(a, b) (void)TFS_EQ(a, b)
#define EXPECT_TRUE(a) (void)TFS_TRUE(a)
#define EXPECT_NEAR(a, b, tolerance)                                                        \
  ::tfsparse::testing::Expect(std::abs((a) - (b)) <= (tolerance),                           \
                              #a " near " #b ": " + ::tfsparse::testing::Show(a), __FILE__, \
                              __LINE__)
#define EXPECT_OK(status) (void)TFS_OK(status)
#define EXPECT_THROW(statement, exception)                                                  \
  try {                                                                                     \
    statement;                                                                              \
    ::tfsparse::testing::Fail(__FILE__, __LINE__, #statement " did not throw " #exception); \
  } catch (const exception&) {                                                              \
  }
#define ASSERT_EQ(a, b) TFS_RETURN_UNLESS(TFS_EQ(a, b))
#define ASSERT_TRUE(a) TFS_RETURN_UNLESS(TFS_TRUE(a))
#define ASSERT_OK(status) TFS_RETURN_UNLESS(TFS_OK(status))

#endif  // TFSPARSE_TESTS_CORE_TESTING_H_
