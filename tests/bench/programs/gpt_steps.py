"""Trains the example GPT under DDP and says how long each step took. Knows of prismdbg only if given a schedule.

A schedule, made from `--rounds` and `--seed` and so the same on all ranks, switches the recorder between steps:
every round holds one block of steps in each mode, in an order of its own.
"""

import argparse
import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from data import Excerpts, endless, loader  # type: ignore[import-not-found]
from model import GPT, SIZES  # type: ignore[import-not-found]
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

WINDOW_BYTES = 4 << 30
MODES = ("bare", "bare again", "off", "recorded", "window 1", "window 8")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SIZES, default="6m")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1 << 60)
    parser.add_argument("--out", type=Path, help="folder for <rank>.json, every step in it")
    parser.add_argument("--rounds", type=int, default=0, help="of blocks in all modes; needs the native recorder")
    parser.add_argument("--block", type=int, default=10, help="steps of a block")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--restore-point", action="store_true", help="register the state")
    parser.add_argument("--say", action="store_true", help="print the seconds of each step")
    return parser.parse_args()


def schedule(rounds: int, block: int, seed: int) -> list[str]:
    """The mode of each step."""
    draw = random.Random(seed)
    modes: list[str] = []
    for _ in range(rounds):
        order = list(MODES)
        draw.shuffle(order)
        modes += [mode for mode in order for _ in range(block + window_of(mode))]
    return modes


def window_of(mode: str) -> int:
    """Steps whose payloads are kept; a block begins with as many steps in which the window fills."""
    return int(mode.rpartition(" ")[2]) if mode.startswith("window") else 0


def switch() -> Callable[[str], None]:
    """Puts this rank's recorder into a mode; called between two steps, with nothing in flight."""
    from prismdbg.rank.c10d import schemas
    from prismdbg.rank.recording.steps import COUNTER

    positions = schemas.read().positions()
    recording = COUNTER._listeners[0].__self__  # type: ignore[attr-defined]
    recorder = recording.recorder
    assert recording.kind == "native", "only the native recorder can be taken out and put back"
    recording.ensure_open()
    installed = True

    def to(mode: str) -> None:
        nonlocal installed
        wanted = not mode.startswith("bare")
        if wanted != installed:
            if wanted:
                recorder.install(positions)
            else:
                recorder.uninstall()
            installed = wanted
        recorder.mode(0 if mode == "off" or not wanted else 1)
        steps = window_of(mode)
        recorder.window(steps > 0, max(steps, 1), WINDOW_BYTES)

    return to


def main() -> None:
    args = parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = GPT(SIZES[args.size])
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=2e-3)
    batches = endless(loader(Excerpts(model.config.context), args.batch, world, rank, 0))
    modes = schedule(args.rounds, args.block, args.seed)
    to = switch() if modes else None
    if args.restore_point:
        import prismdbg

        prismdbg.restore_point(model=ddp, optimizer=optimizer)
    taken: list[tuple[str, float, float]] = []

    for step in range(len(modes) or args.steps):
        mode = modes[step] if modes else ""
        if to is not None and (step == 0 or modes[step - 1] != mode):
            to(mode)
        began, used = time.perf_counter(), time.process_time()
        inputs, targets = next(batches)
        loss = functional.cross_entropy(ddp(inputs).flatten(0, 1), targets.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seconds = time.perf_counter() - began
        if args.out:
            taken.append((mode, seconds, time.process_time() - used))
        if args.say:
            os.write(1, f"rank {rank} step {step} seconds {seconds:.6f}\n".encode())  # one write: lines stay whole

    if args.out:
        (args.out / f"{rank}.json").write_text(json.dumps(taken))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
