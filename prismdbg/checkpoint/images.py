"""What a checkpoint holds (files, addresses, output, credentials), and a copy that can be restored.

Reads CRIU's images; does not run CRIU.
"""

from __future__ import annotations

import ipaddress
import os
import shutil
import socket
import struct
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NoReturn

from prismdbg.capsule.rank_path import is_in_kernel, too_long
from prismdbg.capsule.transfer import Transfer, bring
from prismdbg.checkpoint.bindings import Entry, edit_image, first_entry, load_image, write_image
from prismdbg.checkpoint.bundle import Criu
from prismdbg.checkpoint.engine import OpenFile, ProcessImage, Standard, Unrestorable
from prismdbg.checkpoint.image_check import check_images, opened_names, pids_of, refusal, socket_name
from prismdbg.errors import CapsuleError

_FILE_MAPPED = 64 | 128  # VMA_FILE_PRIVATE, VMA_FILE_SHARED
_NO_LIMIT = {"cur": 2**64 - 1, "max": 2**64 - 1}  # of the first resource, processor time
_FILTER_MODE = "filter"
SECCOMP = "seccomp.img"
_CONTENT = ("pages-", "ghost-file-")
_S_IFMT, _S_IFREG = 0o170000, 0o100000


_HINT = "fetch the capsule again: this copy is damaged or was altered"


class _Numbered(dict[int, Entry]):
    """What entries refer to by number. One that is not there is a `CapsuleError`."""

    def __missing__(self, number: int) -> NoReturn:
        raise CapsuleError(f"the checkpoint refers to entry {number}, which it does not contain", hint=_HINT)


def read(criu: Criu, images: Path) -> ProcessImage:
    """Everything a restore must find or be given."""
    root = first_entry(criu, images / "pstree.img")
    tree = load_image(criu, images / "pstree.img")
    files = _Numbered((entry["id"], entry) for entry in load_image(criu, images / "files.img"))
    pids = [int(entry["pid"]) for entry in tree]
    creds = _creds(first_entry(criu, images / f"core-{pids[0]}.img"))
    place = first_entry(criu, images / f"fs-{pids[0]}.img")
    memories = [memory for pid in pids if (memory := images / f"mm-{pid}.img").exists()]  # a dead child has none
    mapped = {number for memory in memories for number in _mapped(first_entry(criu, memory))}
    image = ProcessImage(
        root_pid=pids[0],
        pids=tuple(sorted({int(thread) for entry in tree for thread in entry.get("threads", ())})),
        leads_session=int(root["sid"]) == pids[0],
        cwd=_path(files[place["cwd_id"]]["reg"]),
        uid=int(creds["uid"]),
        gid=int(creds["gid"]),
        files=tuple(_open_files(files, mapped, _inside_the_image(criu, images))),
        addresses=tuple(sorted(_addresses(files))),
        unix_sockets=tuple(sorted(_unix_sockets(files))),
        standards=tuple(_standards(criu, images, pids[0], files)),
    )
    for path in (*image.folders, *(file.path for file in image.files)):
        if reason := too_long(path):
            raise CapsuleError(f"the checkpoint names the path {path[:80]!r}, which {reason}", hint=_HINT)
    return image


def require_restorable(criu: Criu, images: Path) -> None:
    """`CapsuleError` where a restore would refuse them: everything that it reads is read, nothing is run."""
    check_images(criu, images, contents=images)
    read(criu, images)
    for core in images.glob("core-*.img"):
        for entry in load_image(criu, core):
            _harmless(entry)


def unrestorable(criu: Criu, images: Path) -> tuple[Unrestorable, ...]:
    """Descriptors that no restore opens again: below /proc/PID of processes that are not in the image, and all that
    `check_images` refuses."""
    tree = load_image(criu, images / "pstree.img")
    files = {entry["id"]: entry for entry in load_image(criu, images / "files.img")}
    pids = pids_of(tree)
    return tuple(
        Unrestorable(pid=pid, number=int(descriptor["fd"]), path=_described(entry))
        for pid in (int(entry["pid"]) for entry in tree)
        for descriptor in _descriptors(criu, images, pid)
        if refusal(entry := files[descriptor["id"]], pids)
    )


