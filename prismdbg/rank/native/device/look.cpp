#include "device/look.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

namespace prismdbg {
namespace {

constexpr auto kLongestForRoom = std::chrono::milliseconds(500);  // of all buffers of one look

bool is_scanned(const Span& span, const Wanted& wanted) {
  const bool looks = wanted.nonfinite && span.numbers != Numbers::exact;
  return span.size_bytes != 0 && (wanted.fingerprint || looks);
}

}  // namespace

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
  if (wanted.fingerprint || wanted.nonfinite) {
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
  const auto now = std::chrono::steady_clock::now();
  const auto deadline = wanted.waits_for_room ? now + kLongestForRoom : now;
  for (const Span& span : tensors.spans) {
    if (wanted.copies && span.size_bytes != 0) {
      const auto buffer = memory_.take(span.size_bytes, deadline);
      if (!buffer) {
        give_back();
        if (wanted.waits_for_room) {
          memory_.waited_in_vain();
        }
        throw std::bad_alloc();
      }
      buffers_.push_back(*buffer);
    }
  }
  const auto scanned = [&](const Span& span) { return is_scanned(span, wanted); };
  const auto places = device_.take_places(std::count_if(tensors.spans.begin(), tensors.spans.end(), scanned));
  if (!places) {
    throw std::bad_alloc();
  }
  places_ = *places;
}

Look::~Look() {
  give_back();
}

void Look::give_back() {
  device_.give_back(places_);
  for (const PinnedBuffer& buffer : std::exchange(buffers_, {})) {
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
  size_t next = 0;
  for (const Span& span : tensors.spans) {
    std::optional<uint32_t> place;
    if (is_scanned(span, wanted)) {
      place = places_[next++];
      device_.scan(span, wanted.fingerprint, *place, stream_);
    }
    scans_.push_back({span.size_bytes, place});
  }
}

void Look::hold_back(CuHandle stream) const {
  const WithContext here(device_.context());
  if (stream != stream_) {
    require(driver()->wait_event(stream, event_, 0), "cuStreamWaitEvent");
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
    const Result result = scan.place ? device_.result(*scan.place) : Result{};
    found.add_summed(result.sum, scan.size_bytes, result.nonfinite != 0);
  }
  return found;
}

}  // namespace prismdbg
