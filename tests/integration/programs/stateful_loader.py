"""The GPT under DDP with torchdata's StatefulDataLoader, whose two workers are in the middle of an epoch of
shuffled excerpts. Gradients are accumulated with `no_sync`, two schedules follow each
other. What a step rests on is told by an all_reduce of its own before the gradients are."""

import argparse
from contextlib import nullcontext

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401
from data import Excerpts
from model import GPT, GPTConfig
from prismdbg_hooks import restore_point
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR
from torch.utils.data import DistributedSampler, Subset
from torchdata.stateful_dataloader import StatefulDataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=16)
parser.add_argument("--unregistered", default="")
parser.add_argument("--shared", action="store_true", help="both ranks share the excerpts of a DistributedSampler")
arguments = parser.parse_args()
ACCUMULATED, BATCHES_PER_EPOCH = 2, 14  # seven steps an epoch: it ends in steps 7 and 14


class Place:
    epoch = 0

    def state_dict(self):
        return {"epoch": self.epoch}

    def load_state_dict(self, state):
        self.epoch = state["epoch"]


def total(value):
    return torch.as_tensor(value).detach().double().sum()


def tell_what_a_step_rests_on(batch):
    """Each of them alone: the first difference of a replay is at the line of what differs."""
    moments = [value for state in optimizer.state.values() for value in state.values()]
    dist.all_reduce(total(batch))  # the batch
    dist.all_reduce(total(torch.get_rng_state()))  # dropout
    dist.all_reduce(total(optimizer.param_groups[0]["lr"]))  # the schedule
    dist.all_reduce(sum(map(total, model.parameters())))  # the weights
    dist.all_reduce(sum(map(total, moments), torch.zeros(()).double()))  # the optimizer
    dist.all_reduce(total(place.epoch))  # a count of the loop


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(5 + rank)
model = GPT(GPTConfig(width=32, layers=1, context=16))
rows = Subset(Excerpts(model.config.context), range(100 * rank, 100 * rank + 2 * BATCHES_PER_EPOCH))
sampler = None
if arguments.shared:
    rows = Subset(Excerpts(model.config.context), range(4 * BATCHES_PER_EPOCH))
    sampler = DistributedSampler(rows)
loader = StatefulDataLoader(rows, batch_size=2, shuffle=sampler is None, sampler=sampler, num_workers=2)
model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
parts = [LinearLR(optimizer, 0.1, total_iters=4), CosineAnnealingLR(optimizer, arguments.steps)]
schedule = SequentialLR(optimizer, parts, milestones=[4])
place = Place()

registered = {"model": model, "optimizer": optimizer, "schedule": schedule, "loader": loader, "place": place}
registered.pop(arguments.unregistered, None)
step = restore_point(**registered) or 0
while step < arguments.steps:
    if sampler is not None:
        sampler.set_epoch(place.epoch + 1)
    for number, (inputs, targets) in enumerate(loader, start=step * ACCUMULATED):
        ends_step = number % ACCUMULATED == ACCUMULATED - 1
        with nullcontext() if ends_step else model.no_sync():
            loss = cross_entropy(model(inputs).flatten(0, 1), targets.flatten()) / ACCUMULATED
            if not ends_step:
                tell_what_a_step_rests_on(inputs)
            loss.backward()
        if ends_step:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            if rank == 0:
                print(f"epoch {place.epoch} step {step} loss {loss.item():.6f}", flush=True)
            step += 1
            if step == arguments.steps:
                break
    place.epoch += 1
dist.destroy_process_group()
