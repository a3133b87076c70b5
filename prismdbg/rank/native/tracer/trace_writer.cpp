#include "tracer/trace_writer.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <utility>

#include "log/bytes_of.h"
#include "log/clock.h"
#include "process/guarded.h"

namespace prismdbg {
namespace {

constexpr size_t kNamesSegmentBytes = 1 << 20;
constexpr size_t kTogether = 64;                  // records are many: so many are written at once
constexpr size_t kLargeBytes = size_t{1} << 20;  // an allocation that may be the last before the kernel ends the rank

}  // namespace

TraceWriter::TraceWriter(BackgroundThread& background, std::string folder, bool is_direct)
    : queue_(background, is_direct), folder_(std::move(folder)), names_(queue_, folder_, /*rank=*/-1, kNamesSegmentBytes) {
  begin_segment(0);
}

TraceWriter::~TraceWriter() {
  guarded([this] { flush(); }, [](const char*) {});
}

std::string TraceWriter::path(uint64_t index) const {
  char name[32];
  std::snprintf(name, sizeof name, "/memory.%05u.seg", static_cast<unsigned>(index));
  return folder_ + name;
}

void TraceWriter::begin_segment(uint64_t index) {
  if (queue_.is_direct()) {
    segment_ = Segment::create(path(index), kMemorySegmentBytes);
  } else {
    queue_.post(0, [path = path(index)] { Segment::create(path, kMemorySegmentBytes); });
  }
  segment_index_ = index;
  count_ = 0;
  MemoryHeader fresh{};
  std::memcpy(fresh.magic, kMemoryMagic, sizeof kMemoryMagic);
  fresh.version = kMemoryVersion;
  fresh.segment = static_cast<uint32_t>(index);
  fresh.pid = static_cast<uint32_t>(getpid());
  fresh.record_bytes = sizeof(MemoryRecord);
  fresh.wall_ns = wall_ns();
  fresh.monotonic_ns = monotonic_ns();
  fresh.capacity = capacity();
  const std::string_view bytes = bytes_of(fresh);
  put(0, bytes.substr(0, sizeof kMemoryMagic), bytes.substr(sizeof kMemoryMagic));
}

void TraceWriter::put(uint64_t at, std::string_view head, std::string_view rest) {
  if (segment_) {
    segment_->write(at, head, rest);
    return;
  }
  queue_.post(head.size() + rest.size(),
               [path = path(segment_index_), at, head = std::string(head), rest = std::string(rest)] {
                 Segment::open(path, kMemorySegmentBytes)->write(at, head, rest);
               });
}

void TraceWriter::append(const MemoryRecord& record) {
  held_.push_back(record);
  if (!is_closed_ && (held_.size() >= kTogether || record.size_bytes >= kLargeBytes)) {
    flush();
  }
}

void TraceWriter::flush() {
  if (is_closed_) {
    return;
  }
  const std::vector<MemoryRecord> records = std::exchange(held_, {});
  for (size_t done = 0; done < records.size();) {
    if (count_ == capacity()) {
      begin_segment(segment_index_ + 1);
    }
    const size_t now = std::min<size_t>(records.size() - done, capacity() - count_);
    const auto* first = reinterpret_cast<const char*>(records.data() + done);
    put(sizeof(MemoryHeader) + count_ * sizeof(MemoryRecord), {first, now * sizeof(MemoryRecord)});
    count_ += now;
    done += now;
    sync();
  }
}

void TraceWriter::sync() {
  put(offsetof(MemoryHeader, count), bytes_of(count_));
}

void TraceWriter::close() {
  flush();
  names_.close();
  segment_ = nullptr;
  is_closed_ = true;
}

void TraceWriter::reopen() {
  if (!is_closed_) {
    return;
  }
  names_.reopen();
  if (queue_.is_direct()) {
    segment_ = Segment::open(path(segment_index_), kMemorySegmentBytes);
  }
  is_closed_ = false;
  flush();
}

}  // namespace prismdbg
