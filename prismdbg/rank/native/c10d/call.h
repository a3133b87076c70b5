// One call of an operator as a kernel receives it: its group, tensors and arguments by name.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <memory>

#include "c10d/op_table.h"
#include "c10d/pending_collective.h"
#include "c10d/tensors.h"
#include "recorder/recorder.h"

namespace prismdbg {

class Call {
 public:
  Call(const OpInfo& op, c10::ArrayRef<c10::IValue> arguments);

  const c10::intrusive_ptr<c10d::ProcessGroup>& group() const { return group_; }
  bool is_shape_only() const;

  Ticket issue(Recorder& recorder);
  std::shared_ptr<PendingCollective> pending(const Ticket& ticket) const;

 private:
  int64_t number(int8_t position, int64_t otherwise) const;
  bool is_sync() const;
  // It has no data, but a tensor that chooses the backend.
  bool is_barrier() const { return op_.inputs < 0 && op_.outputs < 0 && arguments_[0].isTensor(); }
  uint8_t reduce_op() const;
  bool is_root() const { return op_.flow == Flow::all_to_all || root_ == group_->getRank(); }
  // Adds its fingerprint; a sketch goes behind the entries of `tensors`. Where a device looks at it, `sent_` is that.
  void look_at_sent(const Recorder& recorder, IssuedCall& issue, std::string& tensors);
  c10::Device device() const;

  const OpInfo& op_;
  c10::ArrayRef<c10::IValue> arguments_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  int32_t root_;
  TensorRefs inputs_;
  TensorRefs outputs_;
  std::shared_ptr<Look> sent_;
};

}  // namespace prismdbg
