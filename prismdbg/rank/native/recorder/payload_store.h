// Payload segments: where the bytes a rank received go while the window is on. Those older than the window are
// removed, or written over under another name if nobody else can see it. Reserving is under a lock, writing is not.
//
// A window that begins at a snapshot or a checkpoint gets shorter by many segments at once, with each new one, and then
// longer again. Those that it no longer needs are spares until they are written over, or the next snapshot comes: memory
// that was in use costs a fraction of new memory.
//
// Before a restore point small payloads (what the program is told: its configuration) stand in segments of their own,
// which are not of the window.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "log/write_queue.h"
#include "recorder/payload_slot.h"
#include "recorder/spare_segments.h"

namespace prismdbg {

// `bytes`: left out or removed. `small_bytes`: of small ones for which there was no more room outside of the window.
struct NotKept {
  uint64_t bytes = 0;
  uint64_t small_bytes = 0;
};

class PayloadStore {
 public:
  PayloadStore(WriteQueue& queue, std::string folder, size_t segment_bytes);

  // How many steps are kept (<= 0: all), and how many bytes (0: any number).
  void limit(int64_t steps, uint64_t size_bytes);
  // Payloads of `step` and later are not removed for their age; kNoStep: there is no such step.
  void keep_from(int64_t step);

  // Payloads of at most `each_bytes` are kept outside of the window from now on, `total_bytes` of them together, and one
  // that is larger than the window is left out alone. 0, 0: no longer; those that were kept so are the oldest of the
  // window then. Returns how much was not kept so since the last call.
  NotKept keep_small(uint64_t each_bytes, uint64_t total_bytes);

  // Null for a payload that is left out alone. Throws std::system_error when no file can be had, or one payload is larger
  // than the window.
  std::unique_ptr<PayloadSlot> reserve(size_t size_bytes, uint32_t step);
  // Removes segments older than the window of a rank that begins `step`.
  void prune(uint32_t step);

  // Closes the open segment, after writes under way have ended. What is reserved meanwhile is kept in memory and
  // written by `reopen`, or dropped where that throws.
  void close();
  void reopen();
  // At the end of the program: gives back what is on disk and not used.
  void tidy();

  uint64_t used_bytes();
  // The oldest step whose payloads are all there; -1 where there are none.
  int64_t oldest_step();

 private:
  static constexpr int64_t kNoStep = int64_t{1} << 62;
  static constexpr size_t kAll = static_cast<size_t>(-1);
  struct Entry {
    uint32_t index;
    uint64_t used_bytes;
    uint64_t size_bytes;  // on disk; more than used in a segment that is written over
    uint32_t first_step;
    uint32_t last_step;
  };
  struct Lane {
    std::deque<Entry> entries;  // oldest first; the last one is open while there is a file
    std::shared_ptr<PayloadFile> file;
  };
  struct Held {
    uint32_t index;
    std::shared_ptr<std::vector<uint8_t>> bytes;
  };

  // All of these with the lock held.
  Lane& lane_of(size_t size_bytes);
  std::unique_ptr<PayloadSlot> reserve_in_memory(Lane& lane, size_t size_bytes, uint32_t step);
  void begin_segment(Lane& lane, uint32_t step);
  std::shared_ptr<PayloadFile> new_file(uint32_t index) const;
  void end_segment(Lane& lane) const;
  bool exceeds_window(size_t size_bytes) const { return limit_bytes_ != 0 && size_bytes > limit_bytes_; }
  void make_room(size_t payload_bytes, bool in_new_segment);
  size_t most_spares() const { return keep_from_ < kNoStep ? kAll : 1; }
  uint64_t total_bytes() const;
  void remove_oldest(size_t most_spares);
  void remove(std::vector<std::string> paths);
  size_t segment_bytes() const;
  std::string path(uint32_t index) const;
  void wait_for_writers() const;

  WriteQueue& queue_;
  std::string folder_;
  size_t most_segment_bytes_;
  std::atomic<int> writers_{0};

  std::mutex mutex_;
  bool closed_ = false;
  int64_t steps_ = 0;
  uint64_t limit_bytes_ = 0;
  int64_t keep_from_ = kNoStep;
  uint32_t next_index_ = 0;
  int64_t removed_through_ = -1;  // the youngest step that lost payloads
  Lane window_;
  Lane small_;  // outside of the window
  uint64_t small_each_bytes_ = 0;
  uint64_t small_room_bytes_ = 0;
  NotKept not_kept_;
  std::vector<Held> held_;
  SpareSegments spares_;
};

}  // namespace prismdbg
