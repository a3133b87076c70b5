// A place reserved for one payload, and the writing of it: at once, or by the background thread (`write_queue.h`).
// Bytes go out by pwrite: on a full disk that is an error code, where a store into a mapping is a signal; nothing stays
// mapped; and it costs a third of the page faults. What the background thread writes, it gets in one piece.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "log/write_queue.h"
#include "process/descriptor.h"

namespace prismdbg {

struct PayloadFile {
  std::string path;
  std::shared_ptr<Descriptor> opened;  // null where the background thread opens it for each write
};

class PayloadSlot {
 public:
  // Into an open segment at `offset`; null: none, the bytes stay in `memory`. Counted in `writers` while it lives.
  PayloadSlot(WriteQueue& queue, std::shared_ptr<PayloadFile> file, std::shared_ptr<std::vector<uint8_t>> memory,
              uint32_t segment, uint64_t offset, std::atomic<int>& writers);
  ~PayloadSlot();
  PayloadSlot(const PayloadSlot&) = delete;
  PayloadSlot& operator=(const PayloadSlot&) = delete;

  // Adds the next bytes; small ones are gathered. Throws std::system_error.
  void add(const uint8_t* data, size_t size_bytes);
  // Writes what was gathered, or leaves it to the background thread.
  void flush();

  uint32_t segment() const { return segment_; }
  uint64_t offset() const { return offset_; }

 private:
  void write(const uint8_t* data, size_t size_bytes);

  WriteQueue& queue_;
  std::shared_ptr<PayloadFile> file_;
  std::shared_ptr<std::vector<uint8_t>> memory_;
  uint32_t segment_;
  uint64_t offset_;
  uint64_t next_;
  std::atomic<int>& writers_;
};

}  // namespace prismdbg
