"""A process of one rank that issues three collectives and ends in the way it is told."""

import os
import signal
import sys
import threading

import torch
import torch.distributed as dist


class Unfit(Exception):
    pass


def in_a_thread() -> None:
    def body() -> None:
        raise Unfit("in a thread")

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()


def by_exception() -> None:
    raise Unfit("this batch is unfit")


def out_of_memory() -> None:
    torch.empty(1 << 60)


ENDINGS = {
    "return": lambda: None,
    "sys.exit": lambda: sys.exit(5),
    "exception": by_exception,
    "out of memory": out_of_memory,
    "in a thread": in_a_thread,
    "os._exit": lambda: os._exit(3),
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "terminated": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "interrupted": lambda: signal.raise_signal(signal.SIGINT),
    "abort": os.abort,
}

dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=0, world_size=1)
x = torch.ones(4)
for _ in range(3):
    dist.all_reduce(x)
print(f"result {x.sum().item()}", flush=True)
ENDINGS[sys.argv[1]]()
dist.destroy_process_group()
