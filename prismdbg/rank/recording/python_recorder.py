"""Records through the Python kernels: used where the native recorder cannot be built. Same log, higher cost."""

from __future__ import annotations

import atexit
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from prismdbg.capsule import json_text
from prismdbg.capsule.log import format as fmt
from prismdbg.model import synthesis
from prismdbg.model.collective import Failure, Frame, Identity
from prismdbg.model.dtypes import REDUCE_OPS
from prismdbg.model.moment import Moment
from prismdbg.rank.c10d import fingerprint, kernels, sketches, together
from prismdbg.rank.c10d.call import Call, Redispatch, metas
from prismdbg.rank.c10d.completion import Completion
from prismdbg.rank.c10d.counters import Counters
from prismdbg.rank.c10d.sparse import dense_parts
from prismdbg.rank.c10d.works import wrap
from prismdbg.rank.program.interruptions import is_for_the_program
from prismdbg.rank.program.isolation import ours
from prismdbg.rank.program.stderr import say
from prismdbg.rank.recording.log_writer import LogWriter, PayloadWriter, encode_tensors
from prismdbg.rank.recording.recorder import NO_STEP, Rescuer
from prismdbg.rank.recording.write_queue import WriteQueue

_OWN_FILES = (str(Path(__file__).parents[1]),)
STACK_DEPTH = 48
LONGEST_TEXT = 8192
_PAYLOADS_LOST, _EVENTS_LOST = "payloads are no longer recorded", "events are no longer recorded"


