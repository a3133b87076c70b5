"""Chooses where a rank runs: Docker where an engine answers, else namespaces of this machine, else a plain process."""

from __future__ import annotations

import resource

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.manifest import Origin
from prismdbg.checkpoint.cache import cache_folder, made_cache_folder
from prismdbg.checkpoint.gpu_part import PART
from prismdbg.errors import FacilityError, UsageError
from prismdbg.runtime.local_runtime import LocalRuntime
from prismdbg.runtime.names import DOCKER, LOCAL, PLAIN, RUNTIMES
from prismdbg.runtime.plain_runtime import PlainRuntime
from prismdbg.runtime.runtime import Runtime

OPEN_FILES = 24  # of each process: the replay's own, and a rank's whose program opens none


def make(name: str) -> Runtime:
    if name == DOCKER:  # its library takes a sixth of a second to import
        from prismdbg.runtime.docker.daemon import Daemon
        from prismdbg.runtime.docker_runtime import DockerRuntime

        return DockerRuntime(Daemon(made_cache_folder()))
    if name == LOCAL:
        return LocalRuntime()
    if name == PLAIN:
        return PlainRuntime()
    raise UsageError(f"{name!r} is not a runtime", hint="use one of: " + ", ".join(RUNTIMES))


def choose(name: str, origin: Origin, allow_writes: bool, *, on_gpu: bool = False) -> Runtime:
    """The one asked for, or the first that this machine can do. `FacilityError` says why none is.

    on_gpu: the rank used a GPU, and the containers have none.
    """
    require_open_files()
    if name:
        found = _usable(name)
        if isinstance(found, str):
            raise FacilityError(
                f"the runtime {name} cannot be used: {found}",
                hint="run `prismdbg doctor` to see what this machine supports",
            )
        return found
    reasons = []
    for candidate in RUNTIMES:
        if candidate == PLAIN and (origin is Origin.IMAGE or not allow_writes):
            continue
        lacks_gpu = on_gpu and candidate == DOCKER
        found = "its containers have no GPU, which the rank used" if lacks_gpu else _usable(candidate)
        if not isinstance(found, str):
            return found
        reasons.append(f"{candidate}: {found}")
    hint = "install Docker or run as root"
    if origin.starts_program:
        hint += "; or give --allow-writes to run the program as a plain process, with its side effects"
    raise FacilityError("this machine has no usable runtime: " + "; ".join(reasons), hint=hint)


def _usable(name: str) -> Runtime | str:
    """The runtime, or why this machine cannot do it."""
    try:
        runtime = make(name)
    except OSError as error:
        folder = cache_folder()
        return f"{folder} cannot be created ({error.strerror}): set PRISMDBG_CACHE to a folder that you can write to"
    return runtime.available() or runtime


def uses_gpu(capsule: Capsule) -> bool:
    """Seen in what it sent and received, or in its checkpoint."""
    return "cuda" in capsule.manifest.device_kinds or f"{layout.CHECKPOINT}/{PART}" in capsule.manifest.files


def require_open_files() -> None:
    """`FacilityError` where the limit of open files is too low: at each place something else would fail, or wait."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < OPEN_FILES:
        raise FacilityError(
            f"the limit of open files is {limit}, and a replay needs {OPEN_FILES} or more",
            hint="raise it: `ulimit -n 1024`",
        )
