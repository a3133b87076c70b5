"""The first program of a replay's container or namespaces: makes the place, starts or restores the rank, and reaps.

Run by the rank's own interpreter as `python -I -S starter.py spec.json`; needs only the standard library (3.10 on).
The spec is written by `prismdbg.runtime.starter_spec`. What happens is reported in JSON lines to the spec's `status`
file: `starting`, then `restored` or `started`, then `exited`, or `failed` at any time.

Two processes: the outer one waits, bounded, for the rank to end or for its client to go away (the other end of a
FIFO); the inner one, first process of its PID namespace where it may have one, does the rest. When the outer one ends
for any reason the kernel kills the inner one and with it everything in the namespace.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import resource
import select
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 23, 24, 36, 38
CAPABILITY_VERSION_3 = 0x20080522
FAILED, OUT_OF_TIME, CLIENT_GONE = 125, 124, 129
# Kernel views, and the places that get a fresh one of their own.
NOT_COPIED = frozenset(("proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "mqueue", "hugetlbfs", "nsfs"))
NOT_COPIED |= {"debugfs", "tracefs", "securityfs", "pstore", "bpf", "configfs", "autofs", "binfmt_misc", "efivarfs"}
NOT_COPIED |= {"rpc_pipefs", "fusectl"}
NOT_COPIED_BELOW = tuple(f"/var/lib/{owner}/" for owner in ("docker", "containerd", "containers", "kubelet"))
NOT_COPIED_BELOW += ("/proc/", "/sys/", "/dev/", "/run/", "/snap/")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
OLD_ROOT = ".prismdbg-host"

Spec = dict[str, Any]
_libc = ctypes.CDLL(None, use_errno=True)


class PlaceError(Exception):
    """Something the place needs could not be made; the text is what the user sees."""


class RestoreError(Exception):
    """criu's own log has the reason."""


class Told(BaseException):
    """A signal asked the inner process to end."""


