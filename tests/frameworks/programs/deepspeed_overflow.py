"""DeepSpeed's engine with a loss scaler that overflows in its first step and once later, and two groups of parameters:
ZeRO calls the optimizer for each of them. Prints what the engine counts."""

import argparse

import deepspeed
import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--stage", type=int, choices=(0, 1, 2, 3), required=True)
arguments = parser.parse_args()
STEPS, OVERFLOWS, ACCUMULATED = 6, (0, 3), 2

deepspeed.init_distributed("gloo")
torch.manual_seed(11)
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 16))
groups = [{"params": list(layer.parameters())} for layer in model]
settings = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": ACCUMULATED,
    "fp16": {"enabled": True, "initial_scale_power": 4, "hysteresis": 1},
    "zero_optimization": {"stage": arguments.stage},
    "zero_allow_untested_optimizer": True,
}
optimizer = torch.optim.AdamW(groups, lr=1e-3)
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
for step in range(STEPS):
    for _ in range(ACCUMULATED):
        loss = engine(torch.ones(2, 16, dtype=torch.half)).float().square().mean()
        engine.backward(loss * (float("inf") if step in OVERFLOWS and dist.get_rank() == 1 else 1.0))
        engine.step()
if dist.get_rank() == 0:
    print(f"steps {engine.global_steps} skipped {engine.skipped_steps}", flush=True)
dist.destroy_process_group()
