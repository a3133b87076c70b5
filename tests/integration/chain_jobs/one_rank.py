"""One rank after the other that trains until it is ended, each an attempt of the one before: `one_rank.py FOLDER`.
Attempt N begins when FOLDER/N is there. All are forked from a process that has imported torch."""

import itertools
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401

for attempt in itertools.count():
    while not Path(sys.argv[1], str(attempt)).exists():
        time.sleep(0.01)
    if not (pid := os.fork()):
        break
    os.waitpid(pid, 0)
os.environ["TORCHELASTIC_RESTART_COUNT"] = str(attempt)
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/store{attempt}", rank=0, world_size=1)
torch.manual_seed(0)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    time.sleep(0.01)  # whoever reads the log from its beginning comes to its end
