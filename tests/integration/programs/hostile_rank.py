"""A program that tries to get out of its replay. Run as `hostile_rank.py SOCKET JOURNAL`: it counts as the counting
rank does, and answers `attempt NAME WORDS` with what came of it, `confinement` with what it is confined by, and
`first_child` with what a child could do that it forked as soon as it was restored.

Nothing it tries harms a machine where it succeeds: it writes what was there, or what its words say.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import resource
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from counting_rank import CountingRank

libc = ctypes.CDLL(None, use_errno=True)
NEW_USER, NEW_MOUNTS = 0x10000000, 0x00020000
STATUS = ("Uid", "Gid", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")
LIMITED = {"file size": resource.RLIMIT_FSIZE, "data": resource.RLIMIT_DATA, "processes": resource.RLIMIT_NPROC}
CALLS = {  # on x86_64 and aarch64, with arguments that a kernel that allows it takes
    "keyctl": (250, 219, 0, -3),
    "add_key": (248, 217, b"user", b"name", b"x", 1, -3),
    "bpf": (321, 280, 0, 0, 0),
    "io_uring_setup": (425, 425, 1, 0),
    "perf_event_open": (298, 241, 0, 0, -1, -1, 0),
    "userfaultfd": (323, 282, 0),
    "open_by_handle_at": (304, 265, -100, 0, 0),
    "setns": (308, 268, 0, 0),
    "clone3": (435, 435, 0, 0),
    "kexec_load": (246, 104, 0, 0, 0, 0),
    "init_module": (175, 105, 0, 0, b""),
    "ptrace_starter": (101, 117, 16, 1, 0, 0),
    "process_vm_readv": (310, 270, 1, 0, 0, 0, 0, 0),
    "pidfd_getfd": (438, 438, 0, 0, 0),
    "reboot": (169, 142, 0, 0, 0, 0),
    "x32_getpid": (0x40000000 | 39, 0x40000000 | 39),
    "unknown": (100000, 100000),
}


class HostileRank(CountingRank):
    def __init__(self, *arguments: Any) -> None:
        self.could_write: bool | None = None
        threading.Thread(target=self.fork_when_restored, daemon=True).start()
        super().__init__(*arguments)

    def fork_when_restored(self) -> None:
        """At once, for a child keeps the limits that its parent had."""
        place = Path("/proc/self/ns/pid")
        began = place.readlink()
        while place.readlink() == began:
            time.sleep(0.0005)
        child = os.fork()
        if child == 0:
            os._exit(resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY)
        self.could_write = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1

    def answer(self, verb: str, *words: str) -> dict[str, object]:
        if verb == "attempt":
            return attempted(words[0], *words[1:])
        if verb == "confinement":
            return confinement()
        if verb == "first_child":
            return {"unlimited": self.could_write}
        return super().answer(verb, *words)


def attempted(name: str, *words: str) -> dict[str, object]:
    try:
        if name in CALLS:
            return {"done": system_call(name)}
        return {"done": str(ATTEMPTS[name](*words))}
    except OSError as error:
        return {"error": errno.errorcode.get(error.errno or 0, str(error))}
    except Exception as error:
        return {"error": repr(error)}


def system_call(name: str) -> str:
    column = 1 if os.uname().machine == "aarch64" else 0
    result = libc.syscall(CALLS[name][column], *CALLS[name][2:])
    return str(must(int(result)))


def must(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def write(path: str, text: str = "") -> int:
    """What is there already where no text is given."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        return os.write(descriptor, text.encode() or Path(path).read_bytes())
    finally:
        os.close(descriptor)


def put(path: str, text: str) -> int:
    """A new file, in new folders; `_` stands for a space and `;` for a line's end."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text.replace("_", " ").replace(";", "\n"))
    Path(path).chmod(0o755)
    return 0


def rename(path: str, to: str) -> int:
    Path(path).rename(to)
    return 0


def remove(path: str) -> int:
    Path(path).unlink()
    return 0


def read(path: str) -> int:
    with Path(path).open("rb") as file:
        return len(file.read(4096))


def listed(path: str) -> int:
    return len(list(Path(path).iterdir()))


def pipe_handler(script: str) -> int:
    """A program that the kernel is to start, outside of everything, when a process of ours crashes."""
    write("/proc/sys/kernel/core_pattern", f"|{script}")
    child = os.fork()
    if child == 0:
        os.abort()
    return os.waitpid(child, 0)[1]


def devices() -> str:
    """Device files below /dev, and any that can be opened elsewhere on the way."""
    found = [path for path in Path("/dev").rglob("*") if not path.is_symlink()]
    return "|".join(str(path) for path in found if path.is_char_device() or path.is_block_device())


def change_shared(*paths: str) -> str:
    """Mode, owner and times of devices and kernel's files, and of those that are open, to what they are: which could be
    changed."""
    opened = sorted(Path("/proc/self/fd").iterdir())
    return "|".join(f"{way} {path}" for path in (*map(Path, paths), *opened) for way in WAYS if _is_changed(way, path))


WAYS: dict[str, Callable[[Path, os.stat_result], object]] = {
    "chmod": lambda path, status: path.chmod(stat.S_IMODE(status.st_mode)),
    "chown": lambda path, status: os.chown(path, status.st_uid, status.st_gid),
    "utime": lambda path, status: os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns)),
}


def _is_changed(way: str, path: Path) -> bool:
    """Sockets and pipes are the rank's own, and so are files in its place."""
    try:
        status = path.stat()
        is_file = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
        is_kernels = is_file and re.match("/proc/[a-z]", str(path.resolve())) is not None
        is_shared = stat.S_ISCHR(status.st_mode) or is_kernels
        if is_shared:
            WAYS[way](path, status)
    except OSError:
        return False
    return is_shared


