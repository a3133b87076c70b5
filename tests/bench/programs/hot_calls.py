"""One process, torch's fake backend: what a kernel adds to an `all_reduce` of which nothing is sent or waited for.

Prints JSON: for each mode the microseconds per call of each block, modes in turn. The best case for caches.
"""

import argparse
import json
import sys
import tempfile
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from prismdbg.jobs.injection import cache_dir
from prismdbg.rank.c10d import kernels, schemas
from prismdbg.rank.native import build as native_build
from prismdbg.rank.recording.python_recorder import PythonRecorder

SEGMENT_BYTES, PAYLOAD_SEGMENT_BYTES, WINDOW_BYTES = 4 << 20, 64 << 20, 1 << 30
PARTS = ("stacks", "fingerprints", "nan_check")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=("native", "python"), default="native")
    parser.add_argument("--bytes", type=int, default=1024, help="of the tensor")
    parser.add_argument("--calls", type=int, default=2000, help="of a block")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--cpu", action="store_true", help="count the thread's processor time: for a busy machine")
    parser.add_argument("--without", choices=PARTS, action="append", default=[])
    parser.add_argument("--sketches", action="store_true")
    return parser.parse_args()


def at_depth(depth: int, call: Any) -> float:
    """Calls from below `depth` Python frames, as a training loop does."""
    return float(at_depth(depth - 1, call) if depth else call())


def make_recorder(kind: str) -> Any:
    if kind == "python":
        return PythonRecorder()
    module = native_build.load(cache_dir())
    if module is None:
        sys.exit("the native recorder is not built: `prismdbg setup`")
    return module


class Switch:
    """Bare is: no kernel of ours."""

    def __init__(self, folder: str, args: argparse.Namespace) -> None:
        self.kind = args.kind
        self.recorder = make_recorder(self.kind)
        if self.kind == "native":
            self.positions = schemas.read().positions()
            self.recorder.install(self.positions)
        self.recorder.open(
            folder,
            0,
            SEGMENT_BYTES,
            PAYLOAD_SEGMENT_BYTES,
            *(part not in args.without for part in PARTS),
            args.sketches,
            True,
        )
        self.to("bare")

    def to(self, mode: str) -> None:
        if self.kind == "python":
            if mode != "bare":
                self.recorder.mode(int(mode != "off"))
            elif kernels._library is not None:
                kernels._library._destroy()
                kernels._library = None
        elif mode == "bare":
            self.recorder.uninstall()
        else:
            self.recorder.install(self.positions)
            self.recorder.mode(int(mode != "off"))
        self.recorder.window(mode == "window", 1, WINDOW_BYTES)


def main() -> None:
    args = parse_args()
    torch.set_num_threads(1)
    store: Any = FakeStore  # torch has no types for it
    dist.init_process_group("fake", store=store(), rank=0, world_size=2)
    tensor = torch.ones(args.bytes // 4)
    clock = time.thread_time if args.cpu else time.perf_counter
    taken: dict[str, list[float]] = {mode: [] for mode in ("bare", "off", "recorded", "window")}

    def block() -> float:
        began = clock()
        for _ in range(args.calls):
            dist.all_reduce(tensor)
        return (clock() - began) / int(args.calls) * 1e6

    with tempfile.TemporaryDirectory(prefix="prismdbg-bench-") as folder:
        switch = Switch(folder, args)
        step = 0
        for number in range(args.rounds + 1):
            for mode in taken:
                switch.to(mode)
                block_us = at_depth(10, block)
                step += 2  # past the window of one step
                switch.recorder.begin_step(step, 0)
                if number:
                    taken[mode].append(block_us)
        lost = switch.recorder.stats()["lost"]
        assert not lost, lost
        print(json.dumps(taken))
        throughput(switch.recorder, args)
        switch.to("off")
        switch.recorder.close_log()
    dist.destroy_process_group()


def throughput(recorder: Any, args: argparse.Namespace) -> None:
    """GB/s of the fingerprint with the NaN check, beside a plain copy."""
    data, target = torch.rand(25 << 18), torch.empty(25 << 18)
    speeds: dict[str, list[float]] = {"copy": [], "fingerprint": []}
    for _ in range(args.rounds if args.kind == "native" else 0):
        actions: dict[str, Any] = {
            "copy": lambda: target.copy_(data),
            "fingerprint": lambda: recorder.fingerprint([data]),
        }
        for name, action in actions.items():
            began = time.perf_counter()
            action()
            speeds[name].append(data.nbytes / (time.perf_counter() - began) / 1e9)
    print(json.dumps(speeds))


if __name__ == "__main__":
    main()
