"""A job graph as one .npz file: arrays and a JSON text, nothing pickled. What is read may be hostile and is checked."""

from __future__ import annotations

import json
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from prismdbg.capsule import checked_json
from prismdbg.capsule.checked_json import Fields
from prismdbg.capsule.limits import MAX_GRAPH_BYTES
from prismdbg.errors import CapsuleError
from prismdbg.model.meanwhile import one_by_one
from prismdbg.simulate.graph.entries import (
    COMPUTE_STREAM,
    DTYPES,
    FREE,
    MODELLED_NS,
    PROVENANCES,
    Entries,
    Kind,
    is_splits,
)
from prismdbg.simulate.graph.job_graph import JobGraph, RankClass
from prismdbg.simulate.graph.mesh import Mesh
from prismdbg.simulate.graph.origin import NOT_KNOWN, Origin, Source, Standing, Truth

FORMAT = 4
FILE_NAME = "graph.npz"  # in a folder
_LARGEST_NS = 1 << 53
_NUMBERS = frozenset(np.dtype(kind) for kind in (*DTYPES.values(), np.int64, np.uint8))
_DAMAGED = (zipfile.BadZipFile, zlib.error, SyntaxError, tokenize.TokenError)
_TRUTH = tuple(field.name for field in fields(Truth))  # its rank first


def save(graph: JobGraph, path: Path) -> None:
    """Into a file that the caller gives its name when it is whole. `CapsuleError` for times that no run has, which a
    damaged log gives."""
    about = {
        "format": FORMAT,
        "mesh": ",".join(f"{n}={s}" for n, s in zip(graph.mesh.names, graph.mesh.sizes, strict=True)),
        "order": ",".join(graph.mesh.order),
        "classes": [
            {
                "name": c.name,
                "streams": list(c.entries.streams),
                "channels": list(c.entries.channels),
                "texts": list(c.entries.texts),
            }
            for c in graph.classes
        ],
        "source": graph.origin.source,
        "is_contended": graph.origin.is_contended,
        "stretched": list(graph.origin.stretched),
        "doubts": list(graph.origin.doubts),
    }
    arrays: dict[str, NDArray[Any]] = {
        "about": np.frombuffer(json.dumps(about).encode(), dtype=np.uint8),
        "class_at": graph.class_at,
        "compute_ppm_at": graph.compute_ppm_at,
    }
    if graph.origin.standing_at is not None:
        arrays["standing_at"] = graph.origin.standing_at
    for name in _TRUTH:
        arrays[f"truth.{name}"] = _truths(graph, name)
    for number, rank_class in enumerate(graph.classes):
        arrays |= {f"{number}.{name}": getattr(rank_class.entries, name) for name in DTYPES}
    with path.open("wb") as file:
        # no allow_pickle=False: before numpy 2.1 it is taken for an array. Numbers are not pickled
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def _truths(graph: JobGraph, name: str) -> NDArray[np.int64]:
    values = [getattr(truth, name) for truth in graph.origin.truths]
    for truth, value in zip(graph.origin.truths, values, strict=True):
        if not NOT_KNOWN <= value <= _LARGEST_NS:
            raise CapsuleError(
                f"the log of rank {truth.rank} gives its step the impossible value {name} = {value}",
                hint="record or fetch it again: the log is damaged",
            )
    return np.array(values, dtype=np.int64)


