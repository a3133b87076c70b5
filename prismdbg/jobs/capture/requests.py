"""A capture that only the supervisor of the rank's node can take: it is asked for, and answered, by files in RUN.

`RUN/requests/<id>/` appears as a whole with `request.json`. The supervisor of that node adds `progress.json`, then
`result.json`. Whoever may write into RUN may ask.
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, NotRequired, TypedDict

from prismdbg.capsule import checked_json
from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.checked_json import Count, Word, between
from prismdbg.capsule.partial import publish_copy
from prismdbg.errors import CapsuleError, FacilityError, PrismError, RankLost, UsageError, WaitTimeout
from prismdbg.jobs.storage.file_system_time import file_system_now
from prismdbg.jobs.storage.job_nodes import NodeFolder, NodeState, node_of, node_states
from prismdbg.jobs.storage.ranks_alive import is_in_a_container_here, pid_here
from prismdbg.jobs.storage.run_folder import RunFolder, read_json, write_json
from prismdbg.model.meanwhile import Tell, working

TAKEN_BOUND_S = 20.0  # until a supervisor that is there has begun
ASSEMBLY_BOUND_S = 600.0  # beyond what the request itself allows
PROGRESS_S = 1.0
POLL_S = 0.1
LOOK_S = 2.0
MAX_WAIT_S = 7 * 24 * 3600
ENDED_HINT = "run `prismdbg why RUN`, which reads its log, or capture a rank that is alive"
_COMING = ".coming."
_ERRORS: dict[int, type[PrismError]] = {
    kind.exit_code: kind for kind in (UsageError, CapsuleError, FacilityError, RankLost, WaitTimeout)
}

Say = Callable[[str], None]


class RequestJson(TypedDict):
    rank: Count
    window_steps: Count
    timeout_s: Annotated[int, between(0, MAX_WAIT_S)]
    origin: Word


class ResultJson(TypedDict):
    capsule: NotRequired[Word]
    error: NotRequired[Word]
    hint: NotRequired[Word]
    exit_code: NotRequired[Count]


class ProgressJson(TypedDict):
    lines: list[Word]


@dataclass(frozen=True, slots=True)
class RequestFolder:
    """One request. Names of its files are here alone."""

    path: Path

    @property
    def result(self) -> Path:
        return self.path / "result.json"

    def request(self) -> RequestJson:
        return checked_json.checked(RequestJson, read_json(self.path / "request.json"), str(self.path))

    def is_open(self) -> bool:
        """Nobody has begun to answer it."""
        return not (self.path / "progress.json").exists() and not self.result.exists()

    def untouched_s(self) -> float:
        """For how long nobody has made a file in it. Whoever waits for the answer does so every `LOOK_S`."""
        return file_system_now(self.path.parent) - self.path.stat().st_mtime

    def report(self, lines: list[str]) -> None:
        write_json(self.path / "progress.json", {"lines": lines})

    def progress(self) -> list[str]:
        read = read_json(self.path / "progress.json")
        return checked_json.checked(ProgressJson, read, str(self.path))["lines"] if read else []

    def answer(self, **result: Any) -> None:
        write_json(self.result, result)

    def answered(self) -> ResultJson:
        """Empty while there is no answer."""
        return checked_json.checked(ResultJson, read_json(self.result), str(self.result))


def requests_in(run: RunFolder) -> list[RequestFolder]:
    if not run.requests.is_dir():
        return []
    found = [path for path in run.requests.iterdir() if not path.name.startswith(".") and path.is_dir()]
    return [RequestFolder(path) for path in sorted(found)]


def is_elsewhere(folder: Path, here: str = "") -> bool:
    """Whether the rank of this log folder belongs to a supervisor, and cannot be captured from here, or its log is not
    in RUN so far. `here`: the node whose supervisor wants to know it."""
    node = node_of(folder)
    if node in ("", here):
        return False
    path = folder / "rank.json"
    described = read_json(path)
    return has_local_logs(folder) or is_in_a_container_here(described) or pid_here(described, path) is None


def has_local_logs(folder: Path) -> bool:
    """Whether the node of the rank keeps what it writes, and RUN gets it later. `folder`: in RUN."""
    return NodeFolder(folder.parent.parent / "nodes" / node_of(folder)).local is not None


def needs_no_supervisor(run: RunFolder, folder: Path) -> bool:
    """Whether RUN has all that a state snapshot of this rank needs, and nobody could be asked for it: the supervisor of
    its node has ended or is lost, and has left nothing on the node."""
    state = state_of(run, folder)
    return not state.local and (state.silent_s is None or state.is_lost)


def captured_elsewhere(run: RunFolder, folder: Path, output: Path, asked: RequestJson, say: Say) -> Capsule:
    """The capsule at `output`, made by the supervisor of the rank's node. `asked`: what it is to do. Raises what failed
    there as if it had failed here, and `RankLost` where that supervisor is gone."""
    state = state_of(run, folder)
    refuse_lost(folder, state)
    with _published(run, asked) as request:
        with working() as tell:
            made = _awaited(run, folder, request, asked, say, tell)
        if made.resolve().parent != run.capsules:
            raise CapsuleError(f"{request.result}: {made} is not in {run.capsules}", hint="ask for the capture again")
        _move(made, output)
    return Capsule.open(output)


@contextmanager
def _published(run: RunFolder, asked: RequestJson) -> Iterator[RequestFolder]:
    """It goes when it is answered, or nobody waits for it any more."""
    run.requests.mkdir(exist_ok=True, mode=0o700)
    name = secrets.token_hex(8)
    coming, path = run.requests / f"{_COMING}{name}", run.requests / name
    coming.mkdir(mode=0o700)
    try:
        write_json(coming / "request.json", dict(asked))
        coming.rename(path)
        yield RequestFolder(path)
    finally:
        for left in (coming, path):
            shutil.rmtree(left, ignore_errors=True)


def _awaited(run: RunFolder, folder: Path, request: RequestFolder, asked: RequestJson, say: Say, tell: Tell) -> Path:
    node, began, looked, told = node_of(folder), time.monotonic(), time.monotonic(), 0
    bound_s, said = asked["timeout_s"] + ASSEMBLY_BOUND_S, False
    while True:
        result, lines = request.answered(), request.progress()
        for line in lines[told:]:
            say(f"node {node}: {line}")
        told = max(told, len(lines))
        if "capsule" in result:
            return Path(result["capsule"])
        if result:
            kind = _ERRORS.get(result.get("exit_code", 0), PrismError)
            raise kind(f"node {node}: {result.get('error', 'the capture failed')}", hint=result.get("hint", ""))
        waited = time.monotonic() - began
        tell(f"waiting for the supervisor of node {node} to capture rank {folder.name}")
        if not said and not lines and waited > PROGRESS_S:
            said = True
            say(f"rank {folder.name} runs on node {node}; waiting up to {TAKEN_BOUND_S:g} s for its supervisor")
        if time.monotonic() - looked > LOOK_S:
            looked = time.monotonic()
            refuse_lost(folder, state_of(run, folder))
            file_system_now(request.path)
        if waited > (TAKEN_BOUND_S if request.is_open() else bound_s):
            raise WaitTimeout(
                f"waited {waited:.0f} s for the supervisor of node {node} to capture rank {folder.name}",
                hint=f"try again, or run the capture on node {node}",
            )
        time.sleep(POLL_S)


def state_of(run: RunFolder, folder: Path) -> NodeState:
    for state in node_states(run):
        if folder.name in state.ranks:
            return state
    raise UsageError(
        f"rank {folder.name} belongs to node {node_of(folder)}, which is not in {run.nodes}",
        hint="run `prismdbg status RUN`, which shows the nodes",
    )


def refuse_lost(folder: Path, node: NodeState) -> None:
    """`RankLost` where the supervisor of its node has ended or is lost."""
    verb, gone = ("was", ", which is gone") if node.is_gone else ("is", "")
    kept = f"; its recorded data {verb} on that node, in {node.local}{gone}" if node.local else ""
    command = f"`prismdbg publish {quote(str(folder.parent.parent))}`"
    publish = f"run {command} on node {node.name} when its ranks have ended, then capture it again"
    if node.silent_s is None:
        raise RankLost(
            f"rank {folder.name} has ended, and so has its part of the job on node {node.name}{kept}",
            hint=ENDED_HINT if node.is_gone or not kept else publish,
        )
    if node.is_lost:
        at_once = f"run the capture on node {node.name} if it is still there, or capture a rank of another node"
        raise RankLost(
            f"rank {folder.name} runs on node {node.name}, whose supervisor has given no heartbeat for "
            f"{node.silent_s:.0f} s{kept}",
            hint=at_once if node.is_gone or not kept else publish,
        )


def _move(made: Path, output: Path) -> None:
    """To the output, which may be on another file system."""
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        made.rename(output)
    except OSError:
        publish_copy(made, output, f"copy the capsule yourself: it is complete in {made}")
        shutil.rmtree(made, ignore_errors=True)
