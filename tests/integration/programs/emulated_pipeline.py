"""Three steps of a pipeline of one stage a rank, 1F1B, with the shapes found out by the stages themselves."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

WIDTH, MICROBATCHES = 64, 8

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
module = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
stage = PipelineStage(module, rank, world, torch.device("cpu"))
schedule = Schedule1F1B(stage, n_microbatches=MICROBATCHES, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
batch = torch.randn(4 * MICROBATCHES, WIDTH)
for _ in range(3):
    if stage.is_first:
        schedule.step(batch)
    elif stage.is_last:
        schedule.step(target=batch, losses=[])
    else:
        schedule.step()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
dist.destroy_process_group()
