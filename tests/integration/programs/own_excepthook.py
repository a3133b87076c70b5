"""One rank whose excepthook is not prismdbg's when it raises: `own_excepthook.py rich` (rich's), `exits` (one that
ends the process at once, as those of MPI programs do), or `thread` (one that does so for an exception of a thread)."""

import os
import sys
import threading

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
if sys.argv[1] == "rich":
    from rich.traceback import install

    install()
elif sys.argv[1] == "thread":
    threading.excepthook = lambda _: os._exit(7)
else:
    sys.excepthook = lambda *_: os._exit(7)
x = torch.ones(4)
for _ in range(3):
    dist.all_reduce(x)


def fail() -> None:
    raise ValueError("the loss is lost")


if sys.argv[1] == "thread":
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
fail()
