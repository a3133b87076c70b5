"""A recorded rank's slice as entries of the job graph: its calls, and what lay between them.

Where a trace says what ran between two calls, it is split by operator; else it is one computation. Where it is known
when the thread waited for an asynchronous call, the wait stands there. Else it is taken to be where the call completed,
so that the recorded times come out again; until then the thread may have computed or waited, so that this part is
assumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from prismdbg.job_graph.interval_layout import laid_out, put_together
from prismdbg.job_graph.slice_channels import Channels
from prismdbg.memory.traced_step import BETWEEN, Changed, Item, Ran, TracedStep, Waited
from prismdbg.rank_graph.node import Node
from prismdbg.rank_graph.slice import GraphSlice
from prismdbg.simulate.cluster.transfer import OPS
from prismdbg.simulate.graph.entries import HELD_AT_LEAST, MODELLED_NS, OBJECTS, Entries, Provenance, splits_text
from prismdbg.simulate.graph.entry_writer import FREE_NAME, EntryWriter
from prismdbg.simulate.graph.mesh import Mesh

STEP_BEFORE = "in the previous step"
HELD = "held before the step"
SMALLEST_PART = 2000  # of the step: what takes less is put together with its neighbours


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What is known beside the calls. Times count as the slice's do.

    computed: the provenance of what ran between two calls. from_ns, until_ns: the main thread's begin and end; where
    `until_ns` is 0, the last completion. before_ns: so long before its begin it is in the previous step.
    traced: the operators; their shares are `split` where the times are those of another run.
    transfers_ns: by record number, those that were recorded, from the last member's issue on; such a call waits for no
    other on its channel.
    """

    computed: Provenance = Provenance.RECORDED
    split: Provenance = Provenance.RECORDED
    from_ns: int = 0
    until_ns: int = 0
    before_ns: int = 0
    traced: TracedStep | None = None
    transfers_ns: Mapping[int, int] = field(default_factory=dict)


RECORDED = Source()


def entries_of(graph: GraphSlice, mesh: Mesh, source: Source = RECORDED) -> Entries:
    """UsageError where a group or a peer lies along no axis of the mesh."""
    mesh.check_rank(graph.rank)
    return _Translation(graph, mesh, source).entries()


@dataclass(frozen=True, slots=True, order=True)
class _Open:
    """A call that its thread has not waited for."""

    done_ns: int
    record_id: int
    entry: int
    waited_ns: int | None


