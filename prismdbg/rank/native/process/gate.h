// Where issuing threads stop while the rank is parked. Counts who waits there and who is on the way from it to a record.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

namespace prismdbg {

class Gate {
 public:
  // Waits while closed. A thread that enters is on its way until it calls `leave`.
  void enter();
  void leave() { entering_.fetch_sub(1); }
  // Waits while closed, without entering.
  void wait_until_open();

  void set_closed(bool closed);
  int waiting() const { return waiting_.load(); }
  int entering() const { return entering_.load(); }

 private:
  std::atomic<bool> closed_{false};
  std::atomic<int> entering_{0};
  std::atomic<int> waiting_{0};
  std::mutex mutex_;
  std::condition_variable opened_;
};

}  // namespace prismdbg
