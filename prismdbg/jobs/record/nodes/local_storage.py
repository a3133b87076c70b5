"""Where a node keeps what its ranks write until RUN gets it: chosen by what the machine has, and made."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

from prismdbg.errors import UsageError
from prismdbg.jobs.storage.job_nodes import NodeFolder
from prismdbg.jobs.storage.local_logs import PREFIX, LocalFolder
from prismdbg.jobs.storage.run_folder import RunFolder, read_json, write_json
from prismdbg.model.sizes import size
from prismdbg.settings.file_system import is_local, is_memory

NONE = "none"
LEAST_FREE_BYTES = 1 << 30
_SHARED_MEMORY = Path("/dev/shm")


def chosen(asked: str, run: Path, environment: Mapping[str, str], *, has_states: bool = False) -> Path | None:
    """Below which folder; None where the ranks write into RUN. asked: by the user, a folder or `none`; empty: a folder
    of this node if RUN lies on a file server, not in memory if `has_states`: the training state of all ranks of the
    node, several times."""
    if asked == NONE or (not asked and is_local(run)):
        return None
    if not asked:
        found = [folder for folder in _usable(environment) if not (has_states and is_memory(folder))]
        return next(iter(sorted(found, key=is_memory)), None)
    folder = Path(asked).absolute()
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        why = "permission denied" if folder.is_dir() else "no such directory"
        raise UsageError(f"--local {asked}: {why}", hint="give a folder of this node that you can write to, or none")
    return folder


def _usable(environment: Mapping[str, str]) -> Iterator[Path]:
    named = [environment[name] for name in ("SLURM_TMPDIR", "TMPDIR") if environment.get(name)]
    for folder in (*map(Path, named), Path("/tmp"), Path("/var/tmp"), _SHARED_MEMORY):
        with suppress(OSError):
            has_room = shutil.disk_usage(folder).free >= LEAST_FREE_BYTES
            if has_room and is_local(folder) and os.access(folder, os.W_OK | os.X_OK):
                yield folder


def made(below: Path, run: RunFolder, node: NodeFolder) -> RunFolder:
    """RUN as this node's supervisor sees it: what the ranks write is in a new folder there, and RUN says so."""
    path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=below))
    local = LocalFolder(path)
    local.ranks.mkdir(mode=0o700)
    local.describe(run.path, node.name)
    write_json(node.about, {**read_json(node.about), "local": str(path)})
    return RunFolder(run.path, path)


@contextmanager
def kept(folder: Path) -> Iterator[None]:
    """systemd-tmpfiles removes what nobody has touched in `/tmp` for ten days, such as rank.json. It leaves out
    a folder that is locked, and all that is in it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # others of this job may have it, too
        yield
    finally:
        os.close(descriptor)


def kept_if_local(run: Path) -> AbstractContextManager[None]:
    """The same for RUN. Of a file server nobody asks a lock."""
    return kept(run) if is_local(run) else nullcontext()


def said(local: Path, most_bytes: int, besides: str) -> str:
    """most_bytes: of one rank, 0 where nothing bounds it; besides: what else goes there."""
    most = f"up to {size(most_bytes)} per rank" if most_bytes else "as much as the job writes"
    memory = f"; this is memory, {most}{besides}" if is_memory(local) else ""
    return f"ranks of this node write into {local}{memory}; their logs are copied at incidents and at the end"
