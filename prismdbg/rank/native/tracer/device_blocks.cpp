// The tracer's part for memory of other devices than the CPU, as their allocators tell of it. No header of CUDA is needed
// here: `cuda_allocations.cpp` calls it with what torch says.
#include <algorithm>
#include <iterator>

#include "process/guarded.h"
#include "tracer/tracer.h"

namespace prismdbg {

void Tracer::device_event(DeviceAction action, uint16_t device, uint64_t address, uint64_t size_bytes) noexcept {
  ThreadTrace& thread = this_thread();
  if (!is_armed()) {
    return;
  }
  guarded(
      [&] {
        has_devices_.store(true, std::memory_order_relaxed);
        const std::lock_guard<std::mutex> lock(mutex_);
        switch (action) {
          case DeviceAction::allocated:
            if (!thread.is_silent()) {
              postpone(thread, device_block_made(thread, device, address, size_bytes));
            }
            break;
          case DeviceAction::freed:
            postpone(thread, device_block_freed(thread, address));
            break;
          case DeviceAction::reserved:
            device_segment(MemoryKind::reserved, address, {size_bytes, device});
            break;
          case DeviceAction::released:
            device_segment(MemoryKind::released, address, {size_bytes, device});
            break;
          case DeviceAction::refused:
            device_refused(thread, device, size_bytes);
            break;
        }
      },
      [&](const char* reason) { lose(reason); });
}

// What the program holds is what it asked for, from when it is given until it may be given to others: what torch
// counts as `requested_bytes`. A block that another stream still uses is not free yet when the program lets go of it.
TraceEvent Tracer::device_block_made(ThreadTrace& thread, uint16_t device, uint64_t address, uint64_t size_bytes) {
  if (blocks_.contains(reinterpret_cast<const void*>(address))) {  // it was freed where nobody saw it
    device_block_freed(thread, address);
  }
  TraceEvent event = event_here(MemoryKind::allocation, thread);
  Block block;
  block.number = ++block_count_;
  block.size_bytes = size_bytes;
  block.moment = event.moment;
  block.site = site(thread, thread.last_stack);
  block.device = device;
  block.is_backend = thread.in_collective() || thread.is_backend();
  const auto* data = reinterpret_cast<const void*>(address);
  blocks_.insert_or_assign(data, block);
  finish(event, data, block, block.site, !thread.is_stack_of_op);
  return event;
}

// An event without a block where nothing is known of it.
TraceEvent Tracer::device_block_freed(ThreadTrace& thread, uint64_t address) {
  TraceEvent event = event_here(MemoryKind::free, thread);
  const auto* data = reinterpret_cast<const void*>(address);
  const auto found = blocks_.find(data);
  if (found == blocks_.end()) {
    return event;
  }
  Block block = found->second;
  block.moment = event.moment;
  blocks_.erase(found);
  finish(event, data, block, site(thread, thread.last_stack), !thread.is_stack_of_op);
  return event;
}

void Tracer::device_refused(ThreadTrace& thread, uint16_t device, uint64_t size_bytes) {
  ++refused_;
  Block asked;
  asked.size_bytes = size_bytes;
  asked.device = device;
  asked.moment = place().moment();
  write(MemoryKind::refused, 0, asked, site(thread, thread.last_stack), thread.is_stack_of_op ? 0 : kMemoryOldStack);
}

void Tracer::add_segment_before(uint64_t address, const DeviceSegment& segment) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!segments_.contains(address)) {
    device_segment(MemoryKind::reserved, address, segment);
  }
}

void Tracer::device_segment(MemoryKind kind, uint64_t address, const DeviceSegment& segment) {
  cut_segments(address, segment);
  if (kind == MemoryKind::reserved) {
    segments_[address] = segment;
    totals(segment.device).reserved += segment.size_bytes;
  }
  write_segment(kind, address, segment);
}

// What torch mapped in several pieces it may unmap as one, or in others.
void Tracer::cut_segments(uint64_t address, const DeviceSegment& cut) {
  const uint64_t end = address + cut.size_bytes;
  auto at = segments_.upper_bound(address);
  at = at == segments_.begin() ? at : std::prev(at);
  while (at != segments_.end() && at->first < end) {
    const auto [first, segment] = *at;
    const uint64_t last = first + segment.size_bytes;
    if (last <= address) {
      ++at;
      continue;
    }
    at = segments_.erase(at);
    totals(segment.device).reserved -= std::min(last, end) - std::max(first, address);
    if (first < address) {
      segments_[first] = {address - first, segment.device};
    }
    if (last > end) {
      segments_[end] = {last - end, segment.device};
    }
  }
}

void Tracer::write_segment(MemoryKind kind, uint64_t address, const DeviceSegment& segment) {
  Block block;
  block.size_bytes = segment.size_bytes;
  block.device = segment.device;
  block.moment = place().moment();
  write(kind, address, block, 0, 0);
}

// Only what a filter lets pass: the others would take its room.
void Tracer::postpone(ThreadTrace& thread, const TraceEvent& event) {
  if (event.block != 0 && reports_.load(std::memory_order_acquire) && !thread.is_silent() &&
      !passing(filters_, event).empty()) {
    thread.postpone(event);
  }
}

}  // namespace prismdbg
