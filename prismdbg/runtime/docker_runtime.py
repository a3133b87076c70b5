"""Runs a rank in a Docker container made from its own files: no network, no capabilities, removed when it ends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from prismdbg.errors import FacilityError, RuntimeFailure
from prismdbg.runtime.docker.daemon import Daemon
from prismdbg.runtime.docker.engine import LABEL, Attached, Engine, connect, unavailable
from prismdbg.runtime.docker.image import ensure_environment_image
from prismdbg.runtime.docker.image_layers import add_rank_files
from prismdbg.runtime.docker.tar_stream import stream
from prismdbg.runtime.names import DOCKER
from prismdbg.runtime.own_python import OwnPython, own_python
from prismdbg.runtime.parent_death_fifo import ParentDeathFifo
from prismdbg.runtime.rank_links import leads_to
from prismdbg.runtime.runtime import Say, fact_and_advice, silent
from prismdbg.runtime.spec import GIVEN, RANK, Bind, ImageOrigin, LaidFile, ProgramOrigin, ReplaySpec
from prismdbg.runtime.started_rank import StartedRank
from prismdbg.runtime.starter_spec import (
    SPEC,
    STARTER_LOG,
    STATUS,
    Isolation,
    copy_starter,
    starter_command,
    write_spec,
)
from prismdbg.runtime.status_socket import StatusSocket

KILLED = 137
_STARTER = "starter"
_PRELOAD = "/etc/ld.so.preload"
_NO_LABELS = "label=disable"  # SELinux would hide the session from the container


class DockerRuntime:
    """`daemon` is started when no engine answers and this user may."""

    name = DOCKER

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._cache = daemon.cache

    def available(self) -> str | None:
        return unavailable(self._daemon)

    def refuses(self, spec: ReplaySpec) -> str | None:
        if spec.environment is None:
            return "the capsule does not list the installed files of the rank: use --runtime local"
        if isinstance(spec.origin, ImageOrigin) and spec.origin.gpu_pids:
            return "the checkpoint has the state of a GPU, and the containers have no GPU: use --runtime local"
        return None

    def start(self, spec: ReplaySpec, say: Say = silent) -> StartedRank:
        if spec.environment is None:
            fact, advice = fact_and_advice(str(self.refuses(spec)))
            raise RuntimeFailure(f"{spec.name} cannot run in a container: {fact}", hint=advice)
        engine = connect(self._daemon)
        try:
            image = ensure_environment_image(engine, spec.environment, partial(_within, spec, say), cache=self._cache)
            python = own_python(self._cache)
            late = [file for file in spec.files if _is_late(file)]
            isolation = Isolation.PID if spec.engine else Isolation.NONE
            known = [bind for bind in (*spec.all_binds(), *_bound_files(spec)) if bind.known is not None]
            write_spec(spec, isolation, binds=known, files=late, in_container=True)
            starter = copy_starter(spec.control / _STARTER)
            _hand_over(spec)
            command = starter_command(python.command, starter, spec.control / SPEC)
            options = container_options(spec, python)
            container = engine.create(image, command, **options)
        except BaseException:
            engine.close()
            raise
        place = ContainerPlace(engine, container)
        try:
            place.listen()
            engine.put(container, _rank_layer(spec, [bind.target for bind in options["binds"]]))
            lifeline = ParentDeathFifo(spec.control, owner=_user(spec))
            status = StatusSocket(spec.control, _user(spec)) if spec.engine is None else None
        except BaseException:
            place.remove()
            raise
        rank = StartedRank(spec, place, lifeline, status)
        try:
            engine.start(container)
        except BaseException:
            rank.kill()
            raise
        return rank.until_running()


class ContainerPlace:
    """`Place` of one container. Owns the connection to the engine."""

    def __init__(self, engine: Engine, container: str) -> None:
        self._engine = engine
        self._container = container
        self._code: int | None = None
        self._removed = False
        self._attached: Attached | None = None

    def listen(self) -> None:
        """To what the starter writes before it has a log of its own. The container removes itself when it ends, and its
        output with it."""
        self._attached = self._engine.attach(self._container)

    def last_words(self) -> str:
        return self._attached.said() if self._attached is not None else ""

    def runs(self) -> None:
        if self._attached is not None:
            self._attached.close()
            self._attached = None

    def outer_pid(self) -> int | None:
        state = None if self._removed else self._engine.state(self._container)
        return int(state["Pid"]) if state and state["Running"] else None

    def ended(self) -> int | None:
        if self._code is None and not self._removed:
            state = self._engine.state(self._container)
            if state is None:
                told = self._engine.exit_code(self._container)
                self._code = KILLED if told is None else told
            elif state["Status"] in ("exited", "dead"):
                self._code = int(state["ExitCode"])
        return self._code

    def limits_met(self) -> tuple[str, ...]:
        """A killed container has removed itself, with its counters: Docker's events still tell of it."""
        killed = self._code == KILLED and not self._removed
        return ("memory",) if killed and self._engine.ran_out_of_memory(self._container) else ()

    def remove(self) -> None:
        if not self._removed:
            self.runs()
            try:
                self._engine.remove(self._container)
            finally:
                self._removed = True
                self._engine.close()

    def describe(self) -> str:
        return f"container {self._container[:12]}"


