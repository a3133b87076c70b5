"""Texts of torch's debug server (`torch.distributed.debug.start_debug_server(dump_dir=...)`): tables for people, which
are recognized and not read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from prismdbg.errors import UsageError

_TABLES = re.compile(r"(?:torchcomms_)?fr_trace_\d{8}_\d{6}\.txt")
_HEADINGS = (b"=== FR Trace ===", b"=== TorchComms FR Trace ===")
_HEAD_BYTES = 1 << 16  # before it are the ranks that did not answer


def refuse_tables(files: Iterable[Path]) -> None:
    """`UsageError` with the files to take instead, where one of these is such a text."""
    for file in files:
        if _TABLES.fullmatch(file.name) and _is_table(file):
            raise UsageError(
                f"{file.name} is a text table of torch's debug server, which is not read",
                hint="give the ranks' own dumps: nccl_trace_rank_R, or for rank R what its debug server answers to "
                "curl -X POST http://HOST:PORT/handler/fr_trace_json > fr_trace_R.json",
            )


def _is_table(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            head = opened.read(_HEAD_BYTES)
    except OSError:
        return False
    return any(heading in head for heading in _HEADINGS)
