#include "payload_store.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>

namespace prismdbg {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kSmallestSegmentBytes = size_t{1} << 20;
constexpr auto kLongestCopy = std::chrono::seconds(10);

size_t aligned(size_t size_bytes) {
  return (size_bytes + kAlignment - 1) & ~(kAlignment - 1);
}

}  // namespace

PayloadStore::PayloadStore(Housekeeper& housekeeper, const std::string& folder, size_t segment_bytes)
    : housekeeper_(housekeeper), supply_(housekeeper, folder, "payload"), segment_bytes_(segment_bytes) {}

void PayloadStore::window(bool on, int64_t steps, uint64_t size_bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  on_ = on;
  steps_ = steps;
  limit_bytes_ = size_bytes;
  if (on && !closed_) {
    supply_.prepare(usual_segment_bytes());
  }
}

void PayloadStore::keep_from(int64_t step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  keep_from_ = step;
}

// A quarter of the limit at most, or removing one segment would empty the window.
size_t PayloadStore::usual_segment_bytes() const {
  const size_t quarter = limit_bytes_ ? std::max<size_t>(limit_bytes_ / 4, kSmallestSegmentBytes) : segment_bytes_;
  return std::min(segment_bytes_, quarter);
}

PayloadSlot PayloadStore::reserve(size_t size_bytes, uint32_t step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) {
    return reserve_in_memory(size_bytes, step);
  }
  if (size_bytes > usual_segment_bytes()) {
    const auto segment = add_segment(size_bytes, step);
    return reserve_in(segment, entries_.back(), size_bytes, step);
  }
  if (!current_ || aligned(current_entry().used_bytes) + size_bytes > current_->size_bytes()) {
    retire_current();
    auto segment = add_segment(usual_segment_bytes(), step);
    current_ = std::move(segment);
    current_index_ = entries_.back().index;
    if (on_) {
      supply_.prepare(usual_segment_bytes());
    }
  }
  return reserve_in(current_, current_entry(), size_bytes, step);
}

PayloadSlot PayloadStore::reserve_in(const std::shared_ptr<Segment>& segment, Entry& entry, size_t size_bytes,
                                     uint32_t step) {
  PayloadSlot slot;
  slot.hold = pin(segment);
  slot.offset = aligned(entry.used_bytes);
  slot.data = segment->data() + slot.offset;
  slot.segment = entry.index;
  entry.used_bytes = slot.offset + size_bytes;
  entry.last_step = std::max(entry.last_step, step);
  return slot;
}

PayloadSlot PayloadStore::reserve_in_memory(size_t size_bytes, uint32_t step) {
  const uint32_t index = next_index_;
  std::shared_ptr<uint8_t[]> bytes(new uint8_t[size_bytes]);
  held_.push_back({index, size_bytes, bytes});
  entries_.push_back({index, size_bytes, size_bytes, step, step});
  ++next_index_;
  PayloadSlot slot;
  slot.data = bytes.get();
  slot.hold = pin(std::move(bytes));
  slot.segment = index;
  return slot;
}

std::shared_ptr<Segment> PayloadStore::add_segment(size_t size_bytes, uint32_t step) {
  make_room(size_bytes);
  auto segment = supply_.take(next_index_, size_bytes);
  entries_.push_back({next_index_, size_bytes, 0, step, step});
  ++next_index_;
  return segment;
}

PayloadStore::Entry& PayloadStore::current_entry() {
  return *std::find_if(entries_.rbegin(), entries_.rend(), [this](const Entry& entry) {
    return static_cast<int64_t>(entry.index) == current_index_;
  });
}

// The mapping goes, the unused end of the file too; both take the kernel a while.
void PayloadStore::retire_current() {
  if (!current_) {
    return;
  }
  Entry& entry = current_entry();
  entry.allocated_bytes = entry.used_bytes;
  auto task = [segment = std::move(current_), path = supply_.path(entry.index), used = entry.used_bytes]() mutable {
    segment = nullptr;
    return truncate(path.c_str(), static_cast<off_t>(used));
  };
  current_ = nullptr;
  current_index_ = -1;
  if (!housekeeper_.post(task)) {
    task();
  }
}

// Removes the oldest segments until one of `size_bytes` keeps the window within its limit, the one made ahead included.
void PayloadStore::make_room(size_t size_bytes) {
  if (limit_bytes_ == 0) {
    return;
  }
  const size_t wanted = size_bytes + usual_segment_bytes();
  if (size_bytes > limit_bytes_) {
    throw std::system_error(EFBIG, std::generic_category(),
                            "one payload of " + std::to_string(size_bytes) + " bytes is larger than the window");
  }
  size_t total = 0;
  for (const Entry& entry : entries_) {
    total += entry.allocated_bytes;
  }
  while (!entries_.empty() && total + wanted > limit_bytes_) {
    total -= entries_.front().allocated_bytes;
    remove_oldest();
  }
}

void PayloadStore::remove_oldest() {
  if (static_cast<int64_t>(entries_.front().index) == current_index_) {
    retire_current();
  }
  const Entry entry = entries_.front();
  entries_.pop_front();
  removed_through_ = std::max<int64_t>(removed_through_, entry.last_step);
  auto task = [path = supply_.path(entry.index)] { return unlink(path.c_str()); };
  if (!housekeeper_.post(task)) {
    task();
  }
}

void PayloadStore::prune(uint32_t step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (steps_ <= 0 || closed_) {
    return;
  }
  const int64_t bound = std::min<int64_t>(static_cast<int64_t>(step) - steps_, keep_from_);
  while (!entries_.empty() && entries_.front().last_step < bound) {
    remove_oldest();
  }
}

void PayloadStore::wait_until_unpinned() const {
  const auto deadline = std::chrono::steady_clock::now() + kLongestCopy;
  while (pins_.load() != 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      throw std::system_error(EBUSY, std::generic_category(), "a payload is still being copied");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

void PayloadStore::close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  wait_until_unpinned();
  current_ = nullptr;
  supply_.discard();
}

void PayloadStore::reopen() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!closed_) {
    return;
  }
  wait_until_unpinned();
  for (const Held& held : held_) {
    const auto segment = Segment::create(supply_.path(held.index), held.size_bytes);
    std::memcpy(segment->data(), held.bytes.get(), held.size_bytes);
  }
  held_.clear();
  if (current_index_ >= 0) {
    const Entry& entry = current_entry();
    current_ = Segment::map(supply_.path(entry.index), entry.allocated_bytes);
  }
  closed_ = false;
  if (on_) {
    supply_.prepare(usual_segment_bytes());
  }
}

void PayloadStore::tidy() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!closed_) {
    on_ = false;
    supply_.discard();
    retire_current();
  }
}

uint64_t PayloadStore::used_bytes() {
  const std::lock_guard<std::mutex> lock(mutex_);
  uint64_t total = 0;
  for (const Entry& entry : entries_) {
    total += entry.used_bytes;
  }
  return total;
}

int64_t PayloadStore::oldest_step() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return entries_.empty() ? -1 : std::max<int64_t>(entries_.front().first_step, removed_through_ + 1);
}

// Releasing takes no lock: a slot may go while this store's lock is held.
std::shared_ptr<void> PayloadStore::pin(std::shared_ptr<void> mapping) {
  pins_.fetch_add(1);
  return std::shared_ptr<void>(nullptr, [this, mapping = std::move(mapping)](void*) mutable {
    mapping = nullptr;
    pins_.fetch_sub(1);
  });
}

}  // namespace prismdbg
