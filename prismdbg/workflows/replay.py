"""Puts a captured rank back to life among virtual peers, ready for a client: a replay, a debugger, a script."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.files import Place, RankFile, changed, content_path, read_files
from prismdbg.capsule.manifest import Origin
from prismdbg.capsule.verify import check_content
from prismdbg.checkpoint import bundle
from prismdbg.checkpoint import images as process_images
from prismdbg.checkpoint.criu_log import explain
from prismdbg.checkpoint.images import OpenFile
from prismdbg.errors import CapsuleError, FacilityError
from prismdbg.protocol.client import AgentClient, connect_when_ready
from prismdbg.rank.config import ENVIRONMENT_NAME, Mode, RankConfig
from prismdbg.rank.redacted import REDACTED_NAMES
from prismdbg.runtime.environment import Environment
from prismdbg.runtime.spec import Bind, ImageOrigin, LaidFile, ProgramOrigin, ReplaySpec, RunningRank, Runtime
from prismdbg.workflows.injection import PACKAGE, make_inject_folder
from prismdbg.workflows.runtimes import choose
from prismdbg.workflows.session_folder import session_folder

AGENT_BOUND_S = 90.0
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """`runtime`: docker, local, plain, or empty for the best there is."""

    capsule: Capsule
    runtime: str = ""
    allow_writes: bool = False
    longest_s: float = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveReplay:
    """A rank that waits at A for its first `resume`."""

    capsule: Capsule
    client: AgentClient
    running: RunningRank
    runtime: str
    output: Path
    first_record: int
    end_record: int


@contextmanager
def open_replay(request: ReplayRequest, say: Say) -> Iterator[LiveReplay]:
    """Everything that is made for the replay is removed at the end, however it ends."""
    capsule = request.capsule
    check_content(capsule)
    with session_folder() as session:
        runtime = choose(request.runtime, capsule.manifest.origin, request.allow_writes)
        spec, agent_path = _plan(request, session)
        if reason := runtime.refuses(spec):
            raise FacilityError(reason)
        image = capsule.manifest.origin is Origin.IMAGE
        say(f"{runtime.name}: {'restoring the image' if image else 'starting the program'}")
        running = runtime.start(spec)
        try:
            client = connect_when_ready(
                agent_path, bound_s=AGENT_BOUND_S, still_alive=lambda: running.exit_code() is None
            )
            with client:
                first = 0
                if capsule.manifest.origin is Origin.IMAGE:
                    in_flight = [int(number) for number in capsule.rank().get("in_flight", [])]
                    taken = client.ask("replay", log=str(capsule.log), in_flight=in_flight, timeout_s=60)
                    first = min([*in_flight, int(taken["record_id"])])
                yield LiveReplay(
                    capsule=capsule,
                    client=client,
                    running=running,
                    runtime=runtime.name,
                    output=spec.output,
                    first_record=first,
                    end_record=_end_record(capsule),
                )
        finally:
            running.kill()


def _end_record(capsule: Capsule) -> int:
    """B as a record number: the last collective up to the manifest's moment B."""
    from prismdbg.capsule.log_reader import read_log

    manifest = capsule.manifest
    past = int(capsule.rank().get("past_records", 0))
    inside = [r.record_id for r in read_log(capsule.log).collectives if r.moment <= manifest.moment_b]
    return max(inside, default=past - 1)


def _plan(request: ReplayRequest, session: Path) -> tuple[ReplaySpec, Path]:
    if request.capsule.manifest.origin is Origin.IMAGE:
        return _plan_image(request, session)
    return _plan_start(request, session)


def _plan_image(request: ReplayRequest, session: Path) -> tuple[ReplaySpec, Path]:
    capsule, criu = request.capsule, bundle.find()
    rank = capsule.rank()
    image = process_images.read(criu, capsule.checkpoint)
    prepared = session / "images"
    process_images.prepare_restore(criu, capsule.checkpoint, prepared, seen_as=PurePosixPath(capsule.checkpoint))
    agents = session / "agent"
    agents.mkdir(mode=0o700)
    socket = PurePosixPath(str(rank["socket"]))
    spec = ReplaySpec(
        name=_name(capsule),
        origin=ImageOrigin(
            criu_folder=criu.folder,
            command=criu.command(),
            images=prepared,
            root_pid=image.root_pid,
            pids=image.pids,
            explain=lambda log: explain(f"restore rank {capsule.manifest.rank}", log),
            leads_session=image.leads_session,
            standards=tuple((s.number, s.key) for s in image.standards),
        ),
        session=session,
        python=str(rank["executable"]),
        capsule=capsule.path,
        environment=_environment(capsule),
        binds=(
            Bind(source=agents, target=str(socket.parent), read_only=False),
            # the change over imports modules that the recorded rank had no need of
            Bind(source=PACKAGE, target=f"{rank['inject']}/prismdbg"),
        ),
        files=_laid(capsule, image.files),
        folders=(*image.folders, *_paths(rank, "folders")),
        absent=_paths(rank, "absent"),
        addresses=image.addresses,
        hostname=str(rank["hardware"].get("node", "")),
        uid=image.uid,
        gid=image.gid,
        longest_s=request.longest_s,
    )
    return spec, agents / socket.name