def container_options(spec: ReplaySpec, python: OwnPython) -> dict[str, Any]:
    """What `docker inspect` will show: no network, and capabilities only where the checkpoint engine needs them.

    The loader of the first process must not find a list of libraries that the capsule put there.
    """
    own = [
        Bind(source=python.folder, target=str(python.folder)),
        Bind(source=python.nothing, target=_PRELOAD),
    ]
    binds = (*_private_binds(spec), *spec.all_binds(), *_bound_files(spec), *own)
    options: dict[str, Any] = {
        "network_mode": "none",
        "cgroupns": "private",
        "labels": {LABEL: spec.session.name, **spec.labels},
        # where they lie: the engine makes their folders before the rank's links are there
        "binds": [replace(bind, target=leads_to(bind.target, dict(spec.links))) for bind in binds],
        "auto_remove": True,
        "hostname": spec.hostname or None,
        "working_dir": "/",
        "environment": environment_of_starter(python),
        "shm_size": spec.limits.shared_bytes,  # not a reservation: DataLoader workers keep their batches there
        "mem_limit": spec.limits.memory_bytes,
        "memswap_limit": spec.limits.memory_bytes,
        "pids_limit": spec.limits.processes,
    }
    if spec.engine is not None:  # the rank itself has no capabilities there either
        options["cap_add"] = list(spec.engine.capabilities)
        options["security_opt"] = ["seccomp=unconfined", "apparmor=unconfined", _NO_LABELS]
    else:
        options["cap_drop"] = ["ALL"]
        options["read_only_paths"] = _shared_entries()
        options["security_opt"] = ["no-new-privileges", _NO_LABELS]
        options["user"] = "{}:{}".format(*_user(spec))
    return options


def _shared_entries() -> list[str]:
    """As in images/starter/confine.py: a starter without rights mounts nothing. The engine is on this machine."""
    return sorted(str(path) for path in Path("/proc").iterdir() if not path.name.isdigit() and not path.is_symlink())


def environment_of_starter(python: OwnPython) -> dict[str, str]:
    """Of the first process, whose files are the capsule's until the starter has made the place. Without a locale Python
    looks for one there, glibc loads the module that its character set names, and so would the capsule's code run with
    the starter's rights; the time zone would be read there as well."""
    ours = str(python.folder / "locale")  # holds nothing
    return {"LC_ALL": "C", "LOCPATH": ours, "GCONV_PATH": ours, "TZ": "UTC0", "TZDIR": ours}


def _private_binds(spec: ReplaySpec) -> list[Bind]:
    """With capabilities the starter takes them out of the rank's view. Without, the starter has no more rights than the
    rank: of what it writes the rank can write its log, which nobody goes by, and not replace it."""
    if spec.engine is not None:
        return [Bind(source=path, target=str(path), read_only=False) for path in spec.private]
    log = spec.control / STARTER_LOG
    return [
        Bind(source=spec.control, target=str(spec.control)),
        Bind(source=log, target=str(log), read_only=False),
    ]


def _bound_files(spec: ReplaySpec) -> list[Bind]:
    """Large files that lie on this machine where the rank knows them are seen there, not copied."""
    return [file.bind for file in spec.files if file.is_bound]


def _user(spec: ReplaySpec) -> tuple[int, int]:
    """Without capabilities even root reads only its own files, so a user who is not root keeps the session's."""
    return (spec.uid, spec.gid) if os.geteuid() == 0 else (os.getuid(), os.getgid())


def _hand_over(spec: ReplaySpec) -> None:
    """What the rank and a starter without capabilities write or read belongs to whoever runs in the container.

    In the rank's own folder nothing else is touched: a rank that ran there before may have left links."""
    for name in (STATUS, STARTER_LOG):
        (spec.control / name).touch(mode=0o600)
    if os.geteuid() != 0:
        return
    user = _user(spec)
    os.chown(spec.session / RANK, *user, follow_symlinks=False)
    with contextlib.suppress(FileNotFoundError):
        os.chown(spec.output, *user, follow_symlinks=False)
    if isinstance(spec.origin, ProgramOrigin):
        for folder in (spec.session / GIVEN, *((spec.control,) if spec.engine is None else ())):
            for path in (folder, *folder.rglob("*")):
                os.chown(path, *user, follow_symlinks=False)


def _is_late(file: LaidFile) -> bool:
    """Laid by the starter. Shared memory is mounted when the container starts, which hides what was put there."""
    return file.source is None or file.target.startswith("/dev/")


def _rank_layer(spec: ReplaySpec, bound: list[str]) -> Iterator[bytes]:
    environment = spec.environment
    if environment is None:
        raise FacilityError(
            "a container needs the list of installed files", hint="use --runtime local: this capsule has no such list"
        )
    copied = tuple(file for file in spec.files if not file.is_bound and not _is_late(file))
    alone = replace(spec, files=copied)
    chunks = stream(partial(add_rank_files, spec=alone, environment=environment, bound=bound))
    return spec.deadline.each(chunks, f"the making of the container for {spec.name}")


def _within(spec: ReplaySpec, say: Say, text: str) -> None:
    """Says it, while there is time for the image."""
    spec.deadline.require(f"the container image for {spec.name}")
    say(text)
