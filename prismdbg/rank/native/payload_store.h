// Payload segments: where the bytes a rank received go while the window is on. A segment is never written twice;
// those older than the window are removed. Reserving is under a lock, copying is not.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "segment_supply.h"

namespace prismdbg {

// A reserved place in a segment. While it lives the bytes stay mapped.
struct PayloadSlot {
  std::shared_ptr<void> hold;
  uint8_t* data = nullptr;
  uint32_t segment = 0;
  uint64_t offset = 0;
};

class PayloadStore {
 public:
  PayloadStore(Housekeeper& housekeeper, const std::string& folder, size_t segment_bytes);

  // How many steps are kept (<= 0: all) and how many bytes on disk. Makes the next segment ahead while `on`.
  void window(bool on, int64_t steps, uint64_t size_bytes);
  void keep_from(int64_t step);

  // Throws std::system_error when no segment can be had.
  PayloadSlot reserve(size_t size_bytes, uint32_t step);
  // Removes segments older than the window of a rank that begins `step`.
  void prune(uint32_t step);

  // Unmaps everything, after copies under way have ended. What is reserved meanwhile is kept in memory and written
  // by `reopen`.
  void close();
  void reopen();

  // At the end of the program: gives back the space that was allocated and not used.
  void tidy();

  uint64_t used_bytes();
  // The oldest step whose payloads are all there; -1 where there are none.
  int64_t oldest_step();

 private:
  struct Entry {
    uint32_t index;
    size_t allocated_bytes;
    size_t used_bytes;
    uint32_t first_step;
    uint32_t last_step;
  };
  struct Held {
    uint32_t index;
    size_t size_bytes;
    std::shared_ptr<uint8_t[]> bytes;
  };

  // All of these with the lock held.
  PayloadSlot reserve_in_memory(size_t size_bytes, uint32_t step);
  PayloadSlot reserve_in(const std::shared_ptr<Segment>& segment, Entry& entry, size_t size_bytes, uint32_t step);
  std::shared_ptr<Segment> add_segment(size_t size_bytes, uint32_t step);
  Entry& current_entry();
  void retire_current();
  void make_room(size_t size_bytes);
  void remove_oldest();
  size_t usual_segment_bytes() const;
  void wait_until_unpinned() const;
  std::shared_ptr<void> pin(std::shared_ptr<void> mapping);

  Housekeeper& housekeeper_;
  SegmentSupply supply_;
  size_t segment_bytes_;

  std::mutex mutex_;
  std::atomic<int> pins_{0};
  bool closed_ = false;
  bool on_ = false;
  int64_t steps_ = 0;
  uint64_t limit_bytes_ = 0;
  int64_t keep_from_ = std::numeric_limits<int64_t>::max();
  uint32_t next_index_ = 0;
  int64_t removed_through_ = -1;  // the youngest step that lost payloads
  std::deque<Entry> entries_;     // oldest first
  std::shared_ptr<Segment> current_;
  int64_t current_index_ = -1;
  std::vector<Held> held_;
};

}  // namespace prismdbg
