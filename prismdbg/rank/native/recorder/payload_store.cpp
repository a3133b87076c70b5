#include "recorder/payload_store.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "log/segment_supply.h"

namespace prismdbg {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr size_t kSmallestSegmentBytes = size_t{1} << 20;
constexpr auto kLongestWrite = std::chrono::seconds(10);

uint64_t aligned(uint64_t offset) {
  return (offset + kAlignment - 1) & ~(kAlignment - 1);
}

std::shared_ptr<std::vector<uint8_t>> memory_for(size_t size_bytes) {
  auto bytes = std::make_shared<std::vector<uint8_t>>();
  bytes->reserve(size_bytes);
  return bytes;
}

}  // namespace

PayloadStore::PayloadStore(WriteQueue& queue, std::string folder, size_t segment_bytes)
    : queue_(queue),
      folder_(std::move(folder)),
      most_segment_bytes_(segment_bytes),
      spares_(folder_) {}

void PayloadStore::limit(int64_t steps, uint64_t size_bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  steps_ = steps;
  limit_bytes_ = size_bytes;
}

void PayloadStore::keep_from(int64_t step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  keep_from_ = step;
  if (!closed_) {
    remove(spares_.shrink(1));  // a whole round has not needed them
  }
}

// A quarter of the limit at most, or removing one segment would empty the window.
size_t PayloadStore::segment_bytes() const {
  const size_t quarter = limit_bytes_ ? std::max<size_t>(limit_bytes_ / 4, kSmallestSegmentBytes) : most_segment_bytes_;
  return std::min(most_segment_bytes_, quarter);
}

std::string PayloadStore::path(uint32_t index) const {
  return segment_path(folder_, "payload", index);
}

NotKept PayloadStore::keep_small(uint64_t each_bytes, uint64_t total_bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  end_segment(small_);
  window_.entries.insert(window_.entries.begin(), small_.entries.begin(), small_.entries.end());
  small_.entries.clear();
  small_each_bytes_ = each_bytes;
  small_room_bytes_ = total_bytes;
  return std::exchange(not_kept_, {});
}

PayloadStore::Lane& PayloadStore::lane_of(size_t size_bytes) {
  if (size_bytes > small_each_bytes_) {
    return window_;
  }
  const uint64_t taken = aligned(size_bytes);
  if (taken > small_room_bytes_) {
    not_kept_.small_bytes += size_bytes;
    return window_;
  }
  small_room_bytes_ -= taken;
  return small_;
}

// A payload never spans segments; one larger than a segment has a segment to itself.
std::unique_ptr<PayloadSlot> PayloadStore::reserve(size_t size_bytes, uint32_t step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Lane& lane = lane_of(size_bytes);
  const bool in_window = &lane == &window_;
  if (in_window && small_each_bytes_ > 0 && exceeds_window(size_bytes)) {
    not_kept_.bytes += size_bytes;
    return nullptr;
  }
  if (closed_) {
    return reserve_in_memory(lane, size_bytes, step);
  }
  if (lane.file && aligned(lane.entries.back().used_bytes) + size_bytes > segment_bytes()) {
    end_segment(lane);
  }
  if (in_window) {
    make_room(size_bytes, /*in_new_segment=*/!lane.file);
  }
  if (!lane.file) {
    begin_segment(lane, step);
  }
  Entry& entry = lane.entries.back();
  const uint64_t offset = aligned(entry.used_bytes);
  entry.used_bytes = offset + size_bytes;
  entry.size_bytes = std::max(entry.size_bytes, entry.used_bytes);
  entry.last_step = std::max(entry.last_step, step);
  auto bytes = queue_.is_direct() ? std::make_shared<std::vector<uint8_t>>() : memory_for(size_bytes);
  return std::make_unique<PayloadSlot>(queue_, lane.file, std::move(bytes), entry.index, offset, writers_);
}

std::unique_ptr<PayloadSlot> PayloadStore::reserve_in_memory(Lane& lane, size_t size_bytes, uint32_t step) {
  end_segment(lane);  // open yet where a close has failed: its entry is no longer the last
  auto bytes = memory_for(size_bytes);
  held_.push_back({next_index_, bytes});
  lane.entries.push_back({next_index_, size_bytes, size_bytes, step, step});
  return std::make_unique<PayloadSlot>(queue_, nullptr, std::move(bytes), next_index_++, 0, writers_);
}

void PayloadStore::begin_segment(Lane& lane, uint32_t step) {
  const std::string name = path(next_index_);
  const uint64_t spare_bytes = spares_.next_bytes();
  auto spare = spares_.reuse(name);
  const uint64_t size_bytes = spare ? spare_bytes : 0;
  lane.file = spare ? std::make_shared<PayloadFile>(PayloadFile{name, std::move(spare)}) : new_file(next_index_);
  lane.entries.push_back({next_index_, 0, size_bytes, step, step});
  ++next_index_;
}

