#include "device/look.h"

#include <new>

namespace prismdbg {

Look::Look(Device& device, PinnedMemory& memory, const DeviceTensors& tensors, const Wanted& wanted)
    : device_(device), memory_(memory), stream_(tensors.stream) {
  const WithContext here(device.context());
  try {
    take_room(tensors, wanted);
  } catch (const std::bad_alloc&) {
    give_back();
    throw;
  }
  if (wanted.copies) {
    begin_copies(tensors);
  }
  if (!places_.empty()) {
    begin_scans(tensors, wanted);
  }
  event_ = device.event();
  require(driver()->record_event(event_, stream_), "cuEventRecord");
}

void Look::take_room(const DeviceTensors& tensors, const Wanted& wanted) {
  size_t taken_bytes = 0;
  for (const Span& span : tensors.spans) {
    taken_bytes += wanted.copies ? PinnedMemory::taken_by(span.size_bytes) : 0;
  }
  if (!PinnedMemory::can_hold(taken_bytes)) {
    throw std::bad_alloc();
  }
  for (const Span& span : tensors.spans) {
    if (wanted.copies && span.size_bytes != 0) {
      const auto buffer = memory_.take(span.size_bytes);
      if (!buffer) {
        throw std::bad_alloc();
      }
      buffers_.push_back(*buffer);
    }
  }
  if (wanted.fingerprint || wanted.nonfinite) {
    const auto places = device_.take_places(tensors.spans.size());
    if (!places) {
      throw std::bad_alloc();
    }
    places_ = *places;
  }
}

Look::~Look() {
  give_back();
}

void Look::give_back() {
  device_.give_back(places_);
  for (const PinnedBuffer& buffer : buffers_) {
    memory_.give_back(buffer);
  }
  if (event_ != nullptr) {
    device_.give_back(event_);
  }
}

void Look::begin_copies(const DeviceTensors& tensors) {
  size_t next = 0;
  for (const Span& span : tensors.spans) {
    void* copy = nullptr;
    if (span.size_bytes != 0) {
      copy = buffers_[next++].data;
      require(driver()->copy_to_host_later(copy, reinterpret_cast<CuAddress>(span.data), span.size_bytes, stream_),
              "cuMemcpyDtoHAsync");
    }
    copies_.push_back({copy, span.size_bytes, span.numbers});
  }
}

void Look::begin_scans(const DeviceTensors& tensors, const Wanted& wanted) {
  for (size_t i = 0; i < tensors.spans.size(); ++i) {
    const Span& span = tensors.spans[i];
    const bool has_work = wanted.fingerprint || span.numbers != Numbers::exact;
    const bool is_scanned = span.size_bytes != 0 && has_work;
    if (is_scanned) {
      device_.scan(span, wanted.fingerprint, places_[i], stream_);
    }
    scans_.push_back({span.size_bytes, places_[i], is_scanned});
  }
}

bool Look::is_done() const {
  const CuResult result = driver()->query_event(event_);
  if (result == kCuNotReady) {
    return false;
  }
  require(result, "cuEventQuery");
  return true;
}

Fingerprint Look::found() const {
  Fingerprint found(/*hash=*/true, /*look_for_nonfinite=*/true);
  for (const Scan& scan : scans_) {
    const Result result = scan.is_scanned ? device_.result(scan.place) : Result{};
    found.add_summed(result.sum, scan.size_bytes, result.nonfinite != 0);
  }
  return found;
}

}  // namespace prismdbg
