"""Writes a memory trace record by record, as `memory_format` says, for tests that need one without a rank."""

from __future__ import annotations

from pathlib import Path

from tiny_log import TinyLog

from prismdbg.capsule import memory_format as fmt
from prismdbg.model.moment import Moment

PER_SEGMENT = 1 << 10


class TinyTrace:
    """`close` writes the records; sites are named as they come."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names = TinyLog(folder)
        self._records: list[bytes] = []
        self._sizes: dict[int, int] = {}
        self._sites = 0
        self._total = 0

    def site(self, op: str, *frames: tuple[str, int, str], module: str = "", outer_op: str = "") -> int:
        self._sites += 1
        stack = self._names.stack(*frames) if frames else 0
        texts = [self._names.text(text) for text in (outer_op or op, op, module)]
        self._names.append(fmt.SITE_KIND, fmt.SITE.pack(self._sites, *texts, stack, 0))
        return self._sites

    def allocate(
        self, moment: Moment, size_bytes: int, site: int = 0, *, kind: fmt.Kind = fmt.Kind.ALLOCATION, flags: int = 0
    ) -> int:
        """The block's number."""
        block = len(self._sizes) + 1
        self._sizes[block] = size_bytes
        self._record(kind, flags, moment, block, size_bytes, site)
        return block

    def free(self, moment: Moment, block: int) -> None:
        self._record(fmt.Kind.FREE, 0, moment, block, self._sizes[block], 0)

    def close(self) -> Path:
        head = (fmt.MAGIC, fmt.VERSION, 0, 4711, fmt.RECORD.size, 10**18, 10**9, PER_SEGMENT, len(self._records))
        body = b"".join(self._records).ljust(PER_SEGMENT * fmt.RECORD.size, b"\0")
        (self._folder / fmt.segment_name(0)).write_bytes(fmt.HEADER.pack(*head) + body)
        return self._folder

    def _record(self, kind: fmt.Kind, flags: int, moment: Moment, block: int, size_bytes: int, site: int) -> None:
        if not flags & fmt.Flag.BACKEND:
            self._total += -size_bytes if kind is fmt.Kind.FREE else size_bytes
        self._records.append(
            fmt.RECORD.pack(
                kind, flags, fmt.CPU, 1, 4096 * block, size_bytes, 2000 + len(self._records), moment.step,
                moment.collective, moment.op, site, block, self._total,
            )
        )  # fmt: skip
