"""What a replay of a capsule is started with: the rank's origin, its files, its environment, what is bound where."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

from prismdbg.capsule import exact_file, layout, path_kind, rank_path
from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.files import Place, RankFile, changed, content_path, find, read_files
from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.manifest import Origin
from prismdbg.capsule.rank_json import RankJson, given_through_a_pipe, is_environment, start_bytes, startable_again
from prismdbg.capsule.spawned import is_spawned
from prismdbg.checkpoint import choice
from prismdbg.checkpoint.engine import OpenFile, Program, bound_s
from prismdbg.checkpoint.gpu_part import require_gpus
from prismdbg.errors import CapsuleError, FacilityError, UsageError
from prismdbg.jobs.capture import rank_package
from prismdbg.jobs.capture.rank_paths import written_into
from prismdbg.jobs.injection import cache_dir, make_inject_folder
from prismdbg.jobs.replay.later_files import LaterFiles, later_files
from prismdbg.jobs.replay.source_overlay import Overlay
from prismdbg.jobs.storage.verify import check_manifest
from prismdbg.log.rank_log import read_log
from prismdbg.model import user_code
from prismdbg.model.deadline import NEVER, Deadline
from prismdbg.model.typed_path import typed_path
from prismdbg.runtime.environment import Environment
from prismdbg.runtime.limits import USUAL, Asked, Limits, usual
from prismdbg.runtime.rank_folder import RankFolder
from prismdbg.runtime.rank_links import with_links
from prismdbg.runtime.seccomp_filter import rank_filter
from prismdbg.runtime.spec import (
    CONTROL_FOLDER,
    GIVEN,
    RESTORE_S,
    Bind,
    ImageOrigin,
    LaidFile,
    ProgramOrigin,
    ReplaySpec,
    StarterEngine,
)
from prismdbg.runtime.starter_spec import make_folders
from prismdbg.session.causes import ALL_HIDDEN, Unhidden
from prismdbg.settings import seeds
from prismdbg.settings.rank_config import ENVIRONMENT_NAME, FORKED_VARIABLE, SPAWNED_VARIABLE, Mode, RankConfig
from prismdbg.settings.redaction import REDACTED_FILES, REDACTED_NAMES

_FOR_ANY_USER = 0o644  # the rank may be another user than we are
_INSTRUCTION_SETS = {  # what torch calls them, and the words by which it takes them
    "DEFAULT": "default",
    "NO AVX": "default",
    "AVX2": "avx2",
    "AVX512": "avx512",
    "SVE256": "sve256",
    "VSX": "vsx",
    "Z VECTOR": "zvector",
}
_HOSTNAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """`runtime`: docker, local, plain, or empty for the best there is. `overlay`: files of the user's instead of
    captured ones; `edited`: captured files that are other ones on this machine, where it is its files that run, None
    where the captured ones do; `peers`: what is assumed of them, as `rank.replay.what_if` reads it. With one of these
    the rank may leave the record, and then goes on among synthesized peers. strict: pickled objects that differ (a pid,
    a time) count. with_files: by the rank's path, files of the user's for those of credentials, which the capsule
    lacks. deadline: of the whole replay, its start among it."""

    capsule: Capsule
    runtime: str = ""
    allow_writes: bool = False
    overlay: Overlay | None = None
    edited: tuple[str, ...] | None = None
    peers: tuple[dict[str, Any], ...] = ()
    strict: bool = False
    limits: Asked = USUAL
    with_files: Mapping[str, Path] = field(default_factory=lambda: MappingProxyType({}))
    deadline: Deadline = NEVER

    @property
    def missing_files(self) -> tuple[str, ...]:
        """Files of credentials that the rank read, the capsule lacks and this machine has not as they were."""
        return tuple(f.path for f in _redacted(self.capsule) if f.path not in self.with_files and changed(f))

    @property
    def may_depart(self) -> bool:
        return self.overlay is not None or self.edited is not None or bool(self.peers)

    @property
    def replaced(self) -> tuple[str, ...] | None:
        """Paths of captured files that are not the recorded ones; None where the recorded program runs."""
        if self.overlay is None:
            return self.edited
        return tuple(sorted({*self.overlay.replaced, *(self.edited or ())}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`own`: the rank's folder; `agent`: the name by which its agent will answer there. `unhidden`: what of this
    machine may be younger than the start moment and is not hidden. `awaits_restore_point`: the agent answers only when
    the program comes to its restore point."""

    spec: ReplaySpec
    own: RankFolder
    agent: str
    unhidden: Unhidden
    awaits_restore_point: bool = False


