"""The GPT of examples/emulation/train.py on a GPU: pipeline stages over "pp", FSDP2 over "dp", DTensor over "tp".
Prints, as JSON, what its rank needed to begin and what each step took."""

import argparse
import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

sys.path += [str(Path(__file__).resolve().parents[3] / "examples" / part) for part in ("gpt", "emulation")]
from model import GPTConfig
from train import Stage, loss_of, shard

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--backend", default="nccl")
parser.add_argument("--pp", type=int, default=16)
parser.add_argument("--tp", type=int, default=8)
parser.add_argument("--width", type=int, default=4096)
parser.add_argument("--layers", type=int, default=32)
parser.add_argument("--heads", type=int, default=32)
parser.add_argument("--context", type=int, default=2048)
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--microbatches", type=int, default=32)
parser.add_argument("--steps", type=int, default=3)
args = parser.parse_args()

on_gpu = args.device == "cuda"
began = time.perf_counter()
if on_gpu:
    torch.cuda.set_device(0)
bound = torch.device("cuda", 0) if on_gpu and args.backend == "nccl" else None  # a mesh then splits its group
dist.init_process_group(args.backend, device_id=bound)
replicas = dist.get_world_size() // (args.pp * args.tp)
mesh = init_device_mesh(args.device, (args.pp, replicas, args.tp), mesh_dim_names=("pp", "dp", "tp"))
number = mesh["pp"].get_local_rank()
config = GPTConfig(width=args.width, layers=args.layers, heads=args.heads, context=args.context, dropout=0.0)
torch.manual_seed(number)
with torch.device(args.device):
    module = Stage(config, number, args.pp).to(torch.bfloat16 if on_gpu else torch.float32)
shard(module, mesh)
device = torch.device(args.device, 0) if on_gpu else torch.device(args.device)
stage = PipelineStage(module, number, args.pp, device, group=mesh["pp"].get_group())
schedule = Schedule1F1B(stage, args.microbatches, loss_fn=loss_of)
optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
if on_gpu:
    torch.cuda.synchronize()
init_s = time.perf_counter() - began
init_bytes = torch.cuda.max_memory_allocated() if on_gpu else 0

times = []
generator = torch.Generator(device).manual_seed(number)
for _ in range(args.steps):
    began = time.perf_counter()
    tokens = torch.randint(config.vocab, (args.batch, config.context + 1), generator=generator, device=device)
    losses: list[torch.Tensor] = []
    ends = {"target": tokens[:, 1:], "losses": losses} if stage.is_last else {}
    schedule.step(*([tokens[:, :-1]] if stage.is_first else []), **ends)
    optimizer.step()
    optimizer.zero_grad()
    if on_gpu:
        torch.cuda.synchronize()
    times.append(time.perf_counter() - began)
figures = {"rank": dist.get_rank(), "init_s": init_s, "init_bytes": init_bytes, "step_s": times}
if on_gpu:
    figures |= {"peak_bytes": torch.cuda.max_memory_allocated(), "reserved_bytes": torch.cuda.max_memory_reserved()}
print(json.dumps(figures), flush=True)
dist.destroy_process_group()
