"""Which values the ranks of a run have kept so far, read while they write."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path


class KeptValues:
    """`folder`: RUN/donors, with a list of values for each rank that sent any."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._keys: dict[int, set[str]] = defaultdict(set)
        self._read_bytes: dict[int, int] = defaultdict(int)

    def has(self, ranks: Iterable[int], key: str) -> bool:
        """Whether any of these ranks has kept a value under the key."""
        return any(key in self._of(rank) for rank in ranks)

    def _of(self, rank: int) -> set[str]:
        path = self._folder / f"{rank}.jsonl"
        if path.exists() and path.stat().st_size > self._read_bytes[rank]:
            with path.open("rb") as file:
                file.seek(self._read_bytes[rank])
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]  # the last line may still be written
            self._read_bytes[rank] += len(whole)
            self._keys[rank].update(str(json.loads(line)["key"]) for line in whole.splitlines())
        return self._keys[rank]
