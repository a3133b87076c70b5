"""The place a rank runs in: its view of the file systems, its own files, its network. Standard library only."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import shutil
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from syscalls import MNT_DETACH, MS_PRIVATE, MS_RDONLY, MS_REC, PlaceError, bind_mount, check, libc, mount, mount_result

# Kernel views, and the places that get a fresh one of their own.
NOT_COPIED = frozenset(("proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "mqueue", "hugetlbfs", "nsfs"))
NOT_COPIED |= {"debugfs", "tracefs", "securityfs", "pstore", "bpf", "configfs", "autofs", "binfmt_misc", "efivarfs"}
NOT_COPIED |= {"rpc_pipefs", "fusectl"}
NOT_COPIED_BELOW = tuple(f"/var/lib/{owner}/" for owner in ("docker", "containerd", "containers", "kubelet"))
NOT_COPIED_BELOW += ("/proc/", "/sys/", "/dev/", "/run/", "/snap/")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
OLD_ROOT = ".prismdbg-host"

Spec = dict[str, Any]


def make_place(spec: Spec) -> None:
    if spec["isolation"] == "namespaces":
        check(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "keep mounts private")
        switch_root(spec)
        hide(spec["absent"], [bind["target"] for bind in spec["binds"]])
        if spec.get("hostname"):
            socket.sethostname(spec["hostname"])
    elif spec["isolation"] == "pid":
        check(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "keep mounts private")
        mount("proc", "/proc", "proc")
    lay_files(spec)
    if spec["isolation"] != "none":
        bring_up_loopback(spec["addresses"])


def switch_root(spec: Spec) -> None:
    """The machine's own files, writes thrown away: each of its file systems below an empty, writable layer.

    The layers are in memory (they may not lie on the file system they cover).
    """
    mounts = mount_points()
    scratch = Path(spec["scratch"])
    mount("prismdbg", str(scratch), "tmpfs")
    layers = (scratch / f"layer{number}" for number in itertools.count())
    root = scratch / "root"
    if os.geteuid() == 0:
        for point in sorted((point for point, taken in mounts.items() if taken), key=lambda point: point.split("/")):
            cover(point, root / point.lstrip("/"), next(layers))
    else:
        root.mkdir()
        mount("prismdbg", str(root), "tmpfs", data="mode=755")
        mirror("/", root, mounts, layers)
    make_kernel_views(root)
    binds = [(os.path.realpath(bind["source"]), bind["target"], bind["read_only"]) for bind in spec["binds"]]
    (root / OLD_ROOT).mkdir()
    check(libc.pivot_root(os.fsencode(root), os.fsencode(root / OLD_ROOT)), "change to the new root")
    os.chdir("/")
    for source, target, read_only in binds:
        bind_mount(f"/{OLD_ROOT}{source}", target, read_only=read_only)
    check(libc.umount2(os.fsencode(f"/{OLD_ROOT}"), MNT_DETACH), "let go of the old root")
    Path(f"/{OLD_ROOT}").rmdir()


def mount_points() -> dict[str, bool]:
    """Every mount point, and whether it is taken over: not the kernel's views, not what belongs to containers."""
    points: dict[str, bool] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        point = fields.split()[4].encode().decode("unicode_escape")
        points[point] = rest.split()[0] not in NOT_COPIED and not point.startswith(NOT_COPIED_BELOW)
    return points


def mirror(lower: str, at: Path, mounts: dict[str, bool], layers: Iterator[Path]) -> None:
    """In a user namespace a folder with mounts in it cannot be below an overlay: each of its parts is, instead."""
    if not any(point.startswith(f"{lower.rstrip('/')}/") for point in mounts if point != lower):
        cover(lower, at, next(layers))
        return
    at.mkdir(exist_ok=True)
    for source in Path(lower).iterdir() if os.access(lower, os.R_OK | os.X_OK) else ():
        target = at / source.name
        if source.is_symlink():
            target.symlink_to(source.readlink())
        elif source.is_dir() and mounts.get(str(source), True):
            mirror(str(source), target, mounts, layers)
        elif source.is_dir():
            target.mkdir()
        elif source.is_file():
            bind_mount(str(source), str(target), read_only=True)


def cover(lower: str, at: Path, layer: Path) -> None:
    """An overlay over `lower`; what cannot be below one (a file, some network file systems) is seen read-only."""
    if Path(lower).is_dir():
        upper, work = layer / "upper", layer / "work"
        for folder in (upper, work, at):
            folder.mkdir(parents=True, exist_ok=True)
        copy_owner(lower, upper)
        options = f"lowerdir={escape(lower)},upperdir={upper},workdir={work}"
        for extra in ("", ",userxattr"):
            if mount_result("overlay", str(at), "overlay", data=options + extra) == 0:
                return
    if lower == "/":
        raise PlaceError(f"no overlay can be made over /: {os.strerror(ctypes.get_errno())}")
    bind_mount(lower, str(at), read_only=True)


