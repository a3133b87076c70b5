#include "device/watch.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

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
    Device* found = device(tensors.device);
    return found == nullptr ? nullptr : std::make_shared<Look>(*found, memory_, tensors, wanted);
  } catch (const std::exception&) {  // it has no room now, or has failed: then the program hears of it, too
    return nullptr;
  }
}

Device* DeviceWatch::device(int index) {
  if (driver() == nullptr) {
    return nullptr;
  }
  const std::lock_guard<std::mutex> lock(devices_mutex_);
  const auto [found, is_new] = devices_.try_emplace(index);
  if (is_new) {
    found->second = std::make_unique<Device>(index);
  }
  return found->second.get();
}

void DeviceWatch::follow(Looks looks, std::function<void()> then) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    followed_.push_back({std::move(looks), std::move(then)});
    if (!is_running_) {
      start_without_signals([this] { run(); });
      is_running_ = true;
    }
  }
  posted_.notify_one();
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
        each.then();
      } catch (...) {  // its own affair
      }
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
  std::set<CuHandle> held;  // streams
  for (Followed& each : followed_) {
    const auto behind = [&](const auto& look) { return held.contains(look->stream()); };
    const bool is_held = std::any_of(each.looks.begin(), each.looks.end(), behind);
    try {
      if (!is_held && is_done(each)) {
        done.push_back(std::move(each));
        continue;
      }
    } catch (const std::exception&) {  // the device has failed: what it was to say is unknown
      continue;
    }
    for (const auto& look : each.looks) {
      held.insert(look->stream());
    }
    left.push_back(std::move(each));
  }
  followed_ = std::move(left);
  return done;
}

bool DeviceWatch::is_done(const Followed& followed) {
  return std::all_of(followed.looks.begin(), followed.looks.end(), [](const auto& look) { return look->is_done(); });
}

}  // namespace prismdbg
