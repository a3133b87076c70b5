"""What this machine can do for prismdbg, found by trying: one probe per facility, with what it is for and the fix.

Changes nothing and starts no service. The checkpoint engine's probe is given, for this package knows no engine.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from prismdbg.errors import PrismError
from prismdbg.model.meanwhile import one_by_one
from prismdbg.runtime.docker.daemon import Daemon
from prismdbg.runtime.docker.engine import connect, unavailable
from prismdbg.runtime.leftovers import describe, environment_images, superseded_builds
from prismdbg.runtime.runtime import fact_and_advice
from prismdbg.telemetry import sensor as names
from prismdbg.telemetry.availability import of_host, of_nvidia

_PROBE_S = 20.0
_LEAST_DISK_BYTES, _LEAST_SHM_BYTES = 5 << 30, 1 << 30
_CAPABILITIES = {12: "NET_ADMIN", 19: "SYS_PTRACE", 21: "SYS_ADMIN", 25: "SYS_TIME"}
_TRY_OVERLAY = """
set -e
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay none -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" "$1/root"
test -d "$1/root"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facility:
    """`detail` is what was found, a version or a reason; `fix` is empty where nothing is to be done."""

    name: str
    ok: bool
    needed_for: str
    detail: str
    fix: str = ""


def facilities(cache: Path, engine: str, find_engine: Callable[[], str]) -> tuple[Facility, ...]:
    """Every facility. `find_engine` gives the version of the checkpoint engine, named `engine`, that passed its
    self-test, or raises why there is none."""
    on_disk = (
        lambda: _native(cache),
        lambda: _engine(engine, find_engine),
        _mmdebstrap,
        lambda: _docker(cache),
        lambda: _disk(cache),
    )
    in_system = (_capabilities, _namespaces, _overlay, _shared_memory, _gpu, _sensors, _gpu_sensors)
    checks = (_kernel, _torch, _compiler, *on_disk, *in_system)
    found = [*(check() for check in one_by_one(checks, "checking this machine")), *_leftovers(cache)]
    return tuple(replace(facility, fix="") if facility.ok else facility for facility in found)


def _kernel() -> Facility:
    """5.9 is the first with clone3's set_tid for all and CAP_CHECKPOINT_RESTORE."""
    release = platform.release()
    numbers = [int(part) for part in release.split("-")[0].split(".")[:2] if part.isdigit()]
    return Facility(
        name="kernel",
        ok=platform.system() == "Linux" and numbers >= [5, 9],
        needed_for="checkpoints and namespaces",
        detail=f"{platform.system()} {release}, {platform.machine()}",
        fix="use Linux 5.9 or newer",
    )


def _torch() -> Facility:
    """By its metadata: importing torch takes seconds, and this side never does."""
    found = importlib.util.find_spec("torch") is not None
    version = importlib.metadata.version("torch") if found else "not installed for this Python"
    return Facility(
        name="torch",
        ok=found,
        needed_for="recording jobs started with this Python; a job's own torch counts as well",
        detail=version,
        fix="install prismdbg into the job's environment, or start the job with its own Python",
    )


def _compiler() -> Facility:
    program = shutil.which("g++") or shutil.which("c++")
    return Facility(
        name="compiler",
        ok=program is not None,
        needed_for="building the native recorder (once)",
        detail=_first_line([program, "--version"]) if program else "no g++",
        fix="apt-get install g++",
    )


def _native(cache: Path) -> Facility:
    old = {one.name for one in superseded_builds(cache)}
    libraries = sorted((cache / "native").glob("**/*.so"))
    built = [path.relative_to(cache).as_posix() for path in libraries if str(path.parent) not in old]
    return Facility(
        name="native recorder",
        ok=bool(built),
        needed_for="recording at full speed; the Python kernels are used without it",
        detail=", ".join(map(_with_note, built)) or "not built",
        fix="prismdbg setup",
    )


def _with_note(build: str) -> str:
    """For a torch with CUDA a build may lack what traces memory of GPUs."""
    is_blind = "+cu" in build and "-cuda." not in build
    return f"{build} (without memory of GPUs: CUDA's headers were missing or did not compile)" if is_blind else build


def _engine(name: str, find_engine: Callable[[], str]) -> Facility:
    needed_for = "capsules that start at a checkpoint of a live rank"
    try:
        version = find_engine()
    except PrismError as error:
        return Facility(name=name, ok=False, needed_for=needed_for, detail=str(error), fix=error.hint)
    detail = f"{version}, passed a dump and a restore"
    return Facility(name=name, ok=True, needed_for=needed_for, detail=detail)


def _mmdebstrap() -> Facility:
    program = shutil.which("mmdebstrap")
    return Facility(
        name="mmdebstrap",
        ok=program is not None,
        needed_for="building CRIU from Debian packages (once)",
        detail=_first_line([program, "--version"]) if program else "not installed",
        fix="apt-get install mmdebstrap, or build images/criu/Dockerfile",
    )


def _docker(cache: Path) -> Facility:
    needed_for = "replays in a container"
    daemon = Daemon(cache)
    if reason := unavailable(daemon):
        _, fix = fact_and_advice(reason)
        return Facility(name="docker", ok=False, needed_for=needed_for, detail=reason, fix=fix)
    try:
        engine = connect(daemon, may_start=False)
    except PrismError:
        detail = "installed; prismdbg starts its own engine when needed (not tried here)"
        return Facility(name="docker", ok=True, needed_for=needed_for, detail=detail)
    try:
        detail = f"engine {engine.version()} at {engine.url} answers (no container was started)"
    finally:
        engine.close()
    return Facility(name="docker", ok=True, needed_for=needed_for, detail=detail)


