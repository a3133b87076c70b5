"""Two ranks; rank 1 goes away, rank 0 says what its collectives raise, and goes on: `peer_fails.py RENDEZVOUS`. With
`uncaught` behind it the first one ends it.

Without RANK in the environment it starts both, and ends as rank 0 does.
"""

import atexit
import os
import subprocess
import sys

if "RANK" not in os.environ:
    ranks = [
        subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "RANK": r, "WORLD_SIZE": "2"}) for r in "01"
    ]
    codes = [rank.wait() for rank in ranks]
    sys.exit(codes[0])

if "uncaught" not in sys.argv:
    atexit.register(os._exit, 0)  # after all other hooks: gloo may abort a process that lets go of failed works

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401
from torch.nn.parallel import DistributedDataParallel


def attempt(name, action):
    try:
        action()
    except Exception as error:
        say(f"{name} raised {type(error).__name__}: {error}")
    else:
        say(f"{name} was done")


def say(text):
    """Of rank 0 alone: the lines of two ranks may run into each other."""
    if dist.get_rank() == 0:
        print(text, flush=True)


dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=int(os.environ["RANK"]), world_size=2)
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 4))
x = torch.ones(4)
attempt("the first all_reduce", lambda: dist.all_reduce(x))
if dist.get_rank() == 1:
    dist.recv(torch.ones(1), 0)
    os._exit(3)
dist.send(torch.ones(1), 1)
if "uncaught" in sys.argv:
    dist.all_reduce(torch.ones(4))
attempt("an all_reduce", lambda: dist.all_reduce(torch.ones(4)))
attempt("a wait", dist.all_reduce(torch.ones(4), async_op=True).wait)
attempt("a receive", lambda: dist.recv(torch.ones(4), 1))
attempt("an average", lambda: dist.all_reduce(torch.ones(4), op=dist.ReduceOp.AVG))
attempt("a barrier", dist.barrier)
attempt("a backward", lambda: model(torch.ones(2, 4)).sum().backward())
say(f"result {x.sum().item()}")
