#include "recorder/recorder.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <system_error>

#include "log/bytes_of.h"
#include "log/clock.h"
#include "process/guarded.h"
#include "process/stderr.h"
#include "recorder/json.h"
#include "tracer/trace_place.h"

namespace prismdbg {
namespace {

uint64_t thread_number() {
  thread_local const auto number = static_cast<uint64_t>(syscall(SYS_gettid));
  return number;
}

bool has_nonfinite(const std::vector<Span>& spans) {
  Fingerprint scan(/*hash=*/false, /*look_for_nonfinite=*/true);
  for (const Span& span : spans) {
    scan.add(span);
  }
  return scan.nonfinite();
}

}  // namespace

void Recorder::open(const RecorderOptions& options) {
  if (is_open_.load()) {
    throw std::system_error(EBUSY, std::generic_category(), "this process has a log already");
  }
  // Without the lock: a file system that does not answer holds nobody else, least of all the end of the program.
  auto queue = std::make_unique<WriteQueue>(background_, options.direct);
  auto log = std::make_unique<LogWriter>(*queue, options.folder, options.rank, options.event_segment_bytes);
  auto payloads = std::make_unique<PayloadStore>(*queue, options.folder, options.payload_segment_bytes);
  const std::lock_guard<std::mutex> lock(mutex_);
  queue_ = std::move(queue);
  log_ = std::move(log);
  payloads_ = std::move(payloads);
  options_ = options;
  is_open_.store(true, std::memory_order_release);
}

void Recorder::append(Kind kind, std::string_view body) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (log_) {
    log_->append(kind, body);
  }
}

bool Recorder::try_append(Kind kind, std::string_view body) {
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock || (log_ && !log_->has_room(body.size()))) {
    return false;
  }
  if (log_) {
    log_->append(kind, body);
  }
  return true;
}

uint32_t Recorder::text(std::string_view text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return log_ ? log_->text(text) : 0;
}

void Recorder::begin_step(uint32_t step, uint8_t source) noexcept {
  guarded(
      [&] {
        {
          const std::lock_guard<std::mutex> lock(mutex_);
          counters_.begin_step(step);
          moment_ = counters_.packed_moment();
          place().move(step, 0);
          if (log_ && mode() == 1) {
            StepBody body{};
            body.step = step;
            body.time_ns = monotonic_ns();
            body.source = source;
            log_->append(Kind::step, bytes_of(body));
          }
        }
        if (is_open_.load()) {
          payloads_->prune(step);
        }
      },
      [&](const char* reason) { lose("events", reason); });
}

void Recorder::window(bool on, int64_t steps, uint64_t size_bytes) {
  if (!is_open_.load()) {
    throw std::logic_error("the window needs an open log");
  }
  payloads_->limit(steps, size_bytes);
  payloads_on_.store(on);
}

void Recorder::keep_from(int64_t step) {
  if (is_open_.load()) {
    payloads_->keep_from(step);
  }
}

NotKept Recorder::keep_small(uint64_t each_bytes, uint64_t total_bytes) {
  return is_open_.load() ? payloads_->keep_small(each_bytes, total_bytes) : NotKept{};
}

Ticket Recorder::issue(const IssuedCall& issue) noexcept {
  Ticket ticket;
  guarded(
      [&] {
        const uint32_t stack = options_.stacks ? this->stack() : 0;
        const std::lock_guard<std::mutex> lock(mutex_);
        const IssueBody body = encode(issue, stack);
        log_->append(Kind::issue, bytes_of(body), issue.tensors);
        in_flight_.push_back(body.record_id);
        ticket = {body.record_id, body.step, log_.get()};
      },
      [&](const char* reason) { lose("events", reason); });
  return ticket;
}

IssueBody Recorder::encode(const IssuedCall& issue, uint32_t stack) {
  IssueBody body{};
  body.op_text = log_->text(issue.op);
  body.group_text = log_->text(issue.group);
  body.device_text = log_->text(issue.device);
  body.stack = stack;
  body.fingerprint = issue.fingerprint;
  body.thread = thread_number();
  body.root = issue.root;
  body.tag = issue.tag;
  body.timeout_ms = issue.timeout_ms;
  body.reduce_op = issue.reduce_op;
  body.flags = (issue.is_async ? kIssueAsync : 0) | (issue.is_p2p ? kIssueP2p : 0) |
               (issue.sent_nonfinite ? kIssueSentNonfinite : 0) | (issue.has_fingerprint ? kIssueHasFingerprint : 0) |
               (issue.has_sketch ? kIssueHasSketch : 0);
  body.inputs = issue.inputs;
  body.outputs = issue.outputs;
  const Position position = counters_.issue(issue);
  moment_ = counters_.packed_moment();
  place().move(position.step, position.collective);
  body.record_id = position.record_id;
  body.sequence = position.sequence;
  body.step = position.step;
  body.collective = position.collective;
  body.created_ns = monotonic_ns();
  return body;
}

uint32_t Recorder::stack() {
  const uint32_t own = stacks_.current([this](const std::vector<NamedFrame>& frames) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return log_->stack(frames);
  });
  return own != 0 ? own : backward_stack_.load(std::memory_order_relaxed);
}

void Recorder::set_backward(bool on) noexcept {
  guarded(
      [&] {
        backward_stack_.store(0, std::memory_order_relaxed);
        if (on && options_.stacks && is_recording()) {
          backward_stack_.store(stack(), std::memory_order_relaxed);
        }
      },
      [&](const char* reason) { lose("events", reason); });
}

