"""One rank that computes for about `--compute-ms` in each step and sends `--bytes`, beside it, before it, or before it
to the other rank, which sends as much, in one batch.

Prints JSON: seconds that a computation takes, and each step. With `--device cpu` the device is a fake
(tests/fake_device.py), and calls count as NCCL's on it: that tries all but torch.cuda.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("mode", choices=["overlap", "serial", "exchange"])
parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
parser.add_argument("--steps", type=int, default=8)
parser.add_argument("--compute-ms", type=float, default=30.0)
parser.add_argument("--bytes", type=int, default=1 << 20)
args = parser.parse_args()

if args.device == "cuda":
    torch.cuda.set_device(0)
    matrix = torch.randn(4096, 4096, device="cuda")
    finish = torch.cuda.synchronize

    def multiply(times: int) -> float:
        finish()
        began = time.perf_counter()
        for _ in range(times):
            matrix @ matrix
        finish()
        return time.perf_counter() - began

    multiply(50)
    count = max(round(args.compute_ms / 1e3 / (multiply(50) / 50)), 1)

    def compute() -> None:
        for _ in range(count):
            matrix @ matrix
else:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from fake_device import FakeDevice

    from prismdbg.rank.c10d import kernels
    from prismdbg.rank.c10d.call import Call

    fake = FakeDevice()
    Call.device = property(lambda _: "cuda:0")
    waits = kernels._interceptor._clock.devices
    if waits is not None:  # None where the rank is not paced
        waits._make, waits._is_capturing = lambda _: fake, lambda: False
    finish = fake.finish

    def compute() -> None:
        fake.compute(round(args.compute_ms * 1e6))


dist.init_process_group("nccl")
weight = torch.nn.Parameter(torch.ones(1, device=args.device))
weight.grad = torch.zeros_like(weight)
optimizer = torch.optim.SGD([weight], lr=0.1)
sent, got = (torch.ones(args.bytes // 4, device=args.device) for _ in range(2))
alone = []
for _ in range(5):
    began = time.perf_counter()
    compute()
    finish()
    alone.append(time.perf_counter() - began)
steps = []
for _ in range(args.steps):
    began = time.perf_counter()
    if args.mode == "overlap":
        work = dist.all_reduce(sent, async_op=True)
        compute()
        work.wait()
    elif args.mode == "exchange":
        pair = [dist.P2POp(dist.isend, sent, 1 - dist.get_rank()), dist.P2POp(dist.irecv, got, 1 - dist.get_rank())]
        for work in dist.batch_isend_irecv(pair):
            work.wait()
        compute()
    else:
        dist.all_reduce(sent)
        compute()
    issued_s = time.perf_counter() - began
    finish()
    steps.append({"issued_s": issued_s, "step_s": time.perf_counter() - began})
    optimizer.step()
print(json.dumps({"compute_s": sorted(alone)[2], "steps": steps}), flush=True)
dist.destroy_process_group()