def _capabilities() -> Facility:
    effective = next(_status_values("CapEff"), "0")
    lacking = [name for bit, name in _CAPABILITIES.items() if not int(effective, 16) >> bit & 1]
    return Facility(
        name="capabilities",
        ok=not lacking,
        needed_for="dumping and restoring checkpoints",
        detail=f"lacks {', '.join(lacking)}"
        if lacking
        else f"user {os.geteuid()} has all capabilities that CRIU needs",
        fix="run as root",
    )


def _namespaces() -> Facility:
    """A user who is not root needs a user namespace around the others."""
    reason = _try(["unshare", *_unshare_options(), "--pid", "--net", "--fork", "--mount-proc", "true"])
    return Facility(
        name="namespaces",
        ok=not reason,
        needed_for="replays without Docker (--runtime local)",
        detail=reason or ("as root" if os.geteuid() == 0 else "inside a user namespace"),
        fix="run as root, or let users create namespaces (sysctl user.max_user_namespaces)",
    )


def _overlay() -> Facility:
    folder = Path("/tmp") if os.access("/tmp", os.W_OK) else Path.cwd()
    scratch = folder / f".prismdbg-overlay-{os.getpid()}"
    scratch.mkdir()
    try:
        lower = "/" if os.geteuid() == 0 else "/usr"  # in a user namespace never over a folder with mounts in it
        reason = _try(["unshare", *_unshare_options(), "sh", "-c", _TRY_OVERLAY, "sh", str(scratch), lower])
    finally:
        scratch.rmdir()
    return Facility(
        name="overlayfs",
        ok=not reason,
        needed_for="discarding the files that a replay writes, without Docker",
        detail=reason or f"overlay mounts over {lower} work",
        fix="modprobe overlay, or replay with --runtime docker",
    )


def _disk(cache: Path) -> Facility:
    there = next(path for path in (cache, *cache.parents) if path.exists())
    free = shutil.disk_usage(there).free
    return Facility(
        name="disk",
        ok=free >= _LEAST_DISK_BYTES,
        needed_for="the cache: CRIU, the native recorder, container images (2 GB with torch)",
        detail=f"{free / 2**30:.1f} GiB free at {there}",
        fix="set PRISMDBG_CACHE to a folder on a larger disk",
    )


def _shared_memory() -> Facility:
    try:
        size = shutil.disk_usage("/dev/shm").total
    except OSError:
        size = 0
    return Facility(
        name="shared memory",
        ok=size >= _LEAST_SHM_BYTES,
        needed_for="DataLoader workers",
        detail=f"/dev/shm has {size / 2**30:.1f} GiB",
        fix="mount -o remount,size=2g /dev/shm, or docker run --shm-size",
    )


def _gpu() -> Facility:
    program = shutil.which("nvidia-smi")
    listed = _first_line([program, "--query-gpu=name,driver_version", "--format=csv,noheader"]) if program else ""
    return Facility(
        name="gpu",
        ok=bool(listed),
        needed_for="ranks on CUDA; nothing else",
        detail=listed or "none found (no nvidia-smi)",
        fix="optional; only jobs on CUDA need one",
    )


def _sensors() -> Facility:
    """Those without which no cause of a delay is named must be there; any other may be missing."""
    found = of_host()
    needed = (names.CPU_TIME, names.RUN_QUEUE_WAIT, names.QUOTA_THROTTLED, names.STOLEN_TIME)
    read = f"reads {', '.join(found.names)}" if found.names else "reads none"
    return Facility(
        name="sensors",
        ok=all(name in found.names for name in needed),
        needed_for="why a rank was late (record --telemetry)",
        detail="; ".join(filter(None, (read, found.text_of_absent))),
        fix="use a kernel with CONFIG_SCHED_INFO, and mount control groups at /sys/fs/cgroup",
    )


def _gpu_sensors() -> Facility:
    found = of_nvidia()
    devices = ", ".join(f"{subject} ({name})" for subject, name in found.devices.items())
    return Facility(
        name="gpu sensors",
        ok=bool(found.names),
        needed_for="heat, power and clocks of NVIDIA GPUs (record --telemetry)",
        detail="; ".join(filter(None, (devices, found.text_of_absent))),
        fix="pip install 'prismdbg[telemetry]', on a machine with NVIDIA's driver",
    )


def _leftovers(cache: Path) -> Iterator[Facility]:
    """Nothing is missing where there are some: they only take room."""
    yield Facility(
        name="old native builds",
        ok=True,
        needed_for="nothing, if a newer build exists",
        detail=describe(superseded_builds(cache), "remove the folders"),
    )
    yield Facility(
        name="container images of replays",
        ok=True,
        needed_for="replays in Docker; rebuilt when needed",
        detail=describe(environment_images(cache), "`prismdbg rm --environments` keeps the newest"),
    )


def _unshare_options() -> list[str]:
    return ["--mount"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--mount"]


def _status_values(name: str) -> Iterator[str]:
    for line in Path("/proc/self/status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            yield value.strip()


def _try(command: list[str]) -> str:
    """Why it failed; empty when it did not."""
    try:
        ran = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PROBE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if ran.returncode == 0:
        return ""
    return (ran.stderr.strip().splitlines() or [f"{command[0]} ended with {ran.returncode}"])[-1]


def _first_line(command: list[str]) -> str:
    try:
        ran = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PROBE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ran.stdout.strip().partition("\n")[0] if ran.returncode == 0 else ""
