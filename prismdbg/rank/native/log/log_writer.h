// Writes event segments. Not thread safe: the recorder holds its lock. Throws std::system_error when a segment
// cannot be had; a NOTE still fits then, for every segment keeps a reserve.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "log/log_format.h"
#include "log/python_stack.h"
#include "log/segment_supply.h"

namespace prismdbg {

class LogWriter {
 public:
  LogWriter(WriteQueue& queue, const std::string& folder, int32_t rank, size_t segment_bytes);

  // One record; its body is `head` and then `tail`.
  void append(Kind kind, std::string_view head, std::string_view tail = {});
  // Whether `append` needs no other segment for a body of that size: then it waits for nobody.
  bool has_room(size_t body_bytes) const;
  // The number of a text, written to the log when it is new. The empty text is 0.
  uint32_t text(std::string_view text);
  // Writes a stack, innermost frame first, and gives its number.
  uint32_t stack(const std::vector<NamedFrame>& frames);

  // Closes everything. Records appended meanwhile are kept in memory and written by `reopen`.
  void close();
  void reopen();
  bool is_closed() const { return is_closed_; }

  // At the end of the program: gives back the segment made ahead.
  void tidy() { supply_.discard(); }

  uint64_t written_bytes() const { return written_bytes_; }

 private:
  bool fits(size_t size_bytes, size_t reserve_bytes) const;
  void next_segment();
  void store(Kind kind, std::string_view head, std::string_view tail, size_t size_bytes);
  // `rest` behind `head`, first. In segment `index`, which is `segment` where it is open here.
  void put(const std::shared_ptr<Segment>& segment, uint32_t index, uint64_t at, std::string_view head,
           std::string_view rest);
  void begin(const std::shared_ptr<Segment>& segment, uint32_t index);

  int32_t rank_;
  size_t segment_bytes_;
  WriteQueue& queue_;
  SegmentSupply supply_;
  std::shared_ptr<Segment> segment_;  // null where the background thread writes
  bool is_closed_ = false;
  std::string record_;
  uint32_t index_ = 0;
  size_t offset_ = 0;
  uint64_t written_bytes_ = 0;
  std::vector<std::pair<Kind, std::string>> held_;
  std::unordered_map<std::string, uint32_t> texts_;
  uint32_t stacks_ = 0;
};

}  // namespace prismdbg
