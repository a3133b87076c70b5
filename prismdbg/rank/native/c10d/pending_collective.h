// One collective between issue and completion. Finishes exactly once, before the program can see its outputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "c10d/op_table.h"
#include "c10d/tensors.h"
#include "device/watch.h"
#include "recorder/failure.h"
#include "recorder/recorder.h"

namespace prismdbg {

// What the calling thread may wait for, to read what was received on a device: nothing, a bounded time for room to copy
// it into, or also the device itself, where it can be read in no other way.
enum class Patience : uint8_t { none, for_room, for_device };

class PendingCollective {
 public:
  PendingCollective(const OpInfo& op, const Ticket& ticket, std::vector<at::Tensor> outputs, bool receives,
                    bool is_sync, c10::Device device, bool follows_future, std::shared_ptr<Look> sent)
      : op_(op),
        ticket_(ticket),
        outputs_(std::move(outputs)),
        receives_(receives),
        is_sync_(is_sync),
        device_(device),
        follows_future_(follows_future),
        sent_(std::move(sent)) {}
  ~PendingCollective();

  // Of calls that are issued together: `followers` end as this one does, and its Work is that of all.
  void lead(std::vector<std::shared_ptr<PendingCollective>> followers) {
    followers_ = std::move(followers);
    leads_ = true;
  }

  // Writes the completion; only the first call counts, later ones wait for it. `source`: of this one, not of those that
  // follow it.
  void finish(Status status, int32_t source = kNoPeer, Patience patience = Patience::for_device) noexcept;
  void fail(const std::exception_ptr& error, bool at_issue = false) noexcept;
  // The program dropped the work without waiting: complete for all it will ever know, and nothing was received.
  void abandon() noexcept;

  bool is_finished() const { return finished_.load(std::memory_order_acquire); }
  bool is_rescued() const { return rescued_.load(std::memory_order_acquire); }
  // Whether its Work says who has sent it. That of several calls does not.
  bool receives_from_any() const { return op_.is_p2p && op_.root < 0 && !leads_; }
  // Whether the program did not ask for a Work.
  bool is_sync() const { return is_sync_; }
  bool on_host() const { return device_.is_cpu(); }
  // Whether it is over when its future says so.
  bool follows_future() const { return follows_future_; }
  // What the calling thread's stream does from here on may change what was received: that comes behind its look.
  void hold_back() noexcept;

  // After a handover: has Python fill the outputs in the backend's place, also of those that follow. False where it
  // cannot.
  bool rescue() noexcept;
  int rescued_source() const { return rescued_source_; }
  const std::vector<at::Tensor>& outputs() const { return outputs_; }

 private:
  void write_once(Status status, int32_t source, const Failure* failure, Patience patience) noexcept;
  void write(Status status, int32_t source, const Failure* failure, Patience patience);
  // Of one on a device: what it received is looked at there, and it is complete when that is done.
  void write_when_done(int32_t source, Patience patience);
  // In the host's memory; null where it cannot be read.
  std::shared_ptr<HostBytes> copied() const noexcept;

  const OpInfo& op_;
  Ticket ticket_;
  std::vector<at::Tensor> outputs_;
  bool receives_;
  bool is_sync_;
  bool is_abandoned_ = false;
  c10::Device device_;
  bool follows_future_;
  std::shared_ptr<Look> sent_;    // what was sent, where the device looks at it
  std::weak_ptr<Look> received_;  // once it is finished, until that is done
  std::vector<std::shared_ptr<PendingCollective>> followers_;
  bool leads_ = false;
  std::once_flag once_;
  std::atomic<bool> finished_{false};
  std::mutex rescue_mutex_;
  std::atomic<bool> rescued_{false};
  int rescued_source_ = kNoPeer;
};

}  // namespace prismdbg
