"""The place a rank runs in: its view of the file systems, its own files, its network. Standard library only."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import user_namespace
from choice import READ_IN_PLACE, engine_of
from confine import confine_view
from engine import Engine
from exact_paths import is_known, open_exact, open_known
from gpu_state import Gpus
from mounts import mounts
from rank_files import write_files
from rooted_tree import RootedTree
from syscalls import (
    MNT_DETACH,
    MS_NODEV,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    PlaceError,
    bind_device,
    bind_mount,
    check,
    libc,
    mount,
    mount_result,
)

# Kernel views, and the places that get a fresh one of their own.
NOT_COPIED = frozenset(("proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "mqueue", "hugetlbfs", "nsfs"))
NOT_COPIED |= {"debugfs", "tracefs", "securityfs", "pstore", "bpf", "configfs", "autofs", "binfmt_misc", "efivarfs"}
NOT_COPIED |= {"rpc_pipefs", "fusectl"}
NOT_COPIED_BELOW = tuple(f"/var/lib/{owner}/" for owner in ("docker", "containerd", "containers", "kubelet"))
NOT_COPIED_BELOW += ("/proc/", "/sys/", "/dev/", "/run/", "/snap/")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
OLD_ROOT = ".prismdbg-host"

# Folders that every program expects, with their modes.
EMPTY_FOLDERS = {"/run": 0o755, "/tmp": 0o1777, "/var": 0o755, "/var/tmp": 0o1777}
TMPFS_FLAGS = MS_NOSUID | MS_NODEV

Spec = dict[str, Any]


@dataclass(frozen=True)
class Kept:
    """The checkpoint engine, for the origin and for images of the rank, and what moves their state on GPUs."""

    origin: Engine | None = None
    saving: Engine | None = None
    gpus: Gpus | None = None


def make_place(spec: Spec) -> Kept:
    kept = Kept()
    if spec["isolation"] == "namespaces":
        check(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "keep mounts private")
        kept = keep(spec)
        if spec["users"] is not None and (why := user_namespace.problem(shown_paths(spec), spec["users"])):
            user_namespace.tell(why)
            spec["users"] = None
        switch_root(spec)
        confine_view(READ_IN_PLACE)
        if spec.get("hostname"):
            socket.sethostname(spec["hostname"])
    elif spec["isolation"] == "pid":
        check(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "keep mounts private")
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV)
        kept = keep(spec)
        confine_view(READ_IN_PLACE)
        require_bound(spec["binds"])
        write_files(spec, "/")
    else:
        require_bound(spec["binds"])
        write_files(spec, "/")
    if spec["isolation"] != "none":
        bring_up_loopback(spec["addresses"])
    return kept


def require_bound(binds: list[dict[str, Any]]) -> None:
    """In a container, whose engine bound them by name."""
    for bind in binds:
        if bind["known"] is not None and not is_known(Path(bind["target"]).stat(), bind["known"]):
            raise PlaceError(f"{bind['source']} was replaced while the replay was started")


def shown_paths(spec: Spec) -> Iterator[str]:
    """What of this machine is seen in the place."""
    yield from (known["path"] for _, known in spec["seen"]["files"])
    yield from (os.path.realpath(bind["source"]) for bind in spec["binds"])
    mounts = mount_points()
    for _, known in spec["seen"]["folders"]:
        yield known["path"]
        yield from below(known["path"], mounts)


def below(folder: str, mounts: dict[str, bool]) -> list[str]:
    inside = (point for point, taken in mounts.items() if taken and point.startswith(f"{folder}/"))
    return sorted(inside, key=lambda point: point.split("/"))


def keep(spec: Spec) -> Kept:
    """Before the place is closed."""
    made = [engine_of(told) if told else None for told in (spec["restore"], spec["saving"])]
    return Kept(*made, Gpus(has_devices=spec["isolation"] == "namespaces") if any(made) else None)


def switch_root(spec: Spec) -> None:
    """A root of its own with nothing but what the rank needs: installed files of this machine, each folder below an
    empty, writable layer; the rank's own files; what is bound from outside.

    The layers are in memory (they may not lie on the file system they cover).
    """
    mounts = mount_points()
    scratch = Path(spec["scratch"])
    layer_bytes, root_bytes = layer_and_root_bytes(spec["limits"])
    mount("prismdbg", str(scratch), "tmpfs", TMPFS_FLAGS, f"size={layer_bytes}")
    layers = (scratch / f"layer{number}" for number in itertools.count())
    root = scratch / "root"
    root.mkdir()
    mount("prismdbg", str(root), "tmpfs", TMPFS_FLAGS, f"mode=755,size={root_bytes}")
    make_kernel_views(root, spec["limits"]["shared_bytes"])
    for folder, mode in EMPTY_FOLDERS.items():
        (root / folder[1:]).mkdir(exist_ok=True)
        (root / folder[1:]).chmod(mode)
    with RootedTree(root, spec["users"]) as tree:
        show(tree, spec["seen"], mounts, layers)
        write_files(spec, str(root))
        hide(tree, spec["absent"])
        for bind in spec["binds"]:
            with held(bind["known"]) if bind["known"] else own(bind["source"]) as source:
                tree.bind(source, bind["target"], read_only=bind["read_only"])
    if spec["users"] is not None:
        for folder in (root, root / "dev", root / "dev" / "shm"):
            user_namespace.hand_over(folder)
    (root / OLD_ROOT).mkdir()
    check(libc.pivot_root(os.fsencode(root), os.fsencode(root / OLD_ROOT)), "change to the new root")
    os.chdir("/")
    check(libc.umount2(os.fsencode(f"/{OLD_ROOT}"), MNT_DETACH), "unmount the old root")
    Path(f"/{OLD_ROOT}").rmdir()


def layer_and_root_bytes(limits: dict[str, Any]) -> tuple[int, int]:
    """Sizes of what is in memory. A control group bounds all together; without one they and /dev/shm divide the limit.
    Programs write into the root (homes, /tmp, their own folders) rather than into installations."""
    if limits["events"]:
        return limits["memory_bytes"], limits["memory_bytes"]
    left = limits["memory_bytes"] - limits["shared_bytes"]
    return left // 4, left - left // 4


def show(tree: RootedTree, seen: dict[str, Any], mounts: dict[str, bool], layers: Iterator[Path]) -> None:
    for target, known in seen["folders"]:
        with held(known) as folder:
            show_folder(Shown(folder, known["path"], target), tree, mounts, layers)
    for path, target in seen["links"]:
        tree.link(path, target)
    for target, known in seen["files"]:
        with held(known) as file:
            tree.bind(file, target, read_only=True)


@dataclass(frozen=True)
class Shown:
    """A folder of this machine. opened: a path that leads to it whatever its name is by now; target: where it is
    seen."""

    opened: str
    path: str
    target: str

    @contextlib.contextmanager
    def inside(self, path: str) -> Iterator[Shown]:
        """One that lies in it; `path` is its whole one."""
        with opened_at(open_exact(path, os.O_PATH | os.O_NOFOLLOW)) as folder:
            yield Shown(folder, path, f"{self.target}{path[len(self.path) :]}")


def show_folder(shown: Shown, tree: RootedTree, mounts: dict[str, bool], layers: Iterator[Path]) -> None:
    if os.geteuid() != 0:
        mirror(shown, tree, mounts, layers)
        return
    cover(shown, tree, next(layers))
    for point in below(shown.path, mounts):
        with contextlib.suppress(FileNotFoundError), shown.inside(point) as part:  # under a later mount: not seen here
            cover(part, tree, next(layers))


@contextlib.contextmanager
def own(path: str) -> Iterator[str]:
    """Of prismdbg itself."""
    yield os.path.realpath(path)


def held(known: dict[str, Any]) -> contextlib.AbstractContextManager[str]:
    """As long as it lasts: a path that leads to what was looked at, whatever has its name by now."""
    return opened_at(open_known(known))


@contextlib.contextmanager
def opened_at(descriptor: int) -> Iterator[str]:
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def mount_points() -> dict[str, bool]:
    """Every mount point, and whether it is taken over: not the kernel's views, not what belongs to containers."""
    return {
        mount.point: mount.kind not in NOT_COPIED and not mount.point.startswith(NOT_COPIED_BELOW) for mount in mounts()
    }