void Recorder::complete(const Ticket& ticket, const Ending& ending) noexcept {
  CompleteBody body{};
  body.completed_ns = ending.completed_ns != 0 ? ending.completed_ns : monotonic_ns();
  if (ticket.log == nullptr || mode() != 1) {
    forget(ticket);
    return;
  }
  body.record_id = ticket.record_id;
  body.source = ending.source;
  body.status = static_cast<uint8_t>(ending.status);
  guarded(
      [&] {
        const auto& known = ending.received_nonfinite;
        if (options_.nan_check && (known ? *known : has_nonfinite(ending.received))) {
          body.flags |= kCompleteReceivedNonfinite;
        }
        if (payloads_on_.load()) {
          keep_payload(ticket, ending.received, body);
        }
        const bool has_fingerprint = ending.sent && options_.fingerprints;
        const uint64_t fingerprint = has_fingerprint ? ending.sent->value() : 0;
        const std::string_view sent = has_fingerprint ? bytes_of(fingerprint) : std::string_view{};
        body.flags |= has_fingerprint ? kCompleteHasFingerprint : 0;
        body.flags |= ending.sent && options_.nan_check && ending.sent->nonfinite() ? kCompleteSentNonfinite : 0;
        const std::lock_guard<std::mutex> lock(mutex_);
        remove_in_flight(ticket.record_id);
        if (ticket.log == log_.get()) {
          if (const Failure* failure = ending.failure) {
            log_->append(Kind::note, failed_note(ticket.record_id, failure->type, failure->text, failure->at_issue));
          }
          log_->append(Kind::complete, bytes_of(body), sent);
        }
      },
      [&](const char* reason) { lose("events", reason); });
}

// Where the payload cannot be kept the window ends, and the record goes on without.
void Recorder::keep_payload(const Ticket& ticket, const std::vector<Span>& received, CompleteBody& body) noexcept {
  uint64_t total = 0;
  for (const Span& span : received) {
    total += span.size_bytes;
  }
  if (total == 0) {
    return;
  }
  guarded(
      [&] {
        const auto slot = payloads_->reserve(total, ticket.step);
        if (!slot) {
          return;
        }
        for (const Span& span : received) {
          slot->add(static_cast<const uint8_t*>(span.data), span.size_bytes);
        }
        slot->flush();
        body.payload_segment = slot->segment();
        body.payload_offset = slot->offset();
        body.payload_bytes = total;
        body.flags |= kCompletePayload;
      },
      [&](const char* reason) { lose("payloads", reason); });
}

void Recorder::forget(const Ticket& ticket) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (ticket.log == log_.get()) {
    remove_in_flight(ticket.record_id);
  }
}

void Recorder::remove_in_flight(uint64_t record_id) {
  const auto found = std::find(in_flight_.begin(), in_flight_.end(), record_id);
  if (found != in_flight_.end()) {
    in_flight_.erase(found);
  }
}

void Recorder::lose(std::string_view what, std::string_view reason) noexcept {
  try {
    if (what == "payloads") {
      payloads_on_.store(false);
    } else {
      mode_.store(0);
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::string text = std::string(what) + " are no longer recorded: " + std::string(reason);
    const bool is_first = lost_.empty() || (what == "events" && lost_.starts_with("payloads"));
    if (is_first) {
      lost_ = text;
    }
    if (log_ && !note_lost(text) && is_first) {
      const std::string line = "prismdbg: rank " + std::to_string(options_.rank) + ": " + text + "\n";
      background_.post([line] { say_on_stderr(line); });
    }
  } catch (...) {  // nowhere left to say it; stats() still does
  }
}

// Whether it stands in the log. A log that is closed keeps the note, but it may never be opened again.
bool Recorder::note_lost(const std::string& text) noexcept {
  const bool is_kept =
      guarded([&] { log_->append(Kind::note, lost_note(text, counters_.step(), counters_.collective())); },
              [](const char*) {});
  return is_kept && !log_->is_closed();
}

void Recorder::close_log() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!log_) {
      return;
    }
    payloads_->close();
    log_->close();
  }
  if (!background_.drain()) {
    throw std::system_error(EBUSY, std::generic_category(), "the file system of the log does not answer");
  }
  queue_->check();
}

// The log first: it says what becomes of the payloads.
void Recorder::reopen_log() {
  const bool is_reopened = guarded(
      [&] {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (log_) {
          log_->reopen();
        }
      },
      [&](const char* reason) { lose("events", reason); });
  if (is_reopened && is_open_.load()) {
    guarded([&] { payloads_->reopen(); }, [&](const char* reason) { lose("payloads", reason); });
  }
}

void Recorder::tidy() noexcept {
  guarded(
      [&] {
        {
          const std::lock_guard<std::mutex> lock(mutex_);
          if (!log_) {
            return;
          }
          payloads_->tidy();
          log_->tidy();
        }
        background_.drain();
      },
      [](const char*) {});
}

Position Recorder::position() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {counters_.step(), counters_.collective(), counters_.issued(), 0};
}

std::vector<Sequence> Recorder::sequences() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return counters_.sequences();
}

std::vector<uint64_t> Recorder::in_flight() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return in_flight_;
}

std::string Recorder::lost() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return lost_;
}

uint64_t Recorder::event_bytes() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return log_ ? log_->written_bytes() : 0;
}

}  // namespace prismdbg