class PythonRecorder:
    """A `Recorder` that is also the kernels' interceptor."""

    def __init__(self) -> None:
        self._counters = Counters()
        self._queue: WriteQueue | None = None
        self._log: LogWriter | None = None
        self._payloads: PayloadWriter | None = None
        self._mode = 0
        self._lost = ""
        self._on_group: Callable[[Any], None] | None = None
        self._groups: set[str] = set()
        self._stacks = self._fingerprints = self._nan_check = True
        self._sketches = False
        self._backward_stack: tuple[Frame, ...] = ()
        self._window_on, self._window_steps, self._window_bytes, self._keep_from = False, 0, 0, NO_STEP
        self._order = threading.RLock()  # a signal's handler may issue a collective, too
        self._gate = threading.Condition()
        self._closed_gate = False
        self._parked = 0
        self._refusing = threading.local()
        self._entering: set[int] = set()  # threads between the gate and their call's record
        self._in_flight: dict[int, str] = {}
        self._rescuer: Rescuer | None = None
        self._events = 0
        self.now_ns: Callable[[], int] = time.monotonic_ns
        atexit.register(self.tidy)

    # what steers it

    def open(
        self,
        folder: str,
        rank: int,
        event_segment_bytes: int,
        payload_segment_bytes: int,
        stacks: bool,
        fingerprints: bool,
        nan_check: bool,
        sketches: bool,
        direct: bool,
    ) -> None:
        self._queue = queue = WriteQueue(direct)
        self._log = LogWriter(queue, Path(folder), rank, event_segment_bytes)
        self._payloads = PayloadWriter(queue, Path(folder), payload_segment_bytes)
        self._stacks, self._fingerprints, self._nan_check, self._sketches = stacks, fingerprints, nan_check, sketches
        if self._lost:
            self._note_lost(self._log)

    def mode(self, mode: int) -> None:
        self._mode = mode
        kernels.install(self)

    def append(self, kind: int, body: bytes) -> None:
        if self._log is not None:
            self._guarded(partial(self._log.append, kind, body))

    append_held = append

    def begin_step(self, step: int, source: int) -> None:
        self._counters.begin_step(step)
        self.append(fmt.Kind.STEP, fmt.STEP.pack(step, self.now_ns(), source))
        if self._payloads is not None and self._window_steps > 0:
            self._payloads.drop_before(min(step - self._window_steps, self._keep_from))

    def backward(self, on: bool) -> None:
        found = self._guarded(python_stack) if on and self._mode == 1 else None
        self._backward_stack = found or ()

    def window(self, on: bool, steps: int, size_bytes: int) -> None:
        self._window_steps, self._window_bytes, self._window_on = steps, size_bytes, on

    def keep_from(self, step: int) -> None:
        self._keep_from = step

    def keep_small(self, each_bytes: int, total_bytes: int) -> tuple[int, int]:
        return self._payloads.keep_small(each_bytes, total_bytes) if self._payloads is not None else (0, 0)

    def park(self, on: bool) -> None:
        with self._gate:
            self._closed_gate = on
            self._gate.notify_all()

    def refuse(self, on: bool) -> int:
        refused, self._refusing.count = getattr(self._refusing, "count", 0), 0
        self._refusing.on = on
        return int(refused)

    def parked(self) -> int:
        return self._parked

    def in_flight(self) -> list[int]:
        return sorted(self._in_flight)

    def close_log(self) -> None:
        if self._log is not None and self._queue is not None:
            self._log.close()
            self._queue.flush()

    def tidy(self) -> None:
        """At the end of the program: what is still to be written is."""
        try:
            if self._queue is not None:
                self._queue.flush()
        except OSError as error:
            if not self._lost:
                self._lost = f"the end of the log is not written: {error}"
                self._print_lost()

    def reopen_log(self) -> None:
        if self._log is not None:
            self._guarded(self._log.reopen)

    def stats(self) -> dict[str, Any]:
        log, payloads = self._log, self._payloads
        return {
            "events": self._events,
            "event_bytes": log.written_bytes if log else 0,
            "payload_bytes": payloads.total_bytes if payloads else 0,
            "step": self._counters.step,
            "collective": self._counters.collective,
            "lost": self._lost,
            "entering": len(self._entering),
        }

    def moment(self) -> tuple[int, int]:
        return self._counters.step, self._counters.collective

    def sequences(self) -> list[tuple[str, str, int, int, int]]:
        return self._counters.sequences()

    def new_world(self, suffix: str) -> None:
        """The calls have these names already."""

    def on_group(self, callback: Callable[[Any], None]) -> None:
        self._on_group = callback

    def handover(self, rescuer: Rescuer) -> None:
        self._mode = 0
        self._rescuer = rescuer

    # what the kernels call

    def collective(self, call: Call, redispatch: Redispatch) -> Any:
        if getattr(self._refusing, "on", False):
            self._refusing.count += 1
            raise RuntimeError(f"prismdbg refuses c10d::{call.spec.name}: only the program may issue a collective")
        if not self._enter():
            # handed over while parked: this call belongs to whoever is installed now
            assert kernels._interceptor is not None
            return kernels._interceptor.collective(call, redispatch)
        try:
            completion = self._guarded(lambda: self._issue(call)) if self._mode == 1 else None
        finally:
            self._leave()  # from here on it counts as in flight
        try:
            result = redispatch()
        except Exception as error:
            if completion is not None:
                completion.fail(error, at_issue=True)
            raise
        if completion is None:
            return result
        wrapped = self._guarded(partial(self._wrapped, call, result, completion))
        return result if wrapped is None else wrapped

    def start_coalescing(self, group: Any) -> None:
        self._guarded(partial(together.start, group))

    def end_coalescing(self, group: Any, end: Callable[[], Any]) -> Any:
        ended = self._guarded(partial(together.take, group)) or together.Together("")
        try:
            work = end()
        except Exception as error:
            self._guarded(partial(together.fail, ended, error))
            raise
        self._guarded(partial(together.settle, ended, has_work=work is not None))
        return work

    def _arrived_ns(self) -> int:
        """When the call that is being recorded was made."""
        return self.now_ns()

    def _wrapped(self, call: Call, result: Any, completion: Completion) -> Any:
        return wrap(call, result, completion)

    def unreadable(self, error: Exception, redispatch: Redispatch) -> Any:
        if self._mode == 1:
            self._lose(error)
        return redispatch()

    def _enter(self) -> bool:
        """Waits while parked; False when the recorder was handed over meanwhile. Until `_leave` the thread is on its
        way to a record: a call that is on its way may be in no checkpoint.

        No lock while the gate is open: a child that is forked meanwhile would find it held.
        """
        me = threading.get_ident()
        self._entering.add(me)
        while self._closed_gate:
            self._entering.discard(me)
            if not self._pass_gate():
                return False
            self._entering.add(me)
        return True

    def _leave(self) -> None:
        self._entering.discard(threading.get_ident())

    def _pass_gate(self) -> bool:
        """Waits while parked; False when the recorder was handed over meanwhile."""
        with self._gate:
            self._parked += 1
            try:
                while self._closed_gate:
                    self._gate.wait()
            finally:  # a signal's handler may raise
                self._parked -= 1
        return self._rescuer is None

    def _issue(self, call: Call) -> Completion | None:
        if call.group_name not in self._groups:
            self._groups.add(call.group_name)
            if self._on_group is not None:
                try:
                    self._on_group(call.group)
                except BaseException:  # of a signal's handler: it is not described yet
                    self._groups.discard(call.group_name)
                    raise
        if self._log is None:
            return None
        encode = self._encoder(self._log, call)
        with self._order:  # several threads may issue: records stand in the order of their numbers
            record_id, moment, identity = self._counters.issue(call)
            self._in_flight[record_id] = call.spec.name
            self._log.append(fmt.Kind.ISSUE, encode(record_id, moment, identity))
            self._events += 1
        return Completion(self, call, record_id)

    def _takes_fingerprint(self, call: Call) -> bool:
        return self._fingerprints

    def _encoder(self, log: LogWriter, call: Call) -> Callable[[int, Moment, Identity], bytes]:
        """Looks at the call; what it gives writes the record, quickly."""
        sent = [] if call.is_captured else dense_parts(call.sent)
        value, flags = (
            0,
            (fmt.IssueFlag.ASYNC if call.is_async else 0) | (fmt.IssueFlag.P2P if call.spec.is_p2p else 0),
        )
        if sent and self._takes_fingerprint(call):
            value, flags = fingerprint.of(sent), flags | fmt.IssueFlag.HAS_FINGERPRINT
        if sent and self._nan_check and fingerprint.nonfinite(sent):
            flags |= fmt.IssueFlag.SENT_NONFINITE
        sketch = sketches.of(sent) if self._sketches else None
        flags |= fmt.IssueFlag.HAS_SKETCH if sketch is not None else 0
        n_in, in_bytes = encode_tensors(list(metas(call.inputs)))
        n_out, out_bytes = encode_tensors(list(metas(call.outputs)))
        stack = log.stack(python_stack() or self._backward_stack) if self._stacks else 0
        reduce_op = REDUCE_OPS.index(call.reduce_op) if call.reduce_op else fmt.NO_REDUCE_OP
        op, group, device = log.text(call.spec.name), log.text(call.group_name), log.text(call.place)

        def encode(record_id: int, moment: Moment, identity: Identity) -> bytes:
            head = fmt.ISSUE.pack(
                record_id, self._arrived_ns(), value, threading.get_native_id(),
                identity.seq, moment.step, moment.collective, op, group, stack, device,
                call.root, call.tag, call.timeout_ms, reduce_op, flags, 0, n_in, n_out,
            )  # fmt: skip
            return head + in_bytes + out_bytes + (sketch.pack() if sketch is not None else b"")

        return encode

    def complete(
        self, call: Call, record_id: int, source: int, failure: Failure | None, at_ns: int | None = None
    ) -> None:
        """Called once for each issue, before the program can see the outputs. `at_ns`: None for now."""
        if self._mode == 1:
            now = self.now_ns() if at_ns is None else at_ns
            self._guarded(lambda: self._write_completion(call, record_id, source, failure, now))
        self._in_flight.pop(record_id, None)

    def note(self, kind: str, text: str) -> None:
        self.append(fmt.Kind.NOTE, json_text.dump({"kind": kind, "time_ns": self.now_ns(), "text": text}).encode())

    def waited(self, record_id: int, began_ns: int) -> None:
        """A thread began to wait, for the first time, for what did not hold it when it was issued."""
        if self._mode == 1 and record_id >= 0:
            self.append(fmt.Kind.WAIT, fmt.WAIT.pack(record_id, began_ns, threading.get_native_id()))

    def wants_values(self, call: Call) -> bool:
        """Whether what the call receives is kept: what was synthesized can be made again."""
        return self._window_on and call.made in synthesis.FROM_OTHERS

    def _write_completion(self, call: Call, record_id: int, source: int, failure: Failure | None, now: int) -> None:
        segment = offset = size = flags = 0
        received = [] if failure is not None or call.is_captured else dense_parts(call.received)
        if received and self._nan_check and fingerprint.nonfinite(received):
            flags |= fmt.CompleteFlag.RECEIVED_NONFINITE
        if received and self.wants_values(call) and (place := self._keep(received)) is not None:
            segment, offset, size = place
            flags |= fmt.CompleteFlag.PAYLOAD
        if call.synthesized:
            flags |= fmt.CompleteFlag.SYNTHESIZED
        status = fmt.Status.FAILED if failure is not None else fmt.Status.OK
        if self._log is not None and failure is not None:
            note = {"kind": "failed", "time_ns": now, "record_id": record_id, "at_issue": failure.at_issue}
            note |= {"type": failure.type, "text": failure.text[:LONGEST_TEXT]}
            self._log.append(fmt.Kind.NOTE, json_text.dump(note).encode())
        if self._log is not None:
            made = synthesis.NUMBERS[call.made]
            body = fmt.COMPLETE.pack(record_id, now, offset, size, segment, source, status, flags, made, 0)
            self._log.append(fmt.Kind.COMPLETE, body)

    def _keep(self, received: list[torch.Tensor]) -> tuple[int, int, int] | None:
        """Where the payload stands now; None if it is not kept. A disk that takes no more ends the window, not the
        record."""
        assert self._payloads is not None
        try:
            parts = [fingerprint.as_bytes(tensor) for tensor in received]
            return self._payloads.write(parts, self._counters.step, self._window_bytes)
        except OSError as error:
            self._window_on = False
            self._say_lost(f"{_PAYLOADS_LOST}: {error}")
            return None

    def rescue(self, call: Call, record_id: int) -> bool | int:
        """After a handover: fills the outputs of a work whose backend is gone. False where nobody can.

        While parked this may be the restored process before its handover: what is to come decides.
        """
        with self._gate:
            while self._closed_gate:
                self._gate.wait()
        return self._rescuer is not None and self._rescuer(record_id, call.spec.name, call.outputs)

    def _guarded(self, action: Callable[[], Any]) -> Any:
        """Runs ours so that the job never suffers: a failure ends recording, once, with a word in the log."""
        try:
            with torch.no_grad(), ours():
                return action()
        except Exception as error:
            if is_for_the_program(error):
                raise
            self._lose(error)
            return None

    def _lose(self, error: Exception) -> None:
        self._mode = 0
        self._say_lost(f"{_EVENTS_LOST}: {error!r}")

    def _say_lost(self, text: str) -> None:
        if self._lost and not (text.startswith(_EVENTS_LOST) and self._lost.startswith(_PAYLOADS_LOST)):
            return
        self._lost = text
        try:
            if self._log is not None:
                self._note_lost(self._log)
                if not self._log.is_closed:  # else it keeps the note, but may never be opened again
                    return
        except Exception:  # the log itself is what fails
            pass
        self._print_lost()  # said again in the log, should it be opened after all

    def _print_lost(self) -> None:
        say(self._lost)

    def _note_lost(self, log: LogWriter) -> None:
        moment = Moment(self._counters.step, self._counters.collective)
        note = {"kind": "lost", "time_ns": self.now_ns(), "moment": str(moment), "text": self._lost[:400]}
        log.append(fmt.Kind.NOTE, json_text.dump(note).encode())


def python_stack() -> tuple[Frame, ...]:
    """The calling thread's Python frames, innermost first, without prismdbg's own."""
    frames: list[Frame] = []
    frame = sys._getframe(1)
    while frame is not None and len(frames) < STACK_DEPTH:
        code = frame.f_code
        if not code.co_filename.startswith(_OWN_FILES):
            frames.append(Frame(code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back  # type: ignore[assignment]
    return tuple(frames)
