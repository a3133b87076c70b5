"""Rank 0 reports to wandb what training scripts report, sets the mode itself, and sends all ranks the run's id, name
and folder."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
import wandb
from torch.nn.parallel import DistributedDataParallel

os.environ["WANDB_MODE"] = "offline"
dist.init_process_group("gloo")
is_first = dist.get_rank() == 0
torch.manual_seed(5)
model = DistributedDataParallel(torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
told = [None]
if is_first:
    wandb.login(key=os.environ["WANDB_API_KEY"])
    run = wandb.init(project="mine", name="first", config={"lr": 0.1}, settings=wandb.Settings(mode="offline"))
    wandb.define_metric("loss", summary="min")
    wandb.watch(model, log="all", log_freq=1)
    wandb.config.update({"batch": 8})
    assert wandb.config.lr == run.config["lr"] == 0.1 and wandb.run is run
    told = [f"{run.id} {run.name} {run.project} {run.dir}"]
dist.broadcast_object_list(told, src=0)
for step in range(4):
    loss = model(torch.ones(8)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if is_first:
        picture = wandb.Image(torch.zeros(3, 4, 4))
        wandb.log({"loss": loss.item(), "picture": picture, "table": wandb.Table(columns=["a"], data=[[step]])})
if is_first:
    torch.save(model.state_dict(), Path(run.dir, "model.pt"))
    artifact = wandb.Artifact("model", type="model")
    artifact.add_file(str(Path(run.dir, "model.pt")))
    run.log_artifact(artifact)
    run.summary["best"] = loss.item()
    wandb.finish()
dist.destroy_process_group()
