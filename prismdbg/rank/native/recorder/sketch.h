// Sketch of floating-point values, the same as prismdbg/rank/c10d/sketches.py computes with torch, up to rounding: from
// two of them a replay estimates how far apart their values are (prismdbg/model/sketch.py).
#pragma once

#include <vector>

#include "log/log_format.h"
#include "recorder/fingerprint.h"

namespace prismdbg {

// False where a span holds something else than floating-point numbers, or there is none.
bool can_be_sketched(const std::vector<Span>& spans);

SketchBody sketch(const std::vector<Span>& spans);

}  // namespace prismdbg
