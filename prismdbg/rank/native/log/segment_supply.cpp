#include "log/segment_supply.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>

namespace prismdbg {
namespace {

constexpr auto kLongestWait = std::chrono::seconds(5);  // of a thread of the job, for a disk of this machine

}  // namespace

std::string segment_path(const std::string& folder, const char* kind, uint32_t index) {
  char name[32];
  std::snprintf(name, sizeof name, "/%s.%05u.seg", kind, index);
  return folder + name;
}

SegmentSupply::SegmentSupply(WriteQueue& queue, std::string folder, size_t segment_bytes)
    : queue_(queue), folder_(std::move(folder)), segment_bytes_(segment_bytes) {}

std::string SegmentSupply::path(uint32_t index) const {
  return segment_path(folder_, "events", index);
}

std::shared_ptr<Segment> SegmentSupply::first() const {
  const auto segment = Segment::create(path(0), segment_bytes_, /*must_be_new=*/true);
  return queue_.is_direct() ? segment : nullptr;
}

std::shared_ptr<Segment> SegmentSupply::again(uint32_t index) const {
  return queue_.is_direct() ? Segment::open(path(index), segment_bytes_) : nullptr;
}

void SegmentSupply::prepare() {
  const std::lock_guard<std::mutex> lock(prepared_->mutex);
  if (!queue_.is_direct() || prepared_->pending || prepared_->segment) {
    return;
  }
  prepared_->unwanted = false;
  prepared_->pending = queue_.background().post([prepared = prepared_, path = next_path(), size = segment_bytes_] {
    std::shared_ptr<Segment> segment;
    try {
      segment = Segment::create(path, size);
    } catch (...) {  // take() tries again and reports
    }
    const std::lock_guard<std::mutex> guard(prepared->mutex);
    if (segment && prepared->unwanted) {
      unlink(path.c_str());
      segment = nullptr;
    }
    prepared->segment = std::move(segment);
    prepared->pending = false;
    prepared->done.notify_all();
  });
}

std::shared_ptr<Segment> SegmentSupply::take(uint32_t index) {
  if (!queue_.is_direct()) {
    queue_.post(0, [path = path(index), size = segment_bytes_] { Segment::create(path, size); });
    return nullptr;
  }
  if (const auto segment = prepared_one(); segment && rename(next_path().c_str(), path(index).c_str()) == 0) {
    return segment;
  }
  return Segment::create(path(index), segment_bytes_);
}

void SegmentSupply::discard() {
  if (prepared_one()) {
    unlink(next_path().c_str());
  }
}

std::shared_ptr<Segment> SegmentSupply::prepared_one() {
  std::unique_lock<std::mutex> lock(prepared_->mutex);
  prepared_->unwanted = !prepared_->done.wait_for(lock, kLongestWait, [this] { return !prepared_->pending; });
  return std::exchange(prepared_->segment, nullptr);
}

}  // namespace prismdbg
