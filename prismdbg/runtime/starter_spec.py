"""The JSON that tells `images/starter/starter.py` what to do, and the lines in which it answers.

Where images of the rank may be taken, the starter also listens on the socket `control` beside its orders, which the
rank does not see: one request a connection, `{"do": "save" | "return", "name": ..., "least_s": ...}`, answered by
`{"ok": true, "output_bytes": ..., "left": [...], "seal": ...}`, `left` naming files that could not be made as they were
and `seal` saying what the image is, or by `{"ok": false, "what": ..., "log": ...}`, `log` naming the engine's own in
that folder. `least_s`: for how long the engine may run, where this is longer than its usual bound. After a `return` the
status file says `restored` again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from prismdbg.capsule.exact_file import Known
from prismdbg.model.shipped import shipped
from prismdbg.runtime.cgroup import Group
from prismdbg.runtime.foreign_files import read_regular
from prismdbg.runtime.limits import OPTIONS
from prismdbg.runtime.seccomp_filter import rank_filter
from prismdbg.runtime.spec import (
    CONTROL_FOLDER,
    GIVEN,
    RANK,
    Bind,
    ImageOrigin,
    LaidFile,
    ProgramOrigin,
    ReplaySpec,
    Saving,
)
from prismdbg.runtime.visible import NOTHING, Visible

SPEC, STATUS, LIFELINE, SCRATCH = "spec.json", "status.jsonl", "lifeline", "scratch"
STATUS_SOCKET = "status"
CONTROL, RESTORE_LOG, DUMP_LOG = "control", "restore.log", "dump.log"
STARTER_LOG = "starter.log"
MAX_STATUS_BYTES, MAX_LINE_BYTES, MAX_TEXT = 1 << 20, 64 << 10, 4000


class Isolation(StrEnum):
    """How much of a place the starter makes itself."""

    NAMESPACES = "namespaces"  # all of it
    PID = "pid"  # in a container: PIDs of its own
    NONE = "none"


def starter_file() -> Path:
    """What it imports lies beside it."""
    return shipped("starter/starter.py")


def copy_starter(into: Path) -> Path:
    """For a place that does not see ours."""
    shutil.rmtree(into, ignore_errors=True)  # of an earlier start
    into.mkdir()
    for source in starter_file().parent.glob("*.py"):
        shutil.copyfile(source, into / source.name)
    return into / starter_file().name


def make_folders(session: Path) -> None:
    """The session's three folders, where they are not there yet."""
    for name in (RANK, GIVEN, CONTROL_FOLDER):
        (session / name).mkdir(mode=0o700, exist_ok=True)


def write_spec(
    spec: ReplaySpec,
    isolation: Isolation,
    *,
    binds: Iterable[Bind] = (),
    files: Iterable[LaidFile] = (),
    seen: Visible = NOTHING,
    group: Group | None = None,
    in_container: bool = False,
) -> Path:
    """Writes the session's spec file. `binds` and `files` are those that the starter itself must make; in a container
    the binds are there, and it compares them with what is known of them. `seen`: of this machine, in namespaces;
    `group`: what it runs in, if not in a container's."""
    make_folders(spec.session)
    scratch = spec.control / SCRATCH
    is_without_rights = in_container and isolation is Isolation.NONE
    if isolation is Isolation.NAMESPACES:
        scratch.mkdir(mode=0o700)
    text = {
        "status": str(spec.control / (STATUS_SOCKET if is_without_rights else STATUS)),
        "lifeline": str(spec.control / LIFELINE),
        "own": str(spec.session / RANK),
        "limits": {
            "memory_bytes": spec.limits.memory_bytes,
            "processes": spec.limits.processes,
            "shared_bytes": spec.limits.shared_bytes,
            "disk_bytes": spec.limits.disk_bytes,
            "events": [list(event) for event in group.events] if group is not None else [],
            "in_container": in_container,
        },
        "private": [str(path) for path in spec.private],
        "output": str(spec.output),
        "scratch": str(scratch),
        "isolation": isolation,
        "longest_s": spec.longest_s,
        "addresses": list(spec.addresses),
        "hostname": spec.hostname,
        "uid": spec.uid,
        "gid": spec.gid,
        "seccomp": rank_filter().hex(),
        "seen": {"folders": _seen(seen.folders), "files": _seen(seen.files), "links": seen.links},
        "binds": [_bind(bind) for bind in binds],
        "folders": list(spec.folders) if isolation is Isolation.NAMESPACES else [],
        "absent": list(spec.absent) if isolation is Isolation.NAMESPACES else [],
        "links": list(spec.links) if isolation is Isolation.NAMESPACES else [],
        "files": [_file(file) for file in files],
        "restore": _restore(spec, spec.origin) if isinstance(spec.origin, ImageOrigin) else None,
        "saving": _saving(spec, spec.saving) if spec.saving is not None else None,
        "program": _program(spec.origin) if isinstance(spec.origin, ProgramOrigin) else None,
    }
    path = spec.control / SPEC
    with path.open("x") as file:
        os.fchmod(file.fileno(), 0o600)
        json.dump(text, file, indent=1)
    return path


