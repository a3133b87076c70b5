#include "payload_store.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "segment_supply.h"

namespace prismdbg {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr size_t kSmallestSegmentBytes = size_t{1} << 20;
constexpr auto kLongestWrite = std::chrono::seconds(10);

uint64_t aligned(uint64_t offset) {
  return (offset + kAlignment - 1) & ~(kAlignment - 1);
}

}  // namespace

PayloadStore::PayloadStore(Housekeeper& housekeeper, std::string folder, size_t segment_bytes)
    : housekeeper_(housekeeper), folder_(std::move(folder)), most_segment_bytes_(segment_bytes) {}

void PayloadStore::limit(int64_t steps, uint64_t size_bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  steps_ = steps;
  limit_bytes_ = size_bytes;
}

void PayloadStore::keep_from(int64_t step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  keep_from_ = step;
}

// A quarter of the limit at most, or removing one segment would empty the window.
size_t PayloadStore::segment_bytes() const {
  const size_t quarter = limit_bytes_ ? std::max<size_t>(limit_bytes_ / 4, kSmallestSegmentBytes) : most_segment_bytes_;
  return std::min(most_segment_bytes_, quarter);
}

std::string PayloadStore::path(uint32_t index) const {
  return segment_path(folder_, "payload", index);
}

// A payload never spans segments; one larger than a segment has a segment to itself.
std::unique_ptr<PayloadSlot> PayloadStore::reserve(size_t size_bytes, uint32_t step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) {
    return reserve_in_memory(size_bytes, step);
  }
  if (file_ && aligned(entries_.back().used_bytes) + size_bytes > segment_bytes()) {
    end_segment();
  }
  make_room(size_bytes);
  if (!file_) {
    begin_segment(step);
  }
  Entry& entry = entries_.back();
  const uint64_t offset = aligned(entry.used_bytes);
  entry.used_bytes = offset + size_bytes;
  entry.last_step = std::max(entry.last_step, step);
  return std::make_unique<PayloadSlot>(file_, nullptr, entry.index, offset, writers_);
}

std::unique_ptr<PayloadSlot> PayloadStore::reserve_in_memory(size_t size_bytes, uint32_t step) {
  auto bytes = std::make_shared<std::vector<uint8_t>>();
  bytes->reserve(size_bytes);
  held_.push_back({next_index_, bytes});
  entries_.push_back({next_index_, size_bytes, step, step});
  return std::make_unique<PayloadSlot>(nullptr, std::move(bytes), next_index_++, 0, writers_);
}

void PayloadStore::begin_segment(uint32_t step) {
  file_ = std::make_shared<Descriptor>(path(next_index_), O_WRONLY | O_CREAT | O_EXCL);
  open_descriptor_.store(file_->number());
  entries_.push_back({next_index_, 0, step, step});
  ++next_index_;
}

void PayloadStore::end_segment() {
  open_descriptor_.store(-1);
  file_ = nullptr;
}

// Removes the oldest segments until one more payload keeps the window within its limit.
void PayloadStore::make_room(size_t size_bytes) {
  if (limit_bytes_ == 0) {
    return;
  }
  if (size_bytes > limit_bytes_) {
    throw std::system_error(EFBIG, std::generic_category(),
                            "one payload of " + std::to_string(size_bytes) + " bytes is larger than the window");
  }
  uint64_t total = size_bytes + kAlignment;
  for (const Entry& entry : entries_) {
    total += entry.used_bytes;
  }
  while (!entries_.empty() && total > limit_bytes_) {
    total -= entries_.front().used_bytes;
    remove_oldest();
  }
}

// In the background: removing a large file takes the kernel a while.
void PayloadStore::remove_oldest() {
  const Entry entry = entries_.front();
  entries_.pop_front();
  if (entries_.empty()) {
    end_segment();
  }
  removed_through_ = std::max<int64_t>(removed_through_, entry.last_step);
  const auto task = [path = path(entry.index)] { unlink(path.c_str()); };
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

void PayloadStore::wait_for_writers() const {
  const auto deadline = std::chrono::steady_clock::now() + kLongestWrite;
  while (writers_.load() != 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      throw std::system_error(EBUSY, std::generic_category(), "a payload is still being written");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

void PayloadStore::close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  wait_for_writers();
  end_segment();
}

void PayloadStore::reopen() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!closed_) {
    return;
  }
  wait_for_writers();
  for (const Held& held : held_) {
    const auto file = std::make_shared<Descriptor>(path(held.index), O_WRONLY | O_CREAT | O_EXCL);
    PayloadSlot slot(file, nullptr, held.index, 0, writers_);
    slot.add(held.bytes->data(), held.bytes->size());
    slot.flush();
  }
  held_.clear();
  closed_ = false;
}

void PayloadStore::close_in_child() noexcept {
  const int descriptor = open_descriptor_.load();
  if (descriptor >= 0) {
    ::close(descriptor);
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

}  // namespace prismdbg
