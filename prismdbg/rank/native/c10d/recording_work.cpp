#include "c10d/recording_work.h"

#include <atomic>
#include <array>
#include <typeinfo>

#include "c10d/hooks.h"
#include "process/gil.h"
#include "recorder/state.h"

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

RecordingWork::RecordingWork(c10::intrusive_ptr<c10d::Work> inner, std::shared_ptr<PendingCollective> pending)
    : Work(-1, inner->retrieveOpType()), inner_(std::move(inner)), pending_(std::move(pending)) {
  follow_future();
}

// The backend marks its future complete, and runs this callback, before its work. On a device the outputs are not
// there yet when the future says so: those are recorded at wait().
void RecordingWork::follow_future() {
  if (!pending_->follows_future() || pending_->receives_from_any()) {
    return;
  }
  inner_future_ = future_of(*inner_);
  if (inner_future_) {
    inner_future_->addCallback(
        [pending = pending_](Future& future) {
          if (future.hasError()) {
            pending->fail(future.exception_ptr());
          } else {
            pending->finish(Status::ok);
          }
        });
  }
}

RecordingWork::~RecordingWork() {
  if (!inner_future_ && !future_) {
    pending_->abandon();
  }
}

int32_t RecordingWork::source() const {
  return pending_->receives_from_any() ? inner_->sourceRank() : kNoPeer;
}

bool RecordingWork::wait(std::chrono::milliseconds timeout) {
  const bool done = wait_recorded(timeout);
  // The backend takes its own work out of torch's registry, which holds this one.
  Work::synchronize();
  return done;
}

bool RecordingWork::wait_recorded(std::chrono::milliseconds timeout) {
  if (pending_->is_rescued()) {
    return true;
  }
  bool done = false;
  try {
    done = inner_->wait(is_handed_over() && !pending_->is_finished() ? kOrphanWait : timeout);
  } catch (...) {
    state().gate.wait_until_open();  // parked: this may be the restored process, before its handover
    if (pending_->rescue()) {
      return true;
    }
    if (!inner_future_) {
      pending_->fail(std::current_exception());
    }
    throw;
  }
  pending_->finish(Status::ok, source());
  pending_->hold_back();
  return done;
}

bool RecordingWork::isCompleted() {
  if (pending_->is_rescued() || (!pending_->is_finished() && pending_->rescue())) {
    return true;
  }
  const bool completed = inner_->isCompleted();
  if (completed && !inner_->exception()) {  // not isSuccess: a backend may throw there
    // On a device, who waits later on another stream is held back behind its look.
    pending_->finish(Status::ok, source(), Patience::none);
    pending_->hold_back();
  } else if (completed && !pending_->rescue()) {
    pending_->fail(inner_->exception());
  }
  return completed;
}

bool RecordingWork::isSuccess() const {
  return pending_->is_rescued() || inner_->isSuccess();
}

std::exception_ptr RecordingWork::exception() const {
  return pending_->is_rescued() ? nullptr : inner_->exception();
}

int RecordingWork::sourceRank() const {
  return pending_->is_rescued() ? pending_->rescued_source() : inner_->sourceRank();
}

std::vector<at::Tensor> RecordingWork::result() {
  return pending_->is_rescued() ? pending_->outputs() : inner_->result();
}

void RecordingWork::synchronize() {
  if (!pending_->is_rescued()) {
    inner_->synchronize();
    if (!pending_->on_host() || (inner_->isCompleted() && !inner_->exception())) {
      pending_->finish(Status::ok, source());
      pending_->hold_back();
    }
  }
  Work::synchronize();
}

void RecordingWork::blockCurrentStream() {
  inner_->blockCurrentStream();
  if (!pending_->on_host()) {
    pending_->finish(Status::ok, source());
    pending_->hold_back();
    Work::synchronize();
  }
}

void RecordingWork::abort() {
  inner_->abort();
}

// A waiter on the backend's own future may run before its callbacks, so the program gets one that follows them.
c10::intrusive_ptr<Future> RecordingWork::getFuture() {
  const WithoutGil released;
  const std::lock_guard<std::mutex> lock(future_mutex_);
  if (!future_) {
    auto inner = inner_future_ ? inner_future_ : inner_->getFuture();
    auto settle = [pending = pending_](Future& done) -> c10::IValue {
      if (done.hasError()) {
        state().gate.wait_until_open();
        if (pending->rescue()) {
          return pending->outputs();
        }
        pending->fail(done.exception_ptr());
      } else if (!pending->receives_from_any()) {
        pending->finish(Status::ok, kNoPeer, Patience::for_room);  // this thread's streams are behind those of the backend
        pending->hold_back();
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
