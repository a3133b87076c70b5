"""Two ranks that train a module of `fully_shard`, whose parameters are gathered already where a snapshot is due:
`gathered_parameters.py KIND`, which is `ahead` (before each forward pass), `evaluated` (before the restore point, by an
evaluation) or `marked` (where every other step is marked, by an evaluation)."""

import hashlib
import sys
from datetime import timedelta

import prismdbg_hooks as prismdbg
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

KIND = sys.argv[1]
STEPS = 8


def evaluate() -> None:
    """Outside of training the parameters of the outermost module stay gathered."""
    with torch.no_grad():
        model(torch.ones(2, 8))


dist.init_process_group("gloo", timeout=timedelta(seconds=30))
torch.manual_seed(0)
model = torch.nn.Linear(8, 8)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
if KIND == "evaluated":
    evaluate()
prismdbg.restore_point(model=model, optimizer=optimizer)
digest = hashlib.sha256()
for step in range(STEPS):
    if KIND == "marked":
        if step % 2 == 0:
            evaluate()
        prismdbg.step(step)
    if KIND == "ahead":
        model.unshard()
    loss = model(torch.ones(2, 8) * (step + dist.get_rank())).square().sum()
    loss.backward()
    shared = loss.detach().clone()
    dist.all_reduce(shared)
    digest.update(shared.numpy().tobytes())
    optimizer.step()
    optimizer.zero_grad()
print(f"result {dist.get_rank()} {digest.hexdigest()[:16]}\n", end="", flush=True)
dist.destroy_process_group()
