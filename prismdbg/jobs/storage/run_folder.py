"""The run folder that `record` makes: every name in it, and what stands in its JSON files."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import prismdbg
from prismdbg.capsule import checked_json
from prismdbg.capsule.log.reader import iter_logs
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.jobs.storage.run_files import KINDS
from prismdbg.settings.overwritten_copies import FOLDER
from prismdbg.settings.process_identity import this_process
from prismdbg.settings.state_folders import STATES

TELEMETRY = "telemetry"
_TEMPORARY = re.compile(r"\.(.+\.new|now)\.[a-z0-9_]{8}")  # as `tempfile` calls them
_TEMPORARY_KEPT_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths below RUN. Nothing is created by looking. local: the folder of this node that takes what its ranks write,
    in a job that has one; RUN gets it later."""

    path: Path
    local: Path | None = None

    @property
    def home(self) -> Path:
        """Where the ranks write."""
        return self.local or self.path

    @property
    def run_json(self) -> Path:
        return self.path / "run.json"

    @property
    def supervisor_json(self) -> Path:
        return self.path / "supervisor.json"

    @property
    def config(self) -> Path:
        return self.path / "config.json"

    @property
    def keeps_all(self) -> bool:
        """Whether it was recorded with `--window all`: the advice to do so would help nobody."""
        return read_json(self.config).get("window_steps") == -1

    @property
    def environment(self) -> Path:
        """The installed files that all ranks of the run share."""
        return self.path / "environment.json"

    @property
    def inject(self) -> Path:
        return self.path / "inject"

    @property
    def ranks(self) -> Path:
        return self.home / "ranks"

    @property
    def output(self) -> Path:
        """Of an emulation: what each rank printed."""
        return self.path / "output"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def states(self) -> Path:
        """State snapshots of the ranks, and their prologues."""
        return self.home / STATES

    @property
    def overwritten(self) -> Path:
        """What files were when ranks read them, of those that ranks wrote to later
        (`rank/recording/inputs/overwritten.py`)."""
        return self.home / FOLDER

    @property
    def capsules(self) -> Path:
        return self.path / "capsules"

    @property
    def nodes(self) -> Path:
        """Of a job that several supervisors record: who they are, and what each saw."""
        return self.path / "nodes"

    @property
    def decisions(self) -> Path:
        """Of such a job: which supervisor captures an incident that several saw."""
        return self.path / "incidents"

    @property
    def requests(self) -> Path:
        """Of such a job: captures that are requested from the supervisor of a rank's node."""
        return self.path / "requests"

    @property
    def stacks(self) -> Path:
        """Of all ranks, as they were when a hang was seen."""
        return self.path / "stacks"

    @property
    def telemetry(self) -> Path:
        """Readings of the machine's sensors, beside the logs: `telemetry/file_format.py`. Of several nodes, each has a
        folder of its name there."""
        return self.home / TELEMETRY

    def rank_folders(self) -> list[Path]:
        """Log folders, in rank order, later attempts of a rank last."""
        return list(iter_logs(self.ranks)) if self.ranks.is_dir() else []

    def latest(self, rank: int) -> Path:
        """The folder of a rank's last attempt. `UsageError` names the ranks there are."""
        found = [folder for folder in self.rank_folders() if rank_of(folder) == rank]
        if not found:
            known = ", ".join(map(str, sorted({rank_of(folder) for folder in self.rank_folders()})))
            raise UsageError(
                f"{self.path} contains no data of rank {rank}",
                hint=f"choose one of its ranks: {known}" if known else "wait until a rank has issued a collective",
            )
        return found[-1]

    @classmethod
    def require_new(cls, path: Path) -> RunFolder:
        """Where one can be made; nothing is made. `UsageError` where something is there already, for nothing recorded
        is ever overwritten."""
        run = cls(path.resolve())
        run._refuse_colon()
        try:
            if run.path.exists() and not run.path.is_dir():
                raise UsageError(f"{path} is a file", hint="choose a new folder")
            if run.path.exists() and any(run.path.iterdir()):
                raise not_empty(path)
        except OSError as error:
            raise cannot_be_made(path, error) from error
        return run

    @classmethod
    def new(cls, path: Path) -> RunFolder:
        """Makes it, for its owner alone. `UsageError` as `require_new`, and where it cannot be made."""
        run = cls.require_new(path)
        try:
            run.make()
            run.ranks.mkdir()
        except FileExistsError as error:  # made by another command since it was looked at
            raise not_empty(path) from error
        except OSError as error:
            raise cannot_be_made(path, error) from error
        return run

    def make(self) -> None:
        """The folder alone, for its owner."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if stat.S_IMODE(self.path.stat().st_mode) != 0o700:  # an empty one that was there, or an odd umask
            self.path.chmod(0o700)

    def _refuse_colon(self) -> None:
        if os.pathsep in str(self.path):
            raise UsageError(
                f"{self.path} contains a colon, which PYTHONPATH does not allow in a path",
                hint="choose a path without a colon: Python loads the recorder from there",
            )

    @classmethod
    def shared(cls, path: Path) -> RunFolder:
        """One that several supervisors make: it may be there, with whatever is in it."""
        run = cls(path.resolve())
        run._refuse_colon()
        try:
            if run.path.exists() and not run.path.is_dir():
                raise UsageError(f"{path} is a file", hint="choose a new folder")
            run.make()
        except OSError as error:
            raise cannot_be_made(path, error) from error
        return run

    @classmethod
    def existing(cls, path: Path) -> RunFolder:
        run = cls(path.resolve())
        if not run.run_json.is_file():
            what = f"{path} is not a run folder" if path.exists() else f"no such file or directory: {path}"
            raise UsageError(what, hint="give the folder that `record` or `emulate` wrote (-o)")
        return run


def not_empty(path: Path) -> UsageError:
    return UsageError(
        f"{path} already exists and is not empty", hint="choose a new folder, or remove it with `prismdbg rm`"
    )


def cannot_be_made(path: Path, error: OSError) -> UsageError:
    why = error.strerror or (str(error.args[0][0][2]) if isinstance(error, shutil.Error) and error.args[0] else error)
    return UsageError(f"{path} cannot be created: {why}", hint="choose a new folder that you can write to")


def rank_of(folder: Path) -> int:
    return int(folder.name.split(".")[0])


def attempt_of(folder: str) -> int:
    """How often the rank of this log folder was restarted before."""
    return int(folder.partition(".")[2] or 0)


def describe_run(run: RunFolder, command: Sequence[str], about: Mapping[str, Any]) -> None:
    """Writes run.json: what was started, where, when and by whom, and `about` how."""
    from prismdbg.capsule.secrets.masking import redact_arguments  # its many patterns are compiled when it is imported

    write_json(
        run.run_json,
        {
            "command": list(redact_arguments(command).words),  # to be shown, never to be run
            "cwd": str(Path.cwd()),
            "started_wall_ns": time.time_ns(),
            "supervisor": this_process(),
            **about,
            "version": prismdbg.__version__,
            "python": sys.version.split()[0],
        },
    )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, or an empty one where the file is not there yet. `CapsuleError` where it is not what a file of
    this name holds."""
    if not path.is_symlink() and not path.exists():
        return {}
    fields = checked_json.read(path)
    kind = KINDS.get(path.name)
    return fields.value if kind is None else checked_json.checked(kind, fields.value, str(path))


def read_if_whole(path: Path) -> dict[str, Any]:
    """As `read_json`, and empty where it is damaged, too: for those to whom the logs speak without it."""
    try:
        return read_json(path)
    except CapsuleError:
        return {}


def remove_temporaries(folder: Path) -> None:
    """What writers who were killed left in there, of `write_json` and of `file_system_now`. They hold no lock, so these
    go by their age."""
    for path in folder.iterdir() if folder.is_dir() else ():
        with suppress(OSError):
            if _TEMPORARY.fullmatch(path.name) and time.time() - path.lstat().st_mtime > _TEMPORARY_KEPT_S:
                path.unlink()


def write_json(path: Path, data: dict[str, Any], *, indent: int | None = 1) -> None:
    """Whole or not at all, 0600; several may write it at once, and the last one stays. indent: None for long lists."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.new.")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(json.dumps(data, indent=indent))
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
