"""A signal's handler raises while a group is described: the program gets the exception, and the group is described."""

from __future__ import annotations

import signal
import threading

import rank
import torch
import torch.distributed as dist
from rank import native


class Preempted(Exception):
    pass


def handler(_number: int, _frame: object) -> None:
    raise Preempted("now")


def describe(group: object) -> None:
    if left:
        signal.raise_signal(left.pop())
    rank.describe(group)


left: list[int] = []
signal.signal(signal.SIGUSR1, handler)
rank.record()
native.on_group(describe)
rank.join()
for number, kind in ((signal.SIGUSR1, Preempted), (signal.SIGINT, KeyboardInterrupt)):
    group, left[:] = dist.new_group([0]), [number]
    x = torch.ones(1)
    try:
        dist.all_reduce(x, group=group)
        for _ in range(1000):
            pass
        raise AssertionError("nothing was raised")
    except kind as error:
        assert error.args == (("now",) if kind is Preempted else ())
    dist.all_reduce(x, group=group)


class Late(Exception):
    pass


def describe_late(group: object) -> None:
    if late:
        raise late.pop()
    rank.describe(group)


def other_thread() -> None:
    try:
        dist.all_reduce(torch.ones(1), group=groups[0])
        for _ in range(1000):
            pass
    except Late:
        told.append(True)


late, told, groups = [Late()], [], [dist.new_group([0])]
native.on_group(describe_late)
thread = threading.Thread(target=other_thread)
thread.start()
thread.join()
assert told == [True]
assert native.stats()["lost"] == ""
rank.report({"issued": native.stats()["events"]})
dist.destroy_process_group()
