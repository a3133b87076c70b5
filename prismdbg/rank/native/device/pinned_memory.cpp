#include "device/pinned_memory.h"

#include <algorithm>
#include <bit>

#include "device/driver.h"
#include "process/gil.h"

namespace prismdbg {
namespace {

constexpr size_t kMostBytes = size_t{512} << 20;
constexpr size_t kSmallestBytes = size_t{64} << 10;

}  // namespace

size_t PinnedMemory::taken_by(size_t size_bytes) {
  return std::bit_ceil(std::max(size_bytes, kSmallestBytes));
}

bool PinnedMemory::can_hold(size_t taken_bytes) {
  return taken_bytes <= kMostBytes;
}

std::optional<PinnedBuffer> PinnedMemory::take(size_t size_bytes, Deadline deadline) {
  const size_t wanted = taken_by(size_bytes);
  const WithoutGil released;  // taken again when the lock is free: whoever holds Python's may want this one
  {
    std::unique_lock<std::mutex> lock(mutex_);
    std::optional<PinnedBuffer> found;
    given_back_.wait_until(lock, is_stuck_ ? Deadline::min() : deadline, [&] {
      return (found = find_locked(wanted)) || has_room_locked(wanted) || !may_come_locked(wanted);
    });
    if (found || !has_room_locked(wanted)) {
      return found;
    }
    total_bytes_ += wanted;
    making_.insert(wanted);
  }
  PinnedBuffer made{nullptr, wanted};
  const bool is_made = driver()->allocate_host(&made.data, wanted, kCuHostPortable) == kCuSuccess;
  const std::lock_guard<std::mutex> lock(mutex_);
  making_.erase(making_.find(wanted));
  if (!is_made) {
    total_bytes_ -= wanted;
    given_back_.notify_all();  // there is room again, and who waited for this one does so in vain
    return std::nullopt;
  }
  largest_bytes_ = std::max(largest_bytes_, wanted);
  return made;
}

void PinnedMemory::give_back(const PinnedBuffer& buffer) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(buffer);
    is_stuck_ = false;
  }
  given_back_.notify_all();
}

void PinnedMemory::waited_in_vain(size_t size_bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  is_stuck_ = is_stuck_ || may_come_locked(taken_by(size_bytes));
}

bool PinnedMemory::has_room_locked(size_t taken_bytes) const {
  return total_bytes_ + taken_bytes <= kMostBytes;
}

// Where smaller buffers have taken all the room, a larger one never comes, though all of them are given back.
bool PinnedMemory::may_come_locked(size_t taken_bytes) const {
  const size_t in_the_making = making_.empty() ? 0 : *making_.rbegin();
  return taken_bytes <= std::max(largest_bytes_, in_the_making) || has_room_locked(taken_bytes);
}

// The smallest that is large enough, but none that is very much larger while there is room for a new one.
std::optional<PinnedBuffer> PinnedMemory::find_locked(size_t size_bytes) {
  const bool has_room = has_room_locked(size_bytes);
  auto best = free_.end();
  for (auto free = free_.begin(); free != free_.end(); ++free) {
    const bool fits = free->size_bytes == size_bytes || (free->size_bytes > size_bytes && !has_room);
    if (fits && (best == free_.end() || free->size_bytes < best->size_bytes)) {
      best = free;
    }
  }
  if (best == free_.end()) {
    return std::nullopt;
  }
  const PinnedBuffer found = *best;
  free_.erase(best);
  return found;
}

}  // namespace prismdbg
