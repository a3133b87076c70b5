// One file of events, mapped. Its blocks are allocated before it is mapped: a store into a hole on a full disk is
// SIGBUS. No file descriptor stays open, and a forked child does not inherit the mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace prismdbg {

class Segment {
 public:
  // A new file of that size; throws std::system_error. `must_be_new` refuses a file that is there.
  static std::shared_ptr<Segment> create(const std::string& path, size_t size_bytes, bool must_be_new = false);
  // An existing file of that size.
  static std::shared_ptr<Segment> map(const std::string& path, size_t size_bytes);

  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  uint8_t* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }

  // Makes every page writable now, so that later stores do not fault. Only before anything was stored.
  void populate();

 private:
  Segment(int descriptor, size_t size_bytes);

  uint8_t* data_ = nullptr;
  size_t size_bytes_ = 0;
};

}  // namespace prismdbg
