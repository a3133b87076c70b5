"""The counting rank seen from a test: starting it, asking it, dumping it, and the specs that run it again."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from waiting import wait_for

from prismdbg.checkpoint import images
from prismdbg.checkpoint.bundle import Criu
from prismdbg.checkpoint.criu import dump
from prismdbg.checkpoint.criu_engine import CriuEngine
from prismdbg.checkpoint.engine import ProcessImage
from prismdbg.runtime.environment import Environment, of_files
from prismdbg.runtime.environment_scan import scan
from prismdbg.runtime.seccomp_filter import rank_filter
from prismdbg.runtime.spec import (
    CONTROL_FOLDER,
    RANK,
    Bind,
    ImageOrigin,
    LaidFile,
    ProgramOrigin,
    ReplaySpec,
    Saving,
    StarterEngine,
)
from prismdbg.runtime.starter_spec import make_folders

SCRIPT = Path(__file__).with_name("counting_rank.py")
# The base interpreter, so that the container's image holds no packages and is made in seconds.
PYTHON = str(Path(sys.base_prefix) / "bin" / "python3")


@contextmanager
def short_folder() -> Iterator[Path]:
    """For sockets, whose paths end at 108 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="pdbg-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def ask(path: Path, request: str, bound_s: float = 30.0) -> dict[str, Any]:
    """One request on a connection of its own; waits until something listens there."""

    def connected() -> socket.socket | None:
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.connect(str(path))
        except OSError:
            sock.close()
            return None
        return sock

    with wait_for(connected, bound_s, f"an answer at {path}") as sock:
        sock.settimeout(bound_s)
        sock.sendall(request.encode() + b"\n")
        with sock.makefile() as stream:
            answer: dict[str, Any] = json.loads(stream.readline())
            sock.shutdown(socket.SHUT_WR)
            stream.read()  # until the rank has closed its end, too: an image of it holds no client
    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Counting:
    """One live process. `home` holds its socket's folder and its journal."""

    home: Path
    process: subprocess.Popen[bytes]

    @property
    def agents(self) -> Path:
        return self.home / "agents"

    @property
    def socket(self) -> Path:
        return self.agents / "rank"

    @property
    def journal(self) -> Path:
        return self.home / "journal"


def command(home: Path, script: Path = SCRIPT) -> list[str]:
    return [PYTHON, str(script), str(home / "agents" / "rank"), str(home / "journal")]


@contextmanager
def counting(home: Path, *address: str, script: Path = SCRIPT, **options: Any) -> Iterator[Counting]:
    """Runs one; its output goes to `home/printed` unless `options` say otherwise. `script`: a program like it."""
    (home / "agents").mkdir()
    with (home / "printed").open("wb") as printed:
        options = {"stdin": subprocess.DEVNULL, "stdout": printed, "stderr": subprocess.STDOUT, **options}
        process = subprocess.Popen([*command(home, script), *address], start_new_session=True, cwd=home, **options)
    one = Counting(home=home, process=process)
    try:
        ask(one.socket, "status")
        yield one
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """Its image, and the files it had open, as a capsule would hold them."""

    capsule: Path
    image: ProcessImage
    files: tuple[LaidFile, ...]
    count: int
    criu: Criu
    agents: Path
    environment: Environment


def capture(criu: Criu, one: Counting, capsule: Path) -> Captured:
    """Dumps it while it goes on."""
    count = ask(one.socket, "status")["count"]
    checkpoint = capsule / "checkpoint"
    report = dump(criu, one.process.pid, checkpoint, leave_running=True, timeout_s=30)
    assert report.images_bytes > 0 and 0 < report.frozen_ns < 30e9
    image = images.read(criu, checkpoint)
    replaced = {standard.key for standard in image.standards}
    files = []
    for number, file in enumerate(file for file in image.files if not file.is_mapped):
        if file.path.lstrip("/") not in replaced:
            shutil.copyfile(file.path, capsule / f"file{number}")
            files.append(
                LaidFile(source=capsule / f"file{number}", target=file.path, mode=file.mode, size_bytes=file.size_bytes)
            )
    return Captured(
        capsule=capsule,
        image=image,
        files=tuple(files),
        count=count,
        criu=criu,
        agents=one.agents,
        environment=environment(one.process.pid),
    )


