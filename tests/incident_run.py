"""A run folder as `record` leaves it after an incident, made of values: for tests of what tells of one."""

from __future__ import annotations

import json
from pathlib import Path

from tiny_log import TinyLog
from traces import TraceBuilder

from prismdbg.capsule.stacks import FROM_OUTSIDE, JobStacks, RankStacks, ThreadStack
from prismdbg.jobs.storage.kept_stacks import keep_stacks
from prismdbg.jobs.storage.run_folder import RunFolder, write_json
from prismdbg.model.frame import Frame
from prismdbg.runtime.environment import Environment

HOSTILE = "<script>alert(1)</script>\x00\x1b[31m\u202e]]>--><img src=x onerror=alert(2)>&amp;\"'\tend"


def write_run(folder: Path, said: str = "loss is not finite") -> RunFolder:
    """Two ranks of a job that `record` supervised: rank 1 raised, and a capsule of it was made."""
    run = RunFolder(folder)
    for rank in range(2):
        log = TinyLog(run.ranks / str(rank), rank)
        log.group("0", (0, 1), "default_pg")
        stack = log.stack(("/job/" + said[:40], 12, said[:60]))
        log.complete(log.issue(0, 1, stack=stack))
        log.step(1)
        log.issue(1, 1, stack=stack)
        if rank == 1:
            traceback = ["Traceback (most recent call last):\n", f"ValueError: {said}\n"]
            raised = {"type": "ValueError", "text": said, "traceback": traceback, "moment": "1.1"}
            log.note("incident", time_ns=1500, incident="exception", **raised)  # TinyLog: steps from 1000, calls 2000
        about = {"rank": rank, "world_size": 2, "pid": 1, "versions": {"torch": "2.13", "python": said[:30]}}
        about |= {"environment": {"WANDB_API_KEY": "0123456789abcdef"}, "orig_argv": ["python", "train.py"]}
        about |= {"argv": ["train.py"], "cwd": "/job", "hardware": {}}
        (run.ranks / str(rank) / "rank.json").write_text(json.dumps(about))
    trace = TraceBuilder(run.ranks / "0" / "memory", from_start=True)
    trace.allocate(4096, "aten::empty", frames=(Frame("/job/train.py", 5, said[:60]),))
    trace.write()
    write_json(run.environment, Environment(()).to_json())
    run.run_json.write_text(json.dumps({"command": ["python", "train.py", said], "started_wall_ns": 10**18}))
    incident = {"kind": "exception", "text": said, "ranks": [1], "moment": "1.1", "attempt": 0}
    supervisor = {
        "incidents": [incident],
        "capsules": ["1-exception"],
        "exit_code": 1,
        "ended_wall_ns": 10**18 + 10**10,
    }
    run.supervisor_json.write_text(json.dumps(supervisor))
    thread = ThreadStack(name=said[:50], holds_gil=True, frames=(Frame("/job/data.py", 3, said[:40]),))
    stacks = {0: RankStacks(rank=0, taken_by=FROM_OUTSIDE, threads=(thread,))}
    keep_stacks(run, JobStacks(taken_wall_ns=10**18, attempt=0, ranks=stacks))
    return run
