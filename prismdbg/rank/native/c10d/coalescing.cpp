#include "c10d/coalescing.h"

#include <torch/csrc/utils/pybind.h>

#include <optional>
#include <utility>
#include <vector>

#include "c10d/recording_work.h"

namespace prismdbg {
namespace {

using Together = std::vector<std::shared_ptr<PendingCollective>>;

thread_local std::optional<Together> coalesced;

// All of them as the last one, which the others follow; null where there is none.
std::shared_ptr<PendingCollective> take_coalesced() {
  Together calls = std::exchange(coalesced, std::nullopt).value_or(Together{});
  if (calls.empty()) {
    return nullptr;
  }
  const auto last = calls.back();
  calls.pop_back();
  last->lead(std::move(calls));
  return last;
}

}  // namespace

void start_coalescing() {
  coalesced.emplace();
}

bool join_coalesced(const std::shared_ptr<PendingCollective>& pending) {
  if (coalesced) {
    coalesced->push_back(pending);
  }
  return coalesced.has_value();
}

c10::intrusive_ptr<c10d::Work> end_coalescing(const py::function& end) {
  const auto all = take_coalesced();
  c10::intrusive_ptr<c10d::Work> inner;
  try {
    inner = end().cast<c10::intrusive_ptr<c10d::Work>>();
  } catch (...) {
    if (all) {
      all->fail(std::current_exception(), true);
    }
    throw;
  }
  if (all && inner) {
    return c10::make_intrusive<RecordingWork>(std::move(inner), all);
  }
  if (all) {  // as a call without a Work: the calling thread's stream is behind them
    all->finish(Status::ok);
  }
  return inner;
}

}  // namespace prismdbg
