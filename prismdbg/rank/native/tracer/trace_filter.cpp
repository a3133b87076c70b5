#include "tracer/trace_filter.h"

namespace prismdbg {

// `aten::mm`, or `mm` for an operator of any namespace.
bool TraceFilter::names(std::string_view op_name) const {
  return op_name == op || (op_name.ends_with(op) && op_name.substr(0, op_name.size() - op.size()).ends_with("::"));
}

bool TraceFilter::passes(const TraceEvent& event) const {
  if (every) {
    return event.on_issuing_thread;
  }
  if (event.kind == MemoryKind::op) {
    const bool is_about_memory = size_at_least_bytes != 0 || total_above_bytes != 0;
    return (has_moment && event.moment >= at) || (!op.empty() && !is_about_memory && names(event.op));
  }
  if (event.kind != MemoryKind::allocation || event.is_backend) {
    return false;
  }
  const bool is_large = size_at_least_bytes != 0 && event.size_bytes >= size_at_least_bytes;
  const bool crosses = total_above_bytes != 0 && event.total_bytes > total_above_bytes &&
                       event.total_bytes - event.size_bytes <= total_above_bytes;
  return (is_large || crosses) && (op.empty() || names(event.op) || names(event.outer_op));
}

std::vector<int> passing(const std::vector<TraceFilter>& filters, const TraceEvent& event) {
  std::vector<int> matched;
  for (size_t i = 0; i < filters.size(); ++i) {
    if (filters[i].passes(event)) {
      matched.push_back(static_cast<int>(i));
    }
  }
  return matched;
}

}  // namespace prismdbg
