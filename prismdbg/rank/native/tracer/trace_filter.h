// What a client wants to be called for: decided here, cheaply, before Python hears of an event.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tracer/memory_format.h"
#include "tracer/trace_place.h"

namespace prismdbg {

struct TraceEvent {
  MemoryKind kind = MemoryKind::op;
  bool is_backend = false;
  bool on_issuing_thread = false;
  Moment moment;
  std::string_view op;
  std::string_view outer_op;
  uint32_t site = 0;
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  uint64_t total_bytes = 0;
  uint64_t block = 0;
  uint16_t device = kDeviceCpu;
};

struct TraceFilter {
  bool every = false;
  bool has_moment = false;
  Moment at;
  uint64_t size_at_least_bytes = 0;
  uint64_t total_above_bytes = 0;
  std::string op;

  bool passes(const TraceEvent& event) const;

 private:
  bool names(std::string_view op_name) const;
};

// The numbers of the filters that let an event pass.
std::vector<int> passing(const std::vector<TraceFilter>& filters, const TraceEvent& event);

}  // namespace prismdbg
