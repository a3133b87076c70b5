"""Logs of a whole job, built call by call in memory: what each rank's `RankLog` would be after that.

job = Job(4)
job.steps(3)
job.call(without={2}, done=False)
job.logs[0].collectives[-1]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from prismdbg.capsule.log.events import Note, RankLog, StepMark
from prismdbg.capsule.log.format import StepSource
from prismdbg.model.collective import Collective, Frame, Group, Identity, State, TensorMeta
from prismdbg.model.moment import Moment
from prismdbg.model.ops import OPS

MILLISECOND_NS = 1_000_000
WORLD = "0"
LINE = Frame("/job/train.py", 42, "main")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensors:
    """What a rank passes, and gets, in one call."""

    shape: tuple[int, ...] = (4,)
    dtype: str = "float32"

    @property
    def metas(self) -> tuple[TensorMeta, ...]:
        return (TensorMeta(self.shape, self.dtype),)


class Job:
    """`world` ranks on one machine with one clock. Each rank counts its own sequences, as torch does."""

    def __init__(self, world: int) -> None:
        self.ranks = range(world)
        self.now_ns = 1_000 * MILLISECOND_NS
        self.logs = {rank: RankLog(rank, 4000 + rank, 0) for rank in self.ranks}
        self._sequence: Counter[tuple[object, ...]] = Counter()
        self._moments = dict.fromkeys(self.ranks, Moment(0))
        self.group(WORLD, self.ranks, desc="default_pg")

    def group(self, name: str, ranks: Collection[int], desc: str = "undefined") -> None:
        for rank in ranks:
            self.logs[rank].groups[name] = Group(name=name, ranks=tuple(ranks), desc=desc, backend="gloo")

    def steps(self, count: int, *, lasting_ns: int = 10 * MILLISECOND_NS) -> None:
        """Each: one all_reduce of the world, then the next step begins."""
        for _ in range(count):
            self.call()
            self.now_ns += lasting_ns
            for rank in self.ranks:
                self.next_step(rank)

    def calls(self, rank: int) -> list[Collective]:
        """What its log has; to be changed."""
        calls = self.logs[rank].collectives
        assert isinstance(calls, list)
        return calls

    def next_step(self, rank: int) -> None:
        step = self._moments[rank].step + 1
        self._moments[rank] = Moment(step)
        self.logs[rank].steps.append(StepMark(step, self.now_ns, StepSource.OPTIMIZER))

    def call(
        self,
        op: str = "allreduce_",
        group: str = WORLD,
        *,
        only: Collection[int] | None = None,
        without: Collection[int] = (),
        done: bool = True,
        late_ns: Mapping[int, int] | None = None,
        sends_nan: Collection[int] = (),
        receives_nan: Collection[int] = (),
        tensors: Tensors | None = None,
        frames: tuple[Frame, ...] = (LINE,),
        root: int = -1,
        thread: int = 1,
    ) -> None:
        """The members of `group`, less those left out, issue `op`; completed on all of them where `done`."""
        members = next(log.groups[group].ranks for log in self.logs.values() if group in log.groups)
        callers = [r for r in (members if only is None else only) if r not in without]
        late = late_ns or {}
        self.now_ns += MILLISECOND_NS
        done_ns = self.now_ns + max([late.get(r, 0) for r in callers], default=0) + MILLISECOND_NS // 2
        for rank in callers:
            sequence = self._next((rank, group))
            record = self._record(
                rank, op, group, Identity(group, sequence), tensors or Tensors(), frames, root, thread
            )
            record = replace(record, sent_nonfinite=rank in sends_nan, time_created_ns=self.now_ns + late.get(rank, 0))
            if done:
                record = _complete(record, done_ns, rank in receives_nan)
            self.calls(rank).append(record)
        self.now_ns = done_ns

    def point_to_point(
        self, source: int, target: int, *, sent: bool = True, received: bool = True, done: bool = True
    ) -> None:
        """In the world group, tag 0."""
        self.now_ns += MILLISECOND_NS
        for rank, peer, op, happens in ((source, target, "send", sent), (target, source, "recv_", received)):
            if happens:
                nth = self._next((rank, WORLD, op, peer))
                record = self._record(rank, op, WORLD, Identity(WORLD, nth, op, peer, 0), Tensors(), (LINE,), peer, 1)
                self.calls(rank).append(_complete(record, self.now_ns + 1000, False) if done else record)

    def receive(
        self, rank: int, peer: int, nth: int = 0, *, op: str = "recv_", done: bool = False, thread: int = 1
    ) -> None:
        """One end of a message from `peer` (-1: from whoever sends), in the world group."""
        self.now_ns += MILLISECOND_NS
        identity = Identity(WORLD, nth, op, peer, 0)
        record = self._record(rank, op, WORLD, identity, Tensors(), (LINE,), peer, thread)
        self.calls(rank).append(_complete(record, self.now_ns + 1000, False) if done else record)

    def exits(self, code: int = 0) -> None:
        """Every rank ends by itself."""
        for rank in self.ranks:
            self.note(rank, "exit", code=code)

    def note(self, rank: int, kind: str, **data: Any) -> None:
        self.now_ns += 1000
        self.logs[rank].notes.append(Note(kind, self.now_ns, {"moment": str(self._moments[rank]), **data}))

    def raises(self, rank: int, kind: str = "ValueError", text: str = "no", **more: Any) -> None:
        trace = [
            "Traceback (most recent call last):\n",
            '  File "/job/train.py", line 7, in main\n',
            f"{kind}: {text}\n",
        ]
        told = {"incident": "exception", "type": kind, "text": text, "traceback": trace, **more}
        self.note(rank, "incident", **told)

    def _next(self, key: tuple[object, ...]) -> int:
        self._sequence[key] += 1
        return self._sequence[key] - 1

    def _record(
        self,
        rank: int,
        op: str,
        group: str,
        identity: Identity,
        tensors: Tensors,
        frames: tuple[Frame, ...],
        root: int,
        thread: int,
    ) -> Collective:
        moment = self._moments[rank]
        self._moments[rank] = moment = Moment(moment.step, moment.collective + 1)
        spec = OPS[op]
        return Collective(
            record_id=len(self.logs[rank].collectives),
            moment=moment,
            identity=identity,
            op=op,
            group=group,
            is_p2p=spec.is_p2p,
            is_async=False,
            root=root,
            tag=0,
            reduce_op="SUM" if spec.reduce_op is not None else "",
            timeout_ms=-1,  # as recorded of a call without a timeout of its own
            inputs=tensors.metas if spec.inputs is not None else (),
            outputs=tensors.metas if spec.outputs is not None else (),
            fingerprint=17,
            sent_nonfinite=False,
            time_created_ns=self.now_ns,
            thread_id=thread,
            frames=frames,
        )


def lone_collective(**changed: Any) -> Collective:
    """An all_reduce of no tensors in the world group, issued and not complete, but for what is `changed`."""
    usual: dict[str, Any] = {
        "record_id": 0,
        "moment": Moment(3, 1),
        "identity": Identity(WORLD, 7),
        "op": "allreduce_",
        "group": WORLD,
        "is_p2p": False,
        "is_async": False,
        "root": -1,
        "tag": 0,
        "reduce_op": "SUM",
        "timeout_ms": 1000,
        "inputs": (),
        "outputs": (),
        "fingerprint": None,
        "sent_nonfinite": False,
        "time_created_ns": 0,
        "thread_id": 1,
        "frames": (),
    }
    return Collective(**{**usual, **changed})


def put_on_device(job: Job) -> None:
    """All tensors of its calls, and what goes with that: the log has a fingerprint with the end alone."""
    for log in job.logs.values():
        log.collectives = [_on_device(call) for call in log.collectives]


def leave_open(job: Job, rank: int, last: int) -> None:
    """What a rank's log lacks if the process is gone before the ends of its last calls are written."""
    calls = job.calls(rank)
    bare: dict[str, Any] = {"state": State.SCHEDULED, "time_completed_ns": None, "fingerprint": None}
    bare |= {"sent_nonfinite": False, "received_nonfinite": False}
    calls[-last:] = [replace(call, **bare) for call in calls[-last:]]


def _on_device(call: Collective) -> Collective:
    inputs, outputs = (tuple(replace(meta, device="cuda:0") for meta in part) for part in (call.inputs, call.outputs))
    fingerprint = call.fingerprint if call.state is State.COMPLETED else None
    return replace(call, inputs=inputs, outputs=outputs, fingerprint=fingerprint)


def chain_of_waits() -> Job:
    """Rank 2 stays away from its pair; rank 0 waits for rank 1, which waits for rank 2."""
    job = Job(3)
    job.group("left", (0, 1))
    job.group("right", (1, 2))
    job.call(group="right", only={1}, done=False)
    job.call(group="left", only={0}, done=False)
    return job


def circle_of_waits() -> Job:
    """Two ranks in two groups, each in another one's collective first."""
    job = Job(2)
    job.group("a", (0, 1))
    job.group("b", (0, 1))
    job.call(group="a", only={0}, done=False)
    job.call(group="b", only={1}, done=False)
    return job


def _complete(record: Collective, time_ns: int, receives_nan: bool) -> Collective:
    return replace(record, state=State.COMPLETED, time_completed_ns=time_ns, received_nonfinite=receives_nan)
