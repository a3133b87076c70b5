// What the tracer knows of one thread: the operators it is in, and whose work it does. Trivial to destroy, for blocks
// are freed until a thread's very end.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "tracer/trace_filter.h"

namespace prismdbg {

constexpr std::string_view kCollectives = "c10d::";

struct RunningOp {
  const char* name = "";    // lives as long as the operator runs
  uint32_t text = 0;        // its number among the names of that generation
  uint32_t generation = 0;  // 0: not asked for yet
};

class ThreadTrace {
 public:
  void enter(const char* name) {
    if (depth_ < kDeepest) {
      ops_[depth_] = {name};
    }
    ++depth_;
    if (collective_depth_ == 0 && std::string_view(name).starts_with(kCollectives)) {
      collective_depth_ = depth_;
    }
  }
  void leave() {
    depth_ -= depth_ > 0 ? 1 : 0;
    if (depth_ < collective_depth_) {
      collective_depth_ = 0;
    }
    if (depth_ == 0) {
      in_backward = false;
      is_stack_of_op = false;
      module = 0;
    }
  }
  size_t depth() const { return depth_; }
  RunningOp* outermost() { return depth_ == 0 ? nullptr : &ops_[0]; }
  RunningOp* innermost() { return depth_ == 0 ? nullptr : &ops_[std::min(depth_, kDeepest) - 1]; }

  // Whether what this thread does is not the program's: nothing of it is counted, kept or reported.
  bool is_silent() const { return quiet || reporting; }
  // An event that cannot be reported where it happens, until the operator ends in which it did. More than an operator
  // makes in practice; what is beyond is in the trace, but nobody is called for it.
  void postpone(const TraceEvent& event) {
    if (postponed_ < postponed_events_.size()) {
      postponed_events_[postponed_++] = event;
    }
  }
  bool has_postponed() const { return postponed_ != 0; }
  // The oldest are first. None is left.
  template <typename Report>
  void report_postponed(Report&& report) {
    const auto events = postponed_events_;
    const size_t count = std::exchange(postponed_, 0);
    for (size_t i = 0; i < count; ++i) {
      report(events[i]);
    }
  }
  // Below a c10d operator, which may itself be below an autograd node.
  bool in_collective() const { return collective_depth_ != 0; }
  // A thread that a communication backend started.
  bool is_backend();

  bool quiet = false;          // computes for the debugger
  bool reporting = false;      // runs a callback of the tracer
  bool in_backward = false;    // below an autograd node whose module is known
  uint32_t module = 0;         // text of the running operator's module
  uint32_t last_stack = 0;
  bool is_stack_of_op = false;  // `last_stack` is where the running operator was called
  bool is_kept = false;   // the outermost operator has a record
  int64_t ended_ns = 0;   // when the last operator with a record did
  int64_t issued_ns = 0;  // when this thread's last collective was

 private:
  static constexpr size_t kDeepest = 64;
  std::array<RunningOp, kDeepest> ops_;
  size_t depth_ = 0;
  size_t collective_depth_ = 0;
  std::array<TraceEvent, 32> postponed_events_;
  size_t postponed_ = 0;
  int8_t backend_ = -1;  // not known yet
};

// The calling thread's.
ThreadTrace& this_thread();

}  // namespace prismdbg
