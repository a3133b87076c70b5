// The numbered event segments of a log. The next one is made ahead by the housekeeper under the name `events.next`,
// so that taking it costs a collective neither an allocation on disk nor a page fault.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "housekeeper.h"
#include "segment.h"

namespace prismdbg {

class SegmentSupply {
 public:
  SegmentSupply(Housekeeper& housekeeper, std::string folder, size_t segment_bytes);

  // The very first segment; there must be none yet.
  std::shared_ptr<Segment> first() const;
  // Segment `index` again, after it was unmapped.
  std::shared_ptr<Segment> again(uint32_t index) const;
  // Has the next segment made in the background.
  void prepare();
  // A new segment `index`: the one made ahead, else one made now. Throws std::system_error.
  std::shared_ptr<Segment> take(uint32_t index);
  // Unmaps and removes what was made ahead.
  void discard();

 private:
  struct Prepared {
    std::mutex mutex;
    std::condition_variable done;
    bool pending = false;
    std::shared_ptr<Segment> segment;
  };

  std::string path(uint32_t index) const;
  std::string next_path() const { return folder_ + "/events.next"; }

  Housekeeper& housekeeper_;
  std::string folder_;
  size_t segment_bytes_;
  std::shared_ptr<Prepared> prepared_ = std::make_shared<Prepared>();
};

// `<folder>/<kind>.00012.seg`
std::string segment_path(const std::string& folder, const char* kind, uint32_t index);

}  // namespace prismdbg
