// Where a rank is: its moment, its next record, and the sequence numbers that give collectives their identity.
// prismdbg/rank/c10d/counters.py counts the same. Not thread safe: the recorder holds its lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "recorder/issued_call.h"

namespace prismdbg {

struct Position {
  uint32_t step = 0;
  uint32_t collective = 0;  // within the step, the first is 1
  uint64_t record_id = 0;
  uint64_t sequence = 0;
};

// `next` is the number the next collective of this kind will have; `op` is empty for all but point-to-point.
struct Sequence {
  std::string group;
  std::string op;
  int32_t peer;
  int32_t tag;
  uint64_t next;
};

// In place of a tag: what those that are forgotten count from when they come again.
constexpr int32_t kForgotten = INT32_MIN;

// The numbers of messages to or from one rank, by tag. A program may have another tag for each message: of those it used
// longest ago it is forgotten how often. One that comes again counts from the highest number of these, so no two messages
// have the same identity. Both ends of a message forget alike, if they use the tags in the same order.
class Tags {
 public:
  static constexpr size_t kMost = 1024;

  Tags() = default;
  Tags(const Tags&) = delete;
  Tags& operator=(const Tags&) = delete;

  uint64_t issue(int32_t tag);
  // Tag and next number, the one that was used last at the end.
  const std::list<std::pair<int32_t, uint64_t>>& by_use() const { return by_use_; }
  uint64_t forgotten() const { return forgotten_; }

 private:
  uint64_t forgotten_ = 0;
  std::list<std::pair<int32_t, uint64_t>> by_use_;
  std::unordered_map<int32_t, std::list<std::pair<int32_t, uint64_t>>::iterator> places_;
};

class Counters {
 public:
  void begin_step(uint32_t step);
  Position issue(const IssuedCall& issue);

  uint32_t step() const { return step_; }
  uint64_t packed_moment() const { return uint64_t{step_} << 32 | collective_; }
  uint32_t collective() const { return collective_; }
  uint64_t issued() const { return issued_; }
  std::vector<Sequence> sequences() const;

 private:
  struct Group {
    uint64_t next = 0;
    std::map<std::pair<std::string, int32_t>, Tags> p2p;  // by operator and peer
  };

  uint32_t step_ = 0;
  uint32_t collective_ = 0;
  uint64_t issued_ = 0;
  std::unordered_map<std::string, Group> groups_;
};

}  // namespace prismdbg
