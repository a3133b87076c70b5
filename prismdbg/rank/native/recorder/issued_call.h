// What a kernel knows of a collective when it is issued.
#pragma once

#include <cstdint>
#include <string_view>

#include "log/log_format.h"

namespace prismdbg {

struct IssuedCall {
  std::string_view op;
  std::string_view group;
  std::string_view device;
  bool is_p2p = false;
  bool is_async = false;
  int32_t root = kNoPeer;
  int32_t tag = 0;
  int32_t timeout_ms = -1;
  uint8_t reduce_op = kNoReduceOp;
  bool has_fingerprint = false;
  bool has_sketch = false;
  bool sent_nonfinite = false;
  uint64_t fingerprint = 0;
  uint32_t inputs = 0;
  uint32_t outputs = 0;
  std::string_view tensors;  // encoded entries of inputs, then outputs, then the sketch, if it has one
};

}  // namespace prismdbg