def make_plan(request: ReplayRequest, session: Path, own: RankFolder) -> Plan:
    """Writes what the start needs into the session's folders, of which `own` is the rank's."""
    check_manifest(request.capsule)
    make_folders(session)
    if request.capsule.manifest.origin is Origin.IMAGE:
        return _plan_image(request, session, own)
    return _plan_start(request, session, own)


def _plan_image(request: ReplayRequest, session: Path, own: RankFolder) -> Plan:
    capsule, engine = request.capsule, choice.find()
    rank = startable_again(capsule.rank(), starts_program=False)
    image = engine.read(capsule.checkpoint)
    if image.gpu is not None:
        require_gpus(image.gpu)
    prepared = session / CONTROL_FOLDER / "images"
    seen_as = PurePosixPath(capsule.checkpoint)
    names = engine.prepare_restore(capsule.checkpoint, prepared, seen_as=seen_as, seccomp=rank_filter())
    trusted = (cache_dir(), engine.program.folder, session, capsule.path)
    socket, inject = PurePosixPath(str(rank["socket"])), str(rank["inject"])
    laid, folders = _laid(request, image.files), (*image.folders, *_paths(rank, "folders"))
    absent, unhidden = _absent(capsule, session, laid, folders)
    spec = ReplaySpec(
        name=_name(capsule),
        origin=ImageOrigin(
            engine=starter_engine(engine.program),
            images=prepared,
            root_pid=image.root_pid,
            pids=image.pids,
            names=names,
            gpu_pids=image.gpu.pids if image.gpu is not None else (),
            doing=f"restore rank {capsule.manifest.rank}",
            leads_session=image.leads_session,
            standards=tuple((s.number, s.key) for s in image.standards),
            timeout_s=restore_s(capsule),
        ),
        session=session,
        python=str(rank["executable"]),
        capsule=capsule.path,
        capsule_folder=capsule.folder,
        environment=_environment(capsule),
        binds=(
            Bind(source=own.path, target=bind_target(str(socket.parent), trusted), read_only=False),
            # the change over imports modules that the recorded rank had no need of, of the version that it has
            Bind(source=_rank_package(capsule, session), target=bind_target(f"{inject}/prismdbg", trusted)),
            *_native(bind_target(f"{inject}/native", trusted)),
        ),
        files=laid,
        folders=folders,
        absent=absent,
        addresses=image.addresses,
        hostname=_hostname(rank),
        uid=image.uid,
        gid=image.gid,
        limits=_limits(request, session),
    )
    return Plan(spec=with_links(spec, rank.get("links", {})), own=own, agent=socket.name, unhidden=unhidden)


def starter_engine(program: Program) -> StarterEngine:
    """The engine's program as a place for replays is told of it."""
    return StarterEngine(
        name=program.name,
        folder=program.folder,
        command=program.command,
        capabilities=program.capabilities,
        explain=program.explain,
        explain_foreign=program.explain_foreign,
    )


