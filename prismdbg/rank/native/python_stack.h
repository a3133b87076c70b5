// The Python stack of the calling thread as a number in the log. A stack seen before costs a walk over its frames
// and a look-up; only a new one is resolved to names, under Python's lock.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace prismdbg {

struct NamedFrame {
  std::string file;
  uint32_t line;
  std::string function;
};

class PythonStacks {
 public:
  // Writes a new stack, innermost frame first, and gives its number.
  using Writer = std::function<uint32_t(const std::vector<NamedFrame>&)>;

  // The number of the calling thread's stack; 0 where it runs no Python.
  uint32_t current(const Writer& write);
  // Numbers begin anew with a new log.
  void forget();

 private:
  struct Place {
    const void* code;  // PyCodeObject, owned once it is a key of numbers_
    int64_t instruction;
    bool operator==(const Place& other) const { return code == other.code && instruction == other.instruction; }
  };
  struct PlacesHash {
    size_t operator()(const std::vector<Place>& places) const;
  };

  static void walk(std::vector<Place>& places);
  static std::vector<NamedFrame> resolve(const std::vector<Place>& places);
  uint32_t add(const std::vector<Place>& places, const Writer& write);

  std::mutex mutex_;
  std::unordered_map<std::vector<Place>, uint32_t, PlacesHash> numbers_;
};

}  // namespace prismdbg
