#include "c10d/kernel.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/library.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "c10d/call.h"
#include "c10d/coalescing.h"
#include "c10d/hooks.h"
#include "c10d/recording_work.h"
#include "recorder/state.h"

namespace prismdbg {
namespace {

const auto kBelow = c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::BackendSelect);

thread_local bool is_refused = false;
thread_local uint64_t refused = 0;

void refuse(const OpInfo& op) {
  ++refused;
  throw std::runtime_error("prismdbg refuses c10d::" + std::string(op.name) + ": only the program may issue a collective");
}

// From the gate until the call is recorded: a call that is on its way may be in no process image.
class Entering {
 public:
  explicit Entering(Gate& gate) : gate_(gate) { gate_.enter(); }
  ~Entering() { gate_.leave(); }
  Entering(const Entering&) = delete;
  Entering& operator=(const Entering&) = delete;

 private:
  Gate& gate_;
};

// Null where the call is not recorded; then it passes through.
std::shared_ptr<PendingCollective> begin(const OpInfo& op, c10::ArrayRef<c10::IValue> arguments) noexcept {
  Recorder& recorder = state().recorder;
  try {
    Call call(op, arguments);
    if (call.is_shape_only()) {
      return nullptr;
    }
    introduce_group(call.group());
    if (!recorder.is_recording()) {
      return nullptr;
    }
    const Ticket ticket = call.issue(recorder);
    return ticket.log ? call.pending(ticket) : nullptr;
  } catch (const std::exception& error) {
    recorder.lose("events", error.what());
  }
  return nullptr;
}

// NCCL gives no Work where the calling thread's stream is behind the call.
void end_without_work(const std::shared_ptr<PendingCollective>& pending) {
  if (pending->on_host() || pending->is_sync()) {
    pending->finish(Status::ok);
  } else {  // what it receives is not there yet, and nobody says when
    pending->abandon();
  }
}

// Puts our Work around the backend's, which is what the operator left on top of the stack. That of one of several calls
// that are issued together says nothing: it ends with them.
void wrap_work(torch::jit::Stack& stack, const std::shared_ptr<PendingCollective>& pending) {
  if (!pending->on_host() && join_coalesced(pending)) {
    return;
  }
  c10::IValue& top = stack.back();
  auto inner = top.isNone() ? nullptr : top.toCustomClass<c10d::Work>();
  if (!inner) {
    end_without_work(pending);
    return;
  }
  c10::intrusive_ptr<c10d::Work> work = c10::make_intrusive<RecordingWork>(std::move(inner), pending);
  top = c10::IValue(std::move(work));
}

void record(const OpInfo& op, const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack& stack,
            std::optional<Entering>& entering) {
  const auto pending = begin(op, torch::jit::last(stack, handle.schema().arguments().size()));
  entering.reset();  // from here on it counts as in flight
  if (!pending) {
    handle.redispatchBoxed(keys & kBelow, &stack);
    return;
  }
  try {
    handle.redispatchBoxed(keys & kBelow, &stack);
  } catch (...) {
    pending->fail(std::current_exception(), true);
    throw;
  }
  if (op.returns == Returns::nothing) {
    pending->finish(Status::ok);
    return;
  }
  try {
    wrap_work(stack, pending);
  } catch (const std::exception& error) {
    state().recorder.lose("events", error.what());
  }
}

template <size_t index>
void kernel(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (is_refused) {
    refuse(ops[index]);
  }
  std::optional<Entering> entering(state().gate);
  if (is_handed_over()) {  // while this thread was parked: the call belongs to the kernels installed since
    entering.reset();
    handle.callBoxed(stack);
  } else if (state().recorder.mode() == 0) {
    entering.reset();
    handle.redispatchBoxed(keys & kBelow, stack);
  } else {
    record(ops[index], handle, keys, *stack, entering);
  }
}

std::unique_ptr<torch::Library>& library() {
  static auto* pointer = new std::unique_ptr<torch::Library>();  // outlives the dispatcher's statics
  return *pointer;
}

void place(OpInfo& op, const Positions& positions) {
  const auto at = [&](const char* role) {
    const auto found = positions.find(role);
    return found == positions.end() ? int8_t{-1} : static_cast<int8_t>(found->second);
  };
  op.group = at("group");
  op.outputs = at("outputs");
  op.inputs = at("inputs");
  op.reduce_op = at("reduce_op");
  op.root = at("root");
  op.tag = at("tag");
  op.async_op = at("async_op");
  op.timeout = at("timeout");
}

template <size_t index>
void implement(torch::Library& into, const PositionsByName& known) {
  OpInfo& op = ops[index];
  if (const auto found = known.find(op.name); found != known.end()) {
    place(op, found->second);
    into.impl(op.name, torch::CppFunction::makeFromBoxedFunction<&kernel<index>>());
  }
}

template <size_t... indices>
void implement_all(torch::Library& into, const PositionsByName& known, std::index_sequence<indices...>) {
  (implement<indices>(into, known), ...);
}

}  // namespace

void install_kernels(const PositionsByName& known) {
  if (library()) {
    return;
  }
  auto made = std::make_unique<torch::Library>(torch::Library::IMPL, "c10d", c10::DispatchKey::BackendSelect, __FILE__,
                                               __LINE__);
  implement_all(*made, known, std::make_index_sequence<ops.size()>());
  library() = std::move(made);
  set_handed_over(false);
}

uint64_t refuse_collectives(bool on) {
  is_refused = on;
  return std::exchange(refused, 0);
}

void uninstall_kernels() {
  library().reset();
}

}  // namespace prismdbg
