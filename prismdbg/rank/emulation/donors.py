"""Donor values: what one rank sent while it ran, kept for the ranks that receive it when they run.

A folder holds `<rank>.jsonl`, one line a value, and `<rank>.bin` with the bytes. A value is found by the identity of
its collective (exact: the very value that a real peer of this run would send) or, from another run, by what it is for
(axis, place in the sequence, operator): similar. Nothing is unpickled here.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO, TextIO

from prismdbg.errors import CapsuleError
from prismdbg.model.private_file import private
from prismdbg.settings.donor_value import DonorValue, store_key


class DonorWriter:
    """What this rank sends. `budget_bytes` bounds floating point values; control data is always kept.

    Of a value that nobody needs, or that the budget has no room for, only the statistics are kept: whoever receives
    it after all gets noise like it.
    """

    def __init__(self, folder: Path, rank: int, budget_bytes: int) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._rank = rank
        self._left = budget_bytes
        self._tally: Counter[str] = Counter()
        self._name = f"{rank}.bin"
        self._data: BinaryIO = os.fdopen(_new(folder / self._name), "wb", buffering=0)
        self._index: TextIO = os.fdopen(_new(folder / f"{rank}.jsonl"), "w", buffering=1)

    def keep(
        self,
        key: str,
        parts: Sequence[memoryview],
        *,
        control: bool,
        statistics: tuple[float, float] | None = None,
        like: str = "",
    ) -> None:
        size = sum(part.nbytes for part in parts)
        offset = self._data.tell()
        if control or size <= self._left:
            for part in parts:
                self._data.write(part)
            self._left -= 0 if control else size
            self._tally["control_bytes" if control else "kept_bytes"] += size
        else:
            self._tally["beyond_budget_bytes"] += size
            size = 0
        self._list(key, offset, size, statistics, like)

    def pass_over(self, key: str, size_bytes: int, statistics: tuple[float, float] | None, like: str = "") -> None:
        """Nobody whose run is wanted receives it."""
        self._tally["not_needed_bytes"] += size_bytes
        self._list(key, 0, 0, statistics, like)

    def _list(self, key: str, offset: int, size: int, statistics: tuple[float, float] | None, like: str) -> None:
        mean, deviation = statistics or (None, None)
        value = DonorValue(
            key=key,
            rank=self._rank,
            like=like,
            file=self._name,
            offset=offset,
            size_bytes=size,
            mean=mean,
            deviation=deviation,
        )
        self._index.write(json.dumps(asdict(value)) + "\n")

    def close(self) -> None:
        self._data.close()
        self._index.close()

    def keep_key(self, name: str, value: bytes) -> None:
        """A key of the store."""
        self.keep(store_key(name), [memoryview(value)], control=True)

    def tally(self) -> dict[str, int]:
        """Bytes that were kept, of control data and of others, and that were not: not needed, beyond the budget."""
        return dict(sorted(self._tally.items()))


def _new(path: Path) -> int:
    return private(str(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)


class DonorReader:
    """Everything in a folder that ranks other than this one have kept, also since the last look."""

    def __init__(self, folder: Path, rank: int = -1) -> None:
        self._folder = folder
        self._rank = rank
        self._values: dict[str, DonorValue] = {}
        self._alike: dict[str, DonorValue] = {}
        self._read_bytes: dict[Path, int] = {}
        self.refresh()

    @property
    def ranks(self) -> set[int]:
        return {int(path.stem) for path in self._read_bytes if path.stem.isdecimal()}

    def refresh(self) -> None:
        for path in sorted(self._folder.glob("*.jsonl")) if self._folder.is_dir() else ():
            if path.stem != str(self._rank) and path.stat().st_size > self._read_bytes.get(path, 0):
                self._read(path)

    def _read(self, path: Path) -> None:
        """Whole lines: the last one may still be written."""
        with path.open("rb") as file:
            file.seek(self._read_bytes.get(path, 0))
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read_bytes[path] = self._read_bytes.get(path, 0) + len(whole)
        for line in whole.splitlines():
            value = DonorValue(**json.loads(line))
            self._values[value.key] = value
            if value.like:
                self._alike.setdefault(value.like, value)

    def find(self, key: str) -> DonorValue | None:
        return self._values.get(key)

    def find_like(self, like: str) -> DonorValue | None:
        return self._alike.get(like)

    def load(self, value: DonorValue) -> bytes:
        """The value's bytes. `CapsuleError` where the file is shorter than its index says."""
        path = self._folder / value.file
        try:
            with path.open("rb") as file:
                file.seek(value.offset)
                data = file.read(value.size_bytes)
        except OSError as error:
            raise CapsuleError(f"donor value {value.key} cannot be read: {error}") from error
        if len(data) != value.size_bytes:
            raise CapsuleError(f"{path} ends before donor value {value.key}", hint="run the donor rank again")
        return data
