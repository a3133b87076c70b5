"""Runs a training script with torch.profiler over its first steps: `profiled.py STEPS SCRIPT ARGUMENTS`.

Each rank prints the most that was allocated at once, as the profiler counts.
"""

import runpy
import sys
from pathlib import Path

import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile

STEPS, SCRIPT = int(sys.argv[1]), sys.argv[2]
profiler = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
done = 0


def after_step(*_: object) -> None:
    global done
    done += 1
    if done == STEPS:
        profiler.stop()
        totals: list[int] = []
        walk(profiler.profiler.kineto_results.experimental_event_tree(), totals)
        print(f"rank {dist.get_rank()} profiled peak {max(totals)} in {len(totals)} events", flush=True)


def walk(events: list[object], totals: list[int]) -> None:
    for event in events:
        if type(event.extra_fields).__name__ == "_ExtraFields_Allocation":
            totals.append(event.extra_fields.total_allocated)
        walk(event.children, totals)


register_optimizer_step_post_hook(after_step)
sys.argv = sys.argv[2:]
sys.path.insert(0, str(Path(SCRIPT).parent))
profiler.start()
runpy.run_path(SCRIPT, run_name="__main__")
