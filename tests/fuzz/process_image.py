"""A small process checkpoint as CRIU would write it, in its own format: enough to be read, not to be restored."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path
from typing import Any

from prismdbg.checkpoint import bindings, bundle

_REGULAR, _FOLDER = 0o100644, 0o040755


def write_images(folder: Path, cwd: Path) -> Path:
    """One process with two threads: files, a pipe, a terminal, sockets, mappings."""
    folder.mkdir()
    for (name, magic), entries in _entries(str(cwd)).items():
        write_image(folder / name, magic, entries)
    write_memory(folder, pages=1)
    (folder / "stats-dump").write_bytes(b"statistics")
    return folder


def write_memory(folder: Path, *, pages: int) -> None:
    """One page, and an image that says of so many that they are there."""
    (folder / "pages-1.img").write_bytes(b"memory" * 1000)
    runs = [{"pages_id": 1}, {"vaddr": 4096, "compat_nr_pages": 0, "nr_pages": pages, "flags": 4}]
    (folder / "pagemap-7.img").write_bytes(packed("PAGEMAP", runs))


def write_image(path: Path, magic: str, entries: list[dict[str, Any]]) -> None:
    """What a field must have by CRIU's format and is not given is zero or empty."""
    pycriu = _pycriu()
    payload = pycriu.images.images.handlers[magic].payload
    path.write_bytes(packed(magic, [_filled(pycriu, payload, entry) for entry in entries]))


def packed(magic: str, entries: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    _pycriu().images.dump({"magic": magic, "entries": entries}, out)
    return out.getvalue()


def parsed(data: bytes) -> tuple[str, list[dict[str, Any]]]:
    image = _pycriu().images.load(io.BytesIO(data), pretty=False)
    return image["magic"], image["entries"]


@cache
def _pycriu() -> Any:
    return bindings._pycriu(bundle.find())


def _filled(pycriu: Any, payload: Any, entry: dict[str, Any]) -> dict[str, Any]:
    message = payload()
    pycriu.images.pb2dict.dict2pb(entry, message)
    _fill(message)
    filled: dict[str, Any] = pycriu.images.pb2dict.pb2dict(message)
    return filled


def _fill(message: Any) -> None:
    for field in message.DESCRIPTOR.fields:
        if field.is_repeated:
            if field.message_type is not None:
                for each in getattr(message, field.name):
                    _fill(each)
        elif field.message_type is not None:
            if field.is_required or message.HasField(field.name):
                getattr(message, field.name).SetInParent()
                _fill(getattr(message, field.name))
        elif field.is_required and not message.HasField(field.name):
            setattr(message, field.name, field.default_value)


def _entries(cwd: str) -> dict[tuple[str, str], list[dict[str, Any]]]:
    creds = {"uid": 1000, "gid": 100, "cap_prm": [7, 1], "cap_eff": [7, 1], "cap_inh": [0, 0], "cap_bnd": [7, 1]}
    task = {"comm": "python3", "rlimits": {"rlimits": [{"cur": 1, "max": 2}]}}
    return {
        ("inventory.img", "INVENTORY"): [{"img_version": 2, "root_ids": {}}],
        ("pstree.img", "PSTREE"): [{"pid": 7, "sid": 7, "threads": [7, 9]}],
        ("files.img", "FILES"): [
            _regular(1, "/usr/bin/python3.11", size=100),
            _regular(2, f"{cwd}/log.txt", flags=1, size=55, pos=55),
            _regular(4, cwd, mode=_FOLDER),
            _regular(5, "/lib/libtorch.so", size=10),
            {"type": "PIPE", "id": 7, "pipe": {"id": 7, "pipe_id": 4711}},
            {"type": "TTY", "id": 8, "tty": {"id": 8, "tty_info_id": 2026}},
            {"type": "INETSK", "id": 9, "isk": {"id": 9, "family": 2, "src_addr": [0x0100007F]}},
            {"type": "INETSK", "id": 10, "isk": {"id": 10, "family": 10, "src_addr": [0, 0, 0, 1]}},
            {"type": "UNIXSK", "id": 13, "usk": {"id": 13, "name": "/run/p/agent=00"}},
        ],
        ("core-7.img", "CORE"): [{"mtype": "X86_64", "thread_core": {"creds": creds}, "tc": task}],
        ("core-9.img", "CORE"): [{"mtype": "X86_64", "thread_core": {"creds": creds}}],
        ("fs-7.img", "FS"): [{"cwd_id": 4}],
        ("mm-7.img", "MM"): [{"exe_file_id": 1, "vmas": [{"status": 65, "shmid": 5}, {"status": 1, "shmid": 2}]}],
        ("ids-7.img", "IDS"): [{"files_id": 2}],
        ("fdinfo-2.img", "FDINFO"): [{"fd": 0, "id": 8}, {"fd": 1, "id": 7}, {"fd": 2, "id": 2}],
        ("tty-info.img", "TTY_INFO"): [{"id": 2026, "rdev": 0x8800, "dev": 0x1A}],
    }


def _regular(number: int, name: str, *, flags: int = 0, mode: int = _REGULAR, **more: int) -> dict[str, Any]:
    return {
        "type": "REG",
        "id": number,
        "reg": {"id": number, "name": name, "flags": flags, "pos": 0, "mode": mode, **more},
    }
