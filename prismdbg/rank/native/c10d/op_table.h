// The operators of c10d that carry every collective: prismdbg/model/ops.py in C++. Where their arguments stand is said at
// installation, for this torch (prismdbg/rank/c10d/schemas.py).
#pragma once

#include <array>
#include <cstdint>

namespace prismdbg {

enum class Returns : uint8_t { pair, work, nothing };

// Who sends and who receives, seen from the root.
enum class Flow : uint8_t { all_to_all, from_root, scatter, to_root };

struct OpInfo {
  const char* name;
  Returns returns;
  int8_t group = -1;  // so is what is not placed
  int8_t outputs = -1;
  int8_t inputs = -1;
  int8_t reduce_op = -1;
  int8_t root = -1;
  int8_t tag = -1;
  int8_t async_op = -1;
  int8_t timeout = -1;
  Flow flow = Flow::all_to_all;
  bool is_p2p = false;

  bool sends(bool is_root) const { return is_root || (flow != Flow::from_root && flow != Flow::scatter); }
  bool receives(bool is_root) const {
    return flow == Flow::from_root ? !is_root : (flow == Flow::to_root ? is_root : true);
  }
};

inline std::array<OpInfo, 21> ops = {{
    {.name = "allreduce_", .returns = Returns::pair},
    {.name = "allreduce_coalesced_", .returns = Returns::work},
    {.name = "allgather_", .returns = Returns::pair},
    {.name = "_allgather_base_", .returns = Returns::pair},
    {.name = "allgather_coalesced_", .returns = Returns::work},
    {.name = "allgather_into_tensor_coalesced_", .returns = Returns::work},
    {.name = "reduce_scatter_", .returns = Returns::pair},
    {.name = "_reduce_scatter_base_", .returns = Returns::pair},
    {.name = "reduce_scatter_tensor_coalesced_", .returns = Returns::work},
    {.name = "broadcast_", .returns = Returns::pair, .flow = Flow::from_root},
    {.name = "reduce_", .returns = Returns::work, .flow = Flow::to_root},
    {.name = "gather_", .returns = Returns::work, .flow = Flow::to_root},
    {.name = "gather_into_tensor_", .returns = Returns::pair, .flow = Flow::to_root},
    {.name = "scatter_", .returns = Returns::pair, .flow = Flow::scatter},
    {.name = "alltoall_", .returns = Returns::pair},
    {.name = "alltoall_base_", .returns = Returns::work},
    {.name = "send", .returns = Returns::work, .is_p2p = true},
    {.name = "recv_", .returns = Returns::work, .is_p2p = true},
    {.name = "recv_any_source_", .returns = Returns::work, .is_p2p = true},
    {.name = "barrier", .returns = Returns::work},
    {.name = "monitored_barrier_", .returns = Returns::nothing},
}};

}  // namespace prismdbg
