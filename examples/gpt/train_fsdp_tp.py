"""Trains the GPT on a 2D mesh, FSDP2 over "dp" and tensor parallelism over "tp", in bfloat16:

torchrun --nproc-per-node 4 examples/gpt/train_fsdp_tp.py --tp 2
"""

import argparse
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from data import Excerpts, endless, loader
from model import GPT, SIZES
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SIZES, default="1m", help="size of the model")
    parser.add_argument("--tp", type=int, default=2, help="ranks that share one replica's layers")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=16, help="excerpts per replica and step")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=0, help="processes that load data, per rank")
    parser.add_argument("--log-every", type=int, default=10, metavar="STEPS")
    return parser.parse_args()


def shard(model: GPT, mesh: DeviceMesh) -> None:
    """In place: the linear layers of each block over "tp", then every parameter over "dp"."""
    precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    plan = {
        "attention.query": ColwiseParallel(),
        "attention.key": ColwiseParallel(),
        "attention.value": ColwiseParallel(),
        "attention.out": RowwiseParallel(),
        "mlp.up": ColwiseParallel(),
        "mlp.down": RowwiseParallel(),
    }
    for block in model.blocks:
        parallelize_module(block, mesh["tp"], plan)
        fully_shard(block, mesh=mesh["dp"], mp_policy=precision)
    fully_shard(model, mesh=mesh["dp"], mp_policy=precision)


def clip(model: GPT, limit: float) -> None:
    """Clips what lies on the 2D mesh and what lies on "dp" alone each by its own norm: they do not mix."""
    for dims in (1, 2):
        torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.device_mesh.ndim == dims], limit)


def main() -> None:
    args = parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world // args.tp, args.tp), mesh_dim_names=("dp", "tp"))
    mesh._flatten("world")  # norms over both axes: one all_reduce instead of two
    replica, replicas = mesh["dp"].get_local_rank(), mesh["dp"].size()

    torch.manual_seed(args.seed)
    model = GPT(SIZES[args.size])
    shard(model, mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, foreach=False)
    torch.manual_seed(args.seed + 1 + replica)  # ranks of one replica must drop out the same values

    dataset = Excerpts(model.config.context)
    batches = endless(loader(dataset, args.batch, replicas, replica, args.seed, args.workers))
    began = time.perf_counter()
    for step in range(1, args.steps + 1):
        inputs, targets = next(batches)
        loss = F.cross_entropy(model(inputs).float().flatten(0, 1), targets.flatten())

        if step % args.log_every == 0 or step in (1, args.steps):
            mean = loss.detach().clone()
            dist.all_reduce(mean, group=mesh["dp"].get_group())
            if rank == 0:
                speed = step / (time.perf_counter() - began)
                print(f"step {step} loss {mean.item() / replicas:.4f} ({speed:.1f} steps/s)", flush=True)

        loss.backward()
        clip(model, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