def mirror(shown: Shown, tree: RootedTree, mounts: dict[str, bool], layers: Iterator[Path]) -> None:
    """In a user namespace a folder with mounts in it cannot be below an overlay: each of its parts is, instead."""
    if not below(shown.path, dict.fromkeys(mounts, True)):
        cover(shown, tree, next(layers))
        return
    tree.make_folder(shown.target)
    for entry in Path(shown.opened).iterdir() if os.access(shown.opened, os.R_OK | os.X_OK) else ():
        with contextlib.suppress(FileNotFoundError), shown.inside(f"{shown.path}/{entry.name}") as part:
            mirror_part(part, tree, mounts, layers)


def mirror_part(part: Shown, tree: RootedTree, mounts: dict[str, bool], layers: Iterator[Path]) -> None:
    mode = Path(part.opened).stat().st_mode
    if stat.S_ISLNK(mode):
        tree.link(part.target, str(Path(part.path).readlink()))
    elif stat.S_ISDIR(mode) and mounts.get(part.path, True):
        mirror(part, tree, mounts, layers)
    elif stat.S_ISDIR(mode):
        tree.make_folder(part.target)
    elif stat.S_ISREG(mode):
        tree.bind(part.opened, part.target, read_only=True)


def cover(shown: Shown, tree: RootedTree, layer: Path) -> None:
    """An overlay over it; what cannot be below one (a file, some network file systems) is seen read-only."""
    if Path(shown.opened).is_dir():
        upper, work = layer / "upper", layer / "work"
        for folder in (upper, work):
            folder.mkdir(parents=True, exist_ok=True)
        copy_owner(shown.opened, upper)
        under = shown.opened if tree.users is None else shown_at(shown.opened, layer / "lower", tree.users)
        options = f"lowerdir={escape(under)},upperdir={upper},workdir={work}"
        point = tree.folder(shown.target, (-1, -1))
        try:
            for extra in ("", ",userxattr"):
                if mount_result("overlay", f"/proc/self/fd/{point}", "overlay", TMPFS_FLAGS, options + extra) == 0:
                    return
        finally:
            os.close(point)
    tree.bind(shown.opened, shown.target, read_only=True)