def _described(file: Entry) -> str:
    """Its path, or its kind where it has none."""
    return str(file["reg"]["name"]) if file["type"] == "REG" else str(file["type"])


def _descriptors(criu: Criu, images: Path, pid: int) -> list[Entry]:
    """Empty for a dead child, which has none."""
    if not (ids := images / f"ids-{pid}.img").exists():
        return []
    table = images / f"fdinfo-{first_entry(criu, ids)['files_id']}.img"
    return load_image(criu, table) if table.exists() else []


def prepare_restore(criu: Criu, images: Path, into: Path, *, seen_as: PurePosixPath, seccomp: bytes) -> tuple[str, ...]:
    """Makes the new folder `into` to restore from, and leaves `images` as they are.

    Copies of all that says what is restored, and it is the copies that are checked: whoever can write to `images` has
    no more say. Edited are `core-*.img`: no capabilities and no way to gain any, the filter `seccomp`, no limits that a
    container may not set, and no signal when the parent ends; and `files.img` where files are watched, without the
    watches. What holds memory or the content of a deleted file, and may be of any size, is a link to `seen_as`,
    the path under which the restoring container sees `images`. The answer: the paths that are opened by name.
    `CapsuleError` for images that ask criu for more than to bring processes back.
    """
    if not seen_as.is_absolute():
        raise ValueError(f"{seen_as} is not absolute and cannot be resolved from {into}")
    into.mkdir(mode=0o700, parents=True)
    try:
        copies = into / "copies"
        copies.mkdir(mode=0o700)
        for source in sorted(images.iterdir()):
            if source.suffix == ".img" and not source.name.startswith(_CONTENT):
                bring(source, copies / source.name, Transfer.COPY)
            elif source.suffix == ".img" or source.name.startswith("stats-"):
                (into / source.name).symlink_to(seen_as / source.name)
        check_images(criu, copies, contents=images)
        names = opened_names(load_image(criu, copies / "files.img"))
        _edit(criu, copies, into, seccomp)
        copies.rmdir()
        return tuple(sorted(names))
    except BaseException:
        shutil.rmtree(into)
        raise


def _edit(criu: Criu, copies: Path, into: Path, seccomp: bytes) -> None:
    """Moves them, made harmless."""
    filters = [{"filter": b64encode(seccomp).decode(), "flags": 0}]
    write_image(criu, into / SECCOMP, "SECCOMP", [Entry(seccomp_filters=filters)])
    for source in sorted(copies.iterdir()):
        target = into / source.name
        if source.name.startswith("core-"):
            edit_image(criu, source, target, [_harmless(entry) for entry in load_image(criu, source)])
        elif source.name == "files.img" and any(map(_watches, entries := load_image(criu, source))):
            edit_image(criu, source, target, [_unwatching(entry) for entry in entries])
        elif source.name != SECCOMP:
            source.rename(target)
        source.unlink(missing_ok=True)


def _harmless(core: Entry) -> Entry:
    creds = _creds(core)
    for name in ("cap_prm", "cap_eff", "cap_inh", "cap_bnd", "cap_amb"):
        creds[name] = [0 for _ in creds.get(name, [0, 0])]
    for label in ("lsm_profile", "lsm_sockcreate", "apparmor_data"):
        creds.pop(label, None)
    creds["no_new_privs"] = 1
    creds["secbits"] = 0
    core["thread_core"].update(seccomp_mode=_FILTER_MODE, seccomp_filter=0)
    core["thread_core"].pop("pdeath_sig", None)  # criu, the rank's parent while it restores it, ends
    task = core.get("tc", {})
    for name in ("oom_score_adj", "loginuid", "old_seccomp_mode", "old_seccomp_filter"):
        task.pop(name, None)
    if "rlimits" in task:
        task["rlimits"] = {"rlimits": [_NO_LIMIT]}  # criu wants at least one; the rest are the container's own
    return core


def _watches(file: Entry) -> bool:
    return bool(file.get("ify", {}).get("wd"))