def load(path: Path) -> JobGraph:
    """`CapsuleError` where the file is damaged, `UsageError` where its ranks do not fit together."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > MAX_GRAPH_BYTES:
                raise ValueError(f"it unpacks to more than {MAX_GRAPH_BYTES >> 20} MiB")
            each = one_by_one(members, "reading the columns of the graph")
            held = {member.filename.removesuffix(".npy"): _array(archive, member) for member in each}
    except (OSError, ValueError, EOFError, KeyError, NotImplementedError, RuntimeError, *_DAMAGED) as error:
        raise CapsuleError(f"{path} is not a saved graph: {str(error)[:200]}", hint="build it again") from error
    return _Reader(path, held).graph()


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """Never larger than the member that holds it, and numbers only."""
    with archive.open(member) as file:
        if npy.read_magic(file) != (1, 0):
            raise ValueError(f"{member.filename!r} has another format")
        shape, _, dtype = npy.read_array_header_1_0(file)
        if dtype not in _NUMBERS or len(shape) != 1:
            raise ValueError(f"{member.filename!r} is not a column of numbers")
        data = file.read(member.file_size)
        if len(data) != shape[0] * dtype.itemsize:
            raise ValueError(f"{member.filename!r} has {len(data)} bytes, not {shape[0]} numbers")
    return np.frombuffer(data, dtype=dtype)


class _Reader:
    def __init__(self, path: Path, held: Mapping[str, NDArray[Any]]) -> None:
        self._path, self._held = path, held

    def graph(self) -> JobGraph:
        about = checked_json.parse(self._column("about", np.uint8).tobytes(), str(self._path))
        version = about.integer("format")
        if version != FORMAT:
            raise CapsuleError(
                f"{self._path} has format {version}; this version reads {FORMAT}",
                hint="use a newer prismdbg" if version > FORMAT else "build the graph again",
            )
        mesh = Mesh.parse(about.text("mesh"), order=about.text("order"))
        classes = tuple(self._class(number, held) for number, held in enumerate(about.objects("classes")))
        source, stretched = about.text("source"), about.texts("stretched")
        doubts = about.texts("doubts")
        is_contended = about.has("is_contended") and about.boolean("is_contended")
        about.refuse_others()
        if source not in list(Source):
            self._fail("source", f"is {source[:40]!r}, which is unknown")
        class_at = self._column("class_at", np.int64, mesh.world)
        self._between("class_at", class_at, 0, len(classes) - 1)
        slower = self._column("compute_ppm_at", np.int64, mesh.world)
        self._between("compute_ppm_at", slower, 1, 10**9)
        origin = Origin(
            source=Source(source),
            standing_at=self._standing(mesh),
            stretched=stretched,
            truths=self._truths(mesh),
            doubts=doubts,
            is_contended=is_contended,
        )
        return replace(JobGraph.placed(mesh, classes, class_at, slower), origin=origin)

    def _standing(self, mesh: Mesh) -> NDArray[np.uint8] | None:
        if "standing_at" not in self._held:
            return None
        standing = self._column("standing_at", np.uint8, mesh.world)
        self._between("standing_at", standing, 0, max(Standing))
        return standing

    def _truths(self, mesh: Mesh) -> tuple[Truth, ...]:
        ranks = self._column("truth.rank", np.int64)
        self._between("truth.rank", ranks, 0, mesh.world - 1)
        columns = {name: self._column(f"truth.{name}", np.int64, len(ranks)) for name in _TRUTH}
        for name in _TRUTH[1:]:
            self._between(f"truth.{name}", columns[name], NOT_KNOWN, _LARGEST_NS)
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        return tuple(Truth(**dict(zip(_TRUTH, row, strict=True))) for row in rows)

    def _class(self, number: int, held: Fields) -> RankClass:
        name = held.text("name")
        tables: dict[str, Any] = {table: held.texts(table) for table in ("streams", "channels", "texts")}
        held.refuse_others()
        length = len(self._column(f"{number}.kind", np.uint8))
        columns: dict[str, Any] = {
            column: self._column(f"{number}.{column}", dtype, length) for column, dtype in DTYPES.items()
        }
        entries = Entries(**columns, **tables)
        self._check(number, entries)
        return RankClass(name=name, entries=entries)

    def _check(self, number: int, entries: Entries) -> None:
        """Every number points into its table, and every wait back to something that runs."""
        talks, kind = entries.communicates, entries.kind
        streams = len(entries.streams)
        waits = kind == Kind.WAIT
        limits: list[tuple[str, NDArray[Any], int, int]] = [
            ("kind", kind, 0, max(Kind)),
            ("stream", np.where(talks & (entries.stream == FREE), 0, entries.stream), 0, streams - 1),
            ("issuer", entries.issuer, 0, streams - 1),
            ("blocking", entries.blocking, 0, 1),
            ("provenance", entries.provenance, 0, len(PROVENANCES) - 1),
            ("channel", entries.channel[talks], 0, len(entries.channels) - 1),
            ("channel", entries.channel, -1, max(len(entries.channels) - 1, 0)),
            ("op", entries.op, 0, len(entries.texts) - 1),
            ("label", entries.label, 0, len(entries.texts) - 1),
            ("line", entries.line, 0, len(entries.texts) - 1),
            ("detail", entries.detail, 0, len(entries.texts) - 1),
            ("splits", entries.splits, 0, len(entries.texts) - 1),
            ("target", entries.target[waits], 0, len(entries) - 1),
            ("target", np.flatnonzero(waits) - entries.target[waits], 1, len(entries)),
            ("size_bytes", entries.size_bytes[talks], 0, _LARGEST_NS),
            ("duration_ns", entries.duration_ns[talks], MODELLED_NS, _LARGEST_NS),
            ("duration_ns", entries.duration_ns[kind == Kind.COMPUTE], 0, _LARGEST_NS),
        ]
        for name, column, least, most in limits:
            self._between(f"{number}.{name}", column, least, most)
        if not all(is_splits(entries.texts[place]) for place in np.unique(entries.splits)):
            self._fail(f"{number}.splits", "does not say which parts an all-to-all has")
        if np.isin(kind[entries.target[waits]], (Kind.WAIT, Kind.MEMORY)).any():
            self._fail(f"{number}.target", "points to an entry that does not run")
        if (talks & (entries.stream == COMPUTE_STREAM) & (entries.issuer != COMPUTE_STREAM)).any():
            self._fail(f"{number}.issuer", "is not the compute stream it runs on")

    def _column(self, name: str, dtype: type[np.generic], length: int | None = None) -> NDArray[Any]:
        column = self._held.get(name)
        if column is None:
            self._fail(name, "is missing")
        if column.dtype != dtype or column.ndim != 1 or (length is not None and len(column) != length):
            self._fail(name, f"must be {length if length is not None else 'some'} numbers of {dtype.__name__}")
        return column

    def _between(self, name: str, column: NDArray[Any], least: int, most: int) -> None:
        if len(column) and not least <= int(column.min()) <= int(column.max()) <= most:
            self._fail(name, f"contains a number outside {least} to {most}")

    def _fail(self, name: str, problem: str) -> NoReturn:
        raise CapsuleError(f"{self._path}: {name} {problem}", hint="build the graph again: the file was altered")