def _plan_start(request: ReplayRequest, session: Path, own: RankFolder) -> Plan:
    capsule = request.capsule
    rank, manifest = startable_again(capsule.rank(), starts_program=True), capsule.manifest
    given = session / GIVEN
    make_inject_folder(given / "inject")
    config = given / "config.json"
    RankConfig(
        mode=Mode.REPLAY,
        socket_dir=str(own.path),
        cache_dir=str(cache_dir()),
        log=str(capsule.log),
        rank=manifest.rank,
        world_size=manifest.world_size,
        memory_cap=int(rank.get("memory_cap", 0)),
        user_code=user_code.paths(),
        seeds=known if isinstance(known := rank.get("seeds"), dict) else {},
        extra=_extra(capsule, rank, request.replaced),
    ).save(config, _FOR_ANY_USER)
    environment = _program_environment(rank, given, config) | {REDACTED_FILES: json.dumps(request.missing_files)}
    if is_spawned(rank["orig_argv"]) and layout.SPAWNED in manifest.files:
        environment[SPAWNED_VARIABLE] = str(capsule.path / layout.SPAWNED)
    if forks := rank.get("forked"):
        environment[FORKED_VARIABLE] = "\n".join(forks)
    _require_startable(rank, environment)
    laid, folders = _laid(request, ()), _paths(rank, "folders")
    laid = request.overlay.over(laid) if request.overlay is not None else laid
    if request.edited is not None:  # an edited program may do without a captured file
        laid = tuple(file for file in laid if file.source is None or path_kind.exists(file.target))
    absent, unhidden = _absent(capsule, session, laid, folders)
    spec = ReplaySpec(
        name=_name(capsule),
        origin=ProgramOrigin(
            executable=str(rank["executable"]),
            argv=tuple(rank["orig_argv"]),
            env=environment,
            cwd=_cwd(rank),
        ),
        session=session,
        python=str(rank["executable"]),
        capsule=capsule.path,
        capsule_folder=capsule.folder,
        environment=_environment(capsule),
        binds=_native(str(cache_dir() / "native")),
        files=laid,
        folders=folders,
        absent=absent,
        hostname=_hostname(rank),
        uid=os.getuid(),
        gid=os.getgid(),
        allow_writes=request.allow_writes,
        limits=_limits(request, session),
    )
    return Plan(
        spec=with_links(spec, rank.get("links", {})),
        own=own,
        agent="replay.sock",
        unhidden=unhidden,
        awaits_restore_point=capsule.manifest.origin is Origin.STATE,
    )


def _extra(capsule: Capsule, rank: RankJson, replaced: tuple[str, ...] | None) -> dict[str, Any]:
    more: dict[str, Any] = {} if replaced is None else {"replaced": list(replaced)}
    more |= {"clock_reads": rank["clock_reads"]} if "clock_reads" in rank else {}
    if capsule.manifest.origin is Origin.STATE:
        return {"state": str(capsule.path / layout.STATE), **more}
    return {"emulation": rank["emulation"], **more} if "emulation" in rank else more


def _require_startable(rank: RankJson, environment: dict[str, str]) -> None:
    """With what this program adds, and on this machine."""
    if problem := is_environment(environment):
        raise CapsuleError(f"rank.json: environment {problem}", hint="fetch the capsule again: this copy was altered")
    if given := given_through_a_pipe(rank, is_kept=SPAWNED_VARIABLE in environment):
        raise CapsuleError(
            f"{given}, which a capsule from the program's start does not contain",
            hint="use torchrun, or replay a checkpoint (`capture --origin checkpoint`, --checkpoint-every)",
        )
    size, most = start_bytes(rank["orig_argv"], environment), os.sysconf("SC_ARG_MAX")
    if size > most:
        raise FacilityError(
            f"the program's arguments and environment have {size:,} bytes; the limit of this machine is {most:,}",
            hint="run `ulimit -s unlimited` first",
        )


def restore_s(capsule: Capsule) -> float:
    """For how long its image may be read: from a file server that may take as long as to write it."""
    return max(RESTORE_S, bound_s(_image_bytes(capsule)))


def _image_bytes(capsule: Capsule) -> int:
    files = capsule.manifest.files
    return sum(entry.size_bytes for name, entry in files.items() if name.startswith(f"{layout.CHECKPOINT}/"))


def _limits(request: ReplayRequest, session: Path) -> Limits:
    image_bytes = _image_bytes(request.capsule)
    return request.limits.over(usual(max(image_bytes, request.capsule.rank().get("peak_bytes", 0)), session))


