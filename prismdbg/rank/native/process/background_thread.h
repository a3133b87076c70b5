// One background thread for what a collective must not wait for: making the next segment, cutting and removing old
// ones. Tasks run in order. Signals are blocked there: they belong to the program's own threads.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

namespace prismdbg {

// Starts a detached thread that no signal is delivered to.
void start_without_signals(std::function<void()> body);

class BackgroundThread {
 public:
  // False if there is no thread to do it: every task is one that somebody can do without.
  bool post(std::function<void()> task);
  // True when every task posted before is done; false where that takes longer than a thread of the job may wait.
  bool drain();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable posted_;
  std::condition_variable idle_;
  std::deque<std::function<void()>> tasks_;
  bool running_ = false;
  bool busy_ = false;
};

}  // namespace prismdbg
