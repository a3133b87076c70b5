#include "segment_supply.h"

#include <unistd.h>

#include <cstdio>

namespace prismdbg {

SegmentSupply::SegmentSupply(Housekeeper& housekeeper, std::string folder, std::string prefix)
    : housekeeper_(housekeeper), folder_(std::move(folder)), prefix_(std::move(prefix)) {}

std::string SegmentSupply::path(uint32_t index) const {
  char number[16];
  std::snprintf(number, sizeof number, "%05u", index);
  return folder_ + "/" + prefix_ + "." + number + ".seg";
}

void SegmentSupply::prepare(size_t size_bytes) {
  const std::lock_guard<std::mutex> lock(prepared_->mutex);
  if (prepared_->pending || prepared_->segment) {
    return;
  }
  prepared_->pending = housekeeper_.post([prepared = prepared_, path = next_path(), size_bytes] {
    std::shared_ptr<Segment> segment;
    try {
      segment = Segment::create(path, size_bytes);
      segment->populate();
    } catch (...) {  // take() tries again and reports
    }
    const std::lock_guard<std::mutex> guard(prepared->mutex);
    prepared->segment = std::move(segment);
    prepared->pending = false;
    prepared->done.notify_all();
  });
}

std::shared_ptr<Segment> SegmentSupply::take(uint32_t index, size_t size_bytes) {
  {
    std::unique_lock<std::mutex> lock(prepared_->mutex);
    prepared_->done.wait(lock, [this] { return !prepared_->pending; });
    auto& segment = prepared_->segment;
    if (segment && segment->size_bytes() == size_bytes && rename(next_path().c_str(), path(index).c_str()) == 0) {
      return std::move(segment);
    }
  }
  return Segment::create(path(index), size_bytes);
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