def copy_owner(source: str, target: Path) -> None:
    """The top folder of an overlay is the upper one."""
    status = Path(source).stat()
    target.chmod(stat.S_IMODE(status.st_mode))
    with contextlib.suppress(OSError):  # an owner who does not exist in a user namespace
        os.chown(target, status.st_uid, status.st_gid)


def escape(path: str) -> str:
    return path.replace("\\", "\\\\").replace(",", "\\,").replace(":", "\\:")


def make_kernel_views(root: Path) -> None:
    """/proc of our own PIDs; a /dev with nothing but what every program needs, terminals of its own and GPUs."""
    mount("proc", str(root / "proc"), "proc")
    if mount_result("sysfs", str(root / "sys"), "sysfs", MS_RDONLY) != 0:
        bind_mount("/sys", str(root / "sys"), read_only=True)
    dev = root / "dev"
    mount("tmpfs", str(dev), "tmpfs", data="mode=755")
    gpus = [path.name for path in Path("/dev").glob("nvidia*") if path.is_char_device()]
    for name in (*DEVICES, *gpus):
        if Path("/dev", name).exists():
            bind_mount(f"/dev/{name}", str(dev / name))
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        (dev / name).symlink_to(target)
    (dev / "ptmx").symlink_to("pts/ptmx")
    (dev / "pts").mkdir()
    mount_result("devpts", str(dev / "pts"), "devpts", data="newinstance,ptmxmode=0666,mode=620")
    (dev / "shm").mkdir(mode=0o1777)
    mount("shm", str(dev / "shm"), "tmpfs", data="mode=1777")


def hide(paths: list[str], bound: list[str]) -> None:
    """Removes what the rank made only later from the layers above the machine's own files.

    Called when those layers are all that can be reached; what is bound from outside is left alone.
    """
    for path in paths:
        real = str(Path(path).parent.resolve() / Path(path).name)  # a link itself, not what it leads to
        if any(f"{real}/".startswith(f"{target}/") or f"{target}/".startswith(f"{real}/") for target in bound):
            continue
        with contextlib.suppress(OSError):  # gone, or on a file system that is seen read-only
            if Path(real).is_dir() and not Path(real).is_symlink():
                shutil.rmtree(real, ignore_errors=True)
            else:
                Path(real).unlink()


def lay_files(spec: Spec) -> None:
    """The rank's own files at the paths it knows, as long as they were."""
    owner = (spec["uid"], spec["gid"]) if os.geteuid() == 0 else (-1, -1)
    for folder in spec["folders"]:
        make_folders(Path(folder), owner)
    for file in spec["files"]:
        lay_file(file, owner)


def lay_file(file: dict[str, Any], owner: tuple[int, int]) -> None:
    source, target = file["source"], Path(file["target"])
    wanted_bytes = Path(source).stat().st_size if file["size_bytes"] is None else file["size_bytes"]
    if source and target.exists() and target.samefile(source) and target.stat().st_size == wanted_bytes:
        return  # it lies there anyway
    make_folders(target.parent, owner)
    if source is None:
        target.touch()
    elif not (target.exists() and target.samefile(source)):
        shutil.copyfile(source, target)
    os.truncate(target, wanted_bytes)
    os.chown(target, *owner)
    target.chmod(file["mode"])
    if file["mtime_ns"] is not None:
        os.utime(target, ns=(file["mtime_ns"], file["mtime_ns"]))


def make_folders(folder: Path, owner: tuple[int, int]) -> None:
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o755)
        os.chown(path, *owner)


def bring_up_loopback(addresses: list[str]) -> None:
    """`ip link set lo up` and `ip address add A dev lo`, without the program."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as netlink:
        index = socket.if_nametoindex("lo")
        link = struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, 1, 1)  # IFF_UP
        netlink_request(netlink, 16, 0, link, "bring up the loopback device")  # RTM_NEWLINK
        for address in addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            raw = socket.inet_pton(family, address)
            head = struct.pack("=BBBBI", family, len(raw) * 8, 0, 0, index)
            data = b"".join(struct.pack("=HH", 4 + len(raw), kind) + raw for kind in (1, 2))  # IFA_ADDRESS, IFA_LOCAL
            netlink_request(netlink, 20, 0x400, head + data, f"add the address {address}")  # RTM_NEWADDR, NLM_F_CREATE


def netlink_request(netlink: socket.socket, kind: int, flags: int, body: bytes, what: str) -> None:
    netlink.send(struct.pack("=IHHII", 16 + len(body), kind, 1 | 4 | flags, 1, 0) + body)  # REQUEST, ACK
    errno = -struct.unpack_from("=i", netlink.recv(4096), 16)[0]
    if errno not in (0, 17):  # EEXIST: it is there
        raise PlaceError(f"cannot {what}: {os.strerror(errno)}")