class _Translation:
    def __init__(self, graph: GraphSlice, mesh: Mesh, source: Source) -> None:
        self._graph, self._source = graph, source
        self._writer = EntryWriter()
        self._channels = Channels(graph, mesh)
        self._least_ns = max(source.until_ns - source.from_ns, 0) // SMALLEST_PART
        self._clocks: dict[int, int] = {}  # of each thread: until when its time is told
        self._ahead: dict[int, Sequence[Item]] = {0: self._traced(0)}  # what it did after its last call
        self._open: dict[int, list[_Open]] = {}
        self._waited = self._known_waits()

    def _known_waits(self) -> frozenset[int]:
        """Record numbers of calls of which it is known where their thread waited for them."""
        if self._source.traced is not None:
            stretches = self._source.traced.after.values()
            return frozenset(item.record_id for items in stretches for item in items if isinstance(item, Waited))
        return frozenset(node.record_id for node in self._graph.nodes if node.waited_ns is not None)

    def entries(self) -> Entries:
        if (traced := self._source.traced) is not None:
            label, known = (HELD, Provenance.REAL) if traced.is_whole else (HELD_AT_LEAST, Provenance.ASSUMED)
            where = f" on {traced.device}" if traced.device else ""
            self._writer.memory(traced.held_bytes, label + where, provenance=known)
        if self._source.before_ns:
            self._writer.compute(self._source.before_ns, STEP_BEFORE, provenance=self._source.computed)
        before = 0
        for node in self._graph.nodes:
            if node.thread != before:
                self._tell_memory(before)
            self._goes_on(node.thread, node.issued_ns)
            self._call(node)
            before = node.thread
        until_ns = self._source.until_ns
        for thread in sorted({0, *self._ahead}, key=lambda thread: thread != before):
            last_ns = max((call.done_ns for call in self._open.get(thread, ())), default=self._clock(thread))
            self._goes_on(thread, last_ns if not until_ns else until_ns if thread == 0 else min(last_ns, until_ns))
        return self._writer.done()

    def _call(self, node: Node) -> None:
        line = str(node.source or "")
        size_bytes = max(node.sent_bytes, node.received_bytes)
        stream = _stream(node.thread)
        channel = self._channels.of(node)
        duration_ns = self._source.transfers_ns.get(node.record_id, MODELLED_NS)
        provenance = Provenance.MODELLED if duration_ns == MODELLED_NS else Provenance.RECORDED
        holds = not node.is_p2p and not node.is_async
        if node.is_p2p:
            write = self._writer.send if node.op == "send" else self._writer.recv
            entry = write(
                channel, size_bytes, issuer=stream, blocking=False, line=line, duration_ns=duration_ns,
                provenance=provenance,
            )  # fmt: skip
        else:
            entry = self._writer.collective(
                _operation(node), channel, size_bytes, issuer=stream, blocking=holds, line=line,
                duration_ns=duration_ns, provenance=provenance,
                stream=channel if duration_ns == MODELLED_NS else FREE_NAME, detail=_detail(node),
                splits=splits_text(node.parts_sent, node.parts_received),
            )  # fmt: skip
        done_ns = node.issued_ns if node.on_stream else node.completed_ns  # for its thread, which stood for nothing
        self._ahead[node.thread] = self._traced(node.moment.collective)
        if holds:
            self._clocks[node.thread] = node.issued_ns if done_ns is None else done_ns
        else:
            self._clocks[node.thread] = max(self._clock(node.thread), node.issued_ns)
            if done_ns is not None:
                self._open.setdefault(node.thread, []).append(_Open(done_ns, node.record_id, entry, node.waited_ns))

    def _traced(self, collective: int) -> Sequence[Item]:
        traced = self._source.traced
        return () if traced is None else traced.after.get(collective, ())

    def _tell_memory(self, thread: int) -> None:
        """What memory did until another thread made the next call."""
        ahead = self._ahead.get(thread, ())
        for item in put_together([item for item in ahead if isinstance(item, Changed)], 0):
            if isinstance(item, Changed):
                self._writer.memory(item.size_bytes, item.label, provenance=Provenance.REAL)
        self._ahead[thread] = [item for item in ahead if not isinstance(item, Changed)]

    def _clock(self, thread: int) -> int:
        return self._clocks.get(thread, self._source.from_ns)

    def _goes_on(self, thread: int, until_ns: int) -> None:
        """What the thread did up to here: computations, and the waits for what completed meanwhile."""
        calls = sorted(self._open.get(thread, ()))
        assumed = [c for c in calls if c.record_id not in self._waited and c.done_ns <= until_ns]
        items = self._items(thread, until_ns, calls)
        split = len({item.label for item in items if isinstance(item, Ran)}) > 1
        known = self._source.split if split else self._source.computed
        by_record = {c.record_id: c for c in calls}
        for item in items:
            if isinstance(item, Changed):
                self._writer.memory(item.size_bytes, item.label, provenance=Provenance.REAL)
            elif isinstance(item, Waited):
                self._wait(thread, by_record[item.record_id], until_ns)
            else:
                self._ran(thread, item, assumed, known)
        while assumed and assumed[0].done_ns <= self._clock(thread):
            self._wait(thread, assumed.pop(0), until_ns)

    def _items(self, thread: int, until_ns: int, calls: Sequence[_Open]) -> Sequence[Item]:
        """Laid into the time up to `until_ns`."""
        traced, at_ns = self._source.traced, self._clock(thread)
        if traced is not None:
            ahead = self._ahead.pop(thread, ())
            laid = laid_out(ahead, at_ns, until_ns, {call.record_id: call.done_ns for call in calls})
            return list(put_together(laid, self._least_ns))
        items: list[Item] = []
        known = [(c.waited_ns, c) for c in calls if c.waited_ns is not None and c.waited_ns <= until_ns]
        for waited_ns, call in sorted(known):
            if waited_ns > at_ns:
                items.append(Ran(waited_ns - at_ns, BETWEEN))
            items.append(Waited(call.record_id))
            at_ns = min(max(at_ns, waited_ns, call.done_ns), until_ns)
        if until_ns > at_ns:
            items.append(Ran(until_ns - at_ns, BETWEEN))
        return items

    def _ran(self, thread: int, ran: Ran, assumed: list[_Open], known: Provenance) -> None:
        """Cut where a call completed of which it is not known when it was waited for."""
        left_ns = ran.taken_ns
        while assumed and assumed[0].done_ns <= self._clock(thread) + left_ns:
            call = assumed.pop(0)
            left_ns -= self._computed(thread, call.done_ns - self._clock(thread), ran, Provenance.ASSUMED)
            self._wait(thread, call, call.done_ns)
        self._computed(thread, left_ns, ran, Provenance.ASSUMED if assumed else known)

    def _computed(self, thread: int, taken_ns: int, ran: Ran, provenance: Provenance) -> int:
        if taken_ns <= 0:
            return 0
        self._writer.compute(taken_ns, ran.label, stream=_stream(thread), line=ran.line, provenance=provenance)
        self._clocks[thread] = self._clock(thread) + taken_ns
        return taken_ns

    def _wait(self, thread: int, call: _Open, until_ns: int) -> None:
        """What ends after the thread went on was not waited for so long."""
        self._writer.wait(call.entry, stream=_stream(thread))
        self._clocks[thread] = max(self._clock(thread), min(call.done_ns, until_ns))
        self._open[thread].remove(call)


def _stream(thread: int) -> str:
    return "compute" if thread == 0 else f"thread {thread}"


def _operation(node: Node) -> str:
    """`all_gather` of `all_gather_into_tensor_coalesced`."""
    return next((op for op in sorted(OPS, key=len, reverse=True) if node.name.startswith(op)), _barrier(node.name))


def _barrier(name: str) -> str:
    return "barrier" if name.endswith("barrier") else name


def _detail(node: Node) -> str:
    """What all members must give alike, besides the operation and the size."""
    root = f"root {node.root}" if node.root >= 0 else ""
    objects = OBJECTS if node.carries_objects else ""
    return ", ".join(filter(None, (node.dtype, node.reduce_op, root, objects)))
