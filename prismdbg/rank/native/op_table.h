// The operators of c10d that carry every collective, and where each argument stands: prismdbg/model/ops.py in C++.
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
  int8_t group;
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

// clang-format off
inline constexpr std::array<OpInfo, 20> kOps = {{
    {.name = "allreduce_", .returns = Returns::pair, .group = 1, .outputs = 0, .inputs = 0, .reduce_op = 2, .async_op = 4, .timeout = 5},
    {.name = "allreduce_coalesced_", .returns = Returns::work, .group = 1, .outputs = 0, .inputs = 0, .reduce_op = 2, .async_op = 3, .timeout = 4},
    {.name = "allgather_", .returns = Returns::pair, .group = 2, .outputs = 0, .inputs = 1, .async_op = 3, .timeout = 4},
    {.name = "_allgather_base_", .returns = Returns::pair, .group = 2, .outputs = 0, .inputs = 1, .async_op = 3, .timeout = 4},
    {.name = "allgather_coalesced_", .returns = Returns::work, .group = 2, .outputs = 0, .inputs = 1, .async_op = 3},
    {.name = "allgather_into_tensor_coalesced_", .returns = Returns::work, .group = 2, .outputs = 0, .inputs = 1, .async_op = 3},
    {.name = "reduce_scatter_", .returns = Returns::pair, .group = 2, .outputs = 0, .inputs = 1, .reduce_op = 3, .async_op = 4, .timeout = 5},
    {.name = "_reduce_scatter_base_", .returns = Returns::pair, .group = 2, .outputs = 0, .inputs = 1, .reduce_op = 3, .async_op = 4, .timeout = 5},
    {.name = "reduce_scatter_tensor_coalesced_", .returns = Returns::work, .group = 2, .outputs = 0, .inputs = 1, .reduce_op = 3, .async_op = 4, .timeout = 5},
    {.name = "broadcast_", .returns = Returns::pair, .group = 1, .outputs = 0, .inputs = 0, .root = 2, .async_op = 4, .timeout = 5, .flow = Flow::from_root},
    {.name = "reduce_", .returns = Returns::work, .group = 1, .outputs = 0, .inputs = 0, .reduce_op = 2, .root = 3, .async_op = 5, .timeout = 6, .flow = Flow::to_root},
    {.name = "gather_", .returns = Returns::work, .group = 2, .outputs = 0, .inputs = 1, .root = 3, .async_op = 4, .timeout = 5, .flow = Flow::to_root},
    {.name = "scatter_", .returns = Returns::pair, .group = 2, .outputs = 0, .inputs = 1, .root = 3, .async_op = 4, .timeout = 5, .flow = Flow::scatter},
    {.name = "alltoall_", .returns = Returns::pair, .group = 2, .outputs = 0, .inputs = 1, .async_op = 3, .timeout = 4},
    {.name = "alltoall_base_", .returns = Returns::work, .group = 2, .outputs = 0, .inputs = 1, .async_op = 5, .timeout = 6},
    {.name = "send", .returns = Returns::work, .group = 1, .inputs = 0, .root = 2, .tag = 3, .is_p2p = true},
    {.name = "recv_", .returns = Returns::work, .group = 1, .outputs = 0, .root = 2, .tag = 3, .is_p2p = true},
    {.name = "recv_any_source_", .returns = Returns::work, .group = 1, .outputs = 0, .tag = 2, .is_p2p = true},
    {.name = "barrier", .returns = Returns::work, .group = 1, .async_op = 3, .timeout = 4},
    {.name = "monitored_barrier_", .returns = Returns::nothing, .group = 1, .timeout = 3},
}};
// clang-format on

}  // namespace prismdbg
