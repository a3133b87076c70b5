"""One rank trains a GPT for a few steps. Prints, as JSON, what torch's allocator says of its memory at the end, and
where the memory trace stands then, if `prismdbg record --memory` writes one.

torchrun --nproc-per-node 1 tests/gpu/programs/traced_gpt.py --device cuda

With --trace-after N --cache DIR it traces itself from step N on, without a file: blocks that are older are then known
from the allocator. DIR is prismdbg's cache, in which the native recorder was built.
"""

import argparse
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.append(str(Path(__file__).resolve().parents[3] / "examples" / "gpt"))
from model import GPT, GPTConfig

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--steps", type=int, default=5)
parser.add_argument("--width", type=int, default=256)
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--backend", default="gloo")
parser.add_argument("--empty-cache", action="store_true", help="after each step, so that segments go and come")
parser.add_argument("--other-stream", action="store_true", help="use a block on a second stream, which delays its free")
parser.add_argument("--trace-after", type=int, default=-1, metavar="N")
parser.add_argument("--cache", type=Path)
args = parser.parse_args()
on_gpu = args.device.startswith("cuda")

dist.init_process_group(args.backend)
torch.manual_seed(3)
config = GPTConfig(width=args.width, layers=args.layers, heads=8, context=128)
model = GPT(config).to(args.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def use_on_another_stream() -> None:
    """The allocator gives the block to nobody before that stream is through with it."""
    block = torch.ones(1 << 20, device=args.device)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        block.mul_(2)
    block.record_stream(stream)


def trace_from_here() -> None:
    from prismdbg.rank.tracing import tracer

    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    tracer.arm(None, cache_dir=args.cache)


for step in range(args.steps):
    if step == args.trace_after:
        trace_from_here()
    tokens = torch.randint(config.vocab, (args.batch, config.context + 1), device=args.device)
    loss = torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    mean = loss.detach() if args.backend == "nccl" else loss.detach().cpu()
    dist.all_reduce(mean)
    if on_gpu and args.other_stream:
        use_on_another_stream()
    if on_gpu and args.empty_cache:
        torch.cuda.empty_cache()

if on_gpu:
    torch.cuda.synchronize()
told = torch.cuda.memory_stats() if on_gpu else {}
tracer = sys.modules.get("prismdbg.rank.tracing.tracer")
traced = tracer.stats() if tracer is not None else {}
report = {
    "device": "cuda:0" if on_gpu else "cpu",
    "loss": loss.item(),
    "torch": {
        "requested_bytes": told.get("requested_bytes.all.current"),
        "requested_peak_bytes": told.get("requested_bytes.all.peak"),
        "reserved_bytes": told.get("reserved_bytes.all.current"),
        "reserved_peak_bytes": told.get("reserved_bytes.all.peak"),
    },
    "records": traced.get("records"),
    "untraced": traced.get("untraced"),
    "tracer": traced.get("devices", {}),
}
print(json.dumps(report), flush=True)
dist.destroy_process_group()
