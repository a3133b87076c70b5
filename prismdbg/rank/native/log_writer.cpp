#include "log_writer.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "bytes_of.h"
#include "clock.h"

namespace prismdbg {
namespace {

constexpr size_t kReserveBytes = 1024;  // at the end of a segment: the last NOTE when no other segment can be had
constexpr size_t kSmallestSegmentBytes = 64 * 1024;
constexpr size_t kLongestTextBytes = 4096;

size_t record_bytes(size_t body_bytes) {
  return (sizeof(RecordHeader) + body_bytes + 7) & ~size_t{7};
}

SegmentHeader header_of(uint32_t segment, int32_t rank, size_t segment_bytes) {
  SegmentHeader header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kVersion;
  header.segment = segment;
  header.rank = rank;
  header.pid = static_cast<uint32_t>(getpid());
  header.wall_ns = wall_ns();
  header.monotonic_ns = monotonic_ns();
  header.segment_bytes = segment_bytes;
  return header;
}

}  // namespace

LogWriter::LogWriter(Housekeeper& housekeeper, const std::string& folder, int32_t rank, size_t segment_bytes)
    : rank_(rank),
      segment_bytes_((std::max(segment_bytes, kSmallestSegmentBytes) + 7) & ~size_t{7}),
      supply_(housekeeper, folder, segment_bytes_),
      segment_(supply_.first()) {
  const SegmentHeader header = header_of(0, rank_, segment_bytes_);
  std::memcpy(segment_->data(), &header, sizeof header);
  offset_ = sizeof header;
}

bool LogWriter::fits(size_t size_bytes, size_t reserve_bytes) const {
  return offset_ + size_bytes + reserve_bytes + sizeof(RecordHeader) <= segment_bytes_;
}

void LogWriter::append(Kind kind, std::string_view head, std::string_view tail) {
  const size_t size = record_bytes(head.size() + tail.size());
  if (size > segment_bytes_ / 2) {
    throw std::system_error(EMSGSIZE, std::generic_category(), "a record of " + std::to_string(size) + " bytes");
  }
  if (!segment_) {
    held_.emplace_back(kind, std::string(head).append(tail));
    return;
  }
  if (!fits(size, kReserveBytes)) {
    try {
      next_segment();
    } catch (...) {
      if (kind != Kind::note || !fits(size, 0)) {
        throw;
      }
    }
  }
  store(kind, head, tail, size);
}

void LogWriter::store(Kind kind, std::string_view head, std::string_view tail, size_t size_bytes) {
  uint8_t* start = segment_->data() + offset_;
  std::memcpy(start + sizeof(RecordHeader), head.data(), head.size());
  if (!tail.empty()) {
    std::memcpy(start + sizeof(RecordHeader) + head.size(), tail.data(), tail.size());
  }
  auto* record = reinterpret_cast<RecordHeader*>(start);
  record->kind = static_cast<uint16_t>(kind);
  if (offset_ + size_bytes + sizeof(RecordHeader) <= segment_bytes_) {  // a restored process writes over what it wrote later
    reinterpret_cast<RecordHeader*>(start + size_bytes)->size = 0;
  }
  __atomic_store_n(&record->size, static_cast<uint32_t>(size_bytes), __ATOMIC_RELEASE);
  offset_ += size_bytes;
  written_bytes_ += size_bytes;
  if (offset_ > segment_bytes_ / 2 && offset_ - size_bytes <= segment_bytes_ / 2) {
    supply_.prepare();
  }
}

void LogWriter::next_segment() {
  auto next = supply_.take(index_ + 1);
  const SegmentHeader header = header_of(index_ + 1, rank_, segment_bytes_);
  std::memcpy(next->data(), &header, sizeof header);
  store(Kind::end, {}, {}, sizeof(RecordHeader));
  segment_ = std::move(next);
  offset_ = sizeof header;
  ++index_;
}

uint32_t LogWriter::text(std::string_view text) {
  text = text.substr(0, kLongestTextBytes);
  if (text.empty()) {
    return 0;
  }
  const auto [entry, is_new] = texts_.try_emplace(std::string(text), static_cast<uint32_t>(texts_.size() + 1));
  if (is_new) {
    const TextBody body{entry->second, static_cast<uint32_t>(text.size())};
    append(Kind::text, bytes_of(body), text);
  }
  return entry->second;
}

uint32_t LogWriter::stack(const std::vector<NamedFrame>& frames) {
  std::vector<FrameEntry> entries;
  for (const NamedFrame& frame : frames) {
    entries.push_back({text(frame.file), frame.line, text(frame.function)});
  }
  const StackBody body{++stacks_, static_cast<uint32_t>(entries.size())};
  append(Kind::stack, bytes_of(body), bytes_of(entries));
  return stacks_;
}

void LogWriter::close() {
  supply_.discard();
  segment_ = nullptr;
}

void LogWriter::reopen() {
  if (segment_) {
    return;
  }
  segment_ = supply_.again(index_);
  auto held = std::move(held_);
  held_.clear();
  for (const auto& [kind, body] : held) {
    append(kind, body);
  }
}

}  // namespace prismdbg