std::shared_ptr<PayloadFile> PayloadStore::new_file(uint32_t index) const {
  PayloadFile file{path(index), nullptr};
  if (queue_.is_direct()) {
    file.opened = std::make_unique<Descriptor>(file.path, O_WRONLY | O_CREAT | O_EXCL);
  }
  return std::make_shared<PayloadFile>(std::move(file));
}

void PayloadStore::end_segment(Lane& lane) const {
  if (!lane.file) {
    return;
  }
  Entry& entry = lane.entries.back();
  if (entry.size_bytes > entry.used_bytes && lane.file->opened) {
    lane.file->opened->check();
    if (ftruncate(lane.file->opened->number(), static_cast<off_t>(entry.used_bytes)) == 0) {
      entry.size_bytes = entry.used_bytes;
    }
  }
  lane.file = nullptr;
}

uint64_t PayloadStore::total_bytes() const {
  uint64_t total = spares_.size_bytes();
  for (const Entry& entry : window_.entries) {
    total += entry.size_bytes;
  }
  return total;
}

// Removes the oldest segments until what comes keeps the window within its limit. The segment removed last becomes
// the spare and then the new one, so a new segment counts in full from the beginning.
void PayloadStore::make_room(size_t payload_bytes, bool in_new_segment) {
  if (limit_bytes_ == 0) {
    return;
  }
  if (exceeds_window(payload_bytes)) {
    throw std::system_error(EFBIG, std::generic_category(),
                            "one payload of " + std::to_string(payload_bytes) + " bytes is larger than the window");
  }
  const uint64_t coming = in_new_segment ? std::max(payload_bytes, segment_bytes()) : payload_bytes + kAlignment;
  const auto too_much = [&] {
    return total_bytes() + coming - (in_new_segment ? spares_.next_bytes() : 0) > limit_bytes_;
  };
  const size_t usable = in_new_segment ? 1 : 0;
  while (spares_.count() > usable && too_much()) {
    remove(spares_.shrink(spares_.count() - 1));
  }
  while (!window_.entries.empty() && too_much()) {
    remove_oldest(/*most_spares=*/1);
  }
}

void PayloadStore::remove_oldest(size_t most_spares) {
  if (window_.entries.size() == 1) {
    end_segment(window_);
  }
  const Entry entry = window_.entries.front();
  window_.entries.pop_front();
  not_kept_.bytes += small_each_bytes_ > 0 ? entry.used_bytes : 0;
  removed_through_ = std::max<int64_t>(removed_through_, entry.last_step);
  if (queue_.is_direct() && entry.size_bytes <= segment_bytes() && spares_.count() < most_spares &&
      spares_.keep(path(entry.index), entry.size_bytes)) {
    return;
  }
  remove({path(entry.index)});
}

// Removing a large file takes the kernel a while, so that is done in the background thread.
void PayloadStore::remove(std::vector<std::string> paths) {
  if (paths.empty()) {
    return;
  }
  const auto task = [paths = std::move(paths)] {
    for (const std::string& path : paths) {
      unlink(path.c_str());
    }
  };
  if (!queue_.background().post(task)) {
    task();
  }
}

void PayloadStore::prune(uint32_t step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (steps_ <= 0 || closed_) {
    return;
  }
  const int64_t bound = std::min<int64_t>(static_cast<int64_t>(step) - steps_, keep_from_);
  while (!window_.entries.empty() && window_.entries.front().last_step < bound) {
    remove_oldest(most_spares());
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
  end_segment(window_);
  end_segment(small_);
}

void PayloadStore::reopen() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!closed_) {
    return;
  }
  closed_ = false;
  const std::vector<Held> all = std::exchange(held_, {});
  wait_for_writers();
  for (const Held& held : all) {
    PayloadSlot(queue_, new_file(held.index), held.bytes, held.index, 0, writers_).flush();
  }
}

void PayloadStore::tidy() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!closed_) {  // else of a process that was saved so, and runs again: its live twin has these files
    remove(spares_.shrink(0));
  }
  end_segment(window_);
  end_segment(small_);
}

uint64_t PayloadStore::used_bytes() {
  const std::lock_guard<std::mutex> lock(mutex_);
  uint64_t total = 0;
  for (const Lane* lane : {&window_, &small_}) {
    for (const Entry& entry : lane->entries) {
      total += entry.used_bytes;
    }
  }
  return total;
}

int64_t PayloadStore::oldest_step() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto& entries = small_.entries.empty() ? window_.entries : small_.entries;
  return entries.empty() ? -1 : std::max<int64_t>(entries.front().first_step, removed_through_ + 1);
}

}  // namespace prismdbg
