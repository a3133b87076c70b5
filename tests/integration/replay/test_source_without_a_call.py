"""An edited program that leaves out a collective before DistributedDataParallel's first ones: peers are synthesized
while DDP orders its buckets by indices that one of them sends."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from chain import prismdbg, recording
from jobs import forked

pytestmark = [pytest.mark.job]

TRAIN = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
layers = torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
dist.all_reduce(torch.ones(4))
for step in range(4):
    model(torch.randn(16, 8)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
if dist.get_rank() == 1:
    raise ValueError("bad data")
dist.barrier()
"""


def test_a_call_left_out_before_ddp_orders_its_buckets_ends_no_process(tmp_path: Path) -> None:
    program = tmp_path / "program" / "train.py"
    program.parent.mkdir()
    program.write_text(TRAIN)
    with recording(forked(program, ranks=2), tmp_path, "--window", "all") as job:
        assert job.end().code == 1
        (capsule,) = job.capsules
    edited = tmp_path / "edited"
    edited.mkdir()
    (edited / "train.py").write_text(TRAIN.replace("dist.all_reduce(torch.ones(4))\n", ""))
    said = prismdbg("replay", capsule, "--runtime", "local", "--source", edited)
    assert said.code == 1 and "the exception occurs again: ValueError: bad data" in said.out, (said.out, said.err)
    left = re.search(r"; from (0\.\d+) on it sends other data", said.out)
    assert left is not None and f"what it sent up to {left[1]} depends only on recorded data" in said.out
