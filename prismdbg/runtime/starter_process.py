"""The starter as a child of this process: what the local and the plain runtime have in common."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace

from prismdbg.model.exit_code import as_shell
from prismdbg.runtime.cgroup import Group, group_name, make_group
from prismdbg.runtime.parent_death_fifo import ParentDeathFifo
from prismdbg.runtime.spec import Bind, LaidFile, ReplaySpec
from prismdbg.runtime.started_rank import StartedRank
from prismdbg.runtime.starter_spec import SPEC, STARTER_LOG, Isolation, starter_command, starter_file, write_spec
from prismdbg.runtime.visible import NOTHING, Visible

_END_S = 10.0


class StarterProcess:
    """`Place` of a starter that was started directly."""

    def __init__(self, process: subprocess.Popen[bytes], kind: str, group: Group | None) -> None:
        self._process = process
        self._kind = kind
        self._group = group

    def outer_pid(self) -> int | None:
        return self._process.pid if self._process.poll() is None else None

    def ended(self) -> int | None:
        code = self._process.poll()
        return code if code is None else as_shell(code)

    def limits_met(self) -> tuple[str, ...]:
        return self._group.limits_met() if self._group is not None else ()

    def last_words(self) -> str:
        return ""  # its log has all

    def runs(self) -> None:
        pass

    def remove(self) -> None:
        """The starter is asked first: it ends what it started and reaps it; the kernel does if it is killed."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._group is not None:
            self._group.remove()

    def describe(self) -> str:
        return f"{self._kind} (process {self._process.pid})"


def start_process(
    spec: ReplaySpec,
    kind: str,
    isolation: Isolation,
    *,
    binds: Iterable[Bind] = (),
    files: Iterable[LaidFile] = (),
    seen: Visible = NOTHING,
) -> StartedRank:
    """Starts the starter, in a control group where this user may make one."""
    spec.deadline.require(f"the preparation of {spec.name}")
    group = make_group(group_name(spec.session), spec.limits)
    if group is None and isolation is Isolation.NAMESPACES:
        spec = replace(spec, limits=spec.limits.without_group())
    try:
        write_spec(spec, isolation, binds=binds, files=files, seen=seen, group=group)
        return _started(spec, kind, group)
    except BaseException:
        if group is not None:
            group.remove()
        raise


def _started(spec: ReplaySpec, kind: str, group: Group | None) -> StartedRank:
    command = starter_command([sys.executable], starter_file(), spec.control / SPEC)
    lifeline = ParentDeathFifo(spec.control)
    try:
        with open(spec.control / STARTER_LOG, "ab", opener=_private) as log:  # of what fails before it opens that
            process = subprocess.Popen(
                command if group is None else group.command(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
    except BaseException:
        lifeline.let_go()
        raise
    return StartedRank(spec, StarterProcess(process, kind, group), lifeline).until_running()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
