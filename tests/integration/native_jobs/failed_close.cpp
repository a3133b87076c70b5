// A payload is written for longer than whoever closes the log waits for it: what comes after stands elsewhere. FOLDER.
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "recorder/payload_store.h"

// Nobody waits here: a second of the store's takes ten milliseconds.
extern "C" int clock_gettime(clockid_t clock, timespec* out) noexcept {
  const auto code = syscall(SYS_clock_gettime, clock, out);
  out->tv_sec = out->tv_sec * 100 + out->tv_nsec / 10'000'000;
  out->tv_nsec = out->tv_nsec * 100 % 1'000'000'000;
  return static_cast<int>(code);
}

namespace {

using namespace prismdbg;

std::unique_ptr<PayloadSlot> begin(PayloadStore& store, std::vector<uint8_t>& bytes) {
  auto slot = store.reserve(bytes.size(), 0);
  slot->add(bytes.data(), bytes.size());
  return slot;
}

void end(std::unique_ptr<PayloadSlot> slot) {
  slot->flush();
  std::printf("%u %lu\n", slot->segment(), static_cast<unsigned long>(slot->offset()));
}

}  // namespace

int main(int, char** arguments) {
  auto& background = *new BackgroundThread();  // its thread runs until the process ends
  WriteQueue queue(background, /*is_direct=*/true);
  PayloadStore store(queue, arguments[1], 1 << 20);
  std::vector<uint8_t> payloads[] = {std::vector<uint8_t>(100, 'a'), std::vector<uint8_t>(50, 'b'), std::vector<uint8_t>(60, 'c')};
  auto first = begin(store, payloads[0]);
  try {
    store.close();
    return 1;
  } catch (const std::system_error&) {
  }
  end(begin(store, payloads[1]));
  end(std::move(first));
  store.reopen();
  end(begin(store, payloads[2]));
  store.tidy();
}
