#include "recorder/counters.h"

namespace prismdbg {

void Counters::begin_step(uint32_t step) {
  step_ = step;
  collective_ = 0;
}

Position Counters::issue(const IssuedCall& issue) {
  Group& group = groups_[std::string(issue.group)];
  uint64_t& next = issue.is_p2p ? group.p2p[{std::string(issue.op), issue.root, issue.tag}] : group.next;
  return {step_, ++collective_, issued_++, next++};
}

std::vector<Sequence> Counters::sequences() const {
  std::vector<Sequence> all;
  for (const auto& [name, group] : groups_) {
    all.push_back({name, "", kNoPeer, 0, group.next});
    for (const auto& [key, next] : group.p2p) {
      const auto& [op, peer, tag] = key;
      all.push_back({name, op, peer, tag, next});
    }
  }
  return all;
}

}  // namespace prismdbg
