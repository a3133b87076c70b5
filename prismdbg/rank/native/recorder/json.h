// The JSON texts the recorder writes by itself: the notes that something was lost, and why a collective failed.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "log/clock.h"

namespace prismdbg {

inline std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", c);
      out += code;
    } else {
      out += c;
    }
  }
  return out + '"';
}

// How many bytes the UTF-8 character at `at` has; 0 where there is none, or only a part of one.
inline size_t utf8_length(std::string_view text, size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  const size_t length = first < 0x80 ? 1 : first >> 5 == 0x6 ? 2 : first >> 4 == 0xe ? 3 : first >> 3 == 0x1e ? 4 : 0;
  if (length == 0 || at + length > text.size()) {
    return 0;
  }
  for (size_t i = 1; i < length; ++i) {
    if (static_cast<unsigned char>(text[at + i]) >> 6 != 0x2) {
      return 0;
    }
  }
  return length;
}

// The beginning of a text of whatever bytes, as UTF-8.
inline std::string utf8(std::string_view text, size_t longest) {
  text = text.substr(0, longest);
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text, at);
    if (length == 0) {
      out += '?';
      at += 1;
    } else {
      out += text.substr(at, length);
      at += length;
    }
  }
  return out;
}

inline std::string failed_note(uint64_t record_id, std::string_view type, std::string_view text, bool at_issue) {
  constexpr size_t kLongest = 8192;
  return R"({"kind": "failed", "time_ns": )" + std::to_string(monotonic_ns()) + R"(, "record_id": )" +
         std::to_string(record_id) + R"(, "type": )" + json_string(type) + R"(, "text": )" +
         json_string(utf8(text, kLongest)) + R"(, "at_issue": )" + (at_issue ? "true" : "false") + "}";
}

inline std::string lost_note(std::string_view text, uint32_t step, uint32_t collective) {
  return R"({"kind": "lost", "time_ns": )" + std::to_string(monotonic_ns()) + R"(, "moment": ")" +
         std::to_string(step) + "." + std::to_string(collective) + R"(", "text": )" + json_string(text) + "}";
}

}  // namespace prismdbg
