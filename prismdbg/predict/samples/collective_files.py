"""CSV files of collectives' times, as arXiv 2509.22832 publishes them, as samples of a cluster model.

    allreduce_fp16_2_4.csv, H100_allgather_large_fp16.csv        shape,nodes,GPUsPerNode,dur(us)

A file's name says the GPU, if it says one, the collective, and the type of an element: fp8, fp16, bf16 or fp32; fp16 if
it says none. What follows says nothing, but no other type. `shape` counts the elements that a rank passes in: of an
all-gather its own part, of a reduce-scatter the parts of all. A column GPU is allowed. Of equal rows one counts, as a
folder often has a file of all layouts beside one of each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from prismdbg.errors import CapsuleError, UsageError, quoted
from prismdbg.model.meanwhile import one_by_one
from prismdbg.predict.operators.operators import PLACES
from prismdbg.predict.samples.file_name import FileName
from prismdbg.predict.samples.sample_folder import GPU, TIMES, numbers, read_rows, without_gpu
from prismdbg.predict.samples.samples import Phase, Samples
from prismdbg.simulate.cluster.calibration import Sample
from prismdbg.simulate.cluster.cluster import ClusterModel
from prismdbg.simulate.cluster.transfer import SEND, Geometry
from prismdbg.simulate.quantities import LONGEST_NS

OPS: Mapping[str, str] = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "p2p": SEND,
}
_ITEM_BYTES = {"": 2, "fp16": 2, "bf16": 2, "fp32": 4, "fp8": 1}
_TYPE = re.compile(r"(?:b?f|fp|b?float|tf|u?int)\d+(?:e\d+m\d+\w*)?|half|double|float", re.IGNORECASE)
_COLUMNS = ("shape", "nodes", "GPUsPerNode")
_TIMES = tuple(name for name, phase in TIMES.items() if phase is Phase.WHOLE)
_FORM = f"the columns are {', '.join(_COLUMNS)} and {' or '.join(_TIMES)}"
_MOST_RANKS = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTimes:
    """gpu: empty where no file names one. left_out: files of a folder that have no times of a known collective."""

    samples: tuple[Sample, ...]
    gpu: str
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Row:
    path: Path
    line: int
    gpu: str
    op: str
    where: Geometry
    size_bytes: int
    time_ns: int


def read_collectives(paths: Sequence[Path]) -> CollectiveTimes:
    """Of files, and of those of folders. UsageError where there is nothing to read; CapsuleError where a file is
    damaged."""
    files, left_out = _files(paths)
    found: dict[tuple[str, Geometry, int], set[int]] = {}
    named: _Row | None = None
    for path in one_by_one(files, "reading the times of collectives"):
        for row in _rows(path):
            if named is not None and row.gpu and row.gpu != named.gpu:
                _fail(
                    path,
                    row.line,
                    f"times of {row.gpu}, but {named.path} has times of {named.gpu}",
                    "give files of one GPU",
                )
            named = named or (row if row.gpu else None)
            found.setdefault((row.op, row.where, row.size_bytes), set()).add(row.time_ns)
    return CollectiveTimes(
        samples=tuple(
            Sample(op=op, where=where, size_bytes=size_bytes, times_ns=tuple(sorted(times_ns)))
            for (op, where, size_bytes), times_ns in found.items()
        ),
        gpu="" if named is None else named.gpu,
        left_out=tuple(left_out),
    )


def not_used(ops: Path, samples: Iterable[Samples], cluster_path: Path, cluster: ClusterModel) -> str:
    """What is to be said of times of collectives among those of operators; empty where the cluster has them, too."""
    known = {op for tier in cluster.tiers for op in tier.measured}
    names = sorted(s.operator for s in samples if s.is_collective and _op(Path(s.operator)) not in known)
    if not names:
        return ""
    return (
        f"{ops}: {', '.join(names)} not used: times of collectives come from {cluster_path}; "
        f"to use these, make a cluster file: prismdbg calibrate --from {ops} -o FILE"
    )


def _op(path: Path) -> str:
    """Empty where the name of a file is not that of a collective."""
    name = FileName.of_collective(path)
    return OPS[name.collective] if name else ""


def _files(paths: Sequence[Path]) -> tuple[list[Path], list[str]]:
    files: list[Path] = []
    left_out: list[str] = []
    for path in paths:
        if not path.exists():
            raise UsageError(f"no such file or directory: {path}", hint="give a folder of CSV files, or a file")
        inside = sorted(path.glob("*.csv")) if path.is_dir() else []
        chosen = [each for each in inside if _op(each) and set(read_rows(each)[0]) >= PLACES]
        if path.is_dir() and not chosen:
            raise UsageError(f"{path}: no times of collectives", hint=f"add files such as allreduce_fp16.csv: {_FORM}")
        files += chosen if path.is_dir() else [path]
        left_out += [each.name for each in inside if each not in chosen]
    return list(dict.fromkeys(files)), left_out


def _rows(path: Path) -> Iterator[_Row]:
    name = FileName.of_collective(path)
    if name is None:
        _fail(
            path,
            1,
            "its name is that of no known collective",
            f"begin it with one of {', '.join(OPS)}, or with the GPU, as H100_",
        )
    header, rows = read_rows(path)
    _check_header(path, header)
    if not rows:
        raise CapsuleError(f"{path} contains no times", hint="leave the file out, or measure it again")
    op, item_bytes = OPS[name.collective], _item_bytes(name)
    names, figures = without_gpu(header, rows)
    for (line, row), (_, texts) in zip(rows, figures, strict=True):
        gpu = dict(zip(header, row, strict=False)).get(GPU, name.gpu).strip()
        known = numbers(path, names, line, texts)
        yield _row(path, line, gpu, op, item_bytes, dict(zip(names, known, strict=True)))


def _item_bytes(name: FileName) -> int:
    """CapsuleError where another part of the name says a type."""
    odd = [part for part in name.path.stem.split("_") if _TYPE.fullmatch(part) and part != name.precision]
    if odd:
        types = ", ".join(filter(None, _ITEM_BYTES))
        _fail(
            name.path,
            1,
            f"{odd[0]!r} in the file's name cannot be the type here",
            f"write {types} after the collective",
        )
    return _ITEM_BYTES[name.precision]


def _check_header(path: Path, header: Sequence[str]) -> None:
    if len(set(header)) != len(header):
        _fail(path, 1, f"a column occurs twice: {', '.join(header)}", "leave one")
    if unknown := [name for name in header if name not in (*_COLUMNS, *_TIMES, GPU)]:
        _fail(path, 1, f"unknown column: {quoted(unknown[0])[1:-1]}", _FORM)
    if missing := [name for name in _COLUMNS if name not in header]:
        _fail(path, 1, f"column {missing[0]} is missing", _FORM)
    if len(set(header) & set(_TIMES)) != 1:
        _fail(path, 1, f"{'several columns' if set(header) & set(_TIMES) else 'no column'} of times", _FORM)


def _row(path: Path, line: int, gpu: str, op: str, item_bytes: int, at: Mapping[str, float]) -> _Row:
    nodes, local = at["nodes"], at["GPUsPerNode"]
    members = nodes * local
    if broken := [name for name in _COLUMNS if not at[name].is_integer()]:
        _fail(path, line, f"{broken[0]} is {at[broken[0]]:g}, not a whole number", "correct the line")
    if members < 2:
        _fail(path, line, f"{nodes:g} x {local:g} is a single rank", "leave the line out")
    if members > _MOST_RANKS:
        _fail(path, line, f"{nodes:g} x {local:g} are more ranks than {_MOST_RANKS:,}", "correct the line")
    if op == SEND and members != 2:
        _fail(path, line, f"p2p is between two ranks, not {members:g}", "give 1 x 2 or 2 x 1")
    size_bytes = round(item_bytes * at["shape"] * (members if op == "all_gather" else 1))
    if size_bytes >= 1 << 62:
        _fail(path, line, f"{size_bytes:,} bytes are beyond 64 bits", "correct the line")
    time_ns = max(round(1_000 * next(at[name] for name in _TIMES if name in at)), 1)
    if time_ns > LONGEST_NS:
        _fail(path, line, "its time is longer than a month", "give microseconds")
    across = int(nodes > 1)
    where = Geometry(members=int(members), tier=across, nodes=int(nodes), local=int(local), sharing=across)
    return _Row(path, line, gpu, op, where, size_bytes, time_ns)


def _fail(path: Path, line: int, problem: str, hint: str) -> NoReturn:
    raise CapsuleError(f"{path}, line {line}: {problem}", hint=hint)
