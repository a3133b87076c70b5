"""A loop with DeepSpeed's engine: ZeRO-2 or ZeRO-3, gradient accumulation, clipping, a schedule, random rows."""

import argparse
import sys

import deepspeed
import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--stage", type=int, choices=(2, 3), default=2)
parser.add_argument("--steps", type=int, default=12)
arguments = parser.parse_args()
ACCUMULATED = 2

deepspeed.init_distributed("gloo")
rank = dist.get_rank()
torch.manual_seed(11)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 16))
settings = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": ACCUMULATED,
    "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 4}},
    "zero_optimization": {"stage": arguments.stage},
    "zero_allow_untested_optimizer": True,
}
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)
generator = torch.Generator().manual_seed(5 + rank)
torch.manual_seed(20 + rank)

while engine.global_steps < arguments.steps:
    for _ in range(ACCUMULATED):
        batch = torch.randn(2, 16, generator=generator)
        loss = (engine(batch) - batch.flip(1)).square().mean()
        engine.backward(loss)
        engine.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    if rank == 0:
        print(f"step {engine.global_steps} loss {mean.item():.6f}", flush=True)

parts = model.parameters() if arguments.stage == 2 else [p.ds_tensor for p in model.parameters()]
print(f"rank {rank} parameters {sum(p.double().sum().item() for p in parts):.12f}", file=sys.stderr)
dist.destroy_process_group()
