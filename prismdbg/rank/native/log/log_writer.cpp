#include "log/log_writer.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "log/bytes_of.h"
#include "log/clock.h"

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

LogWriter::LogWriter(WriteQueue& queue, const std::string& folder, int32_t rank, size_t segment_bytes)
    : rank_(rank),
      segment_bytes_((std::max(segment_bytes, kSmallestSegmentBytes) + 7) & ~size_t{7}),
      queue_(queue),
      supply_(queue, folder, segment_bytes_),
      segment_(supply_.first()) {
  begin(segment_, 0);
}

void LogWriter::begin(const std::shared_ptr<Segment>& segment, uint32_t index) {
  const SegmentHeader header = header_of(index, rank_, segment_bytes_);
  const std::string_view bytes = bytes_of(header);
  put(segment, index, 0, bytes.substr(0, sizeof kMagic), bytes.substr(sizeof kMagic));
  segment_ = segment;
  index_ = index;
  offset_ = sizeof header;
}

void LogWriter::put(const std::shared_ptr<Segment>& segment, uint32_t index, uint64_t at, std::string_view head,
                    std::string_view rest) {
  if (segment) {
    segment->write(at, head, rest);
    return;
  }
  queue_.post(head.size() + rest.size(), [path = supply_.path(index), size = segment_bytes_, at,
                                           head = std::string(head), rest = std::string(rest)] {
    Segment::open(path, size)->write(at, head, rest);
  });
}

bool LogWriter::fits(size_t size_bytes, size_t reserve_bytes) const {
  return offset_ + size_bytes + reserve_bytes + sizeof(RecordHeader) <= segment_bytes_;
}

bool LogWriter::has_room(size_t body_bytes) const {
  return is_closed_ || fits(record_bytes(body_bytes), kReserveBytes);
}

void LogWriter::append(Kind kind, std::string_view head, std::string_view tail) {
  const size_t size = record_bytes(head.size() + tail.size());
  if (size > segment_bytes_ / 2) {
    throw std::system_error(EMSGSIZE, std::generic_category(), "a record of " + std::to_string(size) + " bytes");
  }
  if (is_closed_) {
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
  const RecordHeader header{static_cast<uint32_t>(size_bytes), static_cast<uint16_t>(kind), 0};
  record_.assign(head).append(tail);
  record_.resize(size_bytes - sizeof header);
  if (offset_ + size_bytes + sizeof header <= segment_bytes_) {  // a restored process writes over what it wrote later
    record_.append(sizeof header, '\0');
  }
  put(segment_, index_, offset_, bytes_of(header), record_);
  offset_ += size_bytes;
  written_bytes_ += size_bytes;
  if (offset_ > segment_bytes_ / 2 && offset_ - size_bytes <= segment_bytes_ / 2) {
    supply_.prepare();
  }
}

void LogWriter::next_segment() {
  const auto next = supply_.take(index_ + 1);
  const uint32_t index = index_ + 1;
  const auto last = segment_;
  const size_t end = offset_;
  begin(next, index);
  const RecordHeader header{sizeof(RecordHeader), static_cast<uint16_t>(Kind::end), 0};
  put(last, index - 1, end, bytes_of(header), {});
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
  is_closed_ = true;
}

void LogWriter::reopen() {
  if (!is_closed_) {
    return;
  }
  segment_ = supply_.again(index_);
  is_closed_ = false;
  auto held = std::move(held_);
  held_.clear();
  for (const auto& [kind, body] : held) {
    append(kind, body);
  }
}

}  // namespace prismdbg
