"""Two ranks that learn and register a state for which all of them must be asked: `gathered_state.py KIND`, which is
`loader` (it counts over all ranks), `handled` (it goes on alone where it cannot), or `fsdp1`, which an object of the
program's asks; `frozen` is the same in a program that keeps the garbage collector from its objects."""

import contextlib
import gc
import hashlib
import sys

import prismdbg_hooks as prismdbg
import torch
import torch.distributed as dist
import uncompiled  # noqa: F401
from torch.distributed.fsdp import FullyShardedDataParallel

KIND = sys.argv[1]


class State:
    """Of a sharded model, as a program may write it."""

    def state_dict(self) -> dict[str, object]:
        return dict(model.state_dict())

    def load_state_dict(self, state: dict[str, object]) -> None:
        model.load_state_dict(state)


class Loader:
    def __init__(self) -> None:
        self.taken = 0

    def state_dict(self) -> dict[str, int]:
        total = torch.tensor([self.taken])
        with contextlib.suppress(RuntimeError) if KIND == "handled" else contextlib.nullcontext():
            dist.all_reduce(total)
        return {"taken": int(total)}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.taken = state["taken"]


dist.init_process_group("gloo")
torch.manual_seed(0)
model, loader = torch.nn.Linear(8, 8), Loader()
IS_SHARDED = KIND in ("fsdp1", "frozen")
if IS_SHARDED:
    model = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
if KIND == "frozen":
    gc.freeze()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
prismdbg.restore_point(state=State() if IS_SHARDED else loader)
digest = hashlib.sha256()
for step in range(6):
    loader.taken += 1
    loss = model(torch.ones(2, 8) * (step + dist.get_rank())).square().sum()
    loss.backward()
    shared = loss.detach().clone()
    dist.all_reduce(shared)
    digest.update(shared.numpy().tobytes())
    optimizer.step()
    optimizer.zero_grad()
print(f"result {dist.get_rank()} {digest.hexdigest()[:16]}\n", end="", flush=True)
dist.destroy_process_group()
