"""The one place that imports pycriu: reads and writes CRIU's images as plain dicts.

What is read may be hostile. CRIU's own formats say of each field what it is and whether it must be there; that is
checked for every entry, so that whoever reads on finds what it asks for, or a `CapsuleError`.
"""

from __future__ import annotations

import importlib
import itertools
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from prismdbg.capsule.limits import MAX_IMAGE_BYTES
from prismdbg.capsule.transfer import open_plain
from prismdbg.checkpoint.bundle import Criu
from prismdbg.errors import CapsuleError

_NUMBER = struct.Struct("<i")
_HINT = "fetch the capsule again: this copy is damaged or was altered"
_PRESENT = 1 << 2  # of a run of pages: they are in the image of pages
_GHOST = "GHOST_FILE"  # its first entry is followed by a file's content


class Entry(dict[str, Any]):
    """One entry, or a part of one. A field that is not there is a `CapsuleError`."""

    def __missing__(self, name: str) -> NoReturn:
        raise CapsuleError(f"the checkpoint lacks {name}", hint=_HINT)


def load_image(criu: Criu, path: Path) -> list[Entry]:
    """The entries of one image; of a deleted file's content only what is said of it. A damaged or missing one, or one
    of another kind than its name says, is a `CapsuleError`."""
    return _load(criu, path)[1]


def first_entry(criu: Criu, path: Path) -> Entry:
    """As `load_image`; `CapsuleError` where the image has none."""
    entries = load_image(criu, path)
    if not entries:
        raise CapsuleError(f"the checkpoint {path} is empty", hint=_HINT)
    return entries[0]


def pages_in(criu: Criu, path: Path) -> tuple[int, int]:
    """Of a `pagemap-*.img`: the number of the image that holds its pages, and how many it must hold. An entry is not
    kept: there may be millions."""
    pb = _pycriu(criu).images.pb
    with _damage(path), open_plain(path) as file:
        _kind(_pycriu(criu).images, file)
        runs = _messages(file, itertools.chain([pb.pagemap_head], itertools.repeat(pb.pagemap_entry)))
        head = next(runs, None)
        if head is None:
            raise ValueError("it is empty")
        return head.pages_id, sum(run.nr_pages or run.compat_nr_pages for run in runs if _has_pages(run))


def _has_pages(run: Any) -> bool:
    """Otherwise they are in the image of an earlier checkpoint, which a capsule has none of."""
    return bool(run.flags & _PRESENT) if run.HasField("flags") else not run.in_parent


def edit_image(criu: Criu, source: Path, target: Path, entries: list[Entry]) -> None:
    """Writes `source` again as `target` with these entries."""
    image = {"magic": _load(criu, source)[0], "entries": entries}
    with target.open("xb") as file:
        _pycriu(criu).images.dump(image, file)


def write_image(criu: Criu, target: Path, magic: str, entries: list[Entry]) -> None:
    """A new image of the kind that `magic` names."""
    with target.open("xb") as file:
        _pycriu(criu).images.dump({"magic": magic, "entries": entries}, file)


def _load(criu: Criu, path: Path) -> tuple[str, list[Entry]]:
    """What kind it is, and its entries."""
    images = _pycriu(criu).images
    with _damage(path), open_plain(path) as file:
        kind = _kind(images, file)
        if kind != _kind_named(path) and _kind_named(path) in images.images.handlers:
            raise ValueError(f"it has type {kind}")
        return kind, list(_entries(images, kind, file))


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Whatever is wrong in it is a `CapsuleError`."""
    try:
        yield
    except (CapsuleError, MemoryError):
        raise
    except Exception as error:  # protobuf raises all kinds on damaged bytes
        said = f"{type(error).__name__}: {str(error)[:200]}"
        raise CapsuleError(f"the checkpoint {path} cannot be read: {said}", hint=_HINT) from error


def _kind_named(path: Path) -> str:
    """`fdinfo-2.img` is FDINFO."""
    return path.stem.rstrip("0123456789").rstrip("-").replace("-", "_").upper()


def _kind(images: Any, file: BinaryIO) -> str:
    known = images.magic
    (number,) = _NUMBER.unpack(file.read(_NUMBER.size))
    if number in (known.by_name["IMG_COMMON"], known.by_name["IMG_SERVICE"]):
        (number,) = _NUMBER.unpack(file.read(_NUMBER.size))
    return str(known.by_val[number])


def _entries(images: Any, kind: str, file: BinaryIO) -> Any:
    is_ghost = kind == _GHOST
    payload = images.pb.ghost_file_entry if is_ghost else images.images.handlers[kind].payload
    left = os.fstat(file.fileno()).st_size - file.tell()
    if left > MAX_IMAGE_BYTES and not is_ghost:
        raise ValueError(f"{left >> 20} MiB; at most {MAX_IMAGE_BYTES >> 20} are read")
    for message in itertools.islice(_messages(file, itertools.repeat(payload)), 1 if is_ghost else None):
        yield as_entries(images.pb2dict.pb2dict(message))


def _messages(file: BinaryIO, payloads: Iterator[Any]) -> Iterator[Any]:
    """One after the other, each whole."""
    left = os.fstat(file.fileno()).st_size - file.tell()
    while head := file.read(_NUMBER.size):
        (size,) = _NUMBER.unpack(head)
        if not 0 <= size <= min(left, MAX_IMAGE_BYTES):
            raise ValueError(f"an entry of {size} bytes")
        message = next(payloads)()
        message.ParseFromString(file.read(size))
        if lacking := message.FindInitializationErrors():
            raise ValueError(f"an entry lacks {', '.join(lacking[:3])}")
        yield message


def as_entries(value: Any) -> Any:
    """What pycriu gives, every dict in it an `Entry`."""
    if isinstance(value, dict):
        return Entry((name, as_entries(part)) for name, part in value.items())
    return [as_entries(part) for part in value] if isinstance(value, list) else value


def _pycriu(criu: Criu) -> Any:
    """Beside the CRIU it belongs to; the name on PyPI is another project."""
    where = str(criu.python_path)
    if where not in sys.path:
        sys.path.append(where)
    return importlib.import_module("pycriu")
