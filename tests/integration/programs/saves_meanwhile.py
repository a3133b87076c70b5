"""Two ranks in DDP that save a training checkpoint twice while they train, in a thread of torch's. It writes until the
loop is three steps on, and the second time until its next step."""

import threading

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from prismdbg_hooks import restore_point
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.nn.parallel import DistributedDataParallel

STEPS = 12
BEGIN, END = (6, 10), (9, 11)
BOUND_S = 60


class Slow(StorageWriter):
    def __init__(self) -> None:
        super().__init__()
        self.begun, self.may_end = threading.Event(), threading.Event()

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> torch.futures.Future[list[WriteResult]]:
        self.begun.set()
        assert self.may_end.wait(BOUND_S)
        written: torch.futures.Future[list[WriteResult]] = torch.futures.Future()
        written.set_result([])
        return written

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None: ...
    def reset(self, checkpoint_id: object = None) -> None: ...
    def set_up_storage_writer(self, is_coordinator: bool, *_arguments: object, **_options: object) -> None: ...

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: object) -> bool:
        return True


def await_snapshot() -> None:
    """So that it is there however fast the steps are."""
    for thread in threading.enumerate():
        if thread.name == "prismdbg-state":
            thread.join(BOUND_S)


dist.init_process_group("gloo")
saves = dist.new_group(backend="gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
writer, save = None, None
for step in range(restore_point(model=model, optimizer=optimizer) or 0, STEPS):
    if step in END and writer is not None and save is not None:
        writer.may_end.set()
        save.result()
    loss = model(torch.ones(2, 8) * (step + dist.get_rank())).square().sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    await_snapshot()
    if step in BEGIN:
        writer = Slow()
        save = dcp.async_save({"model": model.state_dict()}, storage_writer=writer, process_group=saves)
        assert writer.begun.wait(BOUND_S)
dist.destroy_process_group()
