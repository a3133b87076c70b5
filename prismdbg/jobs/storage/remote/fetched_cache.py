"""The cache folder of what was fetched from elsewhere: each copy in a folder of its own, with digests to know it by."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from prismdbg.capsule.partial import lock, partial_folder, publish, removed_name
from prismdbg.capsule.transfer import hash_file
from prismdbg.checkpoint import cache
from prismdbg.errors import FacilityError, PrismError
from prismdbg.model.sizes import size

FOLDER = "fetched"
FREE_LEFT_BYTES = 1 << 30  # on the disk of the cache
KEPT = 8  # fetched folders, the newest
BUSY_BOUND_S = 2.0  # while another process gives a copy its name, or takes it away
_RETRY_S = 0.02
_DIGESTS = "digests.json"
_held: dict[Path, int] = {}  # descriptors of the folders that this process has fetched, the newest last


def cache_folder() -> Path:
    folder = cache.made_cache_folder() / FOLDER
    folder.mkdir(exist_ok=True, mode=0o700)
    return folder


def is_fetched(path: Path) -> bool:
    """Whether it is a copy in the cache, which need not be there: nothing of the user's belongs beside it."""
    return path.resolve().is_relative_to((cache.cache_folder() / FOLDER).resolve())


def is_whole(target: Path) -> bool:
    """Whether it was fetched before, and is as it was. Then it is held."""
    if hold(target) and _is_as_it_was(target):
        return True
    _release(target.parent)
    return False


def hold(target: Path) -> bool:
    """No other process removes it before this one has ended or has fetched many others. False where it is not there,
    or is just removed."""
    folder = target.parent
    _release(folder)
    end_s = time.monotonic() + BUSY_BOUND_S
    while (descriptor := _shared(folder)) is None:
        if not folder.exists() or time.monotonic() > end_s:
            return False
        time.sleep(_RETRY_S)
    _held[folder] = descriptor
    for oldest in list(_held)[: 1 - KEPT]:  # the next one takes the place of the oldest
        _release(oldest)
    return True


def _shared(folder: Path) -> int | None:
    """A descriptor with a shared lock. None where another process has the folder for itself, or has removed it."""
    try:
        descriptor = _opened(folder)
    except FileNotFoundError:
        return None
    with suppress(FileNotFoundError, BlockingIOError):
        _require(_share, descriptor)
        if _is_at(folder, descriptor):
            return descriptor
    os.close(descriptor)
    return None


def _is_as_it_was(target: Path) -> bool:
    kept = target.with_name(_DIGESTS)
    if not kept.is_file():
        return False
    try:
        recorded = dict(json.loads(kept.read_text()))
        return all(hash_file(target.parent / name).sha256 == digest for name, digest in recorded.items())
    except (OSError, ValueError, TypeError, PrismError):
        return False


@contextmanager
def fetching(target: Path) -> Iterator[Path]:
    """Yields a folder to fetch into, which becomes that of `target` at the end. Then `target` is held, and the oldest
    copies go, but for those that are held. They go last: nobody else can use the new copy while its folder is locked
    as a partial one."""
    with partial_folder(target.parent) as partial:
        yield partial
        keep(partial, target)
    hold(target)
    _drop_oldest()


def keep(partial: Path, target: Path) -> None:
    """The folder `partial`, which has a complete copy, becomes that of `target`, unless another process has fetched it
    meanwhile: that one may be read already."""
    (partial / _DIGESTS).write_text(json.dumps(_digests(partial / target.name)))
    if not is_whole(target):
        _remove_unless(target.parent, lambda: _is_as_it_was(target))
        if not publish(partial, target.parent) and not is_whole(target):
            raise FacilityError(
                f"{target.parent} is damaged and cannot be replaced",
                hint="end the prismdbg commands that read it, or remove it; then try again",
            )


def require_room(address: str, needed_bytes: int) -> None:
    free = shutil.disk_usage(cache_folder()).free - FREE_LEFT_BYTES
    if needed_bytes > free:
        raise FacilityError(
            f"{address} has {size(needed_bytes)}, and {cache_folder()} has room for {size(max(free, 0))}",
            hint="free some space, or set XDG_CACHE_HOME to a larger disk",
        )


def _digests(target: Path) -> dict[str, str]:
    files = [target] if target.is_file() else [p for p in target.rglob("*") if p.is_file() and not p.is_symlink()]
    return {str(path.relative_to(target.parent)): hash_file(path).sha256 for path in sorted(files)}


def _drop_oldest() -> None:
    folders = [path for path in cache_folder().iterdir() if not path.name.startswith(".")]
    for path in sorted(folders, key=_fetched_s)[:-KEPT]:
        _remove_unless(path, lambda: False)


def _remove_unless(folder: Path, is_wanted: Callable[[], bool]) -> None:
    """Removes it, unless another process has it in use. It loses its name first, so that who waits for it does not wait
    until all of it is removed. `is_wanted` is asked when nobody else can use it."""
    with suppress(OSError):  # another process removes it, too
        descriptor = _opened(folder)
        try:
            _require(lock, descriptor)
            if _is_at(folder, descriptor) and not is_wanted():
                doomed = removed_name(folder)
                folder.rename(doomed)
                shutil.rmtree(doomed, ignore_errors=True)
        finally:
            os.close(descriptor)


def _fetched_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _release(folder: Path) -> None:
    if (descriptor := _held.pop(folder, None)) is not None:
        os.close(descriptor)


def _opened(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _is_at(folder: Path, descriptor: int) -> bool:
    """Whether it still has its name. `FileNotFoundError` where nothing has."""
    return os.path.samestat(os.fstat(descriptor), folder.lstat())


def _share(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)


def _require(locked: Callable[[int], None], descriptor: int) -> None:
    try:
        locked(descriptor)
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP):  # a file system without locks
            raise
