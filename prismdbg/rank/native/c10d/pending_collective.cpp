#include "c10d/pending_collective.h"

#include <atomic>
#include <bit>
#include <cstdint>
#include <string>
#include <utility>

#include "c10d/hooks.h"
#include "c10d/tensors.h"
#include "log/clock.h"
#include "process/gil.h"
#include "process/guarded.h"
#include "recorder/json.h"
#include "recorder/state.h"

namespace prismdbg {
namespace {

// When their number has doubled: a job that is killed says it, too.
void note_not_kept() {
  static std::atomic<uint64_t> calls{0};
  const uint64_t number = ++calls;
  if (std::has_single_bit(number)) {
    const std::string text = "data received in " + std::to_string(number) +
                             " calls or more was not kept: it could not be copied to the host, because 512 MiB of "
                             "pinned memory were full (the GPU had not come to earlier calls, or smaller buffers had "
                             "taken the room) or because the copy failed";
    state().recorder.append(Kind::note, "{\"kind\": \"not_kept\", \"time_ns\": " + std::to_string(monotonic_ns()) +
                                            ", \"text\": " + json_string(text) + "}");
  }
}

}  // namespace

void PendingCollective::finish(Status status, int32_t source, Patience patience) noexcept {
  if (!is_finished()) {
    write_once(status, source, nullptr, patience);
  }
  for (const auto& follower : followers_) {
    follower->finish(status, kNoPeer, patience);
  }
}

void PendingCollective::fail(const std::exception_ptr& error, bool at_issue) noexcept {
  if (!is_finished()) {
    const Failure failure = failure_of(error, at_issue);
    write_once(Status::failed, kNoPeer, &failure, Patience::none);
  }
  for (const auto& follower : followers_) {
    follower->fail(error, at_issue);
  }
}

void PendingCollective::write_once(Status status, int32_t source, const Failure* failure, Patience patience) noexcept {
  const WithoutGil released;  // who comes later waits here, and may hold Python's lock
  std::call_once(once_, [&] {
    try {
      write(status, source, failure, patience);
    } catch (const std::exception& error) {
      state().recorder.lose("events", error.what());
    }
    finished_.store(true, std::memory_order_release);
  });
}

void PendingCollective::write(Status status, int32_t source, const Failure* failure, Patience patience) {
  if (status == Status::ok && !device_.is_cpu() && state().recorder.mode() == 1) {
    write_when_done(source, patience);
  } else {
    Ending ending{.status = status, .source = source, .failure = failure};
    guarded(  // its device may have failed, too
        [&] {
          if (sent_ && sent_->is_done()) {
            ending.sent = sent_->found();
          }
        },
        [](const char*) {});
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
void PendingCollective::write_when_done(int32_t source, Patience patience) {
  const Recorder& recorder = state().recorder;
  std::shared_ptr<Look> received;
  std::shared_ptr<HostBytes> read_here;
  if (!is_abandoned_) {
    const OnDevice here = receives_ ? on_device(references(outputs_)) : on_device(device_);
    const bool reads = receives_ && !here.is_unreadable;
    if (here.tensors) {
      received = state().devices.look(*here.tensors, {.nonfinite = recorder.nan_check() && reads,
                                                      .copies = recorder.keeps_payloads() && reads,
                                                      .waits_for_room = patience != Patience::none});
    }
    if (!received && reads && patience == Patience::for_device) {
      read_here = copied();
    }
    if (!received && reads && patience == Patience::for_room && recorder.keeps_payloads()) {
      note_not_kept();
      if (here.tensors) {
        received = state().devices.look(*here.tensors, {.nonfinite = recorder.nan_check()});
      }
    }
  }
  received_ = received;
  auto complete = [ticket = ticket_, source, sent = sent_, received, read_here](DeviceWatch::DoneNs done_ns) {
    if (!done_ns) {
      state().recorder.forget(ticket);
      return;
    }
    Ending ending{.source = source, .completed_ns = *done_ns};
    if (sent) {
      ending.sent = sent->found();
    }
    if (received) {
      ending.received = received->copies();
      ending.received_nonfinite = received->found().nonfinite();
    } else if (read_here) {
      ending.received = read_here->spans();
    }
    state().recorder.complete(ticket, ending);
  };
  Looks looks;
  for (const auto& look : {std::exchange(sent_, nullptr), received}) {
    if (look && !(read_here && look->is_done())) {
      looks.push_back(look);
    }
  }
  if (looks.empty()) {  // also where it was read here: this thread writes it, so that no more of that is kept than one
    complete(0);
  } else {
    state().devices.follow(std::move(looks), std::move(complete));
  }
}

std::shared_ptr<HostBytes> PendingCollective::copied() const noexcept {
  try {
    auto bytes = std::make_shared<HostBytes>();
    bytes->add(outputs_);
    return bytes;
  } catch (const std::exception&) {  // the device has failed: the program will hear of it
    return nullptr;
  }
}

void PendingCollective::hold_back() noexcept {
  for (const auto& follower : followers_) {
    follower->hold_back();
  }
  if (device_.is_cpu()) {
    return;
  }
  const std::shared_ptr<Look> look = received_.lock();
  if (look) {
    guarded(
        [&] {
          if (const OnDevice here = on_device(device_); here.tensors) {
            look->hold_back(here.tensors->stream);
          }
        },
        [](const char*) {});
  }
}

PendingCollective::~PendingCollective() {
  if (sent_) {
    guarded([&] { state().devices.follow({sent_}, [](DeviceWatch::DoneNs) {}); }, [](const char*) {});
  }
}

void PendingCollective::abandon() noexcept {
  for (const auto& follower : followers_) {
    follower->abandon();
  }
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
  if (is_rescued()) {
    return true;
  }
  for (const auto& follower : followers_) {  // what this one's Work tells holds for them, too
    if (!follower->rescue()) {
      return false;
    }
  }
  if (prismdbg::rescue(ticket_.record_id, op_.name, outputs_, rescued_source_)) {
    rescued_.store(true, std::memory_order_release);
  }
  return is_rescued();
}

}  // namespace prismdbg
