"""One input: a copy of something whole, changed in a place or two, its manifest made to agree with it again."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from prismdbg.capsule import layout
from tests.fuzz import archives, process_image
from tests.fuzz.capsule_json import OF_MACHINE, changed_of_machine
from tests.fuzz.corpus import Corpus
from tests.fuzz.records import changed_bytes, changed_log, changed_trace
from tests.fuzz.traps import Traps
from tests.fuzz.values import TEXTS, changed, changed_json

PACKED = f"packed{layout.PACKED_SUFFIX}"
MOST_BYTES = 1 << 26
_WEIGHTS = {"start": 9, "image": 9, "state": 9, "run": 4, "emulated": 3, "graph": 2, "cluster": 1, "script": 1,
            "profiles": 1, "executions": 1, "nodes": 1, "dumps": 1, "sweep": 2, "snapshot": 1}  # fmt: skip
_WHOLE_SHARE, _PACKED_SHARE, _STALE_SHARE = 0.01, 0.25, 0.04
_OF_MACHINE_SHARE = 0.4  # of capsules: whole but for what they say of this machine, so that they are read to the end


@dataclass(slots=True)
class Made:
    """`path`: what a command is given. story: what was done to it, for people. is_of_machine: only in what it names."""

    base: str
    path: Path
    story: list[str] = field(default_factory=list)
    is_of_machine: bool = False


def make_input(corpus: Corpus, folder: Path, rng: Random) -> Made:
    """The same of the same `rng` and corpus."""
    names = [name for name in _WEIGHTS if name in corpus.bases]
    base = rng.choices(names, [_WEIGHTS[name] for name in names])[0]
    source = corpus.bases[base]
    path = folder / source.name
    if source.is_file():
        made = Made(base, path)
        path.write_bytes(_changed_file(source.name, source.read_bytes(), rng, made))
        return made
    shutil.copytree(source, path, symlinks=True)
    made = Made(base, path)
    if (path / layout.OURS).is_dir() and rng.random() < _OF_MACHINE_SHARE:
        made.is_of_machine = True
        _change_of_machine(path, rng, made, corpus.traps)
        reseal(path)
        return made
    if rng.random() >= _WHOLE_SHARE:
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            _change_folder(path, rng, made)
    return _sealed(made, folder, rng) if (path / layout.OURS).is_dir() else made


def kept_input(archive: Path, folder: Path) -> Made:
    """What an earlier run found: `BASE.WHAT.tar.xz` holds the input itself."""
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    (path,) = folder.iterdir()
    return Made(archive.name.partition(".")[0], path, [archive.name])


def _sealed(made: Made, folder: Path, rng: Random) -> Made:
    if rng.random() >= _STALE_SHARE:
        reseal(made.path)
    is_small = all(path.lstat().st_size < MOST_BYTES for path in made.path.rglob("*"))
    if rng.random() < _PACKED_SHARE and is_small:
        made.story.append("packed")
        packed = folder / PACKED
        packed.write_bytes(archives.packed_capsule(made.path, rng))
        shutil.rmtree(made.path)
        made.path = packed
    return made


def reseal(capsule: Path) -> None:
    """The manifest names every file that is there, with its size and hash: nothing is caught by those any more."""
    path = capsule / layout.MANIFEST
    if not path.is_file():
        return  # a pipe, say
    try:
        manifest = json.loads(path.read_bytes())
        files = manifest["files"] = {}
        for file in sorted(capsule.rglob("*")):
            name = file.relative_to(capsule).as_posix()
            if file.is_file() and not _leads_out(file) and name != layout.MANIFEST:
                size = file.stat().st_size
                data = file.read_bytes() if size < MOST_BYTES else b""  # of a hole nobody should come to the hash
                files[name] = {"size_bytes": size, "sha256": hashlib.sha256(data).hexdigest()}
        path.write_text(json.dumps(manifest))
    except (ValueError, TypeError, OSError, RecursionError, MemoryError):
        return  # it is itself what was changed


def _leads_out(file: Path) -> bool:
    return file.is_symlink() and str(file.readlink()).startswith(("/dev", "/proc"))


def _change_folder(folder: Path, rng: Random, made: Made) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    if not files:
        return
    path = rng.choice(files)
    if rng.random() < 0.12 and path.stat().st_size < MOST_BYTES:
        _change_tree(folder, path, files, rng, made)
        return
    if path.stat().st_size < MOST_BYTES:
        path.write_bytes(_changed_file(path.relative_to(folder).as_posix(), path.read_bytes(), rng, made))


def _change_of_machine(folder: Path, rng: Random, made: Made, traps: Traps) -> None:
    for name in dict.fromkeys(rng.choices(OF_MACHINE, (2, 3, 1), k=rng.choice((1, 1, 2)))):
        path = folder / name
        if rng.random() < 0.05 and name != layout.RANK:
            made.story.append(f"{name}: left out")
            path.unlink()
        else:
            made.story.append(f"{name}: changed in what it names")
            path.write_bytes(changed_of_machine(path.name, path.read_bytes(), traps, rng))


def _change_tree(folder: Path, path: Path, files: list[Path], rng: Random, made: Made) -> None:
    """Files away, beside their place, in each other's place, or no files at all."""
    name, other = path.relative_to(folder).as_posix(), rng.choice(files)

    def link() -> None:
        path.unlink()
        path.symlink_to(rng.choice((str(other), "/etc/passwd", "../../escaped", "/dev/zero", "/proc/self/mem", name)))

    def as_pipe() -> None:
        path.unlink()
        os.mkfifo(path)

    def as_folder() -> None:
        path.unlink()
        path.mkdir()

    def hole() -> None:
        with path.open("r+b") as file:
            file.truncate(rng.choice((1 << 20, 1 << 24, 1 << 33)))

    def beside() -> None:
        wanted = rng.choice(
            ("events.00007.seg", "events.x.seg", "events.00000.seg.seg", "memory.00001.seg", "x", "7.x")
        )
        path.rename(path.with_name(wanted))

    def swap() -> None:
        data = path.read_bytes()
        path.write_bytes(other.read_bytes())
        other.write_bytes(data)

    def more() -> None:
        place = path.with_name(rng.choice(TEXTS).replace("\0", "").replace("/", "")[:50] or "more")
        place.write_bytes(b"{}")

    change: Callable[[], None] = rng.choice((link, as_pipe, as_folder, path.unlink, beside, swap, more, hole))
    made.story.append(f"{name}: {change.__name__}")
    try:
        change()
    except (OSError, UnicodeError):
        made.story.append("(could not be done)")


