#include "tracer/cuda_allocations.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include "tracer/tracer.h"

namespace prismdbg {
namespace {

using c10::cuda::CUDACachingAllocator::TraceEntry;

uint16_t number_of(c10::DeviceIndex index) {
  return static_cast<uint16_t>(index + 1);
}

// Called with the lock of the device's allocator, by any thread, with or without Python's lock.
void tell(const TraceEntry& entry) {
  const auto pass_on = [&](DeviceAction action) {
    tracer().device_event(action, number_of(entry.device_), entry.addr_, entry.size_);
  };
  switch (entry.action_) {
    case TraceEntry::ALLOC:
      return pass_on(DeviceAction::allocated);
    case TraceEntry::FREE_COMPLETED:
      return pass_on(DeviceAction::freed);
    case TraceEntry::SEGMENT_ALLOC:
    case TraceEntry::SEGMENT_MAP:
      return pass_on(DeviceAction::reserved);
    case TraceEntry::SEGMENT_FREE:
    case TraceEntry::SEGMENT_UNMAP:
      return pass_on(DeviceAction::released);
    case TraceEntry::OOM:
      return pass_on(DeviceAction::refused);
    default:
      return;
  }
}

// The allocator itself knows them all, those that C++ alone holds, too.
void add_what_is_there() {
  const auto now = c10::cuda::CUDACachingAllocator::snapshot();
  for (const auto& segment : now.segments) {
    const uint16_t device = number_of(segment.device);
    uint64_t address = segment.address;
    for (const auto& block : segment.blocks) {
      if (block.active) {
        tracer().add_before(reinterpret_cast<const void*>(address), block.requested_size, device);
      }
      address += block.size;
    }
  }
  for (const auto& segment : now.segments) {
    tracer().add_segment_before(segment.address, {segment.total_size, number_of(segment.device)});
  }
}

}  // namespace

bool follow_cuda() {
  static std::mutex once;
  static bool is_attached = false;
  const std::lock_guard<std::mutex> lock(once);
  auto* allocator = c10::cuda::CUDACachingAllocator::get();
  if (!allocator->initialized()) {
    return false;
  }
  if (!is_attached) {
    allocator->attachAllocatorTraceTracker(&tell);  // it stays; there is no way to take it back
    is_attached = true;
  }
  add_what_is_there();
  return true;
}

}  // namespace prismdbg
