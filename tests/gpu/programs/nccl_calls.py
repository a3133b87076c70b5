"""One rank over NCCL (a world of 1): what issuing an `all_reduce` costs the host, and whether it waits for the device.

Prints JSON: microseconds on the host per call while the device is idle, and while it is busy with a long kernel.
"""

import argparse
import json
import time

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--calls", type=int, default=200)
parser.add_argument("--bytes", type=int, nargs="+", default=[1024, 1 << 20, 64 << 20])
args = parser.parse_args()

torch.cuda.set_device(0)
dist.init_process_group("nccl")
found = {}
for size in args.bytes:
    tensor = torch.ones(size // 4, device="cuda")
    for _ in range(5):
        dist.all_reduce(tensor)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(args.calls):
        dist.all_reduce(tensor)
    issued = time.perf_counter() - began
    torch.cuda.synchronize()
    whole = time.perf_counter() - began
    torch.cuda._sleep(200_000_000)  # cycles: about 0.1 s
    began = time.perf_counter()
    dist.all_reduce(tensor)
    behind = time.perf_counter() - began
    torch.cuda.synchronize()
    found[size] = {
        "issue_us": issued / args.calls * 1e6,
        "done_us": whole / args.calls * 1e6,
        "behind_busy_device_us": behind * 1e6,
    }
print(json.dumps(found), flush=True)
dist.destroy_process_group()
