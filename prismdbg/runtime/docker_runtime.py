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
from prismdbg.runtime.docker_daemon import Daemon
from prismdbg.runtime.docker_engine import LABEL, Engine, connect, unavailable
from prismdbg.runtime.image import ensure_environment_image
from prismdbg.runtime.image_layers import add_rank_files
from prismdbg.runtime.lifeline import Lifeline
from prismdbg.runtime.spec import GIVEN, RANK, Bind, LaidFile, ProgramOrigin, ReplaySpec
from prismdbg.runtime.started_rank import StartedRank
from prismdbg.runtime.starter_spec import (
    SPEC,
    STARTER_LOG,
    STATUS,
    Isolation,
    copy_starter,
    starter_command,
    starter_file,
    write_spec,
)
from prismdbg.runtime.tar_stream import stream

# For criu, not for the rank: SYS_TIME is for its time namespace.
CRIU_CAPABILITIES = ["SYS_PTRACE", "SYS_ADMIN", "NET_ADMIN", "SYS_TIME"]
_STARTER = "starter"
_NO_LABELS = "label=disable"  # SELinux would hide the session from the container
_COPIED_BYTES = 16 << 20
_SHM_BYTES = 16 << 30  # a limit, not a reservation: DataLoader workers keep their batches there


class DockerRuntime:
    """`daemon` is started when no engine answers and this user may."""

    name = "docker"

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def available(self) -> str | None:
        return unavailable(self._daemon)

    def refuses(self, spec: ReplaySpec) -> str | None:
        if spec.environment is None:
            return "the capsule does not say which installed files the rank ran on: use --runtime local"
        return None

    def start(self, spec: ReplaySpec) -> StartedRank:
        if spec.environment is None:
            raise RuntimeFailure(f"{spec.name} cannot run in a container", hint=str(self.refuses(spec)))
        engine = connect(self._daemon)
        try:
            image = ensure_environment_image(engine, spec.environment)
            late = [file for file in spec.files if _is_late(file)]
            write_spec(spec, Isolation.PID if spec.criu_folder else Isolation.NONE, files=late)
            copy_starter(spec.control / _STARTER)
            _hand_over(spec)
            container = engine.create(image, self._command(spec), **container_options(spec))
        except BaseException:
            engine.close()
            raise
        place = ContainerPlace(engine, container)
        try:
            engine.put(container, _rank_layer(spec))
            lifeline = Lifeline(spec.control, owner=_user(spec))
        except BaseException:
            place.remove()
            raise
        rank = StartedRank(spec, place, lifeline)
        try:
            engine.start(container)
        except BaseException:
            rank.kill()
            raise
        return rank.until_running()

    def _command(self, spec: ReplaySpec) -> list[str]:
        return starter_command(spec.python, spec.control / _STARTER / starter_file().name, spec.control / SPEC)


class ContainerPlace:
    """`Place` of one container. Owns the connection to the engine."""

    def __init__(self, engine: Engine, container: str) -> None:
        self._engine = engine
        self._container = container
        self._code: int | None = None
        self._removed = False

    def outer_pid(self) -> int | None:
        state = None if self._removed else self._engine.state(self._container)
        return int(state["Pid"]) if state and state["Running"] else None

    def ended(self) -> int | None:
        if self._code is None and not self._removed:
            state = self._engine.state(self._container)
            if state is None:
                self._code = 137
            elif state["Status"] in ("exited", "dead"):
                self._code = int(state["ExitCode"])
        return self._code

    def remove(self) -> None:
        if not self._removed:
            try:
                self._engine.remove(self._container)
            finally:
                self._removed = True
                self._engine.close()

    def describe(self) -> str:
        return f"container {self._container[:12]}"


def container_options(spec: ReplaySpec) -> dict[str, Any]:
    """What `docker inspect` will show: no network, and capabilities only where criu needs them."""
    options: dict[str, Any] = {
        "network_mode": "none",
        "labels": {LABEL: spec.session.name, **spec.labels},
        "volumes": [_volume(bind) for bind in (*_private_binds(spec), *spec.all_binds(), *_bound_files(spec))],
        "auto_remove": True,
        "hostname": spec.hostname or None,
        "working_dir": "/",
        "environment": {},
        "shm_size": _SHM_BYTES,
    }
    if spec.criu_folder is not None:  # the rank itself has no capabilities there either
        options["cap_add"] = CRIU_CAPABILITIES
        options["security_opt"] = ["seccomp=unconfined", "apparmor=unconfined", _NO_LABELS]
    else:
        options["cap_drop"] = ["ALL"]
        options["security_opt"] = ["no-new-privileges", _NO_LABELS]
        options["user"] = "{}:{}".format(*_user(spec))
    return options


def _private_binds(spec: ReplaySpec) -> list[Bind]:
    """With capabilities the starter takes them out of the rank's view. Without, the starter has no more rights than the
    rank: only the two files that it writes can be written, and neither can be replaced."""
    if spec.criu_folder is not None:
        return [Bind(source=path, target=str(path), read_only=False) for path in spec.private]
    written = [spec.control / name for name in (STATUS, STARTER_LOG)]
    return [
        Bind(source=spec.control, target=str(spec.control)),
        *(Bind(source=path, target=str(path), read_only=False) for path in written),
    ]


def _volume(bind: Bind) -> str:
    return f"{bind.source}:{bind.target}:{'ro' if bind.read_only else 'rw'}"


def _bound_files(spec: ReplaySpec) -> list[Bind]:
    """Large files that lie on this machine where the rank knows them are seen there, not copied."""
    return [Bind(source=Path(file.target), target=file.target) for file in spec.files if _is_bound(file)]


def _is_bound(file: LaidFile) -> bool:
    return file.source == Path(file.target) and Path(file.target).stat().st_size > _COPIED_BYTES


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
        for folder in (spec.session / GIVEN, *((spec.control,) if spec.criu_folder is None else ())):
            for path in (folder, *folder.rglob("*")):
                os.chown(path, *user, follow_symlinks=False)


def _is_late(file: LaidFile) -> bool:
    """Laid by the starter. Shared memory is mounted when the container starts, which hides what was put there."""
    return file.source is None or file.target.startswith("/dev/")


def _rank_layer(spec: ReplaySpec) -> Iterator[bytes]:
    environment = spec.environment
    if environment is None:
        raise FacilityError("a container needs the list of installed files")
    copied = tuple(file for file in spec.files if not _is_bound(file) and not _is_late(file))
    return stream(partial(add_rank_files, spec=replace(spec, files=copied), known=environment.folders))
