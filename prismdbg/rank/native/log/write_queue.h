// How a log's files are written. On a disk of this machine at once, by the thread that records: what a rank did is on
// disk before it goes on, also when it is killed then. On any other file system (NFS, FUSE, a parallel one), whose
// server may stop to answer, by the background thread: the job never waits for it, and what was not written when the
// rank is killed is lost with it.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "process/background_thread.h"

namespace prismdbg {

class WriteQueue {
 public:
  // `is_direct`: the file system is one of this machine's (`prismdbg.settings.file_system.is_local`).
  WriteQueue(BackgroundThread& background, bool is_direct) : background_(background), is_direct_(is_direct) {}

  bool is_direct() const { return is_direct_; }
  BackgroundThread& background() const { return background_; }
  // Where it is not direct: `task` runs later, in order, and holds that many bytes until then. Throws
  // std::system_error where an earlier one failed, or too much waits; from then on always if the task `is_required`: what
  // follows it means nothing without it. The others leave some of the room to them: events go on where payloads cannot.
  void post(size_t size_bytes, std::function<void()> task, bool is_required = true);
  // Throws where what was posted has failed.
  void check() const;

 private:
  struct Waiting {
    bool has_room(size_t more_bytes, bool is_required) const;
    void add(size_t more_bytes);
    void remove(size_t done_bytes);

    std::mutex mutex;  // for all of these
    size_t size_bytes = 0;   // of those that are not large
    bool has_large = false;
    std::string failure;
  };

  BackgroundThread& background_;
  bool is_direct_;
  std::shared_ptr<Waiting> waiting_ = std::make_shared<Waiting>();
};

}  // namespace prismdbg
