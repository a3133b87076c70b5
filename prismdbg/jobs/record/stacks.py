"""Takes the Python stacks of a job's ranks from outside: a rank that sleeps, or holds Python's lock, is seen, too.

py-spy reads them out of the process. Where the system does not let it, the rank's own agent is asked, which answers
only while the lock is free. Each rank has a bound of its own; none of it ends or holds the job.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from prismdbg.capsule.stacks import (
    FROM_AGENT,
    FROM_OUTSIDE,
    HangPlace,
    JobStacks,
    RankStacks,
    ThreadStack,
    main_first,
    thread_of,
)
from prismdbg.errors import FacilityError, PrismError
from prismdbg.jobs.capture.capture import socket_of
from prismdbg.jobs.record.steady_clock import by_log, wall_ns
from prismdbg.jobs.storage.kept_stacks import keep_stacks
from prismdbg.jobs.storage.ranks_alive import stopped_pid
from prismdbg.jobs.storage.run_folder import RunFolder, attempt_of, rank_of, read_json
from prismdbg.protocol.client import AgentClient

BOUND_S = 10.0
AT_ONCE = 8
_OURS = "prismdbg-"  # names of the threads that the recorder has in a rank
STOPPED = "its process is stopped, by a signal such as SIGSTOP or by a debugger"
_SAID = 200  # characters of what py-spy says


def take_stacks(
    run: RunFolder, folders: Sequence[Path], hang: HangPlace | None = None, offset_ns: int | None = None
) -> JobStacks:
    """Of these log folders' ranks, all of one attempt; kept in RUN/stacks. offset_ns: of their logs, if it is known."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(stacks_of, folders))
    taken = JobStacks(
        taken_wall_ns=by_log(wall_ns(), offset_ns),
        attempt=max((attempt_of(folder.name) for folder in folders), default=0),
        ranks={stacks.rank: stacks for stacks in found},
        hang=hang,
    )
    keep_stacks(run, taken)
    return taken


def stacks_of(folder: Path) -> RankStacks:
    """Of one rank. Never raises for what can go wrong: `problem` says it."""
    rank = rank_of(folder)
    if _is_stopped(folder):
        return RankStacks(rank=rank, taken_by=FROM_OUTSIDE, problem=STOPPED)
    try:
        return RankStacks(rank=rank, taken_by=FROM_OUTSIDE, threads=_from_outside(folder))
    except (PrismError, KeyError) as error:  # rank.json may be half of one
        problem = f"not taken from outside: {error}"
    try:
        return RankStacks(rank=rank, taken_by=FROM_AGENT, threads=_from_agent(folder), problem=problem)
    except (PrismError, KeyError) as error:
        return RankStacks(rank=rank, taken_by=FROM_AGENT, problem=f"{problem}; its agent: {error}")


def _is_stopped(folder: Path) -> bool:
    try:
        return stopped_pid(read_json(folder / "rank.json")) is not None
    except (PrismError, ValueError):
        return False


def _from_outside(folder: Path) -> tuple[ThreadStack, ...]:
    tool = Path(sysconfig.get_path("scripts")) / "py-spy"
    found = str(tool) if tool.is_file() else shutil.which("py-spy")
    if found is None:
        raise FacilityError("py-spy is not installed", hint="pip install py-spy")
    socket_of(folder)  # a rank that is out of reach, or gone, is named as such
    command = [found, "dump", "--json", "--pid", str(read_json(folder / "rank.json")["pid"])]
    try:
        done = subprocess.run(command, capture_output=True, timeout=BOUND_S, stdin=subprocess.DEVNULL, check=False)
    except subprocess.TimeoutExpired:
        raise FacilityError(f"py-spy did not answer within {BOUND_S:g} s") from None
    except OSError as error:
        raise FacilityError(f"py-spy cannot be started: {error.strerror}") from error
    if done.returncode:
        raise FacilityError(_why_not(done.stderr.decode(errors="replace")))
    return _parsed(done.stdout)


def _parsed(output: bytes) -> tuple[ThreadStack, ...]:
    try:
        threads = [thread_of(t["thread_name"], t["owns_gil"], t["frames"]) for t in json.loads(output)]
    except (ValueError, KeyError, TypeError) as error:
        raise FacilityError(f"the output of py-spy cannot be read: {error!r}"[:_SAID]) from error
    return main_first([thread for thread in threads if not thread.name.startswith(_OURS)])


def _why_not(said: str) -> str:
    if "ermission" in said or "Operation not permitted" in said:
        return "this user is not permitted to trace the rank (CAP_SYS_PTRACE, or kernel.yama.ptrace_scope=0, allows it)"
    lines = [line for line in said.splitlines() if line.strip()]
    return f"py-spy failed: {lines[0][:_SAID] if lines else 'it gave no reason'}"


def _from_agent(folder: Path) -> tuple[ThreadStack, ...]:
    with AgentClient(socket_of(folder)) as agent:
        told = agent.ask("stacks", timeout_s=BOUND_S / 2)["threads"]
    return main_first([thread_of(thread["name"], False, thread["frames"]) for thread in told])
