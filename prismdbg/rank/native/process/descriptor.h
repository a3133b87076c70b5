// An open file of ours, closed with its owner, at exec, and in a forked child. The program may close any descriptor
// and have the number again for a file of its own: nothing is written before it was seen to be our file still. Throws
// std::system_error.
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace prismdbg {

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags);
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int number() const { return number_; }
  // Throws where the number is not our file any more, or the file has become shorter than that.
  void check(uint64_t size_bytes = 0) const;
  // All of it, at that place.
  void write(const void* data, size_t size_bytes, uint64_t at) const;

 private:
  // `size_bytes`: where it is, how long the file is.
  bool is_ours(uint64_t& size_bytes) const;
  friend void close_descriptors_in_child() noexcept;

  std::string path_;
  int number_;
  mutable std::atomic<dev_t> device_ = 0;
  mutable std::atomic<ino_t> inode_ = 0;
};

}  // namespace prismdbg
