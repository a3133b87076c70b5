"""One task of an array: `python -m prismdbg.sweep.workers.array_task`, with an order on standard input. It runs the
configuration of its number as a sweep of this machine does, and prints why it failed as the last line."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from prismdbg.sweep.folder import SweepFolder
from prismdbg.sweep.workers.order import Order
from prismdbg.sweep.workers.trial_group import TrialGroup

NUMBER = "SLURM_ARRAY_TASK_ID"


def run(order: Order, name: str) -> str:
    """Why it failed; empty where its run is complete."""
    request = order.request
    folder = SweepFolder(request.output, request)
    trial = next(folder.trial(one) for one in request.space.configurations() if one.name == name)
    return TrialGroup(folder, 1, request.bound_s, _say).run([trial]).get(name, "")


def main() -> int:
    signal.signal(signal.SIGTERM, _end)
    order = Order.from_json(sys.stdin.read())
    if why := run(order, order.names[int(os.environ[NUMBER])]):
        print(f"error: {why}", flush=True)
    return int(bool(why))


def _say(text: str) -> None:
    print(f"prismdbg: {text}", flush=True)


def _end(number: int, _frame: FrameType | None) -> None:
    """As an exception does: its processes are ended, too."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
