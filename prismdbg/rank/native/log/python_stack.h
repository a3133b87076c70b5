// The Python stack of the calling thread as a number in the log. A stack seen before costs a walk over its frames
// and a look-up; only a new one is resolved to names, under Python's lock.
#pragma once

#include <atomic>
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

// The first argument of the innermost frame that runs `code`; null where there is none, or where the layout of frames
// is not known. A borrowed PyObject: the frame keeps it.
struct FirstArgument {
  const void* code = nullptr;
  const void* value = nullptr;
};

class PythonStacks {
 public:
  // Writes a new stack, innermost frame first, and gives its number.
  using Writer = std::function<uint32_t(const std::vector<NamedFrame>&)>;

  // The number of the calling thread's stack; 0 where it runs no Python.
  uint32_t current(const Writer& write, FirstArgument* argument = nullptr);
  // Whether a stack can be had only with Python's lock.
  static bool needs_lock();
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

  // What the calling thread found last: most often the stack is still the same.
  struct Latest {
    std::vector<Place> places;
    uint64_t generation = 0;
    uint32_t number = 0;
  };

  static void walk(std::vector<Place>& places, FirstArgument* argument);
  static std::vector<NamedFrame> resolve(const std::vector<Place>& places);
  uint32_t number_of(const std::vector<Place>& places, const Writer& write);
  uint32_t add(const std::vector<Place>& places, const Writer& write);

  static uint64_t new_generation();

  std::atomic<uint64_t> generation_{new_generation()};  // of the numbers: no two recorders, no two logs have the same
  std::mutex mutex_;
  std::unordered_map<std::vector<Place>, uint32_t, PlacesHash> numbers_;
};

}  // namespace prismdbg
