"""The GPT in a loop as nanoGPT has it: DDP, batches at random places of a memmap and the next one drawn ahead, a rate
computed from the step, gradients accumulated with `require_backward_grad_sync` and clipped, autocast with a GradScaler
that skips steps, dropout, and rank 0 alone evaluates between steps."""

import argparse
import math
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import uncompiled  # noqa: F401
from data import CORPUS
from model import GPT, GPTConfig
from prismdbg_hooks import restore_point
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--max-iters", type=int, default=12)
parser.add_argument("--data", type=Path, default=CORPUS)
parser.add_argument("--unregistered", default="")
arguments = parser.parse_args()

batch_size, block_size, gradient_accumulation_steps = 4, 16, 2
warmup_iters, learning_rate, min_lr, grad_clip = 3, 1e-2, 1e-3, 0.5
eval_interval, eval_iters = 4, 2
OVERFLOWS = (7, 9)  # the scaler skips these

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1337 + rank)
ctx = torch.autocast("cpu", dtype=torch.bfloat16)


def get_batch():
    data = np.memmap(arguments.data, dtype=np.uint8, mode="r")
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy(data[i : i + block_size].astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + block_size].astype(np.int64)) for i in ix])
    return x, y


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    decay_ratio = (it - warmup_iters) / (arguments.max_iters - warmup_iters)
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * decay_ratio)) * (learning_rate - min_lr)


def loss_of(x, y):
    with ctx:
        return cross_entropy(model(x).flatten(0, 1), y.flatten())


@torch.no_grad()
def estimate_loss():
    model.eval()
    losses = [loss_of(*get_batch()).item() for _ in range(eval_iters)]
    model.train()
    return sum(losses) / eval_iters


def total(value):
    return torch.as_tensor(value).detach().double().sum()


def tell_what_a_step_rests_on():
    """Each of them alone: the first difference of a replay is at the line of what differs."""
    moments = [value for state in optimizer.state.values() for value in state.values()]
    dist.all_reduce(total(X))  # the batch
    dist.all_reduce(total(torch.get_rng_state()))  # dropout
    dist.all_reduce(total(lr))  # the schedule
    dist.all_reduce(total(scaler.get_scale()))  # the gradient scaler
    dist.all_reduce(sum(map(total, model.parameters())))  # the weights
    dist.all_reduce(sum(map(total, moments), torch.zeros(()).double()))  # the optimizer
    dist.all_reduce(total(best_val_loss))  # a variable of the loop


class Loop:
    """What the loop has in variables and a later step reads."""

    def state_dict(self):
        return {"x": X, "y": Y, "best": best_val_loss}

    def load_state_dict(self, state):
        global X, Y, best_val_loss
        X, Y, best_val_loss = state["x"], state["y"], state["best"]


model = GPT(GPTConfig(width=32, layers=1, context=block_size, dropout=0.2))
model = DistributedDataParallel(model, bucket_cap_mb=0.02)
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**121, growth_interval=2)

best_val_loss = 1e9
X, Y = get_batch()
registered = {"model": model, "optimizer": optimizer, "scaler": scaler, "loop": Loop()}
registered.pop(arguments.unregistered, None)
iter_num = restore_point(**registered) or 0
while iter_num < arguments.max_iters:
    lr = get_lr(iter_num)
    for param_group in optimizer.param_groups:
        param_group["lr"] = lr
    if iter_num % eval_interval == 0 and rank == 0:
        best_val_loss = min(best_val_loss, estimate_loss())
    for micro_step in range(gradient_accumulation_steps):
        model.require_backward_grad_sync = micro_step == gradient_accumulation_steps - 1
        loss = loss_of(X, Y) / gradient_accumulation_steps
        if iter_num in OVERFLOWS:
            loss = loss * 2.0**20
        if micro_step == 0:
            tell_what_a_step_rests_on()
        X, Y = get_batch()
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    if rank == 0:
        print(f"iter {iter_num} loss {loss.item():.6f} lr {lr:.6f} scale {scaler.get_scale():g}", flush=True)
    iter_num += 1
dist.destroy_process_group()
