#include "c10d/pending_collective.h"

#include <utility>

#include "c10d/hooks.h"
#include "c10d/tensors.h"
#include "process/gil.h"
#include "process/guarded.h"
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
  if (status == Status::ok && !device_.is_cpu() && state().recorder.mode() == 1) {
    write_when_done(source);
  } else {
    Ending ending{.status = status, .source = source, .failure = failure};
    HostBytes received;
    if (status == Status::ok && receives_ && state().recorder.mode() == 1) {
      received.add(outputs_);
      ending.received = received.spans();
    }
    state().recorder.complete(ticket_, ending);
  }
  if (status == Status::ok) {
    outputs_.clear();  // a failed one keeps them: it may be rescued
  }
}

// The calling thread's stream is behind the collective, so that its outputs are there for whatever is begun on it now.
void PendingCollective::write_when_done(int32_t source) {
  const Recorder& recorder = state().recorder;
  std::shared_ptr<Look> received;
  std::shared_ptr<HostBytes> copied;
  if (!is_abandoned_) {
    const OnDevice here = receives_ ? on_device(references(outputs_)) : on_device(device_);
    const bool reads = receives_ && !here.is_captured;
    if (here.tensors) {
      received = state().devices.look(*here.tensors, {.nonfinite = recorder.nan_check() && reads,
                                                      .copies = recorder.keeps_payloads() && reads});
    }
    if (!received && reads) {
      copied = std::make_shared<HostBytes>();
      copied->add(outputs_);
    }
  }
  auto complete = [ticket = ticket_, source, sent = sent_, received, copied] {
    Ending ending{.source = source};
    if (sent) {
      ending.sent = sent->found();
    }
    if (received) {
      ending.received = received->copies();
      ending.received_nonfinite = received->found().nonfinite();
    } else if (copied) {
      ending.received = copied->spans();
    }
    state().recorder.complete(ticket, ending);
  };
  Looks looks;
  for (const auto& look : {std::exchange(sent_, nullptr), received}) {
    if (look) {
      looks.push_back(look);
    }
  }
  if (looks.empty()) {
    complete();
  } else {
    state().devices.follow(std::move(looks), std::move(complete));
  }
}

PendingCollective::~PendingCollective() {
  if (sent_) {
    guarded([&] { state().devices.follow({sent_}, [] {}); }, [](const char*) {});
  }
}

void PendingCollective::abandon() noexcept {
  receives_ = false;
  is_abandoned_ = true;
  finish(Status::ok);
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
