#include "tracer/trace_names.h"

#include "log/bytes_of.h"

namespace prismdbg {
namespace {

constexpr size_t kLongestTextBytes = 4096;

}  // namespace

size_t TraceNames::SiteHash::operator()(const Site& site) const {
  const uint64_t ops = (uint64_t{site.outer_op} << 32) | site.op;
  const uint64_t rest = (uint64_t{site.module} << 32) | site.stack;
  const uint64_t hash = (ops * 0x9E3779B97F4A7C15) ^ (rest * 0xBF58476D1CE4E5B9);
  return hash ^ (hash >> 29);
}

uint32_t TraceNames::text(std::string_view text) {
  text = text.substr(0, kLongestTextBytes);
  if (text.empty()) {
    return 0;
  }
  if (const auto known = text_numbers_.find(text); known != text_numbers_.end()) {
    return known->second;
  }
  const auto number = static_cast<uint32_t>(texts_.size());
  text_numbers_.emplace(texts_.emplace_back(text), number);
  write_text(number);
  return number;
}

uint32_t TraceNames::stack(const std::vector<NamedFrame>& frames) {
  const auto number = static_cast<uint32_t>(stacks_.size());
  stacks_.push_back(frames);
  write_stack(number);
  return number;
}

uint32_t TraceNames::site(const Site& site) {
  if (site == Site{}) {
    return 0;
  }
  const auto [entry, is_new] = site_numbers_.try_emplace(site, static_cast<uint32_t>(sites_.size()));
  if (is_new) {
    sites_.push_back(site);
    write_site(entry->second);
  }
  return entry->second;
}

void TraceNames::move_to(LogWriter* log) {
  log_ = log;
  for (uint32_t number = 1; number < texts_.size(); ++number) {
    write_text(number);
  }
  for (uint32_t number = 1; number < stacks_.size(); ++number) {
    write_stack(number);
  }
  for (uint32_t number = 1; number < sites_.size(); ++number) {
    write_site(number);
  }
}

void TraceNames::write_text(uint32_t number) const {
  if (log_ != nullptr) {
    const TextBody body{number, static_cast<uint32_t>(texts_[number].size())};
    log_->append(Kind::text, bytes_of(body), texts_[number]);
  }
}

void TraceNames::write_stack(uint32_t number) {
  if (log_ == nullptr) {
    return;
  }
  std::vector<FrameEntry> entries;
  for (const NamedFrame& frame : stacks_[number]) {
    entries.push_back({text(frame.file), frame.line, text(frame.function)});
  }
  const StackBody body{number, static_cast<uint32_t>(entries.size())};
  log_->append(Kind::stack, bytes_of(body), bytes_of(entries));
}

void TraceNames::write_site(uint32_t number) const {
  if (log_ != nullptr) {
    const Site& site = sites_[number];
    const SiteBody body{number, site.outer_op, site.op, site.module, site.stack, 0};
    log_->append(static_cast<Kind>(kSiteRecord), bytes_of(body));
  }
}

}  // namespace prismdbg