def mount_again() -> int:
    return must(libc.mount(None, b"/proc/sys", None, 32 | 4096, None))


def mount_proc(folder: str) -> int:
    Path(folder).mkdir(parents=True, exist_ok=True)
    return must(libc.mount(b"proc", folder.encode(), b"proc", 0, None))


def in_user_namespace() -> int:
    return must(libc.unshare(NEW_USER | NEW_MOUNTS))


def by_clone() -> int:
    """As a program would that knows that unshare is watched."""
    number = 220 if os.uname().machine == "aarch64" else 56
    child = must(libc.syscall(number, NEW_USER | 17, 0, 0, 0, 0))
    if child == 0:
        os._exit(0)
    return os.waitpid(child, 0)[1]


def open_device(major: str, minor: str) -> int:
    path = f"/tmp/prismdbg-device-{os.getpid()}"
    os.mknod(path, 0o060600, os.makedev(int(major), int(minor)))
    return os.open(path, os.O_RDONLY)


def kill_starter() -> int:
    """It is still there afterwards, or this never returns."""
    os.kill(1, 9)
    os.kill(1, 15)
    raise OSError(errno.EPERM, "it goes on")


def connect(path: str) -> int:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(2)
        client.connect(f"\0{path[1:]}" if path.startswith("@") else path)
    return 0


def raise_privileges() -> int:
    header, body = (
        ctypes.create_string_buffer(b"\x22\x05\x08\x20\0\0\0\0"),
        ctypes.create_string_buffer(b"\xff" * 16 + bytes(8)),
    )
    return must(libc.capset(header, body))


def vsock() -> int:
    socket.socket(40, socket.SOCK_STREAM).close()
    return 0


def send_by_the_kernel(pid: str) -> int:
    """The kernel signals the owner of a descriptor for whoever made it the owner: by user, not by capability."""
    near, far = socket.socketpair()
    fcntl.fcntl(near, 10, signal.SIGKILL)  # F_SETSIG
    fcntl.fcntl(near, fcntl.F_SETOWN, int(pid))
    fcntl.fcntl(near, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    far.send(b"x")
    near.close()
    return 0


def descriptors() -> str:
    """What this process was started or restored with, beside its own."""
    found = []
    for number in sorted(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError):
            found.append(str(number.readlink()))
    return "|".join(found)


def watch_from_outside(found: str) -> int:
    """A process that is no descendant of ours any more, so that a checkpoint does not stop it: it looks into whatever
    else runs here, as long as there is no `found`.end."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    os.setsid()
    if os.fork():
        os._exit(0)
    own, seen, reached = os.getpid(), set[str](), set[str]()
    os.closerange(0, 1000)
    while not Path(f"{found}.end").exists():
        for pid in (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()):
            program = _program_of(pid)
            if pid != own and program not in ("", _program_of(own)):
                seen.add(program)
                reached |= {f"{program}: {what}" for what in OF_ANOTHER if _is_reached(f"/proc/{pid}/{what}")}
    Path(found).write_text("|".join([f"saw {len(seen)}", *sorted(reached)]))
    os._exit(0)


OF_ANOTHER = ("mem", "fd", "cwd", "root", "map_files", "environ", "ns")


def _program_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
    except OSError:
        return ""


def _is_reached(path: str) -> bool:
    try:
        if path.endswith(("fd", "cwd", "root", "map_files", "ns")):
            return any(entry.stat() for entry in Path(path).iterdir())
        return bool(os.open(path, os.O_RDWR if path.endswith("mem") else os.O_RDONLY))
    except OSError:
        return False


ATTEMPTS = {
    "write": write,
    "put": put,
    "rename": rename,
    "remove": remove,
    "read": read,
    "list": listed,
    "pipe_handler": pipe_handler,
    "mount_again": mount_again,
    "mount_proc": mount_proc,
    "user_namespace": in_user_namespace,
    "user_namespace_by_clone": by_clone,
    "device": open_device,
    "kill_starter": kill_starter,
    "connect": connect,
    "capset": raise_privileges,
    "vsock": vsock,
    "send_by_the_kernel": send_by_the_kernel,
    "descriptors": descriptors,
    "watch_from_outside": watch_from_outside,
    "devices": devices,
    "change_shared": change_shared,
}


def confinement() -> dict[str, object]:
    """As the kernel tells it, of every thread."""
    found: dict[str, object] = {}
    users: dict[str, list[str]] = {}
    for task in sorted(path.name for path in Path("/proc/self/task").iterdir()):
        for line in Path(f"/proc/self/task/{task}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in STATUS:
                known = found.setdefault(name, value.split()[0])
                if name in ("Uid", "Gid"):
                    users[name] = value.split()
                assert known == value.split()[0], f"{name} of thread {task}"
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    found["mounts"] = {fields[4]: sorted(set(fields[5].split(","))) for fields in mounts}
    found["namespaces"] = {path.name: str(path.readlink()) for path in Path("/proc/self/ns").iterdir()}
    found["users"] = users["Uid"] + users["Gid"]
    found["uid_map"] = Path("/proc/self/uid_map").read_text().split()
    found["limits"] = {name: resource.getrlimit(kind)[1] for name, kind in LIMITED.items()}
    found["sizes"] = {path: os.statvfs(path).f_blocks * os.statvfs(path).f_frsize for path in ("/", "/dev/shm", "/usr")}
    return found


if __name__ == "__main__":
    sys.exit(HostileRank(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]).run())
