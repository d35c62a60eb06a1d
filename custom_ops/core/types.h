#ifndef TFSPARSE_CORE_TYPES_H_
#define TFSPARSE_CORE_TYPES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tfsparse {

// A user's id. Every 64-bit value is an ordinary key; none is reserved.
using Key = int64_t;

// The mixed form of a key (mix.h). Inside the core a key is known by its hash: the mixing is
// a bijection, so the two name the same thing, and hashes are uniform and ordered by bucket.
using Hash = uint64_t;

// A view of `size` elements that somebody else owns.
template <typename T>
class Span {
 public:
  Span() = default;
  Span(T* data, size_t size) : data_(data), size_(size) {}
  template <typename U>
  Span(const Span<U>& other) : data_(other.data()), size_(other.size()) {}  // NOLINT
  template <typename U>
  Span(std::vector<U>& v) : data_(v.data()), size_(v.size()) {}  // NOLINT
  template <typename U>
  Span(const std::vector<U>& v) : data_(v.data()), size_(v.size()) {}  // NOLINT

  T* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) const { return data_[i]; }
  T* begin() const { return data_; }
  T* end() const { return data_ + size_; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace tfsparse

#endif  // TFSPARSE_CORE_TYPES_H_
