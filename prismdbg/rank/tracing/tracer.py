"""The rank's tracer, from Python: arms it, asks it, is told of events. All the counting is done in C++.

Each device has sums of its own. Where one number is asked for, it is that of the device with the largest peak. CUDA is
followed by `cuda.py`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from prismdbg.capsule.memory_format import BEGAN, device_name
from prismdbg.errors import FacilityError, UsageError
from prismdbg.model.collective import Frame
from prismdbg.model.moment import Moment
from prismdbg.model.private_file import private
from prismdbg.rank.native import build as native_build
from prismdbg.rank.program import isolation
from prismdbg.rank.program.not_compiled import not_compiled
from prismdbg.rank.tracing import cuda
from prismdbg.rank.tracing.events import Allocation, Armed, Event, EventKind, Filter
from prismdbg.settings.file_system import is_local

__all__ = ["Allocation", "Armed", "Event", "EventKind", "Filter"]

_KINDS = {1: EventKind.ALLOCATION, 2: EventKind.FREE, 3: EventKind.OP}

_native: Any = None
_has_file = False  # of the trace that was armed last
_tells_waits = False
_is_whole = False  # the trace knows every block of the program


def unavailable(cache_dir: Path | None = None) -> str:
    """Empty, or why operators and allocations cannot be traced here."""
    try:
        _load(cache_dir)
    except FacilityError as error:
        return str(error)
    return ""


def require(cache_dir: Path | None = None) -> None:
    """`FacilityError` where nothing can be traced here."""
    _load(cache_dir)


def use(module: Any) -> None:
    """The extension that this process records with is also the one that traces."""
    global _native
    if _native is None and hasattr(module, "trace_arm"):
        _native = module


def is_armed() -> bool:
    return _native is not None and bool(_native.trace_stats()["on"])


def arm(path: Path | None, *, cache_dir: Path | None = None, thread: int = 0, from_start: bool = False) -> Armed:
    """From here on everything is counted; into `path`, a new folder, where one is given.

    from_start: nothing of the program has run, so that no block is older.

    thread: the kernel's number of the thread whose operators are counted until a collective is issued; 0: the main one.
    """
    from prismdbg.rank.tracing.existing_tensors import in_use_bytes, live_tensors
    from prismdbg.rank.tracing.modules import CALL, ModuleNames

    native = _load(cache_dir)
    global _has_file, _is_whole
    now = native.trace_stats()
    # what a trace knows goes over into the new one where it writes no more: a restored rank's, one without a file
    if now["on"] and not now["closed"] and not now["lost"] and _has_file:
        raise UsageError("operators and allocations are traced already", hint="end this trace first")
    _has_file = path is not None
    _is_whole = from_start or (bool(now["on"]) and _is_whole)
    if path is not None:
        path.mkdir(mode=0o700, parents=True)
        told: dict[str, Any] = {"from_start": _is_whole, "in_use_bytes": None if _is_whole else in_use_bytes()}
        lacks = cuda.missing(native)
        with open(path / BEGAN, "w", opener=private) as file:
            file.write(json.dumps(told | ({"untraced": lacks} if lacks else {})))
    native.trace_name_modules(ModuleNames(native.trace_forget_module).name)
    native.trace_thread(thread or main_thread())
    native.trace_arm(str(path or ""), path is None or is_local(path), CALL)
    native.trace_adopt(live_tensors())
    cuda.follow(native)
    stats = native.trace_stats()
    return Armed(before_bytes=stats["allocated"], before_blocks=stats["blocks"], path=path)


def seen(tensors: Sequence[Any]) -> None:
    """What a collective is given may be older than the trace and held by torch alone: a bucket of DDP."""
    if is_armed():
        _native.trace_adopt(tensors)


def main_thread() -> int:
    """Its kernel number; a process is named by it."""
    return os.getpid()


def disarm() -> None:
    if _native is not None:
        _native.trace_on_event(None, [])
        _native.trace_disarm()


def close_files() -> None:
    """Nothing of the trace is open afterwards; what happens meanwhile is written by `reopen_files`."""
    if _native is not None:
        _native.trace_close()


def ended() -> None:
    """The program has come to its end: what the interpreter lets go of on its way out is no part of the trace."""
    close_files()


def reopen_files() -> None:
    if _native is not None:
        _native.trace_reopen()


def cap(cap_bytes: int, hint: str) -> None:
    """Where the program's own blocks would hold more, an allocation raises `torch.OutOfMemoryError`; 0: no cap.

    hint: the end of what it says. What the debugger and the communication backend allocate neither counts nor fails.
    On a GPU it is a limit of torch's allocator, see `cuda.cap`.
    """
    if _native is None:
        raise UsageError("nothing is traced", hint="switch the trace on first")
    _native.trace_cap(cap_bytes, hint)
    cuda.cap(cap_bytes)


def moved(step: int, collective: int) -> None:
    """A collective or a step begins, on the calling thread: operators are counted from 1 again."""
    if _native is not None:
        _native.trace_move(step, collective)


def answered() -> None:
    """The collective that the calling thread moved to is over for it, or the step has begun: its time goes on."""
    if _native is not None:
        _native.trace_answered()


def waited(record_id: int, began_ns: int) -> None:
    """The calling thread no longer waits for the work of that collective, as it did from `began_ns` on."""
    if _native is not None:
        _native.trace_waited(record_id, began_ns)


def tell_waits(on: bool) -> None:
    """Whether a replay is to say where the program waits for works; for the price of a work in Python for each."""
    global _tells_waits
    _tells_waits = on


def tells_waits() -> bool:
    return _tells_waits


def stands_at(step: int, collective: int, thread: int) -> None:
    """As `moved`, said by another thread than the one whose operators are counted."""
    if _native is not None:
        _native.trace_move(step, collective)
        _native.trace_thread(thread)


def stats() -> dict[str, Any]:
    """on, path-independent figures: records, refused, blocks, last_op, moment, lost; allocated, backend and peak of
    `device`, the one with the largest peak; the same of all `devices` by name; why CUDA's memory is `untraced`."""
    if _native is None:
        return {"on": False}
    found = dict(_native.trace_stats())
    found["device"] = device_name(found["device"])
    found["devices"] = {device_name(device): figures for device, figures in found["devices"].items()}
    return {**found, "untraced": cuda.untraced()}


