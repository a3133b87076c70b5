"""A program of its own, `images/starter/gpu_state.py`, holds the state of processes for us and moves it back."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from prismdbg.checkpoint.gpu_facts import INSTEAD
from prismdbg.errors import CheckpointError
from prismdbg.model.shipped import shipped

PROGRAM = "starter/gpu_state.py"
_EARLIER_S, _REAP_S = 10.0, 5.0
_MOVE_S = 120.0  # back: nothing else can be done then, so this is long


class Holder:
    """Of the processes `pids`, of which the first one names them for others who would hold them, too. It lets go by
    itself after `hold_s`."""

    def __init__(self, pids: Sequence[int], timeout_s: float, hold_s: float) -> None:
        self._pids, self._timeout_s = pids, timeout_s
        self._process = _started("hold", pids, timeout_s, hold_s)
        self._said: dict[str, Any] = {}

    def held(self) -> tuple[int, ...]:
        """Those whose state is in their memory now. `CheckpointError` where the driver refuses."""
        self._said = _line(self._process, time.monotonic() + self._timeout_s)
        if "held" not in self._said:
            why = _why(self._said, self._process, self._timeout_s)
            raise CheckpointError(
                f"the state of process {self._pids[0]} on its GPU cannot be saved: {why}",
                hint=INSTEAD,
            )
        return tuple(int(pid) for pid in self._said["held"])

    def require_held(self) -> None:
        """`CheckpointError` where it has let go by itself."""
        if _has_said_more(self._process) or self._process.poll() is not None:
            raise CheckpointError(
                f"the state of process {self._pids[0]} was moved back to its GPU before its checkpoint was complete",
                hint="capture it again: this command was stopped for too long, or its helper process was ended",
            )

    def give_back(self) -> None:
        """By it; where it does not say that it did, by another one. A refusal moved nothing, or moved it back."""
        last = _ended(self._process)
        if "returned" in last or ("error" in self._said and not self._said.get("stuck")):
            return
        another = _started("return", self._pids, _MOVE_S, _MOVE_S)
        if "returned" not in (last := _ended(another)):
            raise CheckpointError(
                f"the state of process {self._pids[0]} was not moved back to its GPU: {_why(last, another, _MOVE_S)}",
                hint="capture the rank again, which tries it again; its calls of CUDA wait until then",
            )


def _started(verb: str, pids: Sequence[int], timeout_s: float, hold_s: float) -> subprocess.Popen[bytes]:
    """In a session of its own: Ctrl-C is not for it. The driver's bound comes before ours, so that its words arrive."""
    bound_ms, hold_ms = int(max(timeout_s - _EARLIER_S, timeout_s / 2) * 1000), int(hold_s * 1000)
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(shipped(PROGRAM)), verb, str(bound_ms), str(hold_ms), *map(str, pids)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _why(said: dict[str, Any], holder: subprocess.Popen[bytes], bound_s: float) -> str:
    code = holder.poll()
    silent = f"no answer within {bound_s:g} s" if code is None else f"its helper process ended with {code}"
    return str(said.get("error", silent))


def _line(holder: subprocess.Popen[bytes], deadline: float) -> dict[str, Any]:
    """What it says first; nothing where it does not say it in time."""
    assert holder.stdout is not None
    poll, line = select.poll(), b""
    poll.register(holder.stdout, select.POLLIN | select.POLLHUP)
    while not line.endswith(b"\n") and (left := deadline - time.monotonic()) > 0:
        if poll.poll(left * 1000):
            if not (part := os.read(holder.stdout.fileno(), 1)):
                break
            line += part
    return _object(line)


def _has_said_more(holder: subprocess.Popen[bytes]) -> bool:
    poll = select.poll()
    assert holder.stdout is not None
    poll.register(holder.stdout, select.POLLIN)
    return bool(poll.poll(0))


def _ended(holder: subprocess.Popen[bytes]) -> dict[str, Any]:
    """The last that it says, once it is told that nobody waits any more."""
    try:
        output, _ = holder.communicate(timeout=_MOVE_S)
    except subprocess.TimeoutExpired:
        holder.kill()
        try:
            output, _ = holder.communicate(timeout=_REAP_S)
        except subprocess.TimeoutExpired:  # the kernel does not let it go
            return {}
    return _object(output.splitlines()[-1] if output.splitlines() else b"")


def _object(line: bytes) -> dict[str, Any]:
    with suppress(ValueError):
        found = json.loads(line)
        return found if isinstance(found, dict) else {}
    return {}
