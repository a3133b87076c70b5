"""Runs a script and notes, without prismdbg, every collective that reaches the gloo backend: the tour's ground truth.

torchrun --nproc-per-node 4 witness.py FOLDER SCRIPT [ARGUMENT...]

Each work that the backend makes opens a profiler range of its own (`gloo:all_reduce`, `gloo:send`, ...) in C++, below
the dispatcher and whoever called it; most of them in one of gloo's threads, when it begins with the work. The
dispatcher opens one for each call (`c10d::allreduce_`), in the thread that calls. FOLDER/<rank>.json has the names of
all works, and those of the calls of each thread, in their order.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path

from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile


def main() -> None:
    folder, script = Path(sys.argv[1]), sys.argv[2]
    sys.argv = sys.argv[2:]
    sys.path[0] = str(Path(script).parent)
    every_thread = _ExperimentalConfig(profile_all_threads=True)
    with profile(activities=[ProfilerActivity.CPU], acc_events=True, experimental_config=every_thread) as profiler:
        runpy.run_path(script, run_name="__main__")
    events = sorted(profiler.events(), key=lambda e: e.time_range.start)
    works = [e.name.removeprefix("gloo:") for e in events if e.name.startswith("gloo:")]
    calls: dict[int, list[str]] = {}
    for event in events:
        if event.name.startswith("c10d::"):
            calls.setdefault(event.thread, []).append(event.name.removeprefix("c10d::"))
    (folder / f"{os.environ['RANK']}.json").write_text(json.dumps({"works": works, "calls": [*calls.values()]}))


if __name__ == "__main__":
    main()
