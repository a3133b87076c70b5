// The recorder of one rank: counters, log, payloads, and what was lost. Knows no torch. Thread safe; never takes
// Python's lock while it holds its own. What a collective calls never throws: what goes wrong switches recording
// off and is remembered once.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "log/log_writer.h"
#include "log/python_stack.h"
#include "log/write_queue.h"
#include "process/background_thread.h"
#include "recorder/counters.h"
#include "recorder/failure.h"
#include "recorder/fingerprint.h"
#include "recorder/payload_store.h"

namespace prismdbg {

struct RecorderOptions {
  std::string folder;
  int32_t rank = 0;
  size_t event_segment_bytes = 0;
  size_t payload_segment_bytes = 0;
  bool stacks = true;
  bool fingerprints = true;
  bool nan_check = true;
  bool sketches = false;
  bool direct = true;  // the folder's file system always answers
};

// An issued collective; `log` tells whose, for works outlive logs.
struct Ticket {
  uint64_t record_id = 0;
  uint32_t step = 0;
  const void* log = nullptr;
};

// How a collective ended, and what is known of its values then.
struct Ending {
  Status status = Status::ok;
  int32_t source = kNoPeer;
  std::vector<Span> received;
  const Failure* failure = nullptr;
  int64_t completed_ns = 0;                // 0: now
  std::optional<bool> received_nonfinite;  // where the device has looked for it
  std::optional<Fingerprint> sent;         // where the device has looked at it, after the issue
};

class Recorder {
 public:
  // Steering, from Python without its lock. These throw.
  void open(const RecorderOptions& options);
  void append(Kind kind, std::string_view body);
  // Whether it could do so at once, without another segment.
  bool try_append(Kind kind, std::string_view body);
  uint32_t text(std::string_view text);
  void window(bool on, int64_t steps, uint64_t size_bytes);
  void keep_from(int64_t step);
  NotKept keep_small(uint64_t each_bytes, uint64_t total_bytes);
  void close_log();
  void reopen_log();
  // At the end of the program: gives back disk space. Recording may go on.
  void tidy() noexcept;

  void set_mode(int mode) { mode_.store(mode); }
  int mode() const { return mode_.load(std::memory_order_relaxed); }
  void begin_step(uint32_t step, uint8_t source) noexcept;
  // The calling thread begins the backward pass: its stack is that of what is issued where there is no Python.
  void set_backward(bool on) noexcept;

  bool is_recording() const { return mode() == 1 && is_open_.load(std::memory_order_acquire); }
  bool fingerprints() const { return options_.fingerprints; }
  bool nan_check() const { return options_.nan_check; }
  bool sketches() const { return options_.sketches; }
  bool keeps_payloads() const { return payloads_on_.load(); }

  // Called by kernels. A ticket without a log means that nothing was recorded.
  Ticket issue(const IssuedCall& issue) noexcept;
  void complete(const Ticket& ticket, const Ending& ending) noexcept;
  // Forgets a collective without a record.
  void forget(const Ticket& ticket) noexcept;
  // Recording ends here, for `reason`.
  void lose(std::string_view what, std::string_view reason) noexcept;

  // The number of collectives so far, step and collective of the last one.
  Position position();
  std::vector<Sequence> sequences();
  uint64_t packed_moment() const { return moment_; }  // waits for no lock
  std::vector<uint64_t> in_flight();
  std::string lost();
  uint64_t event_bytes();
  uint64_t payload_bytes() { return payloads_ ? payloads_->used_bytes() : 0; }
  int64_t payload_oldest_step() { return payloads_ ? payloads_->oldest_step() : -1; }

 private:
  uint32_t stack();
  IssueBody encode(const IssuedCall& issue, uint32_t stack);
  void keep_payload(const Ticket& ticket, const std::vector<Span>& received, CompleteBody& body) noexcept;
  void remove_in_flight(uint64_t record_id);
  // With the lock held. False where the log takes it no more: then stderr is told, by a thread that may wait for it.
  bool note_lost(const std::string& text) noexcept;

  std::atomic<int> mode_{0};
  std::atomic<bool> is_open_{false};
  std::atomic<bool> payloads_on_{false};
  std::atomic<uint32_t> backward_stack_{0};
  RecorderOptions options_;
  BackgroundThread background_;
  std::unique_ptr<WriteQueue> queue_;
  std::unique_ptr<PayloadStore> payloads_;
  PythonStacks stacks_;

  std::mutex mutex_;  // guards what follows
  std::unique_ptr<LogWriter> log_;
  Counters counters_;
  std::atomic<uint64_t> moment_ = 0;  // what `counters_` has
  std::vector<uint64_t> in_flight_;
  std::string lost_;
};

}  // namespace prismdbg