def _rank_package(capsule: Capsule, session: Path) -> Path:
    if layout.RANK_PACKAGE not in capsule.manifest.files:
        raise CapsuleError("the capsule lacks the part of prismdbg that runs in the rank", hint="capture it again")
    folder = session / GIVEN / "recorder"
    with exact_file.open_real(str(capsule.exact_path / layout.RANK_PACKAGE)) as package:  # what it has, the rank sees
        rank_package.unpack(package.read(), folder)
    return folder


def _native(target: str) -> tuple[Bind, ...]:
    """The extension's builds, with which the rank traces; beside what the rank itself had loaded, not over it."""
    builds = cache_dir() / "native"
    return (Bind(source=builds, target=target),) if builds.is_dir() else ()


def _program_environment(rank: RankJson, given: Path, config: Path) -> dict[str, str]:
    """The recorded environment, ours in front, and what made the run what it was: threads and instruction set."""
    environment = dict(rank["environment"])
    path = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = f"{given / 'inject'}{os.pathsep}{path}" if path else str(given / "inject")
    environment[ENVIRONMENT_NAME] = str(config)
    environment[seeds.WANTED] = "1"
    environment[REDACTED_NAMES] = ",".join(map(str, rank.get("redacted", ())))
    if "variables_set" not in rank and "forked" not in rank:  # else what it was started with is known
        environment.setdefault("RANK", str(rank["rank"]))
        environment.setdefault("WORLD_SIZE", str(rank["world_size"]))
    environment["OMP_NUM_THREADS"] = str(rank["torch_threads"])
    if instruction_set := _INSTRUCTION_SETS.get(str(rank["cpu_capability"])):
        environment["ATEN_CPU_CAPABILITY"] = instruction_set
    environment["PYTHONUNBUFFERED"] = "1"
    return environment


def _hostname(rank: RankJson) -> str:
    """Empty where it is not known, or no name that a machine may have."""
    node = str(rank.get("hardware", {}).get("node", ""))
    return node if _HOSTNAME.fullmatch(node) else ""


def _name(capsule: Capsule) -> str:
    return f"rank {capsule.manifest.rank} of {capsule.manifest.job}"


def _environment(capsule: Capsule) -> Environment | None:
    fields = capsule.part(layout.ENVIRONMENT)
    return Environment.from_json(fields) if fields is not None else None


