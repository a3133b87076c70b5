#include "recording_work.h"

#include <atomic>
#include <array>
#include <typeinfo>

#include "hooks.h"
#include "state.h"

namespace prismdbg {
namespace {

using c10::ivalue::Future;

// How long a work of a restored process waits for a backend whose peers are gone, before its outputs are filled.
constexpr auto kOrphanWait = std::chrono::milliseconds(2000);

// Types of work that have no future (gloo's receives and reduce-scatters). Asking them throws, which costs far more
// than a collective, so each type is asked once.
class WorksWithoutFuture {
 public:
  bool has(const std::type_info& type) const {
    for (const auto& known : types_) {
      const auto* entry = known.load(std::memory_order_acquire);
      if (entry == nullptr) {
        return false;
      }
      if (*entry == type) {
        return true;
      }
    }
    return false;
  }
  void add(const std::type_info& type) {
    for (auto& slot : types_) {
      const std::type_info* expected = nullptr;
      if (slot.compare_exchange_strong(expected, &type) || *expected == type) {
        return;
      }
    }
  }

 private:
  std::array<std::atomic<const std::type_info*>, 16> types_{};
};

WorksWithoutFuture works_without_future;

c10::intrusive_ptr<Future> future_of(c10d::Work& work) {
  const auto& type = typeid(work);
  if (works_without_future.has(type)) {
    return nullptr;
  }
  try {
    return work.getFuture();
  } catch (const c10::Error&) {
    works_without_future.add(type);
    return nullptr;
  }
}

}  // namespace

RecordingWork::RecordingWork(c10::intrusive_ptr<c10d::Work> inner, std::shared_ptr<Flight> flight)
    : Work(-1, inner->retrieveOpType()), inner_(std::move(inner)), flight_(std::move(flight)) {
  follow_future();
}

// The backend marks its future complete, and runs this callback, before its work. On a device the outputs are not
// there yet when the future says so: those are recorded at wait().
void RecordingWork::follow_future() {
  if (!flight_->on_host() || flight_->receives_from_any()) {
    return;
  }
  inner_future_ = future_of(*inner_);
  if (inner_future_) {
    inner_future_->addCallback(
        [flight = flight_](Future& future) {
          if (future.hasError()) {
            flight->fail(future.exception_ptr());
          } else {
            flight->finish(Status::ok);
          }
        });
  }
}

RecordingWork::~RecordingWork() {
  if (!inner_future_) {
    flight_->abandon();
  }
}

int32_t RecordingWork::source() const {
  return flight_->receives_from_any() ? inner_->sourceRank() : kNoPeer;
}

bool RecordingWork::wait(std::chrono::milliseconds timeout) {
  if (flight_->is_rescued()) {
    return true;
  }
  bool done = false;
  try {
    done = inner_->wait(is_handed_over() && !flight_->is_finished() ? kOrphanWait : timeout);
  } catch (...) {
    state().gate.wait_until_open();  // parked: this may be the restored process, before its handover
    if (flight_->rescue()) {
      return true;
    }
    if (!inner_future_) {
      flight_->fail(std::current_exception());
    }
    throw;
  }
  flight_->finish(Status::ok, source());
  return done;
}

bool RecordingWork::isCompleted() {
  if (flight_->is_rescued() || (!flight_->is_finished() && flight_->rescue())) {
    return true;
  }
  const bool completed = inner_->isCompleted();
  if (completed && inner_->isSuccess()) {
    flight_->finish(Status::ok, source());
  } else if (completed && !flight_->rescue()) {
    flight_->fail(inner_->exception());
  }
  return completed;
}

bool RecordingWork::isSuccess() const {
  return flight_->is_rescued() || inner_->isSuccess();
}

std::exception_ptr RecordingWork::exception() const {
  return flight_->is_rescued() ? nullptr : inner_->exception();
}

int RecordingWork::sourceRank() const {
  return flight_->is_rescued() ? flight_->rescued_source() : inner_->sourceRank();
}

std::vector<at::Tensor> RecordingWork::result() {
  return flight_->is_rescued() ? flight_->outputs() : inner_->result();
}

void RecordingWork::synchronize() {
  if (flight_->is_rescued()) {
    return;
  }
  inner_->synchronize();
  if (inner_->isCompleted() && inner_->isSuccess()) {
    flight_->finish(Status::ok, source());
  }
}

void RecordingWork::blockCurrentStream() {
  inner_->blockCurrentStream();
}

void RecordingWork::abort() {
  inner_->abort();
}

// A waiter on the backend's own future may run before its callbacks, so the program gets one that follows them.
c10::intrusive_ptr<Future> RecordingWork::getFuture() {
  const std::lock_guard<std::mutex> lock(future_mutex_);
  if (!future_) {
    auto inner = inner_future_ ? inner_future_ : inner_->getFuture();
    auto settle = [flight = flight_](Future& done) -> c10::IValue {
      if (done.hasError()) {
        state().gate.wait_until_open();
        if (flight->rescue()) {
          return flight->outputs();
        }
      }
      return done.value();
    };
    future_ = inner->then(std::move(settle), inner->elementType());
  }
  return future_;
}

c10::intrusive_ptr<Future> RecordingWork::getFutureResult() {
  return inner_->getFutureResult();
}

float RecordingWork::getDuration() const {
  return inner_->getDuration();
}

uint64_t RecordingWork::getSequencenumber() const {
  return inner_->getSequencenumber();
}

}  // namespace prismdbg
