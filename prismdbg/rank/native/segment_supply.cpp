#include "segment_supply.h"

#include <unistd.h>

#include <cstdio>

namespace prismdbg {

std::string segment_path(const std::string& folder, const char* kind, uint32_t index) {
  char name[32];
  std::snprintf(name, sizeof name, "/%s.%05u.seg", kind, index);
  return folder + name;
}

SegmentSupply::SegmentSupply(Housekeeper& housekeeper, std::string folder, size_t segment_bytes)
    : housekeeper_(housekeeper), folder_(std::move(folder)), segment_bytes_(segment_bytes) {}

std::string SegmentSupply::path(uint32_t index) const {
  return segment_path(folder_, "events", index);
}

std::shared_ptr<Segment> SegmentSupply::first() const {
  return Segment::create(path(0), segment_bytes_, /*must_be_new=*/true);
}

std::shared_ptr<Segment> SegmentSupply::again(uint32_t index) const {
  return Segment::map(path(index), segment_bytes_);
}

void SegmentSupply::prepare() {
  const std::lock_guard<std::mutex> lock(prepared_->mutex);
  if (prepared_->pending || prepared_->segment) {
    return;
  }
  prepared_->pending = housekeeper_.post([prepared = prepared_, path = next_path(), size = segment_bytes_] {
    std::shared_ptr<Segment> segment;
    try {
      segment = Segment::create(path, size);
      segment->populate();
    } catch (...) {  // take() tries again and reports
    }
    const std::lock_guard<std::mutex> guard(prepared->mutex);
    prepared->segment = std::move(segment);
    prepared->pending = false;
    prepared->done.notify_all();
  });
}

std::shared_ptr<Segment> SegmentSupply::take(uint32_t index) {
  {
    std::unique_lock<std::mutex> lock(prepared_->mutex);
    prepared_->done.wait(lock, [this] { return !prepared_->pending; });
    const auto segment = std::move(prepared_->segment);
    prepared_->segment = nullptr;
    if (segment && rename(next_path().c_str(), path(index).c_str()) == 0) {
      return segment;
    }
  }
  return Segment::create(path(index), segment_bytes_);
}

void SegmentSupply::discard() {
  std::unique_lock<std::mutex> lock(prepared_->mutex);
  prepared_->done.wait(lock, [this] { return !prepared_->pending; });
  if (prepared_->segment) {
    prepared_->segment = nullptr;
    unlink(next_path().c_str());
  }
}

}  // namespace prismdbg
