// Payload segments that fell out of the window, kept to be written over: their pages are in memory already, and getting
// fresh ones from the kernel costs several times the copy.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "process/descriptor.h"

namespace prismdbg {

class SpareSegments {
 public:
  explicit SpareSegments(std::string folder) : folder_(std::move(folder)) {}

  // Takes the file `from` in, under a name by which no reader knows it; false where that fails.
  bool keep(const std::string& from, uint64_t size_bytes);
  // The oldest spare under its new name, opened for writing; null where there is none or somebody else may still read
  // it: then it is removed.
  std::shared_ptr<Descriptor> reuse(const std::string& as);
  // Forgets the oldest ones until `count` are left. The caller removes these files, which takes the kernel a while.
  std::vector<std::string> shrink(size_t count);

  size_t count() const { return spares_.size(); }
  uint64_t size_bytes() const { return size_bytes_; }
  // Of the one that `reuse` would take; 0 where there is none.
  uint64_t next_bytes() const { return spares_.empty() ? 0 : spares_.front().size_bytes; }

 private:
  struct Spare {
    std::string path;
    uint64_t size_bytes;
  };

  Spare take();

  std::string folder_;
  std::deque<Spare> spares_;
  uint64_t size_bytes_ = 0;
  uint64_t next_ = 0;
};

}  // namespace prismdbg
