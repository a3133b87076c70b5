// Numbers for what a trace's records name: texts, Python stacks, and sites (operators, module and stack together).
// Kept in memory, too, so that the rank can say who made a block; written to a log of names where there is one.
// Not thread safe: the tracer holds its lock.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "log/log_writer.h"
#include "tracer/memory_format.h"

namespace prismdbg {

struct Site {
  uint32_t outer_op = 0;  // texts
  uint32_t op = 0;
  uint32_t module = 0;
  uint32_t stack = 0;
  bool operator==(const Site&) const = default;
};

class TraceNames {
 public:
  explicit TraceNames(LogWriter* log) : log_(log) {}

  // The empty text is 0, as is the unknown stack and the site of which nothing is known.
  uint32_t text(std::string_view text);
  uint32_t stack(const std::vector<NamedFrame>& frames);
  uint32_t site(const Site& site);

  // A number that a thread looked up just before names began anew is one of nothing.
  const std::string& text_of(uint32_t number) const { return texts_[number < texts_.size() ? number : 0]; }
  const Site& site_of(uint32_t number) const { return sites_[number < sites_.size() ? number : 0]; }
  const std::vector<NamedFrame>& stack_of(uint32_t number) const {
    return stacks_[number < stacks_.size() ? number : 0];
  }

  // Names are no longer written; the numbers go on.
  void drop_log() { log_ = nullptr; }
  // Names are written there from now on, those that are known already first.
  void move_to(LogWriter* log);

 private:
  struct SiteHash {
    size_t operator()(const Site& site) const;
  };

  void write_text(uint32_t number) const;
  void write_stack(uint32_t number);
  void write_site(uint32_t number) const;

  LogWriter* log_;
  std::deque<std::string> texts_{""};
  std::deque<std::vector<NamedFrame>> stacks_{{}};
  std::deque<Site> sites_{{}};
  std::unordered_map<std::string_view, uint32_t> text_numbers_;  // of texts_, which never move
  std::unordered_map<Site, uint32_t, SiteHash> site_numbers_;
};

}  // namespace prismdbg
