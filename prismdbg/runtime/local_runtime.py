"""Runs a rank in namespaces of this machine: its own processes, network and mounts, writes thrown away."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache

from prismdbg.runtime.names import LOCAL
from prismdbg.runtime.runtime import Say, silent
from prismdbg.runtime.spec import ImageOrigin, ReplaySpec
from prismdbg.runtime.started_rank import StartedRank
from prismdbg.runtime.starter_process import start_process
from prismdbg.runtime.starter_spec import Isolation
from prismdbg.runtime.visible import visible


class LocalRuntime:
    """Root, or any user who may make user namespaces (then only from the program's start)."""

    name = LOCAL

    def available(self) -> str | None:
        return _why_no_namespaces()

    def refuses(self, spec: ReplaySpec) -> str | None:
        if isinstance(spec.origin, ImageOrigin) and os.geteuid() != 0:
            return "restoring a checkpoint needs root: run as root, or capture with --origin start"
        if spec.saving is not None and os.geteuid() != 0:
            return "only root can take checkpoints of a rank"
        return None

    def start(self, spec: ReplaySpec, say: Say = silent) -> StartedRank:
        bound = [file.bind for file in spec.files if file.is_bound]
        copied = [file for file in spec.files if not file.is_bound]
        seen = visible(spec.environment, spec.python, laid=[file.target for file in spec.files])
        return start_process(
            spec,
            "namespaces of this machine",
            Isolation.NAMESPACES,
            binds=(*spec.all_binds(), *bound),
            files=(*seen.copies, *copied),
            seen=seen,
        )


@cache
def _why_no_namespaces() -> str | None:
    """Tried for real, for what forbids them differs: a kernel setting, a container's policy, AppArmor."""
    kinds = ["--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--mount-proc"]
    if os.geteuid() != 0:
        kinds += ["--user", "--map-current-user"]
    script = "import sys; sys.exit(0)"
    try:
        ran = subprocess.run(
            ["unshare", *kinds, sys.executable, "-I", "-S", "-c", script],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the check for namespaces failed: {error}; install util-linux"
    if ran.returncode == 0:
        return None
    said = ran.stderr.strip().splitlines()[-1:] or ["no reason given"]
    return f"this machine does not let this user create namespaces ({said[0]}): run as root, or use Docker"
