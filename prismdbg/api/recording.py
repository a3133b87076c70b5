"""A recording read in Python: a RUN, a capsule (a folder or packed), or dumps of Flight Recorder. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from html import escape
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from prismdbg.api.memory import Memory
from prismdbg.api.moments import moment_of
from prismdbg.api.rich_shown import rank_table, recording_text
from prismdbg.api.tables import table
from prismdbg.api.telemetry import Sensors
from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.log.coverage import receives
from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.log.format import payload_segment
from prismdbg.capsule.log.reader import read_payload
from prismdbg.capsule.manifest import Manifest
from prismdbg.capsule.memory_reader import is_trace
from prismdbg.diagnosis.evidence import Evidence, SeenIncident
from prismdbg.diagnosis.why import Diagnosis, diagnose
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.jobs.evidence import gather, unsaid
from prismdbg.jobs.storage.archive_crypto import NO_KEYS, Keys
from prismdbg.jobs.storage.fresh_logs import Say
from prismdbg.jobs.storage.pack import opened
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.jobs.telemetry import telemetry_of_capsule, telemetry_of_run
from prismdbg.log.columns import NOT_ENDED
from prismdbg.log.rank_log import columns_of
from prismdbg.log.timeline_svg import timeline_svg
from prismdbg.memory.trace import open_trace
from prismdbg.model import dtypes
from prismdbg.model.collective import Collective, Group, TensorMeta, group_title
from prismdbg.model.moment import Moment
from prismdbg.model.plurals import counted
from prismdbg.settings.rank_config import RANK_MEMORY

if TYPE_CHECKING:
    import pandas
    from rich.console import RenderableType

Array = np.ndarray[Any, np.dtype[Any]]
# Of torch's element types those that numpy has under the same name.
_SAME_IN_NUMPY = frozenset(name for name in dtypes.ITEM_BYTES if name in np.sctypeDict)


class Rank:
    """One rank of a recording.

    >>> rank = prismdbg.open("RUN")[1]
    >>> rank
    <rank 1: 6 collectives>
    >>> print(rank.at("1.2").name, rank.at("1.2").state)
    all_reduce completed
    >>> rank.columns()["moment"]
    ['0.1', '0.2', '1.1', '1.2', '2.1', '2.2']
    >>> [(array.shape, str(array.dtype)) for array in rank.received(rank.at("1.2"))]
    [((4,), 'float32')]
    """

    def __init__(self, log: RankLog, folder: Path | None, trace: Path | None = None) -> None:
        """`folder`: with the payloads; None where there are none. `trace`: where its memory trace is, if there is
        one."""
        self.log = log
        self._folder = folder
        self._trace = trace

    @property
    def number(self) -> int:
        return self.log.rank

    @property
    def collectives(self) -> Sequence[Collective]:
        """In the order of issue. Each is decoded when it is asked for."""
        return self.log.collectives

    @property
    def groups(self) -> Mapping[str, Group]:
        return self.log.groups

    def at(self, moment: str | Moment) -> Collective:
        """The collective at `moment`, for instance `"11.1"`. Raises `UsageError` if there is none."""
        wanted = moment_of(moment)
        columns = columns_of(self.log)
        row = columns.row_at(Moment(wanted.step, wanted.collective))
        if row < len(columns) and columns.moment(row) == Moment(wanted.step, wanted.collective):
            return self.collectives[row]
        raise UsageError(f"rank {self.number} has no collective at {wanted}", hint="list them: rank.to_pandas()")

    def payload(self, collective: Collective) -> bytes | None:
        """The bytes that it received: all output tensors, one after the other. None if they were not kept."""
        if (kept := collective.payload) is None or self._folder is None:
            return None
        if not (self._folder / payload_segment(kept.segment)).exists():  # the window has moved on
            return None
        return bytes(read_payload(self._folder, kept))

    def received(self, collective: Collective) -> tuple[Array, ...]:
        """What the rank received in `collective`: one array for each output tensor, with its shape.

        bfloat16 becomes float32, without loss. Raises `UsageError` if the payload was not kept or numpy has no such
        element type.
        """
        if (data := self.payload(collective)) is None:
            if not receives(collective, self.number, self.groups.get(collective.group)):
                raise UsageError(
                    f"rank {self.number} receives nothing in {collective.moment}",
                    hint="read it on one that does",
                )
            raise UsageError(
                f"the payload of {collective.moment} was not kept", hint="record with --window all, or a larger window"
            )
        arrays, start = [], 0
        for meta in collective.outputs:
            size = int(np.prod(meta.shape, dtype=np.int64)) * dtypes.ITEM_BYTES.get(meta.dtype, 1)
            arrays.append(_array(data[start : start + size], meta))
            start += size
        return tuple(arrays)

    def columns(self) -> dict[str, Sequence[Any] | Array]:
        """One list or array per field, with one value per collective: `to_pandas` without pandas. Times are in
        nanoseconds since 1970; `duration_ns` is -1 if the collective did not complete."""
        log = columns_of(self.log)
        ended = log.ended_ns != NOT_ENDED
        return {
            "moment": [f"{step}.{nth}" for step, nth in zip(log.step.tolist(), log.nth.tolist(), strict=True)],
            "step": log.step,
            "name": [call.name for call in self.collectives],
            "group": [group_title(log.groups, log.texts[number]) for number in log.group.tolist()],
            "seq": log.seq,
            "size_bytes": log.size_bytes,
            "began_ns": log.begun_ns + self.log.wall_offset_ns,
            "duration_ns": np.where(ended, log.ended_ns - log.begun_ns, -1),
            "completed": ended & ~log.failed,
            "failed": log.failed,
            "sent_nonfinite": log.sent_nonfinite,
            "received_nonfinite": log.received_nonfinite,
            "synthesized": log.synthesized,
            "source": [call.place for call in self.collectives],
        }

    def to_pandas(self) -> pandas.DataFrame:
        """One row per collective. Needs pandas."""
        return table(self.columns())

    def memory(self) -> Memory:
        """The memory that the rank held, of the device with the largest peak. Raises `UsageError` if no trace was
        recorded with it."""
        if self._trace is None or not is_trace(self._trace):
            raise UsageError(f"rank {self.number} has no memory trace", hint="record the job with --memory")
        return Memory(open_trace(self._trace))

    def __repr__(self) -> str:
        return f"<rank {self.number}: {len(self.collectives)} collectives>"

    def _repr_html_(self) -> str:
        """For notebooks: a timeline of its last collectives."""
        return f"<p>{escape(repr(self))}</p>{timeline_svg({self.number: self.log})}"

    def __rich__(self) -> RenderableType:
        """For terminals: its last collectives."""
        return rank_table(self)


class Recording:
    """The logs of a job's ranks, by rank, with the incidents and a diagnosis. `prismdbg.open` returns one.

        >>> with prismdbg.open("RUN") as recording:
        ...     print(recording, list(recording.ranks))
        ...     print(recording.incidents, recording.why().ranks)
        <recording RUN: 2 ranks, 0 incidents> [0, 1]
        () (0, 1)

    A packed capsule is unpacked into a temporary folder; `close`, or the end of a `with` block, removes it.
    """

    def __init__(
        self, path: Path, keys: Keys = NO_KEYS, *, whole: bool = False, at_once: int = 1, say: Say = unsaid
    ) -> None:
        """`whole`, `at_once`, `say`: of a RUN, as for `gather`."""
        self.path = path
        self._open = ExitStack()
        try:
            self.manifest: Manifest | None = None
            folders: dict[int, Path] = {}
            traces: dict[int, Path] = {}
            self._capsule: Capsule | None = None
            if (path.is_file() and not _is_imported(path)) or (path / layout.MANIFEST).is_file():
                capsule = self._open.enter_context(opened(path, keys))
                self._capsule, self.manifest = capsule, capsule.manifest
                self._evidence: Evidence = gather(capsule.path)
                folders = {capsule.manifest.rank: capsule.log}
                traces = {capsule.manifest.rank: capsule.path / layout.MEMORY}
            else:
                self._evidence = gather(path, whole=whole, at_once=at_once, say=say)
                if RunFolder(path).ranks.is_dir():
                    folders = {rank: RunFolder(path.resolve()).latest(rank) for rank in self._evidence.logs}
                    traces = {rank: folder / RANK_MEMORY for rank, folder in folders.items()}
            self.ranks: Mapping[int, Rank] = {
                rank: Rank(log, folders.get(rank), traces.get(rank))
                for rank, log in sorted(self._evidence.logs.items())
            }
        except BaseException:
            self._open.close()
            raise

    @property
    def incidents(self) -> tuple[SeenIncident, ...]:
        """The incidents that `record` saw; for a capsule, the incident that created it."""
        return self._evidence.incidents

    def why(self) -> Diagnosis:
        """The diagnosis of `prismdbg why`: verdicts, the most certain first, and what limits them."""
        return diagnose(self._evidence)

    def telemetry(self) -> Sensors:
        """The readings of sensors that were recorded with the job; a capsule has those of its rank. Raises `UsageError`
        if there are none.

        The sensors of several nodes are called `cpu 0 on NODE`, and their times are those of the first node's clock.
        """
        if self._capsule is not None:
            return Sensors(telemetry_of_capsule(self._capsule, self.path))
        return Sensors(telemetry_of_run(RunFolder(self.path)))

    def __getitem__(self, rank: int) -> Rank:
        if rank not in self.ranks:
            known = ", ".join(map(str, list(self.ranks)[:8])) or "none"
            raise UsageError(f"{self.path} has no log of rank {rank}", hint=f"choose one of its ranks: {known}")
        return self.ranks[rank]

    def close(self) -> None:
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        ranks, incidents = counted(len(self.ranks), "rank"), counted(len(self.incidents), "incident")
        return f"<recording {self.path.name}: {ranks}, {incidents}>"

    def _repr_html_(self) -> str:
        """For notebooks: incidents, verdicts, and a timeline of the last collectives."""
        found = self.why()
        rows = "".join(
            f"<li><b>{escape(str(verdict.certainty))}</b>: {escape(verdict.text)}</li>" for verdict in found.verdicts
        )
        verdicts = f"<ul>{rows}</ul>" if rows else f"<p>{escape(found.summary)}</p>"
        return f"<h4>{escape(self.path.name)}</h4>{verdicts}{timeline_svg(self._evidence.logs)}"

    def __rich__(self) -> RenderableType:
        """For terminals: verdicts and ranks."""
        return recording_text(self)


def _is_imported(path: Path) -> bool:
    from prismdbg.importers.formats import is_imported

    return is_imported(path)


def _array(data: bytes, meta: TensorMeta) -> Array:
    if meta.dtype != "bfloat16" and meta.dtype not in _SAME_IN_NUMPY:
        raise UsageError(f"numpy has no element type {meta.dtype}", hint="see its values in `prismdbg debug`")
    try:
        if meta.dtype == "bfloat16":
            bits = np.frombuffer(data, dtype=np.uint16).astype(np.uint32) << 16
            return bits.view(np.float32).reshape(meta.shape)
        return np.frombuffer(data, dtype=meta.dtype).reshape(meta.shape)
    except ValueError as error:
        raise CapsuleError(
            f"a payload does not fit its tensor {meta}: {error}",
            hint="fetch or capture it again: the recording is damaged",
        ) from None


def open_recording(
    path: str | Path, keys: Keys = NO_KEYS, *, whole: bool = False, at_once: int = 1, say: Say = unsaid
) -> Recording:
    """Opens a RUN, a capsule or another tool's files. Raises `UsageError` or `CapsuleError` if it is none of them.

    Of long logs of a RUN it reads the ends, unless `whole`, and less of them if `at_once` recordings are open at once.
    """
    if not (found := Path(path)).exists():
        raise UsageError(
            f"no such file or directory: {path}", hint="give a RUN, a capsule, or a folder of dumps or traces"
        )
    return Recording(found, keys, whole=whole, at_once=at_once, say=say)