def moment() -> Moment:
    return Moment(*stats()["moment"]) if _native is not None else Moment(0)


def op_count() -> int:
    """Outermost operators on the issuing thread since the last collective."""
    return moment().op


def allocated() -> int:
    """What the program's own blocks hold now, in bytes, on the device with the largest peak."""
    return int(stats().get("allocated", 0))


def peak() -> int:
    """The highest `allocated()` since the trace began."""
    return int(stats().get("peak", 0))


def find(data_ptr: int) -> Allocation | None:
    """The live block that holds this address."""
    found = _native.trace_find(data_ptr) if _native is not None else None
    if found is None:
        return None
    frames = tuple(Frame(file, line, name) for file, line, name in found.pop("frames"))
    device = device_name(found.pop("device"))
    return Allocation(moment=Moment(*found.pop("moment")), frames=frames, device=device, **found)


def on_event(callback: Callable[[Event], None] | None, filters: Sequence[Filter] = ()) -> None:
    """`callback` is called in the thread that made the event, with Python's lock: as an operator begins, after an
    allocation, before a free; of another device than the CPU when the operator ends that made it. It may wait there.
    What it does itself is not traced; what it raises is printed."""
    if _native is None:
        if callback is not None:
            raise UsageError("nothing is traced", hint="switch the trace on first")
        return
    _native.trace_on_event(_adapted(callback) if callback is not None else None, [f.as_tuple() for f in filters])


def _adapted(callback: Callable[[Event], None]) -> Callable[..., None]:
    @not_compiled
    def call(kind: int, at: tuple[int, int, int], op: str, outer_op: str, module: str, *rest: Any) -> None:
        address, size_bytes, total_bytes, block, is_backend, device, matched = rest
        callback(
            Event(
                kind=_KINDS[kind],
                moment=Moment(*at),
                op=op,
                outer_op=outer_op,
                module=module,
                address=address,
                size_bytes=size_bytes,
                total_bytes=total_bytes,
                block=block,
                is_backend=is_backend,
                device=device_name(device),
                matched=tuple(matched),
            )
        )

    return call


def _load(cache_dir: Path | None) -> Any:
    """The extension: loaded already by the recorder, or from a cache. Never compiles."""
    global _native
    if _native is None:
        path, reason = _built(cache_dir)
        if path is None:
            raise FacilityError(
                f"operators and allocations cannot be traced: {reason}",
                hint=f"run `prismdbg setup --python {sys.executable}`, which builds it for the job's torch",
            )
        try:
            _native = native_build.load(path)
        except ImportError as error:
            raise FacilityError(
                f"operators and allocations cannot be traced: {path}: {error}",
                hint="run `prismdbg setup`, and see `prismdbg doctor`",
            ) from error
    return _native


def _built(cache_dir: Path | None) -> tuple[Path | None, str]:
    """The cache whose build fits: the one that is named, or, in a replay, what lies beside this package there."""
    beside = Path(__file__).parents[3]
    reasons = []
    for cache in (cache_dir, beside) if cache_dir is not None else (beside,):
        path, reason = native_build.find(cache)
        if path is not None:
            return cache, ""
        reasons.append(reason)
    return None, reasons[0]


isolation.listen(lambda on: _native.trace_quiet(on) if _native is not None else None)
