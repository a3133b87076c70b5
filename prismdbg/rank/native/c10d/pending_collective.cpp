#include "c10d/pending_collective.h"

#include "c10d/hooks.h"
#include "c10d/tensors.h"
#include "process/gil.h"
#include "recorder/state.h"

namespace prismdbg {

void PendingCollective::finish(Status status, int32_t source) noexcept {
  if (!is_finished()) {
    write_once(status, source, nullptr);
  }
}

void PendingCollective::fail(const std::exception_ptr& error, bool at_issue) noexcept {
  if (!is_finished()) {
    const Failure failure = failure_of(error, at_issue);
    write_once(Status::failed, kNoPeer, &failure);
  }
}

void PendingCollective::write_once(Status status, int32_t source, const Failure* failure) noexcept {
  std::call_once(once_, [&] {
    try {
      write(status, source, failure);
    } catch (const std::exception& error) {
      state().recorder.lose("events", error.what());
    }
    finished_.store(true, std::memory_order_release);
  });
}

void PendingCollective::write(Status status, int32_t source, const Failure* failure) {
  HostBytes received;
  if (status == Status::ok && receives_ && state().recorder.mode() == 1) {
    for (const at::Tensor& tensor : outputs_) {
      received.add(tensor);
    }
  }
  state().recorder.complete(ticket_, status, source, received.spans(), failure);
  if (status == Status::ok) {
    outputs_.clear();  // a failed one keeps them: it may be rescued
  }
}

void PendingCollective::abandon() noexcept {
  receives_ = false;
  finish(Status::ok);
}

bool PendingCollective::on_host() const {
  for (const at::Tensor& tensor : outputs_) {
    if (!tensor.device().is_cpu()) {
      return false;
    }
  }
  return true;
}

bool PendingCollective::rescue() noexcept {
  if (!is_handed_over()) {
    return false;
  }
  const WithoutGil released;
  const std::lock_guard<std::mutex> lock(rescue_mutex_);
  if (!is_rescued() && prismdbg::rescue(ticket_.record_id, op_.name, outputs_, rescued_source_)) {
    rescued_.store(true, std::memory_order_release);
  }
  return is_rescued();
}

}  // namespace prismdbg
