"""What a replay is started from: the values that `Runtime.start` takes.

Every path means the same inside and outside: the session's folders, the capsule and the checkpoint engine are bound
where they lie on the host.

A session has three folders. `rank` is the one that the rank may write into: its output, its agent's socket, its traces.
`given` holds what it reads: the configuration and the modules that are put into it. `control` holds what rules it: the
starter's orders and status, the lifeline, the prepared images. The rank cannot write there; where the starter has the
rights to make the rank's view of the files, the rank does not see it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from prismdbg.capsule.exact_file import Known
from prismdbg.errors import PrismError
from prismdbg.model.deadline import NEVER, Deadline
from prismdbg.runtime.environment import Environment
from prismdbg.runtime.limits import Limits, usual

RANK, GIVEN, CONTROL_FOLDER, OUTPUT = "rank", "given", "control", "output"
RESTORE_S = 120.0  # at least, for an image to be restored
COPIED_BYTES = 16 << 20  # of one file


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """A folder or file of the host that is seen at `target`. known: it must be this one; `source` is its path."""

    source: Path
    target: str
    read_only: bool = True
    known: Known | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaidFile:
    """A file of the rank to be put where the rank knows it; a copy, which the rank may change.

    source: None for a file that is only written to, of which nothing but the length matters.
    size_bytes: cut to this length: a restore wants a file that was open to be as long as it was.
    is_written: the rank has it open for writing.
    known: for a file of this machine that was looked at: the source must still be this one.
    """

    source: Path | None
    target: str
    mode: int = 0o644
    size_bytes: int | None = None
    mtime_ns: int | None = None
    is_written: bool = False
    known: Known | None = None

    @property
    def is_bound(self) -> bool:
        """A large file that lies on this machine where the rank knows it is seen there, not copied."""
        if self.source != Path(self.target) or self.is_written:
            return False
        return self.source.stat().st_size > COPIED_BYTES

    @property
    def bind(self) -> Bind:
        """For one that is bound."""
        source = Path(self.target) if self.known is None else Path(self.known.path)
        return Bind(source=source, target=self.target, known=self.known)


@dataclass(frozen=True, slots=True, kw_only=True)
class StarterEngine:
    """The checkpoint engine that the starter is to run.

    name: by which the starter knows it. folder: where it lies. command: how it is run. capabilities: those that it
    needs in a container, beyond a container's usual ones.
    explain: makes the error out of what was tried and the engine's log, when it refuses; explain_foreign: for images
    that come from a capsule.
    """

    name: str
    folder: Path
    command: tuple[str, ...]
    capabilities: tuple[str, ...]
    explain: Callable[[str, str], PrismError]
    explain_foreign: Callable[[str, str], PrismError]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageOrigin:
    """A checkpoint: `images` is a folder made by the engine's `prepare_restore`.

    names: what the engine opens or makes by name.
    standards: descriptor numbers and the engine's keys of what becomes of standard input and output.
    gpu_pids: those whose state on GPUs is in the image.
    doing: what is tried, for errors.
    """

    engine: StarterEngine
    images: Path
    root_pid: int
    pids: tuple[int, ...]
    names: tuple[str, ...]
    gpu_pids: tuple[int, ...] = ()
    doing: str = "restore the rank"
    leads_session: bool = True
    standards: tuple[tuple[int, str], ...] = ()
    timeout_s: float = RESTORE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOrigin:
    """The start of the program. `env` is the whole environment."""

    executable: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    umask: int = 0o022


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """Images of the rank are to be taken where it runs, into `folder`, which lies outside its session and its view.

    start_from: the name of one to start with, in place of the origin; seal: what that image was when it was saved.
    doing: as of an `ImageOrigin`.
    """

    engine: StarterEngine
    folder: Path
    doing: str = "return to a checkpoint of the rank"
    start_from: str = ""
    seal: str = ""
    timeout_s: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySpec:
    """One start of one rank. `session` is an existing folder that no other start has used.

    folders: to be there, also when empty; absent: not to be there, for the rank made it only later.
    links: of the rank's, beside those of the environment: where each lies, and where it leads. `files`, `folders` and
    `absent` are named without them.
    capsule_folder: which folder the capsule's path must lead to.
    environment: the installed files the rank needs, for places that do not share this machine's.
    saving: None where nobody will want to go back.
    allow_writes: the caller accepts that the program's side effects happen again, for real.
    longest_s: after so long the starter ends the rank by itself, if the command did not before; start_s: of the time
    until the rank runs. deadline: of all that is done for it until then, the making of its place too.
    """

    name: str
    origin: ImageOrigin | ProgramOrigin
    session: Path
    python: str
    capsule: Path | None = None
    capsule_folder: Known | None = None
    environment: Environment | None = None
    binds: tuple[Bind, ...] = ()
    files: tuple[LaidFile, ...] = ()
    folders: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    addresses: tuple[str, ...] = ()
    hostname: str = ""
    uid: int = 0
    gid: int = 0
    saving: Saving | None = None
    allow_writes: bool = False
    limits: Limits = field(default_factory=usual)
    longest_s: float = math.inf
    start_s: float = 180.0
    deadline: Deadline = NEVER
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def output(self) -> Path:
        """Everything the rank writes to standard output and error."""
        return self.session / RANK / OUTPUT

    @property
    def control(self) -> Path:
        return self.session / CONTROL_FOLDER

    @property
    def capsule_paths(self) -> tuple[Path, ...]:
        """By which the capsule's files are named."""
        real = [] if self.capsule_folder is None else [Path(self.capsule_folder.path)]
        return (*real, *([] if self.capsule is None else [self.capsule]))

    @property
    def private(self) -> tuple[Path, ...]:
        """The starter's folders, which the rank must not reach."""
        return (self.control,) if self.saving is None else (self.control, self.saving.folder)

    def all_binds(self) -> tuple[Bind, ...]:
        """Those asked for, and what every replay has: what is the rank's of its session, the capsule and the engine."""
        own = [
            Bind(source=self.session / RANK, target=str(self.session / RANK), read_only=False),
            Bind(source=self.session / GIVEN, target=str(self.session / GIVEN)),
        ]
        if self.capsule is not None:
            folder = self.capsule_folder
            source = self.capsule if folder is None else Path(folder.path)
            own.append(Bind(source=source, target=str(self.capsule), known=folder))
        if self.engine is not None:
            own.append(Bind(source=self.engine.folder, target=str(self.engine.folder)))
        return (*own, *self.binds)

    @property
    def engine(self) -> StarterEngine | None:
        """The checkpoint engine, if it is needed in the rank's place."""
        return self.restoring.engine if self.restoring is not None else None

    @property
    def restores_capsule(self) -> bool:
        """Whether the engine starts with the capsule's checkpoint, not with one that was taken of a replay."""
        is_own = self.saving is not None and bool(self.saving.start_from)
        return isinstance(self.origin, ImageOrigin) and not is_own

    @property
    def restoring(self) -> ImageOrigin | Saving | None:
        """What the engine restores first; None where it is not needed."""
        return self.origin if isinstance(self.origin, ImageOrigin) else self.saving
