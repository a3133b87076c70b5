"""Rank 0 reports to an mlflow server, sends all ranks the run's id, and draws from the generator from which mlflow
draws names."""

import random
import sys

import mlflow
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
is_first = dist.get_rank() == 0
told = [None]
if is_first:
    mlflow.set_tracking_uri(sys.argv[1])
    mlflow.set_experiment("mine")
    run = mlflow.start_run(tags={"kind": "small"})
    mlflow.log_params({"lr": 0.1})
    told = [run.info.run_id]
dist.broadcast_object_list(told, src=0)
for step in range(4):
    value = torch.tensor([random.random()])
    dist.all_reduce(value)
    if is_first:
        mlflow.log_metric("value", value.item(), step=step)
        mlflow.MlflowClient().set_tag(run.info.run_id, "step", str(step))
dist.destroy_process_group()  # and mlflow ends the run itself
