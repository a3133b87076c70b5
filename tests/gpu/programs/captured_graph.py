"""One rank over NCCL captures an `all_reduce` in a CUDA graph and replays it: whoever records the call may not wait for
the device meanwhile, nor for events that the graph has captured. Prints the sum that must come out."""

import torch
import torch.distributed as dist

torch.cuda.set_device(0)
dist.init_process_group("nccl")
data = torch.ones(1 << 20, device="cuda")
for _ in range(3):
    dist.all_reduce(data)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    data += 1
    dist.all_reduce(data)
for _ in range(5):
    graph.replay()
torch.cuda.synchronize()
work = dist.all_reduce(data, async_op=True)
work.wait()
print(f"sum {data.sum().item():.0f}", flush=True)
dist.destroy_process_group()
