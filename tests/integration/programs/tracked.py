"""Rank 0 reports to a tracker, and sends all ranks what the tracker gave it, as training scripts do."""

import os

import torch
import torch.distributed as dist
import wandb

dist.init_process_group("gloo")
told = [None]
if dist.get_rank() == 0:
    wandb.login(key=os.environ["WANDB_API_KEY"])
    run = wandb.init(project="mine", mode="online")
    told = [f"{run.id} {run.name}"]
dist.broadcast_object_list(told, src=0)
value = torch.ones(4)
dist.all_reduce(value)
if dist.get_rank() == 0:
    wandb.log({"loss": value.sum().item()})
    wandb.finish()
dist.destroy_process_group()
