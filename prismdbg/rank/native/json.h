// The one JSON text the recorder writes by itself: the note that something was lost.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "clock.h"

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

inline std::string lost_note(std::string_view text, uint32_t step, uint32_t collective) {
  return R"({"kind": "lost", "time_ns": )" + std::to_string(monotonic_ns()) + R"(, "moment": ")" +
         std::to_string(step) + "." + std::to_string(collective) + R"(", "text": )" + json_string(text) + "}";
}

}  // namespace prismdbg