def _plan_start(request: ReplayRequest, session: Path) -> tuple[ReplaySpec, Path]:
    capsule = request.capsule
    rank, manifest = capsule.rank(), capsule.manifest
    make_inject_folder(session / "inject")
    config = session / "config.json"
    RankConfig(
        mode=Mode.REPLAY,
        socket_dir=str(session),
        log=str(capsule.log),
        rank=manifest.rank,
        world_size=manifest.world_size,
    ).save(config)
    spec = ReplaySpec(
        name=_name(capsule),
        origin=ProgramOrigin(
            executable=str(rank["executable"]),
            argv=tuple(rank["orig_argv"]),
            env=_program_environment(rank, session, config),
            cwd=str(rank["cwd"]),
        ),
        session=session,
        python=str(rank["executable"]),
        capsule=capsule.path,
        environment=_environment(capsule),
        binds=(Bind(source=PACKAGE, target=str(PACKAGE)),),
        files=_laid(capsule, ()),
        folders=_paths(rank, "folders"),
        absent=_paths(rank, "absent"),
        hostname=str(rank["hardware"].get("node", "")),
        uid=os.getuid(),
        gid=os.getgid(),
        allow_writes=request.allow_writes,
        longest_s=request.longest_s,
    )
    return spec, session / "replay.sock"


def _program_environment(rank: dict[str, Any], session: Path, config: Path) -> dict[str, str]:
    """The recorded environment, ours in front, and what made the run what it was: threads and instruction set."""
    environment = {str(k): str(v) for k, v in rank["environment"].items()}
    path = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = f"{session / 'inject'}{os.pathsep}{path}" if path else str(session / "inject")
    environment[ENVIRONMENT_NAME] = str(config)
    environment[REDACTED_NAMES] = ",".join(map(str, rank.get("redacted", ())))
    environment.setdefault("RANK", str(rank["rank"]))
    environment.setdefault("WORLD_SIZE", str(rank["world_size"]))
    environment["OMP_NUM_THREADS"] = str(rank["torch_threads"])
    environment["ATEN_CPU_CAPABILITY"] = {"AVX512": "avx512", "AVX2": "avx2"}.get(
        str(rank["cpu_capability"]), "default"
    )
    environment["PYTHONUNBUFFERED"] = "1"
    return environment


def _name(capsule: Capsule) -> str:
    return f"rank {capsule.manifest.rank} of {capsule.manifest.job}"


def _environment(capsule: Capsule) -> Environment | None:
    data = capsule.part(layout.ENVIRONMENT)
    return Environment.from_json(data) if data is not None else None


def _paths(rank: dict[str, Any], name: str) -> tuple[str, ...]:
    """Plain absolute ones of a list in the capsule."""
    found = [str(path) for path in rank.get(name, ())]
    return tuple(path for path in found if path.startswith("/") and os.path.normpath(path) == path)


def _laid(capsule: Capsule, open_files: tuple[OpenFile, ...]) -> tuple[LaidFile, ...]:
    """The rank's files at the paths it knows; large ones from this machine, if they are still the same."""
    sizes = {file.path: file.size_bytes for file in open_files}
    kept = [file for file in read_files(capsule) if file.place is not Place.MISSING]
    laid = [_lay(capsule, file, sizes.get(file.path)) for file in kept]
    known = {file.path for file in kept}
    for file in open_files:
        if file.is_written and not file.is_mapped and file.path not in known:
            laid.append(LaidFile(source=None, target=file.path, mode=file.mode, size_bytes=file.size_bytes))
    return tuple(laid)


def _lay(capsule: Capsule, file: RankFile, size_bytes: int | None) -> LaidFile:
    if file.place is Place.INSIDE:
        return LaidFile(source=content_path(capsule, file), target=file.path, mode=file.mode, size_bytes=size_bytes)
    if reason := changed(file):
        raise CapsuleError(
            f"the capsule needs a large file that it only names: {reason}", hint="put the file back as it was"
        )
    return LaidFile(source=Path(file.path), target=file.path, mode=file.mode, size_bytes=size_bytes)


def make_runtime(request: ReplayRequest) -> Runtime:
    """The runtime that `open_replay` would take."""
    return choose(request.runtime, request.capsule.manifest.origin, request.allow_writes)
