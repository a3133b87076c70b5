"""Ranks of which the last stays away from a collective, or calls another one; each dumps torch's Flight Recorder then.

`dumped.py FOLDER skip|other|fine|served`; TORCH_FR_BUFFER_SIZE must be set. `served`: without a fault, the dumps are
what torch's debug server of each rank answers, and beside them its stacks.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import urllib.request
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json, _WorkerServer


def main(folder: Path, what: str) -> None:
    dist.init_process_group("gloo")
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    pair = dist.new_group([0, 1], group_desc="pair")
    values = torch.ones(4)
    for _ in range(3):
        dist.all_reduce(values)
        if rank < 2:
            dist.all_reduce(values, group=pair)
    if what in ("fine", "served"):
        wait_for_torch()
        (serve if what == "served" else dump)(folder, rank)
        return
    work = None
    if rank != last:
        work = dist.all_reduce(values, async_op=True)
    elif what == "other":
        work = dist.reduce(values, 0, async_op=True)
    threading.Event().wait(1.0)  # nobody can tell that a call does not come; the others' has long been issued
    dump(folder, rank)
    (folder / f"done.{rank}").touch()
    while len(list(folder.glob("done.*"))) <= last:
        threading.Event().wait(0.05)
    del work
    sys.stdout.flush()
    os._exit(0)  # gloo would wait for the call that never comes


def wait_for_torch() -> None:
    """A thread of torch's notes that a call is complete a moment after it."""
    for _ in range(600):
        if all(entry["retired"] for entry in json.loads(_dump_fr_trace_json())["entries"]):
            return
        threading.Event().wait(0.05)
    raise TimeoutError("torch has not noted the end of all calls within 30 s")


def dump(folder: Path, rank: int) -> None:
    text = _dump_fr_trace_json()
    (folder / f"fr_trace_{rank}").write_bytes(_dump_fr_trace())
    (folder / f"fr_trace_{rank}.json").write_text(text if isinstance(text, str) else text.decode())


def serve(folder: Path, rank: int) -> None:
    server = _WorkerServer("127.0.0.1", 0)
    for handler, name in (("fr_trace_json", f"fr_trace_{rank}.json"), ("dump_traceback", f"traceback.{rank}.txt")):
        request = urllib.request.Request(f"http://127.0.0.1:{server.port}/handler/{handler}", method="POST")
        with urllib.request.urlopen(request, timeout=60) as answer:
            (folder / name).write_bytes(answer.read())
    server.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