def clear_start(session: Path) -> None:
    """Removes what belongs to a start that is over, so that the session can be started again: what the starter wrote
    and was told. The rank's own files and its output stay."""
    for name in (SPEC, STATUS, STATUS_SOCKET, LIFELINE, CONTROL, RESTORE_LOG, DUMP_LOG):
        (session / CONTROL_FOLDER / name).unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        (session / CONTROL_FOLDER / SCRATCH).rmdir()


def starter_command(python: Iterable[str], starter: Path, spec_file: Path) -> list[str]:
    """-I -S: nothing of the user's environment, and no site-packages, has a say in the starter.

    `python` is ours, never one that a capsule names.
    """
    return [*python, "-I", "-S", str(starter), str(spec_file)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What the starter has said so far. `pid` is the rank's inside its namespace; `field`: of rank.json, if that is why
    the program could not be started."""

    pid: int | None = None
    exit_code: int | None = None
    failure: str = ""
    field: str = ""
    engine_failed: bool = False
    limits: tuple[str, ...] = ()


def read_progress(session: Path) -> Progress:
    """What the starter has said so far. What is no event of its is passed over: beside a plain process, which has its
    user's rights, lines may be the rank's."""
    data = read_regular(session / CONTROL_FOLDER / STATUS, MAX_STATUS_BYTES)
    said: dict[str, dict[str, Any]] = {}
    for line in data.splitlines(keepends=True):
        event = _event(line)
        name = str(event.get("event", ""))
        if name in ("restored", "started"):
            said = {}  # an earlier life does not count
        said[name] = event
    running = said.get("restored") or said.get("started") or {}
    failed = said.get("failed", {})
    return Progress(
        pid=_number(running, "pid"),
        exit_code=_number(said.get("exited", failed), "code"),
        failure=str(failed.get("what", ""))[:MAX_TEXT],
        field=str(failed.get("field", ""))[:MAX_TEXT],
        engine_failed=failed.get("engine") is True,
        limits=_limits([*_names(said.get("exited", failed)), *_names(said.get("met", {}))]),
    )


def _event(line: bytes) -> dict[str, Any]:
    """Empty for a line that is not whole, or not an object."""
    try:
        event = json.loads(line) if line.endswith(b"\n") and len(line) <= MAX_LINE_BYTES else None
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


def _names(event: dict[str, Any]) -> list[Any]:
    value = event.get("limits")
    return value if isinstance(value, list) else []


def _limits(names: list[Any]) -> tuple[str, ...]:
    return tuple(name for name in OPTIONS if name in names)


def _number(event: dict[str, Any], name: str) -> int | None:
    value = event.get(name)
    return value if type(value) is int and 0 <= value < 1 << 63 else None


def _restore(spec: ReplaySpec, origin: ImageOrigin) -> dict[str, Any]:
    return {
        "engine": origin.engine.name,
        "command": list(origin.engine.command),
        "images": str(origin.images),
        "work": str(spec.control),
        "log": RESTORE_LOG,
        "leads_session": origin.leads_session,
        "standards": [list(pair) for pair in origin.standards],
        "pids": list(origin.pids),
        "names": list(origin.names),
        "gpu_pids": list(origin.gpu_pids),
        "root_pid": origin.root_pid,
        "timeout_s": origin.timeout_s,
    }


def _saving(spec: ReplaySpec, saving: Saving) -> dict[str, Any]:
    shared = [bind.target for bind in spec.all_binds()]
    return {
        "folders": list(spec.folders),
        "shared": shared,
        "since_ns": time.time_ns(),
        "engine": saving.engine.name,
        "command": list(saving.engine.command),
        "folder": str(saving.folder),
        "control": str(spec.control / CONTROL),
        "work": str(spec.control),
        "dump_log": DUMP_LOG,
        "restore_log": RESTORE_LOG,
        "start_from": saving.start_from,
        "seal": saving.seal,
        "timeout_s": saving.timeout_s,
    }


def _program(origin: ProgramOrigin) -> dict[str, Any]:
    return {
        "executable": origin.executable,
        "argv": list(origin.argv),
        "env": dict(origin.env),
        "cwd": origin.cwd,
        "umask": origin.umask,
    }


def _seen(places: Mapping[str, Known]) -> list[tuple[str, dict[str, Any]]]:
    return [(path, asdict(known)) for path, known in places.items()]


def _bind(bind: Bind) -> dict[str, Any]:
    return {
        "source": str(bind.source),
        "target": bind.target,
        "read_only": bind.read_only,
        "known": asdict(bind.known) if bind.known else None,
    }


def _file(file: LaidFile) -> dict[str, Any]:
    return {
        "known": asdict(file.known) if file.known else None,
        "source": None if file.source is None else str(file.source),
        "target": file.target,
        "mode": file.mode,
        "size_bytes": file.size_bytes,
        "mtime_ns": file.mtime_ns,
    }
