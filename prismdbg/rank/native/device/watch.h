// Follows what was begun on devices, in a thread of its own, and goes on with a collective's record when it is done.
// The program's threads never wait for a device here, except at a park and at the end of the program, for a bounded time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "device/look.h"

namespace prismdbg {

using Looks = std::vector<std::shared_ptr<Look>>;

class DeviceWatch {
 public:
  // Null where the device cannot do it now, for want of room, or at all.
  std::shared_ptr<Look> look(const DeviceTensors& tensors, const Wanted& wanted) noexcept;
  // Whether it can be asked at all.
  bool is_usable(int device) noexcept;
  // When all of them are done; where their device has failed, that is never known.
  using DoneNs = std::optional<int64_t>;
  // Calls `then` when it is known. It is dropped without a call after `stop`.
  void follow(Looks looks, std::function<void(DoneNs)> then);
  // At the end of the program: from here on devices are left alone.
  void stop();
  // True when there is nothing left to follow; false where that takes longer than a thread of the job may wait.
  bool drain();

 private:
  struct Followed {
    Looks looks;
    std::function<void(DoneNs)> then;
    DoneNs done_ns;
  };

  Device* device(int index);
  void run();
  // Those of which it is known, in order; of one stream, nothing is looked at behind what is not done.
  std::vector<Followed> take_done_locked();

  PinnedMemory memory_;
  std::mutex devices_mutex_;
  struct Known {
    std::unique_ptr<Device> device;  // null where it cannot be used
    bool has_failed = false;
  };
  std::map<int, Known> devices_;

  std::mutex mutex_;
  std::condition_variable posted_;
  std::condition_variable idle_;
  std::vector<Followed> followed_;
  bool is_running_ = false;
  std::atomic<bool> is_stopped_{false};
  bool is_busy_ = false;
};

}  // namespace prismdbg
