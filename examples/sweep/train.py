"""Trains a GPT with a batch of fixed size, whatever the mesh, the microbatch and the recomputation:

torchrun --nproc-per-node 2 examples/sweep/train.py --tp 2 --microbatch 2 --recompute full

Pipeline stages (1F1B) are over "pp", FSDP2 over "dp", tensor parallelism over "tp". dp is what pp and tp leave.
"""

import argparse
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.checkpoint import checkpoint

sys.path.append(str(Path(__file__).resolve().parents[1] / "gpt"))
from data import CORPUS
from model import Block, GPTConfig

PLAN = {
    "attention.query": ColwiseParallel(),
    "attention.key": ColwiseParallel(),
    "attention.value": ColwiseParallel(),
    "attention.out": RowwiseParallel(),
    "mlp.up": ColwiseParallel(),
    "mlp.down": RowwiseParallel(),
}


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pp", type=int, default=1, help="pipeline stages")
    parser.add_argument("--tp", type=int, default=1, help="ranks that share one stage's layers")
    parser.add_argument("--batch", type=int, default=16, help="excerpts per step, of all replicas together")
    parser.add_argument("--microbatch", type=int, default=1, help="excerpts that go through the model at once")
    parser.add_argument("--recompute", choices=["none", "full"], default="none", help="keep no activations of a layer")
    parser.add_argument("--layers", type=int, default=4, help="total number of layers")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


class Stage(nn.Module):
    """Some consecutive layers; the first stage embeds the bytes, the last one makes logits of them."""

    def __init__(self, config: GPTConfig, number: int, count: int, recompute: bool) -> None:
        super().__init__()
        self.recompute = recompute
        if number == 0:
            self.tokens = nn.Embedding(config.vocab, config.width)
            self.positions = nn.Parameter(torch.randn(config.context, config.width) * 0.02)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers // count))
        if number == count - 1:
            self.norm = nn.LayerNorm(config.width)
            self.head = nn.Linear(config.width, config.vocab, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if hasattr(self, "tokens"):
            x = self.tokens(x) + self.positions[: x.shape[1]]
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return self.head(self.norm(x)) if hasattr(self, "head") else x


def shard(stage: Stage, mesh: DeviceMesh) -> None:
    """In place: the linear layers of each block over "tp", then every parameter over "dp"."""
    for block in stage.blocks:
        if mesh["tp"].size() > 1:
            parallelize_module(block, mesh["tp"], PLAN)
        if mesh["dp"].size() > 1:
            fully_shard(block, mesh=mesh["dp"], reshard_after_forward=False)
    if mesh["dp"].size() > 1:
        fully_shard(stage, mesh=mesh["dp"], reshard_after_forward=False)


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Excerpts:
    """Random ones, [batch, context] bytes and the same shifted by one: others for each seed and step."""

    def __init__(self, context: int, batch: int, seed: int) -> None:
        self.text = torch.frombuffer(bytearray(CORPUS.read_bytes()), dtype=torch.uint8)
        self.context, self.batch = context, batch
        self.generator = torch.Generator().manual_seed(seed)

    def next(self) -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(self.text) - self.context, (self.batch, 1), generator=self.generator)
        window = self.text[starts + torch.arange(self.context + 1)].long()
        return window[:, :-1], window[:, 1:]


def main() -> None:
    args = parse_args()
    dist.init_process_group("gloo")
    replicas = dist.get_world_size() // (args.pp * args.tp)
    mesh = init_device_mesh("cpu", (args.pp, replicas, args.tp), mesh_dim_names=("pp", "dp", "tp"))
    number, replica = mesh["pp"].get_local_rank(), mesh["dp"].get_local_rank()

    config = GPTConfig(width=args.width, layers=args.layers, heads=8, dropout=0.0)
    torch.manual_seed(args.seed + number)
    module = Stage(config, number, args.pp, args.recompute == "full")
    shard(module, mesh)
    stage = PipelineStage(module, number, args.pp, torch.device("cpu"), group=mesh["pp"].get_group())
    own = args.batch // replicas
    schedule = Schedule1F1B(stage, own // args.microbatch, loss_fn=loss_of)
    optimizer = torch.optim.AdamW(module.parameters(), lr=args.lr, foreach=False)

    batches = Excerpts(config.context, own, args.seed + 1 + replica)
    for _ in range(args.steps):
        inputs, targets = batches.next()
        losses: list[Tensor] = []
        ends = {"target": targets, "losses": losses} if stage.is_last else {}
        schedule.step(*([inputs] if stage.is_first else []), **ends)
        optimizer.step()
        optimizer.zero_grad()

    if stage.is_last and replica == mesh["tp"].get_local_rank() == 0:
        print(f"loss {torch.stack([loss.detach() for loss in losses]).mean().item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
