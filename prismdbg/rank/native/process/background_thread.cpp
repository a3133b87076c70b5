#include "process/background_thread.h"

#include <pthread.h>

#include <chrono>
#include <csignal>
#include <thread>

namespace prismdbg {
namespace {

constexpr auto kLongestDrain = std::chrono::seconds(5);

}  // namespace

void start_without_signals(std::function<void()> body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  try {
    std::thread(std::move(body)).detach();
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

bool BackgroundThread::post(std::function<void()> task) {
  const std::lock_guard<std::mutex> lock(mutex_);
  try {
    if (!running_) {
      start_without_signals([this] { run(); });
      running_ = true;
    }
    tasks_.push_back(std::move(task));
  } catch (...) {
    return false;
  }
  posted_.notify_one();
  return true;
}

bool BackgroundThread::drain() {
  std::unique_lock<std::mutex> lock(mutex_);
  return idle_.wait_for(lock, kLongestDrain, [this] { return tasks_.empty() && !busy_; });
}

void BackgroundThread::run() {
  pthread_setname_np(pthread_self(), "prismdbg-keeper");
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    posted_.wait(lock, [this] { return !tasks_.empty(); });
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    busy_ = true;
    lock.unlock();
    try {
      task();
    } catch (...) {  // whoever needs the result finds it missing and tries for itself
    }
    task = nullptr;
    lock.lock();
    busy_ = false;
    if (tasks_.empty()) {
      idle_.notify_all();
    }
  }
}

}  // namespace prismdbg
