"""A job of a few steps that in a replay turns against its host: replaces its output, its agent's socket and its trace.

Arguments: a file of the host, and what to put in place (link, fifo or folder).
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist


def turn(secret: str, kind: str) -> None:
    config = json.loads(Path(os.environ["PRISMDBG_CONFIG"]).read_text())
    if config["mode"] != "replay":
        return
    own = Path(config["socket_dir"])
    for name in ("output", "replay.sock", "trace", "replay.pid"):
        path = own / name
        if path.is_dir():
            path.rename(own / "away")
        else:
            path.unlink(missing_ok=True)
        if kind == "link":
            path.symlink_to(secret)
        elif kind == "fifo":
            os.mkfifo(path)
        else:
            path.mkdir()


def main() -> None:
    dist.init_process_group("gloo")
    print("begins", flush=True)
    total = torch.ones(4)
    for step in range(4):
        dist.all_reduce(total)
        if step == 1:
            turn(*sys.argv[1:])
    print("ended", flush=True)
    dist.destroy_process_group()


main()