def shown_at(path: str, point: Path, users: int) -> str:
    point.mkdir()
    opened = os.open(point, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    user_namespace.attach(user_namespace.shown(path, users), opened)
    os.close(opened)
    user_namespace.hand_over(point.with_name("upper"))
    return str(point)


def copy_owner(source: str, target: Path) -> None:
    """The top folder of an overlay is the upper one."""
    status = Path(source).stat()
    target.chmod(stat.S_IMODE(status.st_mode))
    with contextlib.suppress(OSError):  # an owner who does not exist in a user namespace
        os.chown(target, status.st_uid, status.st_gid)


def escape(path: str) -> str:
    return path.replace("\\", "\\\\").replace(",", "\\,").replace(":", "\\:")


def make_kernel_views(root: Path, shared_bytes: int) -> None:
    """/proc of our own PIDs; a /dev with nothing but what every program needs, terminals of its own and GPUs."""
    for name in ("proc", "sys", "dev"):
        (root / name).mkdir()
    mount("proc", str(root / "proc"), "proc", MS_NOSUID | MS_NODEV)
    if mount_result("sysfs", str(root / "sys"), "sysfs", MS_RDONLY | MS_NOSUID | MS_NODEV) != 0:
        bind_mount("/sys", str(root / "sys"), read_only=True)
    dev = root / "dev"
    mount("tmpfs", str(dev), "tmpfs", TMPFS_FLAGS, "mode=755,size=64k")
    gpus = [path.name for path in Path("/dev").glob("nvidia*") if path.is_char_device()]
    for name in (*DEVICES, *gpus):
        if Path("/dev", name).exists():
            bind_device(f"/dev/{name}", str(dev / name))
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        (dev / name).symlink_to(target)
    (dev / "ptmx").symlink_to("pts/ptmx")
    (dev / "pts").mkdir()
    mount_result("devpts", str(dev / "pts"), "devpts", data="newinstance,ptmxmode=0666,mode=620")
    (dev / "shm").mkdir(mode=0o1777)
    mount("shm", str(dev / "shm"), "tmpfs", TMPFS_FLAGS, f"mode=1777,size={shared_bytes}")


def hide(tree: RootedTree, paths: list[str]) -> None:
    """Removes what the rank made only later from the layers above the machine's own files. Nothing is bound yet."""
    for path in paths:
        with contextlib.suppress(OSError):  # gone, or on a file system that is seen read-only
            tree.remove(path)


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
