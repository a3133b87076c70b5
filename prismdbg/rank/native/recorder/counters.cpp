#include "recorder/counters.h"

#include <algorithm>

namespace prismdbg {

void Counters::begin_step(uint32_t step) {
  step_ = step;
  collective_ = 0;
}

uint64_t Tags::issue(int32_t tag) {
  const auto found = places_.find(tag);
  if (found != places_.end()) {
    by_use_.splice(by_use_.end(), by_use_, found->second);
    return by_use_.back().second++;
  }
  if (by_use_.size() >= kMost) {
    forgotten_ = std::max(forgotten_, by_use_.front().second);
    places_.erase(by_use_.front().first);
    by_use_.pop_front();
  }
  places_[tag] = by_use_.insert(by_use_.end(), {tag, forgotten_ + 1});
  return forgotten_;
}

Position Counters::issue(const IssuedCall& issue) {
  Group& group = groups_[std::string(issue.group)];
  const uint64_t sequence =
      issue.is_p2p ? group.p2p[{std::string(issue.op), issue.root}].issue(issue.tag) : group.next++;
  return {step_, ++collective_, issued_++, sequence};
}

std::vector<Sequence> Counters::sequences() const {
  std::vector<Sequence> all;
  for (const auto& [name, group] : groups_) {
    all.push_back({name, "", kNoPeer, 0, group.next});
    for (const auto& [key, tags] : group.p2p) {
      if (tags.forgotten() > 0) {
        all.push_back({name, key.first, key.second, kForgotten, tags.forgotten()});
      }
      for (const auto& [tag, next] : tags.by_use()) {
        all.push_back({name, key.first, key.second, tag, next});
      }
    }
  }
  return all;
}

}  // namespace prismdbg
