#ifndef TFSPARSE_CORE_STATUS_H_
#define TFSPARSE_CORE_STATUS_H_

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

namespace tfsparse {

// What went wrong, by who can mend it.
enum class Code {
  kOk,
  kInvalidArgument,     // the caller passed something that can never work
  kFailedPrecondition,  // the call came at the wrong moment
  kResourceExhausted,   // no memory; the object is as it was before the call
};

// The outcome of a call. A message says what was expected, what was received and what to do.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

inline Status InvalidArgument(std::string message) {
  return Status(Code::kInvalidArgument, std::move(message));
}
inline Status FailedPrecondition(std::string message) {
  return Status(Code::kFailedPrecondition, std::move(message));
}
inline Status ResourceExhausted(std::string message) {
  return Status(Code::kResourceExhausted, std::move(message));
}

// Stops the process when one of our own invariants is broken. Never for the caller's mistakes.
#define TFSPARSE_CHECK(condition)                                                            \
  do {                                                                                       \
    if (!(condition)) {                                                                      \
      std::fprintf(stderr, "%s:%d: broken invariant: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                          \
    }                                                                                        \
  } while (false)

#define TFSPARSE_RETURN_IF_ERROR(expression)   \
  do {                                         \
    ::tfsparse::Status status_ = (expression); \
    if (!status_.ok()) return status_;         \
  } while (false)

}  // namespace tfsparse

#endif  // TFSPARSE_CORE_STATUS_H_
