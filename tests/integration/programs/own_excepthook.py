"""One rank whose excepthook is not prismdbg's when it raises: `own_excepthook.py rich` (rich's), or `exits` (one that
ends the process at once, as those of MPI programs do)."""

import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
if sys.argv[1] == "rich":
    from rich.traceback import install

    install()
else:
    sys.excepthook = lambda *_: os._exit(7)
x = torch.ones(4)
for _ in range(3):
    dist.all_reduce(x)
raise ValueError("the loss is lost")
