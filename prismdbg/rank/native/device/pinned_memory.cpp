#include "device/pinned_memory.h"

#include <algorithm>
#include <bit>
#include <chrono>

#include "device/driver.h"
#include "process/gil.h"

namespace prismdbg {
namespace {

constexpr size_t kMostBytes = size_t{512} << 20;
constexpr size_t kSmallestBytes = size_t{64} << 10;
constexpr auto kLongestForRoom = std::chrono::seconds(1);

}  // namespace

size_t PinnedMemory::taken_by(size_t size_bytes) {
  return std::bit_ceil(std::max(size_bytes, kSmallestBytes));
}

bool PinnedMemory::can_hold(size_t taken_bytes) {
  return taken_bytes <= kMostBytes;
}

std::optional<PinnedBuffer> PinnedMemory::take(size_t size_bytes) {
  const size_t wanted = taken_by(size_bytes);
  const WithoutGil released;  // taken again when the lock is free: whoever holds Python's may want this one
  std::unique_lock<std::mutex> lock(mutex_);
  std::optional<PinnedBuffer> found;
  given_back_.wait_for(lock, kLongestForRoom,
                       [&] { return (found = find_locked(wanted)) || make_room_locked(wanted); });
  if (found || total_bytes_ + wanted > kMostBytes) {
    return found;
  }
  PinnedBuffer made{nullptr, wanted};
  if (driver()->allocate_host(&made.data, wanted, kCuHostPortable) != kCuSuccess) {
    return std::nullopt;
  }
  total_bytes_ += wanted;
  return made;
}

void PinnedMemory::give_back(const PinnedBuffer& buffer) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(buffer);
  }
  given_back_.notify_all();
}

std::optional<PinnedBuffer> PinnedMemory::find_locked(size_t size_bytes) {
  const auto fits = std::find_if(free_.begin(), free_.end(), [&](const auto& free) { return free.size_bytes == size_bytes; });
  if (fits == free_.end()) {
    return std::nullopt;
  }
  const PinnedBuffer found = *fits;
  free_.erase(fits);
  return found;
}

// Frees what nobody uses until a buffer of this size may be made.
bool PinnedMemory::make_room_locked(size_t size_bytes) {
  while (total_bytes_ + size_bytes > kMostBytes && !free_.empty()) {
    driver()->free_host(free_.back().data);
    total_bytes_ -= free_.back().size_bytes;
    free_.pop_back();
  }
  return total_bytes_ + size_bytes <= kMostBytes;
}

}  // namespace prismdbg
