// One payload segment that fell out of the window, kept to be written over: its pages are in memory already, and
// getting fresh ones from the kernel costs several times the copy.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "process/descriptor.h"

namespace prismdbg {

class SpareSegment {
 public:
  explicit SpareSegment(std::string path) : path_(std::move(path)) {}

  // Takes the file `from` in; false where there is a spare already.
  bool keep(const std::string& from, uint64_t size_bytes);
  // The spare under its new name, opened for writing; null where there is none or somebody else may still read it.
  std::shared_ptr<Descriptor> reuse(const std::string& as);
  void drop();

  uint64_t size_bytes() const { return size_bytes_; }

 private:
  std::string path_;
  uint64_t size_bytes_ = 0;
};

}  // namespace prismdbg
