"""Two ranks add up numbers, and wait in each step for what stands in for a GPU (tests/fake_driver).

torchrun --nproc-per-node 2 on_gpu.py LIBRARY STEPS [ERROR]: the driver answers ERROR when a rank is to be saved.
"""

import ctypes
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401

driver = ctypes.CDLL(sys.argv[1])
device = Path("/dev/nvidia0").open()  # noqa: SIM115
if len(sys.argv) > 3:
    ctypes.c_int.in_dll(driver, "fake_refuses").value = int(sys.argv[3])
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(int(sys.argv[2])):
    driver.fake_launch()
    loss = model(torch.full((8, 64), float(step % 7))).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
print(f"rank {dist.get_rank()} ended with {float(loss):.6f}", flush=True)
dist.destroy_process_group()
