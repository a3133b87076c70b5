// Writes a trace's records: segments of fixed-size records, and a small log that gives their numbers names. Not
// thread safe: the tracer holds its lock. Throws std::system_error where no space can be had. A process image may be
// taken and put back at any time: what lies behind the last record is never trusted by a reader.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "log/log_writer.h"
#include "log/segment.h"
#include "log/write_queue.h"
#include "process/background_thread.h"
#include "tracer/memory_format.h"

namespace prismdbg {

class TraceWriter {
 public:
  // An existing folder.
  TraceWriter(BackgroundThread& background, std::string folder, bool is_direct);
  ~TraceWriter();

  // Written with others, at the latest by `flush`.
  void append(const MemoryRecord& record);
  void flush();
  // Stores the number of records again: after a process image was put back, the file's is of the time it came from.
  void sync();
  LogWriter& names() { return names_; }

  // Closes everything. Records appended meanwhile are kept in memory and written by `reopen`.
  void close();
  void reopen();

  bool is_closed() const { return is_closed_; }
  uint64_t records() const { return segment_index_ * capacity() + count_ + held_.size(); }

 private:
  static constexpr uint64_t capacity() {
    return (kMemorySegmentBytes - sizeof(MemoryHeader)) / sizeof(MemoryRecord);
  }
  std::string path(uint64_t index) const;
  void begin_segment(uint64_t index);
  // `head` in front of `rest`, last.
  void put(uint64_t at, std::string_view head, std::string_view rest = {});

  WriteQueue queue_;
  std::string folder_;
  std::shared_ptr<Segment> segment_;  // null where the background thread writes
  bool is_closed_ = false;
  uint64_t segment_index_ = 0;
  uint64_t count_ = 0;  // written to this segment
  std::vector<MemoryRecord> held_;  // not written yet
  LogWriter names_;
};

}  // namespace prismdbg