@cache
def environment(pid: int | None = None) -> Environment:
    """Interpreter and standard library only: an image of tens of megabytes, made in seconds."""
    library = sysconfig.get_paths()["stdlib"]
    rank = {"executable": PYTHON, "prefix": "/usr", "base_prefix": "/usr", "sys_path": [f"{library}/lib-dynload"]}
    modules = scan({**rank, "sys_path": [library]}).files
    folders = (f"{library}/site-packages/", f"{library}/test/", f"{library}/idlelib/", f"{library}/config-")
    return of_files({*scan(rank, pid).files, *(file for file in modules if not file.path.startswith(folders))})


def image_spec(captured: Captured, session: Path) -> tuple[ReplaySpec, Path]:
    """The spec that restores it, and where its socket will be."""
    make_folders(session)
    agents = session / RANK / "agents"
    agents.mkdir()
    prepared = session / CONTROL_FOLDER / "images"
    checkpoint = captured.capsule / "checkpoint"
    names = images.prepare_restore(
        captured.criu, checkpoint, prepared, seen_as=PurePosixPath(checkpoint), seccomp=rank_filter()
    )
    image = captured.image
    origin = ImageOrigin(
        engine=_starter_engine(captured.criu),
        images=prepared,
        root_pid=image.root_pid,
        pids=image.pids,
        names=names,
        doing="restore the counting rank",
        leads_session=image.leads_session,
        standards=tuple((standard.number, standard.key) for standard in image.standards),
        timeout_s=60,
    )
    spec = ReplaySpec(
        name="counting rank",
        origin=origin,
        session=session,
        python=PYTHON,
        capsule=captured.capsule,
        environment=captured.environment,
        binds=(Bind(source=agents, target=str(captured.agents), read_only=False),),
        files=captured.files,
        folders=image.folders,
        addresses=image.addresses,
        uid=image.uid,
        gid=image.gid,
        longest_s=120,
        start_s=120,
    )
    return spec, agents / "rank"


def program_spec(session: Path, script: Path = SCRIPT) -> tuple[ReplaySpec, Path]:
    """The spec that starts it, in the session's own folder, and where its socket will be."""
    make_folders(session)
    home = session / RANK / "home"
    (home / "agents").mkdir(parents=True)
    origin = ProgramOrigin(
        executable=PYTHON,
        argv=tuple(command(home, script)),
        env={"COLOR": "green", "PATH": os.environ["PATH"]},
        cwd=str(home),
    )
    spec = ReplaySpec(
        name="counting rank",
        origin=origin,
        session=session,
        python=PYTHON,
        environment=environment(),
        files=tuple(LaidFile(source=path, target=str(path)) for path in {SCRIPT, script}),
        uid=os.getuid(),
        gid=os.getgid(),
        allow_writes=True,
        longest_s=120,
        start_s=60,
    )
    return spec, home / "agents" / "rank"


def with_saving(spec: ReplaySpec, criu: Criu, folder: Path) -> ReplaySpec:
    """For a place where images of the rank can be taken."""
    saving = Saving(
        engine=_starter_engine(criu),
        folder=folder,
        doing="return to an image",
        timeout_s=60,
    )
    return replace(spec, saving=saving)


def with_bound(spec: ReplaySpec, longest_s: float) -> ReplaySpec:
    return replace(spec, longest_s=longest_s)


def _starter_engine(criu: Criu) -> StarterEngine:
    # needs more than the standard library, which is all that another user's interpreter has
    from prismdbg.jobs.replay.replay_plan import starter_engine

    return starter_engine(CriuEngine(criu).program)
