"""What RUN lacks while ranks write into folders of their nodes: it is asked of the supervisors by a file in RUN, and
copied by hand where a supervisor is gone."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from prismdbg.capsule.log.reader import iter_logs
from prismdbg.errors import CapsuleError, FacilityError, UsageError
from prismdbg.jobs.storage.file_system_time import file_system_now
from prismdbg.jobs.storage.job_nodes import NodeFolder, NodeState, last_beat, node_folders, node_states
from prismdbg.jobs.storage.local_logs import LocalFolder, publish_all, publish_so_far
from prismdbg.jobs.storage.ranks_alive import who_may_write
from prismdbg.jobs.storage.run_folder import RunFolder, read_json, write_json
from prismdbg.model.meanwhile import by_bytes, working
from prismdbg.settings.process_stat import start_ticks

ANSWER_BOUND_S = 20.0
TOLD_AFTER_S = 1.0
POLL_S = 0.1
_ASKED = "publish.json"
_HINT = "run `prismdbg publish RUN` on the nodes named"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Asked:
    """`newest_bytes`: of the end of each log that are needed; None: all of it."""

    token: str = ""
    newest_bytes: int | None = None


def last_asked(run: RunFolder) -> Asked:
    """An empty token where nobody has asked."""
    asked = read_json(run.nodes / _ASKED)
    return Asked(asked.get("asked", ""), asked.get("newest_bytes"))


def ask_for_logs(run: RunFolder, nodes: Sequence[NodeState], say: Say, newest_bytes: int | None = None) -> list[str]:
    """Has the logs of other nodes' living ranks brought into RUN, as they are now, `newest_bytes` of the end of each at
    least. Names the nodes that did not do so within `ANSWER_BOUND_S`; `say` is told of the wait after a second."""
    waited_for = {node.name for node in nodes if node.local and node.silent_s is not None and not node.is_lost}
    waited_for -= {node.name for node in nodes if node.visible}
    if not waited_for:
        return []
    token = secrets.token_hex(8)
    try:
        write_json(
            run.nodes / _ASKED, {"asked": token} | ({} if newest_bytes is None else {"newest_bytes": newest_bytes})
        )
    except OSError:  # a reader who may not write: what is there is shown
        return sorted(waited_for)
    began, is_told = time.monotonic(), False
    while waited_for and (waited_s := time.monotonic() - began) < ANSWER_BOUND_S:
        if waited_s > TOLD_AFTER_S and not is_told:
            is_told = True
            say(f"waiting up to {ANSWER_BOUND_S:g} s for the logs of {', '.join(sorted(waited_for))}")
        time.sleep(POLL_S)
        file_system_now(run.nodes)
        waited_for = {name for name in waited_for if not _has_answered(NodeFolder(run.nodes / name), token)}
    return sorted(waited_for)


def _has_answered(node: NodeFolder, token: str) -> bool:
    with suppress(CapsuleError):
        return node.published.exists() or last_beat(node).get("published", "") == token
    return False


def log_folders(run: RunFolder, nodes: Sequence[NodeState]) -> list[Path]:
    """Of all ranks, each where its log can be read from here."""
    places = {name: node for node in nodes for name in node.ranks}
    return [places[folder.name].logs_of(folder) if folder.name in places else folder for folder in run.rank_folders()]


def publish_left(run: RunFolder, say: Say) -> int:
    """Copies what lies in folders of this machine into RUN, of nodes whose supervisors no longer do it. How many nodes
    that were; `UsageError` where RUN misses nothing, `FacilityError` where what it misses is elsewhere or lost."""
    states = {state.name: state for state in node_states(run)}
    missing = [node for node in node_folders(run) if node.local is not None]
    if not missing:
        raise UsageError(f"{run.path} is complete: no log is missing in it", hint="run `prismdbg status RUN`")
    done = 0
    for node in missing:
        state = states[node.name]
        if state.silent_s is not None and not state.is_lost and not _is_gone(node, state):
            say(f"node {node.name}: its supervisor runs, and copies the logs when its part of the job ends")
        elif state.visible:
            _publish(run, node, say)
            done += 1
        else:
            say(f"node {node.name}: {state.left_line(run.path)}")
    if not done:
        are_gone = all(states[node.name].is_gone for node in missing)
        hint = "run `prismdbg why RUN`, which reads what was copied before" if are_gone else _HINT
        raise FacilityError(f"no log was copied into {run.path}", hint=hint)
    return done


def _is_gone(node: NodeFolder, state: NodeState) -> bool:
    """Whether the node's supervisor can be seen to be gone, though its last heartbeat is young."""
    about = read_json(node.about)
    own = Path("/proc/self/ns/pid").stat().st_ino
    if not state.visible or about.get("namespaces", {}).get("pid") != own:
        return False
    return start_ticks(int(about.get("supervisor_pid", 0))) != int(about.get("supervisor_ticks", 0))


def _publish(run: RunFolder, node: NodeFolder, say: Say) -> None:
    local = node.local
    assert local is not None, "it was asked"
    try:
        with local.alone():
            names, living = _copied(run, node, local)
    except OSError as error:
        if not local.path.exists():
            say(f"node {node.name}: another process has copied its logs meanwhile, and removed {local.path}")
            return
        raise FacilityError(
            f"the logs of node {node.name} cannot be copied into {run.path}: {error.strerror}",
            hint=f"check its space and permissions, then run this again; the logs stay in {local.path}",
        ) from error
    if living:
        say(f"node {node.name}: {living}: RUN has what was written so far; run this again when the job has ended")
        return
    say(f"node {node.name}: copied the logs of {_ranks(names)}, and removed {local.path}")


def _copied(run: RunFolder, node: NodeFolder, local: LocalFolder) -> tuple[list[str], str]:
    """All ranks of the node, and who still runs. If nobody does, what was copied is removed there."""
    names = [path.name for path in iter_logs(local.ranks)]
    living = who_may_write(local.ranks, node.config)
    with working() as tell:
        copied = by_bytes(tell, f"copying the logs of node {node.name}", local.size_bytes())
        (publish_so_far if living else publish_all)(local, run.path, copied)
    if not living:
        write_json(node.published, {"by": "hand"})
        local.remove()
    return names, living


def _ranks(names: Sequence[str]) -> str:
    return ", ".join(f"rank {name}" for name in names)
