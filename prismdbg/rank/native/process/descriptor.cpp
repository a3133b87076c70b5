#include "process/descriptor.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <system_error>

namespace prismdbg {

void close_descriptors_in_child() noexcept;

namespace {

constexpr int kFirst = 3;  // a program may have closed a standard stream, and will take the next file for it

[[noreturn]] void fail(int error, const std::string& what) {
  throw std::system_error(error, std::generic_category(), what);
}

// Those that are open, for a forked child to close. One that finds no place stays open there.
using Open = std::array<std::atomic<const Descriptor*>, 16>;
Open& open_ones() {
  static Open* open = [] {
    pthread_atfork(nullptr, nullptr, close_descriptors_in_child);
    return new Open{};
  }();
  return *open;
}

void exchange(const Descriptor* from, const Descriptor* to) {
  for (auto& slot : open_ones()) {
    const Descriptor* expected = from;
    if (slot.compare_exchange_strong(expected, to)) {
      return;
    }
  }
}

int open_above_the_standard_streams(const std::string& path, int flags) {
  const int number = open(path.c_str(), flags | O_CLOEXEC, 0600);
  if (number < 0 || number >= kFirst) {
    return number;
  }
  const int higher = fcntl(number, F_DUPFD_CLOEXEC, kFirst);
  const int error = errno;
  close(number);
  errno = error;
  return higher;
}

}  // namespace

void close_descriptors_in_child() noexcept {
  for (auto& slot : open_ones()) {
    const Descriptor* one = slot.exchange(nullptr);
    uint64_t size_bytes = 0;
    if (one != nullptr && one->is_ours(size_bytes)) {
      close(one->number());
    }
  }
}

Descriptor::Descriptor(const std::string& path, int flags)
    : path_(path), number_(open_above_the_standard_streams(path, flags)) {
  if (number_ < 0) {
    fail(errno, path);
  }
  struct stat status {};
  if (fstat(number_, &status) != 0) {
    const int error = errno;
    close(number_);
    fail(error, path);
  }
  device_ = status.st_dev;
  inode_ = status.st_ino;
  exchange(nullptr, this);
}

Descriptor::~Descriptor() {
  exchange(this, nullptr);
  uint64_t size_bytes = 0;
  if (is_ours(size_bytes)) {
    close(number_);
  }
}

// In a restored process the same file may lie on a device of another number: then its path must lead to it.
bool Descriptor::is_ours(uint64_t& size_bytes) const {
  struct stat status {};
  if (fstat(number_, &status) != 0) {
    return false;
  }
  size_bytes = static_cast<uint64_t>(status.st_size);
  if (status.st_dev == device_ && status.st_ino == inode_) {
    return true;
  }
  struct stat named {};
  if (stat(path_.c_str(), &named) != 0 || named.st_dev != status.st_dev || named.st_ino != status.st_ino) {
    return false;
  }
  device_ = status.st_dev;
  inode_ = status.st_ino;
  return true;
}

void Descriptor::check(uint64_t size_bytes) const {
  uint64_t now_bytes = 0;
  if (!is_ours(now_bytes)) {
    fail(EBADF, path_ + " was closed by the program");
  }
  if (now_bytes < size_bytes) {
    fail(EIO, path_ + " is shorter than it was");
  }
}

void Descriptor::write(const void* data, size_t size_bytes, uint64_t at) const {
  auto* next = static_cast<const char*>(data);
  while (size_bytes > 0) {
    const ssize_t written = pwrite(number_, next, size_bytes, static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      fail(written < 0 ? errno : ENOSPC, path_);
    }
    next += written;
    size_bytes -= static_cast<size_t>(written);
    at += static_cast<uint64_t>(written);
  }
}

}  // namespace prismdbg
