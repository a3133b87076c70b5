// Memory of the host into which a device copies on its own. Buffers are used again, and never freed: the driver may wait
// for all that a device has to do before it frees one. All together have at most a fixed size, and whoever wants more
// waits until one is given back.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

namespace prismdbg {

struct PinnedBuffer {
  void* data = nullptr;
  size_t size_bytes = 0;
};

class PinnedMemory {
 public:
  // What a buffer of this size takes of it.
  static size_t taken_by(size_t size_bytes);
  // Whether buffers that take so much can be had together, when nobody else has any.
  static bool can_hold(size_t taken_bytes);
  using Deadline = std::chrono::steady_clock::time_point;
  // Of at least this size, in a device's context; nothing where there is none until then.
  std::optional<PinnedBuffer> take(size_t size_bytes, Deadline deadline);
  void give_back(const PinnedBuffer& buffer);
  // Nothing of this size was had until the deadline: from here on nobody waits until a buffer comes back.
  void waited_in_vain(size_t size_bytes);

 private:
  bool has_room_locked(size_t taken_bytes) const;
  bool may_come_locked(size_t taken_bytes) const;
  std::optional<PinnedBuffer> find_locked(size_t size_bytes);

  std::mutex mutex_;
  std::condition_variable given_back_;
  std::vector<PinnedBuffer> free_;
  size_t total_bytes_ = 0;
  size_t largest_bytes_ = 0;      // of all buffers, also those that somebody has
  std::multiset<size_t> making_;  // sizes of those that the driver makes now, or refuses
  bool is_stuck_ = false;
};

}  // namespace prismdbg
