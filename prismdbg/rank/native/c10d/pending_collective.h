// One collective between issue and completion. Finishes exactly once, before the program can see its outputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <exception>
#include <mutex>
#include <vector>

#include "c10d/op_table.h"
#include "device/watch.h"
#include "recorder/failure.h"
#include "recorder/recorder.h"

namespace prismdbg {

class PendingCollective {
 public:
  PendingCollective(const OpInfo& op, const Ticket& ticket, std::vector<at::Tensor> outputs, bool receives,
                    c10::Device device, std::shared_ptr<Look> sent)
      : op_(op),
        ticket_(ticket),
        outputs_(std::move(outputs)),
        receives_(receives),
        device_(device),
        sent_(std::move(sent)) {}
  ~PendingCollective();

  // Writes the completion; only the first call counts, later ones wait for it.
  void finish(Status status, int32_t source = kNoPeer) noexcept;
  void fail(const std::exception_ptr& error, bool at_issue = false) noexcept;
  // The program dropped the work without waiting: complete for all it will ever know, and nothing was received.
  void abandon() noexcept;

  bool is_finished() const { return finished_.load(std::memory_order_acquire); }
  bool is_rescued() const { return rescued_.load(std::memory_order_acquire); }
  bool receives_from_any() const { return op_.is_p2p && op_.root < 0; }
  // Whether its tensors are in the host's memory: then they are there when its future says so.
  bool on_host() const { return device_.is_cpu(); }

  // After a handover: has Python fill the outputs in the backend's place. False where it cannot.
  bool rescue() noexcept;
  int rescued_source() const { return rescued_source_; }
  const std::vector<at::Tensor>& outputs() const { return outputs_; }

 private:
  void write_once(Status status, int32_t source, const Failure* failure) noexcept;
  void write(Status status, int32_t source, const Failure* failure);
  // Of one on a device: what it received is looked at there, and it is complete when that is done.
  void write_when_done(int32_t source);

  const OpInfo& op_;
  Ticket ticket_;
  std::vector<at::Tensor> outputs_;
  bool receives_;
  bool is_abandoned_ = false;
  c10::Device device_;
  std::shared_ptr<Look> sent_;  // what was sent, where the device looks at it
  std::once_flag once_;
  std::atomic<bool> finished_{false};
  std::mutex rescue_mutex_;
  std::atomic<bool> rescued_{false};
  int rescued_source_ = kNoPeer;
};

}  // namespace prismdbg