def _changed_file(name: str, data: bytes, rng: Random, made: Made) -> bytes:
    made.story.append(f"{name}: changed")
    last = name.rpartition("/")[2]
    if last.endswith(".json") or last in (layout.CONFIG_DUMP, layout.SPEC_DUMP):
        return changed_json(data, rng)
    if last.startswith("events."):
        return changed_log(data, rng)
    if last.startswith("memory."):
        return changed_trace(data, rng)
    if last.endswith(".tar.zst"):
        return archives.packed_package(data, rng)
    if last.endswith(".npz"):
        return _changed_arrays(data, rng)
    if last.endswith(".yaml"):
        return _changed_yaml(data, rng)
    if (last.endswith(".pickle") or made.base == "dumps") and rng.random() < 0.7:
        with suppress(pickle.UnpicklingError, EOFError):  # another file may have been put in its place
            return pickle.dumps(changed(pickle.loads(data), rng), 4)  # noqa: S301  of the corpus
    if last.endswith(".img") and not last.startswith("pages-") and rng.random() < 0.8:
        return _changed_image(data, rng)
    return changed_bytes(data, rng)


def _changed_image(data: bytes, rng: Random) -> bytes:
    """Of a value in it; as bytes where CRIU's format has no room for the new one."""
    try:
        magic, entries = process_image.parsed(data)
        return process_image.packed(magic, changed(entries, rng))
    except Exception:  # its writer raises whatever it likes
        return changed_bytes(data, rng)


def _changed_arrays(data: bytes, rng: Random) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target:
        names = archive.namelist()
        chosen = rng.choice(names)
        for name in names:
            content = archive.read(name)
            if name == chosen:
                content = _changed_array(name, content, rng)
            target.writestr(name, content)
        if rng.random() < 0.1:
            target.writestr(rng.choice(("../escaped.npy", "x.npy", "about")), rng.choice((b"", bytes(1 << 26))))
    return out.getvalue() if rng.random() < 0.9 else changed_bytes(out.getvalue(), rng)


def _changed_array(name: str, content: bytes, rng: Random) -> bytes:
    start = content.find(b"\n") + 1
    if name == "about.npy" and rng.random() < 0.8:
        about = changed_json(content[start:], rng)
        header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({len(about)},), }}".ljust(117).encode() + b"\n"
        return content[:8] + len(header).to_bytes(2, "little") + header + about
    if rng.random() < 0.3:
        shape = rng.choice((b"(9999999999999,)", b"(-1,)", b"()", b"(2, 2)", b"(1,)", b"(1<<40,)"))
        kind = rng.choice((b"'|O'", b"'<f8'", b"'|u1'", b"'<i8'", b"'V1000'", b"[('a', '<i8')]"))
        header = b"{'descr': " + kind + b", 'fortran_order': False, 'shape': " + shape + b", }"
        header = header.ljust(117) + b"\n"
        return content[:8] + len(header).to_bytes(2, "little") + header + content[start:]
    return content[:start] + changed_bytes(content[start:], rng)


_YAML = (
    "&a [*a]", "*b", "!!python/object/apply:os.system ['id']", "{a: {b: {c: 1}}}", "[" * 5000, "1e999", ".nan",
    "2024-01-01",
    "'" + "x" * 100, "\x00", "\t- x", "? [a]\n: 1", "<<: {a: 1}", "0x7fffffffffffffffff", "-1", "1" * 5000, "", "~",
    "yes",
    "5 GB/s", "1e300 GB/s", "-5 us", "0", "|\n  text", "{" * 3000, "99999999999999999999 s",
)  # fmt: skip


def _changed_yaml(data: bytes, rng: Random) -> bytes:
    lines = data.decode().split("\n")
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(lines))
        line, choice = lines[at], rng.random()
        if choice < 0.6 and ":" in line:
            lines[at] = line.partition(":")[0] + ": " + rng.choice((*_YAML, *TEXTS[:5], *TEXTS[6:]))
        elif choice < 0.7:
            lines.insert(at, line)
        elif choice < 0.8:
            del lines[at]
            lines = lines or [""]
        else:
            lines.insert(at, " " * rng.randrange(6) + rng.choice(_YAML))
    return "\n".join(lines).encode("utf-8", "surrogatepass")
