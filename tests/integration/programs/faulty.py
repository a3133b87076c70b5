"""A rank in which a function of prismdbg's fails: `faulty.py MODULE:FUNCTION[,...] RENDEZVOUS [raise]`. Of several
functions each fails in a rank of its own, whose standard error goes to RENDEZVOUS.RANK.err."""

import importlib
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401

calls = 0


def break_it(path: str, after: int) -> None:
    """After so many calls the function raises. Without prismdbg in this process there is nothing to break."""
    module_name, _, name = path.partition(":")
    if not path or "PRISMDBG_CONFIG" not in os.environ:
        return
    owner = importlib.import_module(module_name)
    *outer, last = name.split(".")
    for part in outer:
        owner = getattr(owner, part)
    original = getattr(owner, last)

    def broken(*arguments: object, **options: object) -> object:
        global calls
        calls += 1
        if calls > after:
            raise RuntimeError(f"broken on purpose: {path}")
        return original(*arguments, **options)

    setattr(owner, last, broken)


def main() -> None:
    functions, rank = sys.argv[1].split(","), int(os.environ.get("RANK", "0"))
    if len(functions) > 1:
        os.dup2(os.open(f"{sys.argv[2]}.{rank}.err", os.O_WRONLY | os.O_CREAT), 2)
    break_it(functions[rank], int(os.environ.get("BREAK_AFTER", "0")))
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=len(functions))
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        model(torch.randn(8, 4)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        output = torch.zeros(3)
        x, y = torch.ones(2), torch.ones(3 * len(functions))
        works = [dist.all_reduce(x, async_op=True), dist.reduce_scatter_tensor(output, y, async_op=True)]
        for work in works:
            work.wait()
        Path(__file__).read_text()
    print(f"result {model.module.weight.sum().item():.9g} {output.sum().item()}", flush=True)
    if sys.argv[3:] == ["raise"]:
        raise ValueError("the program's own")
    dist.barrier()
    dist.destroy_process_group()


main()
