// Follows what was begun on devices, in a thread of its own, and goes on with a collective's record when it is done.
// The program's threads never wait for a device here, except at a park and at the end of the program, for a bounded time.
#pragma once

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
  // Null where the device cannot do it now; then the caller copies the tensors itself, and waits.
  std::shared_ptr<Look> look(const DeviceTensors& tensors, const Wanted& wanted) noexcept;
  // Calls `then` when all of them are done. It is dropped without a call where their device has failed.
  void follow(Looks looks, std::function<void()> then);
  // True when there is nothing left to follow; false where that takes longer than a thread of the job may wait.
  bool drain();

 private:
  struct Followed {
    Looks looks;
    std::function<void()> then;
  };

  Device* device(int index);
  void run();
  // Those that are done, in order; of one stream, nothing is looked at behind what is not done.
  std::vector<Followed> take_done_locked();
  static bool is_done(const Followed& followed);

  PinnedMemory memory_;
  std::mutex devices_mutex_;
  std::map<int, std::unique_ptr<Device>> devices_;  // null where it cannot be used

  std::mutex mutex_;
  std::condition_variable posted_;
  std::condition_variable idle_;
  std::vector<Followed> followed_;
  bool is_running_ = false;
  bool is_busy_ = false;
};

}  // namespace prismdbg
