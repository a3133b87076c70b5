"""`gpt_steps.py` with a processor for each rank and one thread: what else the rank starts is pinned with it."""

import os
import runpy
from pathlib import Path

rank = int(os.environ["LOCAL_RANK"])
os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank % len(os.sched_getaffinity(0))]})
runpy.run_path(str(Path(__file__).with_name("gpt_steps.py")), run_name="__main__")
