"""OPS: a folder with one CSV file for each operator, named after it. Columns are the sizes of a shape, then its times.

    linear1.csv              mp,b,l,dim,forward_us,backward_us
    GPU_RoPE_bf16_2_1.csv    mp,b,h,l,dim,F_dur(us),B_dur(us)        as arXiv 2509.22832 publishes them

Numbers only, all above zero. Files of one operator are taken together, equal rows once; all are of one GPU, and
operators of one precision, which is of 16 bits (`file_name.py`). Files whose header has no known column of times are
left out, and so are unknown operators and collectives. Files of collectives (`collective_files.py`) may be of any
precision, and their column GPU is not read. Nothing is fitted before it is asked for, and nothing is pickled.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from prismdbg.errors import CapsuleError, UsageError
from prismdbg.model.meanwhile import one_by_one
from prismdbg.predict.operators.operators import PLACES, is_known
from prismdbg.predict.operators.work import Floats
from prismdbg.predict.samples.file_name import FileName
from prismdbg.predict.samples.samples import Phase, Samples

TIMES: Mapping[str, Phase] = {
    "forward_us": Phase.FORWARD,
    "backward_us": Phase.BACKWARD,
    "whole_us": Phase.WHOLE,
    "F_dur(us)": Phase.FORWARD,
    "B_dur(us)": Phase.BACKWARD,
    "dur(us)": Phase.WHOLE,
}
MOST_BYTES = 64 << 20
GPU = "GPU"  # a column that files of collectives may have
Rows = tuple[list[str], list[tuple[int, list[str]]]]
_US = 1_000


def read_folder(folder: Path, tell: Callable[[str], None] = lambda _: None) -> dict[str, Samples]:
    """By operator. `tell`: gets a line for each file of an unknown operator. UsageError where there is no such folder,
    nothing in it, or what does not belong together; CapsuleError where a file is damaged."""
    if not folder.is_dir():
        raise UsageError(f"no such directory: {folder}", hint="give the folder with the CSV files of the operators")
    known: dict[str, Samples] = {}
    names: list[FileName] = []
    for path in one_by_one(sorted(folder.glob("*.csv")), "reading the times of operators"):
        if (found := _read_file(path, tell)) is not None:
            name, samples = found
            for other in names:
                name.check_with(other)
            names.append(name)
            before = known.get(samples.operator)
            known[samples.operator] = samples if before is None else _together(path, before, samples)
    if not known:
        raise UsageError(
            f"{folder} contains no times of operators", hint=f"add CSV files with a column {', '.join(TIMES)}"
        )
    return known


def _together(path: Path, one: Samples, other: Samples) -> Samples:
    if (set(one.columns), set(one.times_ns)) != (set(other.columns), set(other.times_ns)):
        raise CapsuleError(
            f"{path} has other columns than the files of {one.operator} before it", hint="give them the same columns"
        )
    mine, theirs = (
        [*(each.columns[name] for name in one.columns), *(each.times_ns[phase] for phase in one.times_ns)]
        for each in (one, other)
    )
    rows = np.unique(np.concatenate([np.stack(mine, 1), np.stack(theirs, 1)]), axis=0)
    columns = dict(zip(one.columns, rows.T, strict=False))
    times = dict(zip(one.times_ns, rows.T[len(columns) :], strict=True))
    return replace(one, columns=columns, times_ns=times, gpu=one.gpu or other.gpu)


def _read_file(path: Path, tell: Callable[[str], None]) -> tuple[FileName, Samples] | None:
    """None where the header names no times, or where nothing is known of the operator."""
    header, rows = read_rows(path)
    if not set(header) & set(TIMES):
        return None
    if len(set(header)) != len(header):
        raise CapsuleError(f"{path}: a column occurs twice: {', '.join(header)}", hint="leave one")
    is_collective = set(header) >= PLACES
    name = FileName.of_collective(path) if is_collective else FileName.of(path)
    if name is None or not is_known(name.operator, header):
        unknown = FileName.of(path).operator
        tell(f"{path} is left out: unknown {'collective' if is_collective else 'operator'} {unknown!r}")
        return None
    if is_collective:
        header, rows = without_gpu(header, rows)
    else:
        name.check_precision()
    table = _table(path, header, rows)
    return name, Samples(
        operator=name.operator,
        columns={title: table[:, at] for at, title in enumerate(header) if title not in TIMES},
        times_ns={TIMES[title]: table[:, at] * _US for at, title in enumerate(header) if title in TIMES},
        gpu=name.gpu,
    )


def read_rows(path: Path) -> Rows:
    """The header, and each row with its line."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise CapsuleError(f"{path} is larger than {MOST_BYTES >> 20} MiB", hint="leave samples out")
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            header = [name.strip() for name in next(reader, [])]
            return header, [(reader.line_num, row) for row in reader if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CapsuleError(f"{path} cannot be read: {error}", hint="give a CSV file of numbers") from error


def without_gpu(header: Sequence[str], rows: Sequence[tuple[int, Sequence[str]]]) -> Rows:
    """Without the column GPU, the only one with text."""
    at = header.index(GPU) if GPU in header else len(header)
    less = [(line, [*row[:at], *row[at + 1 :]]) if at < len(header) else (line, list(row)) for line, row in rows]
    return [*header[:at], *header[at + 1 :]], less


def write_file(path: Path, samples: Samples) -> None:
    names = {phase: f"{phase}_us" for phase in samples.times_ns}
    columns = [*samples.columns.values(), *(times / _US for times in samples.times_ns.values())]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*samples.columns, *names.values()])
        writer.writerows([f"{value:.10g}" for value in row] for row in zip(*columns, strict=True))


def _table(path: Path, header: Sequence[str], rows: Sequence[tuple[int, Sequence[str]]]) -> Floats:
    if not rows:
        raise CapsuleError(f"{path} contains no samples", hint="leave the file out, or measure it again")
    table = np.array([numbers(path, header, line, row) for line, row in rows], dtype=np.float64)
    return table


def numbers(path: Path, header: Sequence[str], line: int, row: Sequence[str]) -> list[float]:
    if len(row) != len(header):
        raise CapsuleError(
            f"{path}, line {line}: {len(row)} values for {len(header)} columns", hint="give one for each column"
        )
    found = [_number(text) for text in row]
    for name, text, number in zip(header, row, found, strict=True):
        if not 0 < number < 1e18:
            raise CapsuleError(
                f"{path}, line {line}: {name} is {text[:40]!r}, not a number above zero",
                hint="give a number above zero, or leave the line out",
            )
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
