// Tells the tracer when operators begin and end, on every thread, through torch's own record functions.
#pragma once

namespace prismdbg {

void watch_operators();
void unwatch_operators();

}  // namespace prismdbg
