#include "device/watch.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <set>
#include <thread>

#include "log/clock.h"
#include "process/background_thread.h"

namespace prismdbg {
namespace {

constexpr auto kLongestForDevices = std::chrono::seconds(5);
// Between two looks at the devices: what a time in the log may be late by.
constexpr auto kShortestRest = std::chrono::microseconds(50);
constexpr auto kLongestRest = std::chrono::microseconds(1000);

}  // namespace

std::shared_ptr<Look> DeviceWatch::look(const DeviceTensors& tensors, const Wanted& wanted) noexcept {
  try {
    Device* found = is_stopped_.load() ? nullptr : device(tensors.device);
    return found == nullptr ? nullptr : std::make_shared<Look>(*found, memory_, tensors, wanted);
  } catch (const std::bad_alloc&) {
    return nullptr;
  } catch (const std::exception&) {  // what it has begun stays its own: nobody knows when that ends
    const std::lock_guard<std::mutex> lock(devices_mutex_);
    devices_[tensors.device].has_failed = true;
    return nullptr;
  }
}

bool DeviceWatch::is_usable(int index) noexcept {
  try {
    return device(index) != nullptr;
  } catch (const std::exception&) {
    return false;
  }
}

Device* DeviceWatch::device(int index) {
  if (driver() == nullptr) {
    return nullptr;
  }
  const std::lock_guard<std::mutex> lock(devices_mutex_);
  const auto [found, is_new] = devices_.try_emplace(index);
  if (is_new) {
    found->second.device = std::make_unique<Device>(index);
  }
  return found->second.has_failed ? nullptr : found->second.device.get();
}

void DeviceWatch::follow(Looks looks, std::function<void(DoneNs)> then) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (is_stopped_.load()) {
      return;
    }
    followed_.push_back({std::move(looks), std::move(then), std::nullopt});
    if (!is_running_) {
      start_without_signals([this] { run(); });
      is_running_ = true;
    }
  }
  posted_.notify_one();
}

void DeviceWatch::stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  is_stopped_.store(true);
  followed_.clear();
}

bool DeviceWatch::drain() {
  std::unique_lock<std::mutex> lock(mutex_);
  return idle_.wait_for(lock, kLongestForDevices, [this] { return followed_.empty() && !is_busy_; });
}

void DeviceWatch::run() {
  pthread_setname_np(pthread_self(), "prismdbg-device");
  int mode = kCuCaptureRelaxed;  // asking for an event breaks no capture of a graph
  driver()->exchange_capture_mode(&mode);
  auto rest = kShortestRest;
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    posted_.wait(lock, [this] { return !followed_.empty(); });
    auto done = take_done_locked();
    is_busy_ = true;
    lock.unlock();
    for (Followed& each : done) {
      try {
        each.then(each.done_ns);
      } catch (...) {  // its own affair
      }
      each = {};  // its buffers may be wanted, while the next one is written
    }
    rest = done.empty() ? std::min(rest * 2, kLongestRest) : kShortestRest;
    done.clear();
    lock.lock();
    is_busy_ = false;
    if (followed_.empty()) {
      idle_.notify_all();
      continue;
    }
    lock.unlock();
    std::this_thread::sleep_for(rest);
    lock.lock();
  }
}

std::vector<DeviceWatch::Followed> DeviceWatch::take_done_locked() {
  std::vector<Followed> done;
  std::vector<Followed> left;
  std::set<std::pair<const Device*, CuHandle>> held;
  for (Followed& each : followed_) {
    bool is_left = false;
    bool has_failed = false;
    try {
      for (const auto& look : each.looks) {
        if (held.contains(look->queue()) || !look->is_done()) {
          held.insert(look->queue());
          is_left = true;
        }
      }
    } catch (const std::exception&) {
      has_failed = true;
    }
    each.done_ns = has_failed ? std::nullopt : DoneNs(monotonic_ns());
    (is_left && !has_failed ? left : done).push_back(std::move(each));
  }
  followed_ = std::move(left);
  return done;
}

}  // namespace prismdbg
