// Numbered segments of one kind in a log's folder. The next one is made ahead by the housekeeper under the name
// `<prefix>.next`, so that taking it costs a collective neither an allocation on disk nor a page fault.
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
  SegmentSupply(Housekeeper& housekeeper, std::string folder, std::string prefix);

  std::string path(uint32_t index) const;
  // Has a segment of that size made in the background.
  void prepare(size_t size_bytes);
  // Segment `index`: the prepared one where its size fits, else made now. Throws std::system_error.
  std::shared_ptr<Segment> take(uint32_t index, size_t size_bytes);
  // Unmaps and removes what was prepared and not taken.
  void discard();

 private:
  struct Prepared {
    std::mutex mutex;
    std::condition_variable done;
    bool pending = false;
    std::shared_ptr<Segment> segment;
  };

  std::string next_path() const { return folder_ + "/" + prefix_ + ".next"; }

  Housekeeper& housekeeper_;
  std::string folder_;
  std::string prefix_;
  std::shared_ptr<Prepared> prepared_ = std::make_shared<Prepared>();
};

}  // namespace prismdbg