def main(path: str) -> int:
    spec: Spec = json.loads(Path(path).read_text())
    report = Reporter(Path(spec["status"]))
    log = os.open(Path(path).with_name("starter.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.dup2(log, 2)  # a container that removes itself takes its own log along
    report("starting", pid=os.getpid())
    try:
        unshare(spec)
        lifeline = os.open(spec["lifeline"], os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        inner = os.fork()
        if inner == 0:
            os.close(lifeline)
            run_inner(spec, report)
        return watch(inner, lifeline, spec, report)
    except (OSError, PlaceError) as error:
        report("failed", what=str(error))
        return FAILED


class Reporter:
    """Appends one line per event, each in one write. Opened before the root changes."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def __call__(self, event: str, **facts: object) -> None:
        line = json.dumps({"event": event, "time_ns": time.time_ns(), **facts})
        os.write(self._fd, line.encode() + b"\n")


# ---- the outer process


def unshare(spec: Spec) -> None:
    """New namespaces for all that is forked from here on."""
    kind = spec["isolation"]
    if kind == "none":
        return
    flags = CLONE_NEWPID | CLONE_NEWNS
    if kind == "namespaces":
        flags |= CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS
    uid, gid = os.getuid(), os.getgid()
    if kind == "namespaces" and os.geteuid() != 0:
        flags |= CLONE_NEWUSER
    check(_libc.unshare(flags), "make namespaces")
    if flags & CLONE_NEWUSER:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


def watch(inner: int, lifeline: int, spec: Spec, report: Reporter) -> int:
    """Until the inner process ends, the client goes away, we are told to end, or the time is up."""
    # Killing the first process of a PID namespace ends all of it; without one it must do that itself.
    how = signal.SIGTERM if spec["isolation"] == "none" else signal.SIGKILL
    signal.signal(signal.SIGTERM, lambda *_: os.kill(inner, how))
    ended = os.pidfd_open(inner)
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    poll.register(lifeline, select.POLLHUP)
    ready = {fd for fd, _ in poll.poll(spec["longest_s"] * 1000)}
    if ended not in ready:
        os.kill(inner, how)
    _, status = os.waitpid(inner, 0)
    if ended in ready:
        return exit_code(status)
    if lifeline in ready:
        report("failed", what="the client that started this replay is gone", code=CLIENT_GONE)
        return CLIENT_GONE
    report("failed", what=f"the replay lasted longer than its bound of {spec['longest_s']:g} s", code=OUT_OF_TIME)
    return OUT_OF_TIME


def exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


# ---- the inner process


def run_inner(spec: Spec, report: Reporter) -> NoReturn:
    code = FAILED
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        signal.signal(signal.SIGTERM, told_to_end)
        make_place(spec)
        rank = restore(spec, report) if spec.get("criu") else start(spec, report)
        code = reap_until(rank)
        report("exited", code=code)
    except PlaceError as error:
        report("failed", what=str(error))
    except RestoreError as error:
        report("failed", what=str(error), criu=True)
    except Told:
        code = 128 + signal.SIGTERM
    except BaseException as error:
        report("failed", what=f"the starter failed: {type(error).__name__}: {error}")
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        end_children()
        os._exit(code)


def told_to_end(*_: object) -> NoReturn:
    raise Told


def end_children() -> None:
    """Kills and reaps whatever is left below us; orphans come to us as we are their reaper."""
    try:
        while True:
            children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
            for child in children:
                os.kill(int(child), signal.SIGKILL)
            os.waitpid(-1, 0)
    except (ChildProcessError, ProcessLookupError, FileNotFoundError):
        return


def make_place(spec: Spec) -> None:
    if spec["isolation"] == "namespaces":
        check(_libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "keep mounts private")
        switch_root(spec)
        hide(spec["absent"], [bind["target"] for bind in spec["binds"]])
        if spec.get("hostname"):
            socket.sethostname(spec["hostname"])
    elif spec["isolation"] == "pid":
        check(_libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "keep mounts private")
        mount("proc", "/proc", "proc")
    lay_files(spec)
    os.close(open_output(spec["output"]))  # it is there, even if nothing is ever written
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
    check(_libc.pivot_root(os.fsencode(root), os.fsencode(root / OLD_ROOT)), "change to the new root")
    os.chdir("/")
    for source, target, read_only in binds:
        bind_mount(f"/{OLD_ROOT}{source}", target, read_only=read_only)
    check(_libc.umount2(os.fsencode(f"/{OLD_ROOT}"), MNT_DETACH), "let go of the old root")
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
        real = os.path.realpath(path)
        if any(f"{real}/".startswith(f"{target}/") or f"{target}/".startswith(f"{real}/") for target in bound):
            continue
        with contextlib.suppress(OSError):  # gone, or on a file system that is seen read-only
            if Path(real).is_dir():
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


# ---- the rank


def restore(spec: Spec, report: Reporter) -> int:
    criu = spec["criu"]
    began = time.monotonic_ns()
    streams = standard_streams(criu["standards"], spec["output"])
    command = [*criu["command"], "restore", "--images-dir", criu["images"], "--work-dir", criu["work"]]
    command += ["--restore-detached", "--tcp-close", "--ext-unix-sk", "--file-locks", "-v4", "--log-file", criu["log"]]
    command.append("--skip-file-rwx-check")  # folders made here need not have the modes they had
    if not criu["leads_session"]:
        command.append("--shell-job")
    for key, number in streams.items():
        command += ["--inherit-fd", f"fd[{number}]:{key}"]
    if any(key.startswith("tty[") for key in streams):
        command.append("--deprecated")  # criu calls a terminal from outside that, though it dumped it so itself
    keep_clear_of(criu["pids"])
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, pass_fds=tuple(streams.values()))
    try:
        process.wait(criu["timeout_s"])
    except subprocess.TimeoutExpired:
        process.kill()
        raise RestoreError(f"criu did not restore the rank within {criu['timeout_s']:g} s") from None
    if process.returncode != 0:
        raise RestoreError("criu could not restore the rank")
    for number in streams.values():
        os.close(number)
    report("restored", pid=criu["root_pid"], elapsed_ns=time.monotonic_ns() - began)
    return int(criu["root_pid"])


def standard_streams(standards: list[tuple[int, str]], output: str) -> dict[str, int]:
    """What takes the place of each file, pipe or terminal that was on standard input and output."""
    streams: dict[str, int] = {}
    for number, key in standards:
        if key in streams or key == "dev/null":
            continue
        if key.startswith("tty["):
            streams[key] = terminal(output)
        elif number == 0:
            streams[key] = os.open("/dev/null", os.O_RDONLY)
        else:
            streams[key] = open_output(output)
    return streams


def open_output(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def terminal(output: str) -> int:
    """A rank that had a terminal gets one; a thread of ours copies what is written there."""
    ours, theirs = os.openpty()
    copy = open_output(output)

    def pump() -> None:
        with contextlib.suppress(OSError):  # EIO: nobody has it open any more
            while data := os.read(ours, 1 << 16):
                os.write(copy, data.replace(b"\r\n", b"\n"))

    threading.Thread(target=pump, daemon=True).start()
    return theirs


def keep_clear_of(pids: list[int]) -> None:
    """criu's own processes must not be given a PID that the rank had."""
    if 1 in pids:
        raise PlaceError("the rank was the first process of its container: PID 1 cannot be given again")
    limit = int(Path("/proc/sys/kernel/pid_max").read_text())
    for last in (max(pids) + 100, *range(1000, limit, 100)):
        if last + 100 < limit and not any(last <= pid <= last + 100 for pid in pids):
            Path("/proc/sys/kernel/ns_last_pid").write_text(str(last))
            return
    raise PlaceError("the rank's processes leave no PID free for criu")


def start(spec: Spec, report: Reporter) -> int:
    """Execs the program without any capability; a program that cannot be started is a failure of ours."""
    program = spec["program"]
    broken, said = os.pipe()
    rank = os.fork()
    if rank == 0:
        try:
            become(spec, program)
        except BaseException as error:
            os.write(said, str(error).encode())
        finally:
            os._exit(127)
    os.close(said)
    with os.fdopen(broken, "rb") as pipe:
        reason = pipe.read().decode()
    if reason:
        raise PlaceError(f"cannot start {program['argv'][0]}: {reason}")
    report("started", pid=rank)
    return rank


def become(spec: Spec, program: dict[str, Any]) -> None:
    os.setsid()
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.dup2(open_output(spec["output"]), 1)
    os.dup2(1, 2)
    os.chdir(program["cwd"])
    os.umask(program.get("umask", 0o022))
    drop_privileges(spec)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    os.execve(program["executable"], program["argv"], program["env"])


def drop_privileges(spec: Spec) -> None:
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for capability in range(last + 1):
        _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # refused where there is nothing to drop
    if os.geteuid() == 0 and spec["uid"] != 0:
        os.setgroups([])
        os.setresgid(*(spec["gid"],) * 3)
        os.setresuid(*(spec["uid"],) * 3)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of user would clear it
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    header = struct.pack("=Ii", CAPABILITY_VERSION_3, 0)
    check(_libc.capset(header, bytes(24)), "drop all capabilities")


def reap_until(rank: int) -> int:
    """Everything that ends below us is reaped; the rank's own end is ours."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == rank:
            return exit_code(status)


# ---- system calls


def check(result: int, what: str) -> None:
    if result != 0:
        raise PlaceError(f"cannot {what}: {os.strerror(ctypes.get_errno())}")


def prctl(option: int, value: int) -> None:
    check(_libc.prctl(option, value, 0, 0, 0), f"set process option {option}")


def mount_result(source: str, target: str, kind: str, flags: int = 0, data: str = "") -> int:
    return int(_libc.mount(source.encode(), os.fsencode(target), kind.encode(), flags, data.encode() or None))


def mount(source: str, target: str, kind: str, flags: int = 0, data: str = "") -> None:
    check(mount_result(source, target, kind, flags, data), f"mount {kind} on {target}")


def bind_mount(source: str, target: str, *, read_only: bool = False) -> None:
    """Makes the mount point as well: a folder for a folder, an empty file for anything else."""
    if Path(source).is_dir():
        Path(target).mkdir(parents=True, exist_ok=True)
    elif not os.path.lexists(target):
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(target).touch()
    bind = MS_BIND | MS_REC
    check(_libc.mount(os.fsencode(source), os.fsencode(target), None, bind, None), f"bind {source} on {target}")
    if read_only:
        for flags in (0, MS_NOSUID | MS_NODEV, MS_NOSUID | MS_NODEV | 8):
            if _libc.mount(None, os.fsencode(target), None, MS_REMOUNT | MS_BIND | MS_RDONLY | flags, None) == 0:
                return
        raise PlaceError(f"cannot make {target} read-only: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
