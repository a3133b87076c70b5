"""A capsule as one `tar.zst`, and back. The way back trusts nothing.

Never `extractall`: member by member, exactly the files the manifest names, of the size and content it says.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import zstandard

from prismdbg.capsule import checked_json, layout, transfer
from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.manifest import FileEntry, Manifest
from prismdbg.capsule.partial import already_exists, partial_file, partial_folder, publish_new, temporary_folder
from prismdbg.errors import CapsuleError, FacilityError, PrismError, UsageError
from prismdbg.jobs.storage.archive_crypto import NO_KEYS, Keys, plain, sign, signature_path, write_encrypted
from prismdbg.jobs.storage.archive_reader import ArchiveReader, Limits, Member
from prismdbg.model.meanwhile import by_bytes, working
from prismdbg.model.sizes import size

LEVEL = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """recipients: who can decrypt it, nobody's key for an open one. key: the SSH key that signs it."""

    recipients: tuple[str, ...] = ()
    key: Path | None = None


OPEN = Seal()
Progress = Callable[[int], None]  # bytes done since the last call


def no_progress(_more_bytes: int) -> None:
    pass


def pack(source: Path, target: Path, progress: Progress = no_progress, seal: Seal = OPEN) -> int:
    """Writes the capsule folder `source` as `target`, the same bytes for the same capsule unless it is encrypted.
    Returns the size. The signature goes beside it; one that lies there already is of another archive, and every reader
    would take this one for altered.

    What the manifest does not name stays behind; what it names and is altered is an error.
    """
    capsule = Capsule.open(source)
    signature = signature_path(target)
    for path in (target, signature):
        if path.exists() or path.is_symlink():
            raise already_exists(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with partial_file(target, transfer.FILE_MODE) as partial:
        out = partial.file
        if seal.recipients:
            write_encrypted(out, lambda stream: _write_compressed(stream, capsule, progress), seal.recipients)
        else:
            _write_compressed(out, capsule, progress)
        out.flush()
        os.fsync(out.fileno())
        signed = None if seal.key is None else sign(out, seal.key)
        partial.publish(target)
        if signed is not None:
            _write_signature(signature, signed)
        return os.fstat(out.fileno()).st_size


def _write_signature(path: Path, signed: bytes) -> None:
    with partial_file(path, transfer.FILE_MODE) as partial:
        partial.file.write(signed)
        partial.publish(path)


def unpack(
    source: Path,
    target: Path,
    limits: Limits | None = None,
    progress: Progress = no_progress,
    keys: Keys = NO_KEYS,
) -> Capsule:
    """Makes the capsule folder `target` from an archive. `CapsuleError` if it is not exactly a capsule.

    All is written below a temporary folder beside `target`, which is renamed at the end or removed.
    """
    if target.exists() or target.is_symlink():
        raise UsageError(f"{target} already exists", hint="choose another name, or remove it first")
    if not source.is_file():
        raise CapsuleError(f"{source} is not a file", hint="give a file written by `prismdbg pack`")
    try:
        with partial_folder(target) as partial:
            with plain(source, keys) as file:
                manifest = _read_archive(file, source, partial, limits or Limits(), progress)
            publish_new(partial, target)
    except PrismError:
        raise
    except OSError as error:
        raise FacilityError(f"{target} could not be written: {error.strerror}", hint="check the disk") from error
    return Capsule(path=target, manifest=manifest)


@contextmanager
def opened(path: Path, keys: Keys = NO_KEYS) -> Iterator[Capsule]:
    """The capsule at `path`, a folder or packed; a packed one lies in a temporary folder meanwhile."""
    # A replayed rank has a working directory of its own, and sees the capsule at this path.
    path = path.resolve() if ".." in path.parts else path.absolute()
    if path.is_dir() or not path.exists():
        require_no_signers(path, keys)
        yield Capsule.open(path)
        return
    with temporary_folder("capsule") as folder:
        with working() as tell:
            capsule = unpack(path, folder / "capsule", progress=by_bytes(tell, "unpacking"), keys=keys)
        yield capsule


def read_manifest(path: Path, keys: Keys = NO_KEYS) -> Manifest:
    """Of a folder or an archive; of an archive only the first member is read."""
    if path.is_dir() or not path.exists():
        require_no_signers(path, keys)
        return Capsule.open(path).manifest
    with plain(path, keys) as file, ArchiveReader(file, path, Limits()) as archive:
        return archive.manifest()[0]


def require_no_signers(path: Path, keys: Keys) -> None:
    """Only archives are signed: a folder that must be is one that nobody vouches for."""
    if keys.signers is not None and path.is_dir():
        raise CapsuleError(f"{path} is not signed: it is a folder", hint="give the packed capsule and its signature")


def _write_compressed(out: BinaryIO, capsule: Capsule, progress: Progress) -> None:
    compressor = zstandard.ZstdCompressor(level=LEVEL, threads=min(4, os.cpu_count() or 1), write_checksum=True)
    with compressor.stream_writer(out, closefd=False) as stream:
        _write_members(stream, capsule, progress)


def read_part(path: Path, name: str, limit_bytes: int, keys: Keys = NO_KEYS) -> bytes | None:
    """One small file of the capsule at `path`, a folder or packed; None where the capsule has none of that name."""
    if path.is_dir() or not path.exists():
        there = name in Capsule.open(path).manifest.files
        return checked_json.read_bytes(path / name, limit_bytes=limit_bytes) if there else None
    with plain(path, keys) as file, ArchiveReader(file, path, Limits()) as archive:
        entry = archive.manifest()[0].files.get(name)
        if entry is None:
            return None
        if entry.size_bytes > limit_bytes:
            raise CapsuleError(
                f"{path}: {name} is larger than {limit_bytes} bytes",
                hint="fetch the capsule again: this copy was altered",
            )
        for member in archive.members():
            if member.name == name and member.size_bytes == entry.size_bytes:
                return b"".join(archive.chunks())
            for _ in () if member.is_folder else archive.chunks():
                pass  # passed over
    raise CapsuleError(f"{path} lacks {name}", hint="fetch it again: the archive is incomplete")


def _write_members(stream: BinaryIO, capsule: Capsule, progress: Progress) -> None:
    manifest = capsule.manifest
    data = (capsule.path / layout.MANIFEST).read_bytes()
    mtime = manifest.created_ns // 10**9
    stream.write(_header(layout.MANIFEST, len(data), mtime))
    stream.write(data + bytes(-len(data) % tarfile.BLOCKSIZE))
    for folder in layout.FOLDERS:
        stream.write(_header(folder, 0, mtime, tarfile.DIRTYPE))
    for name, entry in sorted(manifest.files.items()):
        stream.write(_header(name, entry.size_bytes, mtime))
        for chunk in _checked_content(capsule.path / name, name, entry):
            stream.write(chunk)
            progress(len(chunk))
        stream.write(bytes(-entry.size_bytes % tarfile.BLOCKSIZE))
    stream.write(bytes(2 * tarfile.BLOCKSIZE))


def _header(name: str, size: int, mtime: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.mtime = kind, size, mtime
    info.mode = 0o700 if kind == tarfile.DIRTYPE else transfer.FILE_MODE
    return info.tobuf(tarfile.GNU_FORMAT, "ascii", "strict")  # of all formats the one that knows any size


def _checked_content(path: Path, name: str, entry: FileEntry) -> Iterator[bytes]:
    """Exactly what the manifest says, or an error: a packed capsule is never a damaged one."""
    digest, left = hashlib.sha256(), entry.size_bytes
    try:
        transfer.require_content(path)
        with transfer.open_plain(path) as file:
            while left and (chunk := file.read(min(left, transfer.CHUNK_BYTES))):
                digest.update(chunk)
                left -= len(chunk)
                yield chunk
            more = file.read(1)
    except OSError as error:
        raise CapsuleError(
            f"{path} cannot be read: {error.strerror}", hint="run `prismdbg verify` to list all faults"
        ) from error
    if left or more or digest.hexdigest() != entry.sha256:
        raise CapsuleError(f"{name} does not match the manifest", hint="run `prismdbg verify` to list all faults")


def _read_archive(file: BinaryIO, source: Path, folder: Path, limits: Limits, progress: Progress) -> Manifest:
    with ArchiveReader(file, source, limits) as archive:
        manifest, data = archive.manifest()
        _check_total(source, manifest, os.fstat(file.fileno()).st_size, folder, limits)
        for name in layout.FOLDERS:
            (folder / name).mkdir(mode=0o700)
        transfer.write_new(folder / layout.MANIFEST, data)
        missing, folders = set(manifest.files), layout.folders_of(manifest.files)
        for member in archive.members():
            if member.is_folder:
                _check_folder(source, member, folders)
                continue
            _write_member(archive, member, manifest, folder, progress)
            missing.discard(member.name)
    if missing:
        raise CapsuleError(f"{source} lacks {min(missing)}", hint="fetch it again: the archive is incomplete")
    return manifest


def _check_total(source: Path, manifest: Manifest, packed_bytes: int, folder: Path, limits: Limits) -> None:
    """Before a byte of it is written. What so many packed bytes can never become is the archive's fault, not the
    disk's."""
    declared, free = manifest.size_bytes, shutil.disk_usage(folder).free
    has_room = declared <= free - limits.reserve_bytes
    allowed = limits.total_bytes
    if allowed is None and not has_room:
        allowed = limits.floor_bytes + limits.ratio * packed_bytes
    if allowed is not None and declared > allowed:
        raise CapsuleError(
            f"{source} declares {declared} bytes; the limit is {allowed}",
            hint="raise the limit if you trust the archive; otherwise do not use it",
        )
    if not has_room:
        raise FacilityError(
            f"no space for {source}: it declares {size(declared)}, and {folder.parent} has {size(free)} "
            f"free, of which {size(limits.reserve_bytes)} are left alone",
            hint="free disk space or unpack elsewhere, if you trust its source",
        )


def _check_folder(source: Path, member: Member, folders: set[str]) -> None:
    if member.name not in folders:
        raise CapsuleError(
            f"{source} contains the folder {member.name!r}, which does not belong to a capsule",
            hint="fetch the archive again: this copy was altered",
        )


def _write_member(archive: ArchiveReader, member: Member, manifest: Manifest, folder: Path, progress: Progress) -> None:
    """Writes one file and compares it with the manifest."""
    entry = manifest.files.get(member.name)
    if entry is None or entry.size_bytes != member.size_bytes:
        raise CapsuleError(
            f"{archive.path} contains {member.name!r}, which does not match its manifest",
            hint="fetch the archive again: this copy was altered",
        )
    target, digest = folder / member.name, hashlib.sha256()
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with transfer.create(target) as out:
        for chunk in archive.chunks():
            digest.update(chunk)
            transfer.write_sparse(out, chunk)
            progress(len(chunk))
        out.truncate(entry.size_bytes)
    if digest.hexdigest() != entry.sha256:
        raise CapsuleError(
            f"{archive.path}: {member.name} does not match its manifest",
            hint="fetch the archive again: this copy was altered",
        )