def _unwatching(file: Entry) -> Entry:
    """criu finds what is watched by the kernel's handle for it, with all rights: a file of this machine, not of the
    rank's place."""
    return Entry({**file, "ify": Entry({**file["ify"], "wd": []})}) if _watches(file) else file


def _creds(core: Entry) -> Entry:
    creds: Entry = core["thread_core"]["creds"]
    return creds


def _mapped(memory: Entry) -> Iterator[int]:
    yield int(memory["exe_file_id"])
    for area in memory.get("vmas", ()):
        if int(area["status"]) & _FILE_MAPPED:
            yield int(area["shmid"])


def _inside_the_image(criu: Criu, images: Path) -> set[int]:
    """Files that had no name any more (shared memory of DataLoader workers): CRIU keeps what is in them."""
    remapped = images / "remap-fpath.img"
    return {int(entry["orig_id"]) for entry in load_image(criu, remapped)} if remapped.exists() else set()


def _open_files(files: dict[int, Entry], mapped: set[int], inside: set[int]) -> Iterator[OpenFile]:
    for number, entry in files.items():
        if number in inside or entry["type"] != "REG":
            continue
        regular = entry["reg"]
        if int(regular["mode"]) & _S_IFMT != _S_IFREG or is_in_kernel(_path(regular)):
            continue
        # A file open for appending has no size in the image: any will do, and its position is honest.
        yield OpenFile(
            path=_path(regular),
            size_bytes=int(regular.get("size", regular["pos"])),
            mode=int(regular["mode"]) & 0o7777,
            is_mapped=number in mapped,
            is_written=bool(int(regular["flags"]) & (os.O_WRONLY | os.O_RDWR)),
        )


def _addresses(files: dict[int, Entry]) -> set[str]:
    found: set[str] = set()
    for entry in files.values():
        if entry["type"] == "INETSK" and (text := _address(entry["isk"])):
            found.add(text)
    return found


def _address(inet: Entry) -> str:
    """The local address, empty where it needs none of its own: any, and loopback."""
    words = struct.pack(f"={len(inet['src_addr'])}I", *inet["src_addr"])
    size_bytes = 4 if inet["family"] == socket.AF_INET else 16
    if len(words) < size_bytes:
        raise CapsuleError(f"the checkpoint contains an address of {len(words)} bytes", hint=_HINT)
    address = ipaddress.ip_address(words[:size_bytes])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return "" if address.is_loopback or address.is_unspecified else str(address)


def _unix_sockets(files: dict[int, Entry]) -> set[str]:
    """Bound paths."""
    names = (socket_name(entry["usk"]) for entry in files.values() if entry["type"] == "UNIXSK")
    return {_without_zero(name) for name in names if name}


def _path(regular: Entry) -> str:
    return _without_zero(str(regular["name"]))


def _without_zero(path: str) -> str:
    if "\0" in path:
        raise CapsuleError(f"the checkpoint names the path {path[:80]!r}", hint=_HINT)
    return path


def _standards(criu: Criu, images: Path, pid: int, files: dict[int, Entry]) -> Iterator[Standard]:
    info = images / "tty-info.img"
    terminals = _Numbered((entry["id"], entry) for entry in load_image(criu, info)) if info.exists() else _Numbered()
    for descriptor in _descriptors(criu, images, pid):
        if int(descriptor["fd"]) <= 2 and (key := _inherit_key(files[descriptor["id"]], terminals)):
            yield Standard(number=int(descriptor["fd"]), key=key)


def _inherit_key(entry: Entry, terminals: dict[int, Entry]) -> str:
    """As criu names them: a pipe by inode, a file by its path without the first slash, a terminal by device."""
    if entry["type"] == "PIPE":
        return f"pipe:[{entry['pipe']['pipe_id']}]"
    if entry["type"] == "REG":
        return str(entry["reg"]["name"]).lstrip("/")
    if entry["type"] == "TTY":
        info = terminals[entry["tty"]["tty_info_id"]]
        return f"tty[{info['rdev']:x}:{info['dev']:x}]"
    return ""
