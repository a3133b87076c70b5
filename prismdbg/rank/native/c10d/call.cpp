#include "c10d/call.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <algorithm>
#include <cstdint>

#include "c10d/hooks.h"
#include "log/bytes_of.h"
#include "recorder/sketch.h"
#include "recorder/state.h"

namespace prismdbg {
namespace {

// `cuda:0`; where it is issued on another stream than the device's default one: `cuda:0 stream 3`.
std::string place_of(const c10::Device& device) {
  if (device.is_cpu()) {
    return "cpu";
  }
  const auto* known = c10::impl::hasDeviceGuardImpl(device.type()) ? c10::impl::getDeviceGuardImpl(device.type()) : nullptr;
  const c10::StreamId stream = known == nullptr ? 0 : known->getStream(device).id();
  return stream == 0 ? device.str() : device.str() + " stream " + std::to_string(stream);
}

}  // namespace

Call::Call(const OpInfo& op, c10::ArrayRef<c10::IValue> arguments)
    : op_(op),
      arguments_(arguments),
      group_(arguments[op.group].toCustomClass<c10d::ProcessGroup>()),
      root_(static_cast<int32_t>(number(op.root, kNoPeer))) {
  if (op.inputs >= 0) {
    collect(arguments[op.inputs], inputs_);
  }
  if (op.outputs >= 0) {
    collect(arguments[op.outputs], outputs_);
  }
}

int64_t Call::number(int8_t position, int64_t otherwise) const {
  return position < 0 ? otherwise : arguments_[position].toInt();
}

bool Call::is_shape_only() const {
  if (op_.inputs < 0 && op_.outputs < 0) {
    return arguments_[0].isTensor() && prismdbg::is_shape_only(arguments_[0].toTensor());
  }
  const TensorRefs& tensors = outputs_.empty() ? inputs_ : outputs_;
  return !tensors.empty() && prismdbg::is_shape_only(*tensors[0]);
}

// Of a call without that argument nobody knows.
bool Call::is_sync() const {
  return op_.async_op >= 0 && !arguments_[op_.async_op].toBool();
}

uint8_t Call::reduce_op() const {
  if (op_.reduce_op < 0) {
    return kNoReduceOp;
  }
  return static_cast<uint8_t>(arguments_[op_.reduce_op].toCustomClass<c10d::ReduceOp>()->op_);
}

Ticket Call::issue(Recorder& recorder) {
  IssuedCall issue;
  issue.op = op_.name;
  std::string group;
  issue.group = name_of(*group_, group);
  issue.is_p2p = op_.is_p2p;
  issue.is_async = op_.async_op >= 0 && !is_sync();
  issue.root = root_;
  issue.tag = static_cast<int32_t>(number(op_.tag, 0));
  issue.timeout_ms = static_cast<int32_t>(std::min<int64_t>(number(op_.timeout, -1), INT32_MAX));
  issue.reduce_op = reduce_op();
  const std::string device = place_of(this->device());
  issue.device = device;
  thread_local std::string tensors;
  tensors.clear();
  issue.inputs = encode(inputs_, tensors);
  issue.outputs = encode(outputs_, tensors);
  look_at_sent(recorder, issue, tensors);
  issue.tensors = tensors;
  return recorder.issue(issue);
}

c10::Device Call::device() const {
  const TensorRefs& first = outputs_.empty() ? inputs_ : outputs_;
  return first.empty() ? c10::Device(c10::kCPU) : first[0]->device();
}

// On a device the fingerprint is known later, and stands in the record of the call's end. A sketch is made on the host
// alone, so that with sketches the call waits for its tensors.
void Call::look_at_sent(const Recorder& recorder, IssuedCall& issue, std::string& tensors) {
  if (!(recorder.fingerprints() || recorder.nan_check() || recorder.sketches()) || inputs_.empty() || !op_.sends(is_root())) {
    return;
  }
  if (!device().is_cpu()) {
    const OnDevice there = on_device(inputs_);
    if (there.tensors && !recorder.sketches()) {
      sent_ = state().devices.look(*there.tensors,
                                   {.fingerprint = recorder.fingerprints(), .nonfinite = recorder.nan_check()});
    }
    const bool has_no_room = there.tensors && !recorder.sketches() && state().devices.is_usable(there.tensors->device);
    if (sent_ || has_no_room || there.is_unreadable) {  // nobody waits for a device before a collective
      return;
    }
  }
  HostBytes sent;
  for (const at::Tensor* tensor : inputs_) {
    sent.add(*tensor);
  }
  Fingerprint fingerprint(recorder.fingerprints(), recorder.nan_check());
  for (const Span& span : sent.spans()) {
    fingerprint.add(span);
  }
  issue.has_fingerprint = recorder.fingerprints() && !sent.spans().empty();
  issue.fingerprint = issue.has_fingerprint ? fingerprint.value() : 0;
  issue.sent_nonfinite = fingerprint.nonfinite();
  issue.has_sketch = recorder.sketches() && can_be_sketched(sent.spans());
  if (issue.has_sketch) {
    tensors.append(bytes_of(sketch(sent.spans())));
  }
}

std::shared_ptr<PendingCollective> Call::pending(const Ticket& ticket) const {
  std::vector<at::Tensor> outputs;
  outputs.reserve(outputs_.size());
  for (const at::Tensor* tensor : outputs_) {
    outputs.push_back(*tensor);
  }
  // A barrier of NCCL, and of others for devices, has no tensor, and a future that is complete from the first: it ends
  // with its wait.
  const bool follows_future = device().is_cpu() && !(inputs_.empty() && outputs_.empty() && group_->getBackendName() != "gloo");
  return std::make_shared<PendingCollective>(op_, ticket, std::move(outputs), op_.receives(is_root()), is_sync(),
                                             device(), follows_future, sent_);
}

}  // namespace prismdbg
