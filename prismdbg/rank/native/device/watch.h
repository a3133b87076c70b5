// Follows what was begun on devices, in a thread of its own, and goes on with a collective's record when it is done.
// The program's threads never wait for a device here, except at a park and at the end of the program, for a bounded time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
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
  // Calls `then`, with the time at which all of them were done. It is dropped without a call where their device has
  // failed, and after `stop`.
  void follow(Looks looks, std::function<void(int64_t done_ns)> then);
  // At the end of the program: from here on devices are left alone.
  void stop();
  // True when there is nothing left to follow; false where that takes longer than a thread of the job may wait.
  bool drain();

 private:
  struct Followed {
    Looks looks;
    std::function<void(int64_t)> then;
    int64_t done_ns = 0;
  };

  Device* device(int index);
  void run();
  // Those that are done, in order; of one stream, nothing is looked at behind what is not done.
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
