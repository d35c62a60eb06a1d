// Preloaded into a program, it makes one file operation of the program fail, or be its last.
//
// fault_at(n, kind, folder): operation n (from 0) on something in `folder` that creates, writes,
// syncs, renames or removes fails as on a full disk (kind 0), kills the process before it is done
// (1), or, of a write, when half of it is done (2). It returns how many operations there were
// since it was called before.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

std::atomic<long> seen{0};
std::atomic<long> fault{-1};
int kind = 0;
std::string folder;  // empty: nothing is counted

template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

bool IsInside(const char* path) {
  return !folder.empty() && std::strncmp(path, folder.c_str(), folder.size()) == 0;
}

bool IsInside(int descriptor) {
  if (folder.empty()) return false;
  char path[4096] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  return readlink(link.c_str(), path, sizeof(path) - 1) > 0 && IsInside(path);
}

// Whether the operation that is about to be done is the one that must fail.
bool Fails() {
  if (seen++ != fault) return false;
  if (kind == 1) std::raise(SIGKILL);
  errno = ENOSPC;
  return kind == 0;
}

bool EndsHalfDone() { return kind == 2 && seen == fault + 1; }

}  // namespace

extern "C" {

long fault_at(long n, int the_kind, const char* the_folder) {
  fault = n;
  kind = the_kind;
  folder = the_folder;
  return seen.exchange(0);
}

ssize_t write(int descriptor, const void* bytes, size_t size) {
  static auto* const real = Real<ssize_t(int, const void*, size_t)>("write");
  if (IsInside(descriptor)) {
    if (Fails()) return -1;
    if (EndsHalfDone()) {
      real(descriptor, bytes, size / 2);
      std::raise(SIGKILL);
    }
  }
  return real(descriptor, bytes, size);
}

ssize_t pwrite(int descriptor, const void* bytes, size_t size, off_t offset) {
  static auto* const real = Real<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  if (IsInside(descriptor)) {
    if (Fails()) return -1;
    if (EndsHalfDone()) {
      real(descriptor, bytes, size / 2, offset);
      std::raise(SIGKILL);
    }
  }
  return real(descriptor, bytes, size, offset);
}

size_t fwrite(const void* bytes, size_t size, size_t count, FILE* file) {
  static auto* const real = Real<size_t(const void*, size_t, size_t, FILE*)>("fwrite");
  if (IsInside(fileno(file))) {
    if (Fails()) return 0;
    if (EndsHalfDone()) {
      real(bytes, size, count / 2, file);
      std::fflush(file);
      std::raise(SIGKILL);
    }
  }
  return real(bytes, size, count, file);
}

int fflush(FILE* file) {
  static auto* const real = Real<int(FILE*)>("fflush");
  if (file != nullptr && IsInside(fileno(file)) && Fails()) return EOF;
  return real(file);
}

int fsync(int descriptor) {
  static auto* const real = Real<int(int)>("fsync");
  return IsInside(descriptor) && Fails() ? -1 : real(descriptor);
}

int rename(const char* from, const char* to) {
  static auto* const real = Real<int(const char*, const char*)>("rename");
  return IsInside(to) && Fails() ? -1 : real(from, to);
}

int mkdir(const char* path, mode_t mode) {
  static auto* const real = Real<int(const char*, mode_t)>("mkdir");
  return IsInside(path) && Fails() ? -1 : real(path, mode);
}

int open(const char* path, int flags, ...) {
  static auto* const real = Real<int(const char*, int, ...)>("open");
  va_list arguments;
  va_start(arguments, flags);
  const int mode = (flags & O_CREAT) != 0 ? va_arg(arguments, int) : 0;
  va_end(arguments);
  return (flags & O_CREAT) != 0 && IsInside(path) && Fails() ? -1 : real(path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  static auto* const real = Real<int(const char*, int, ...)>("open64");
  va_list arguments;
  va_start(arguments, flags);
  const int mode = (flags & O_CREAT) != 0 ? va_arg(arguments, int) : 0;
  va_end(arguments);
  return (flags & O_CREAT) != 0 && IsInside(path) && Fails() ? -1 : real(path, flags, mode);
}

FILE* fopen(const char* path, const char* mode) {
  static auto* const real = Real<FILE*(const char*, const char*)>("fopen");
  return mode[0] != 'r' && IsInside(path) && Fails() ? nullptr : real(path, mode);
}

FILE* fopen64(const char* path, const char* mode) {
  static auto* const real = Real<FILE*(const char*, const char*)>("fopen64");
  return mode[0] != 'r' && IsInside(path) && Fails() ? nullptr : real(path, mode);
}

int unlinkat(int folder_descriptor, const char* path, int flags) {
  static auto* const real = Real<int(int, const char*, int)>("unlinkat");
  return IsInside(folder_descriptor) && Fails() ? -1 : real(folder_descriptor, path, flags);
}

}  // extern "C"
