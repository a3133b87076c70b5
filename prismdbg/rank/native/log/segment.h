// One file of a fixed size, written by pwrite. It is never mapped: a store into a mapping whose file was cut, or whose
// disk fails, is a SIGBUS that ends the job, where a write gives an error. Its blocks are allocated when it is made, so
// that a full disk is told then. Throws std::system_error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "process/descriptor.h"

namespace prismdbg {

class Segment {
 public:
  // A new file of that size. `must_be_new` refuses a file that is there.
  static std::shared_ptr<Segment> create(const std::string& path, size_t size_bytes, bool must_be_new = false);
  // An existing file of that size.
  static std::shared_ptr<Segment> open(const std::string& path, size_t size_bytes);

  // `rest` first and then `head` in front of it: whoever reads meanwhile sees all of it once he sees `head`.
  void write(uint64_t at, std::string_view head, std::string_view rest = {}) const;

 private:
  Segment(std::unique_ptr<Descriptor> file, size_t size_bytes) : file_(std::move(file)), size_bytes_(size_bytes) {}

  std::unique_ptr<Descriptor> file_;
  size_t size_bytes_;
};

}  // namespace prismdbg