def _paths(rank: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Plain absolute ones of a list in the capsule."""
    found = [str(path) for path in rank.get(name, ())]
    return tuple(path for path in found if not rank_path.problem(path))


def _cwd(rank: RankJson) -> str:
    cwd = str(rank["cwd"])
    if cwd != "/":
        rank_path.require_outside_kernel(cwd)
    return cwd


def bind_target(path: str, trusted: Iterable[Path]) -> str:
    """What is ours is bound there, in a place that is thrown away. `trusted`: what the starter runs and reads, of which
    nothing may be covered."""
    rank_path.require_outside_kernel(path)
    for folder in trusted:
        if _overlap(path, str(folder)) or _overlap(os.path.realpath(path), os.path.realpath(folder)):
            raise CapsuleError(
                f"the capsule names {path[:80]!r}, which would hide files of prismdbg itself in {folder}",
                hint="keep runs elsewhere: the capsule was recorded below that folder, or it was altered",
            )
    return path


def _overlap(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def with_files(capsule: Capsule, chosen: Iterable[str]) -> dict[str, Path]:
    """Of `--with-file PATH` and `PATH=MINE`, by PATH. `UsageError` names the files that can be given."""
    wanted = {file.path for file in _redacted(capsule)}
    given: dict[str, Path] = {}
    for text in chosen:
        path = next((path for path in wanted if text == path or text.startswith(f"{path}=")), None)
        if path is None:
            hint = f"use one of: {', '.join(sorted(wanted))}" if wanted else "leave --with-file out"
            raise UsageError(f"--with-file {text}: the capsule has no redacted file of this path", hint=hint)
        mine = typed_path(text[len(path) + 1 :] or path).absolute()
        if not path_kind.is_file(mine) or rank_path.problem(os.path.realpath(mine)):
            raise UsageError(f"--with-file {text}: {mine} is not a file", hint=f"--with-file {path}=YOUR_FILE")
        given[path] = mine
    return given


def _redacted(capsule: Capsule) -> tuple[RankFile, ...]:
    return tuple(file for file in read_files(capsule) if file.place is Place.REDACTED)


def _absent(capsule: Capsule, session: Path, laid: tuple[LaidFile, ...], folders: tuple[str, ...]) -> LaterFiles:
    """What the rank made itself later, and what lies on this machine now and is younger than A."""
    rank, log = capsule.rank(), read_log(capsule.log)
    made = _paths(rank, "absent")
    if not (since_ns := begins_ns(capsule.manifest.origin, rank, log)):
        return LaterFiles(made, ALL_HIDDEN)
    own = [str(rank.get(name, "")) for name in ("prefix", "base_prefix")]
    left_out = [*filter(None, own), str(Path(str(rank.get("inject", "/-"))).parent), str(session), str(capsule.path)]
    known = {*(file.target for file in laid), *folders}
    later = later_files(written_into(log, rank), since_ns, known=known, left_out=left_out)
    return later._replace(paths=(*made, *later.paths))


def begins_ns(origin: Origin, rank: Mapping[str, Any], log: RankLog) -> int:
    """A as time since the epoch; 0 where it is not known."""
    if origin.starts_program:
        return int(rank.get("started_ns", 0))
    past = int(rank.get("past_records", 0))
    first = min((r.time_created_ns for r in log.collectives if r.record_id >= past), default=None)
    return first + log.wall_offset_ns if first is not None else 0


def _laid(request: ReplayRequest, open_files: tuple[OpenFile, ...]) -> tuple[LaidFile, ...]:
    """The rank's files at the paths it knows; large ones from this machine, if they are still the same."""
    capsule = request.capsule
    sizes = {file.path: file.size_bytes for file in open_files}
    kept = [file for file in read_files(capsule) if file.place is not Place.MISSING]
    laid = [_lay(request, file, sizes.get(file.path)) for file in kept]
    known = {file.path for file in kept}
    written = {file.path for file in open_files if file.is_written}
    laid = [replace(file, is_written=True) if file.target in written else file for file in laid]
    for file in open_files:
        is_new = file.is_written and not file.is_mapped and file.path not in known
        if is_new and not rank_path.problem(file.path):
            laid.append(LaidFile(source=None, target=file.path, mode=file.mode, size_bytes=file.size_bytes))
    return (*laid, *_names_only(capsule, {file.target for file in laid}))


def _names_only(capsule: Capsule, laid: set[str]) -> tuple[LaidFile, ...]:
    """Files that the rank listed and did not read: empty, and nobody may open them."""
    names = (path for path in _paths(capsule.rank(), "listed") if path not in laid and not rank_path.problem(path))
    return tuple(LaidFile(source=None, target=path, mode=0, size_bytes=0) for path in names)


def _lay(request: ReplayRequest, file: RankFile, size_bytes: int | None) -> LaidFile:
    if file.place is Place.INSIDE:
        source = content_path(request.capsule, file)
        return LaidFile(source=source, target=file.path, mode=file.mode, size_bytes=size_bytes)
    if (mine := request.with_files.get(file.path)) is not None:
        given = exact_file.known(str(mine))
        return LaidFile(source=mine, target=file.path, mode=file.mode, size_bytes=size_bytes, known=given)
    try:
        found = find(file)
    except CapsuleError as reason:
        if file.place is Place.REDACTED:  # empty, so that it is there: opening it says why it is
            return LaidFile(source=None, target=file.path, mode=file.mode, size_bytes=size_bytes or 0)
        raise CapsuleError(
            f"a file that the rank read is not in the capsule, and not unchanged on this machine: {reason}",
            hint="restore the file as it was when the rank was captured",
        ) from None
    return LaidFile(source=Path(file.path), target=file.path, mode=file.mode, size_bytes=size_bytes, known=found)
