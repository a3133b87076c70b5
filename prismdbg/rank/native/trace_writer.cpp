#include "trace_writer.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "clock.h"

namespace prismdbg {
namespace {

constexpr size_t kNamesSegmentBytes = 1 << 20;

}  // namespace

TraceWriter::TraceWriter(Housekeeper& housekeeper, std::string folder)
    : folder_(std::move(folder)), names_(housekeeper, folder_, /*rank=*/-1, kNamesSegmentBytes) {
  begin_segment(0);
}

std::string TraceWriter::path(uint64_t index) const {
  char name[32];
  std::snprintf(name, sizeof name, "/memory.%05u.seg", static_cast<unsigned>(index));
  return folder_ + name;
}

void TraceWriter::begin_segment(uint64_t index) {
  auto segment = Segment::create(path(index), kMemorySegmentBytes);
  MemoryHeader fresh{};
  std::memcpy(fresh.magic, kMemoryMagic, sizeof kMemoryMagic);
  fresh.version = kMemoryVersion;
  fresh.segment = static_cast<uint32_t>(index);
  fresh.pid = static_cast<uint32_t>(getpid());
  fresh.record_bytes = sizeof(MemoryRecord);
  fresh.wall_ns = wall_ns();
  fresh.monotonic_ns = monotonic_ns();
  fresh.capacity = capacity();
  std::memcpy(segment->data(), &fresh, sizeof fresh);
  segment_ = std::move(segment);
  segment_index_ = index;
  count_ = 0;
}

void TraceWriter::append(const MemoryRecord& record) {
  if (!segment_) {
    held_.push_back(record);
    return;
  }
  if (count_ == capacity()) {
    begin_segment(segment_index_ + 1);
  }
  std::memcpy(segment_->data() + sizeof(MemoryHeader) + count_ * sizeof record, &record, sizeof record);
  __atomic_store_n(&header()->count, ++count_, __ATOMIC_RELEASE);
}

void TraceWriter::close() {
  names_.close();
  segment_ = nullptr;
}

void TraceWriter::reopen() {
  if (segment_) {
    return;
  }
  names_.reopen();
  segment_ = Segment::map(path(segment_index_), kMemorySegmentBytes);
  const auto held = std::move(held_);
  held_.clear();
  for (const MemoryRecord& record : held) {
    append(record);
  }
}

void TraceWriter::sync() {
  if (segment_) {
    __atomic_store_n(&header()->count, count_, __ATOMIC_RELEASE);
  }
}

}  // namespace prismdbg
