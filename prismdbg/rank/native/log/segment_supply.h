// The numbered event segments of a log. The next one is made ahead by the background thread under the name
// `events.next`, so that taking it costs a collective no allocation on disk. Where the log is written by the background
// thread, all of them are made there.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "log/segment.h"
#include "log/write_queue.h"

namespace prismdbg {

class SegmentSupply {
 public:
  SegmentSupply(WriteQueue& queue, std::string folder, size_t segment_bytes);

  std::string path(uint32_t index) const;
  // Null from each of these: the segment is made, and the background thread opens it for each write.
  // The very first segment; there must be none yet.
  std::shared_ptr<Segment> first() const;
  // Segment `index` again, after it was closed.
  std::shared_ptr<Segment> again(uint32_t index) const;
  // Has the next segment made in the background.
  void prepare();
  // A new segment `index`: the one made ahead, else one made now. Throws std::system_error.
  std::shared_ptr<Segment> take(uint32_t index);
  // Removes what was made ahead.
  void discard();

 private:
  struct Prepared {
    std::mutex mutex;
    std::condition_variable done;
    bool pending = false;
    bool unwanted = false;  // whoever waited for it has gone on
    std::shared_ptr<Segment> segment;
  };

  // What was made ahead, if anything; waits for it within a bound.
  std::shared_ptr<Segment> prepared_one();
  std::string next_path() const { return folder_ + "/events.next"; }

  WriteQueue& queue_;
  std::string folder_;
  size_t segment_bytes_;
  std::shared_ptr<Prepared> prepared_ = std::make_shared<Prepared>();
};

// `<folder>/<kind>.00012.seg`
std::string segment_path(const std::string& folder, const char* kind, uint32_t index);

}  // namespace prismdbg
