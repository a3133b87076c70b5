"""Two ranks train a GPT with dropout under DDP, on one device. Prints, per rank, a checksum of the parameters, and the
time of each step as JSON.

torchrun --nproc-per-node 2 tests/gpu/programs/gpt_steps.py --device cuda
"""

import argparse
import hashlib
import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path += [str(Path(__file__).resolve().parents[3] / "examples" / part) for part in ("gpt", "vendored")]
from model import GPT, GPTConfig
from prismdbg_hooks import restore_point

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--width", type=int, default=512)
parser.add_argument("--layers", type=int, default=8)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--nan-at", type=int, default=-1)
parser.add_argument("--backend", default="gloo")
args = parser.parse_args()

torch.use_deterministic_algorithms(True)
device = torch.device(args.device, 0) if args.device == "cuda" else torch.device(args.device)
dist.init_process_group(args.backend)
rank = dist.get_rank()
torch.manual_seed(3)
config = GPTConfig(width=args.width, layers=args.layers, heads=8, context=128)
model = DistributedDataParallel(GPT(config).to(device))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
torch.manual_seed(4 + rank)
start = restore_point(model=model, optimizer=optimizer) or 0

times = []
for step in range(start, args.steps):
    began = time.perf_counter()
    tokens = torch.randint(config.vocab, (args.batch, config.context + 1), device=device)
    loss = torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    if step == args.nan_at and rank == 1:
        loss = loss * float("nan")
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    mean.item()
    times.append(time.perf_counter() - began)

digest = hashlib.sha256()
for parameter in model.parameters():
    digest.update(parameter.detach().cpu().numpy().tobytes())
peak = torch.cuda.max_memory_allocated() if args.device == "cuda" else 0
print(json.dumps({"rank": rank, "checksum": digest.hexdigest()[:16], "peak_bytes": peak, "step_s": times}), flush=True)
dist.destroy_process_group()
