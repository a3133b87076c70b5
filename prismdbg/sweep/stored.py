"""A sweep as its folder keeps it, for those who look at it later or while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from prismdbg.capsule import checked_json
from prismdbg.errors import CapsuleError
from prismdbg.jobs.storage.run_folder import write_json
from prismdbg.sweep.folder import CLUSTER, COMPARED, RESULT, RUN, TRIALS
from prismdbg.sweep.result import Result

_LONGEST_NAME = 255  # of a folder


class _Stored(TypedDict):
    cap_bytes: int
    results: list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSweep:
    """`unfinished`: configurations that were started and have no result. cap_bytes: 0 without a cap. cluster: a copy of
    the file that the times rest on; None where none was given, or an older version kept none."""

    path: Path
    results: tuple[Result, ...]
    unfinished: tuple[str, ...]
    cap_bytes: int
    cluster: Path | None = None

    def run(self, name: str) -> Path:
        return self.path / TRIALS / name / RUN


def keep_comparison(path: Path, results: Sequence[Result], cap_bytes: int) -> None:
    """Also of configurations that did not run."""
    write_json(path / COMPARED, {"cap_bytes": cap_bytes, "results": [each.to_json() for each in results]})


def read_sweep(path: Path) -> StoredSweep:
    """What was compared last, and what has ended since then. `CapsuleError` where a file of it is damaged, or the
    folder is gone."""
    if not path.is_dir():
        raise CapsuleError(f"no such folder: {path}", hint="use the new path of the sweep, if it has one")
    compared, cap_bytes = _compared(path / COMPARED)
    found = {each.name: each for each in compared}
    started = sorted(folder.name for folder in (path / TRIALS).glob("*") if folder.is_dir())
    for name in started:
        if (file := path / TRIALS / name / RESULT).is_file():
            found[name] = _result(checked_json.read(file).value, file)
    return StoredSweep(
        path=path,
        results=tuple(found.values()),
        unfinished=tuple(name for name in started if name not in found),
        cap_bytes=cap_bytes,
        cluster=path / CLUSTER if (path / CLUSTER).is_file() else None,
    )


def _compared(file: Path) -> tuple[list[Result], int]:
    if not file.is_file():
        return [], 0
    stored = checked_json.checked(_Stored, checked_json.read(file).value, str(file))
    return [_result(each, file) for each in stored["results"]], stored["cap_bytes"]


def _result(value: object, file: Path) -> Result:
    result = Result.from_json(value, str(file))
    if "/" in result.name or result.name in ("", ".", "..") or len(result.name) > _LONGEST_NAME:
        raise CapsuleError(f"{file}: {result.name[:40]!r} is not the name of a configuration")
    return result
