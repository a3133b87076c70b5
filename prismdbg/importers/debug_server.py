"""Texts of torch's debug server (`torch.distributed.debug.start_debug_server(dump_dir=...)`), which rank 0 writes in
turn: the stacks of all ranks are read, and tables for people are recognized."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from prismdbg.capsule import checked_json
from prismdbg.capsule.limits import MAX_IMPORTED_RANKS
from prismdbg.capsule.stacks import FROM_OUTSIDE, MOST_FRAMES, MOST_TEXT, MOST_THREADS, RankStacks, ThreadStack
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.importers.imported_job import ImportedJob
from prismdbg.model.collective import Frame

MAX_STACKS_BYTES = 64 << 20  # 16,384 ranks with 4 KiB each
_MOST_TRIED = 8
_NAME = re.compile(r"(?P<kind>\w+?)_(?P<when>\d{8}_\d{6})\.txt")
_STACKS, _TABLES = "stacks", frozenset({"fr_trace", "torchcomms_fr_trace"})
_UNREAD = _TABLES | {"pyspy_dump", "tcpstore", "wait_counters", "torchcomms_health_check"}
_HEADINGS = (b"=== FR Trace ===", b"=== TorchComms FR Trace ===")
_HEAD_BYTES = 1 << 16  # before it are the ranks that did not answer
_TAKE_DUMPS = (
    "give the ranks' own dumps: nccl_trace_rank_R, or for rank R what its debug server answers to "
    "curl -X POST http://HOST:PORT/handler/fr_trace_json > fr_trace_R.json"
)

# As `format_fetch_summary`'s callers and Python's faulthandler write them.
_RANK = re.compile(r"=== Rank (?P<rank>\d{1,8}): .* ===")
_NO_ANSWER = re.compile(r"Error: (?P<status>\d{1,3})")
_THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+ .*")
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d{1,9}) in (?P<name>.*)')


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTexts:
    """`stacks` by rank from the newest file with any, `stacks_file`, empty without one. `gaps`: on what is not read."""

    stacks: Mapping[int, RankStacks]
    stacks_file: str
    gaps: tuple[str, ...]


def read_texts(files: Iterable[Path]) -> ServerTexts:
    """What such texts among these files say. None of them is required, or must be readable."""
    kinds = {file: found["kind"] for file in files if (found := _NAME.fullmatch(file.name))}
    gaps = []
    if unread := sorted({kind for kind in kinds.values() if kind in _UNREAD}):
        gaps.append(f"not read of torch's debug server: its texts {', '.join(unread)}")
    for file in islice(_newest_first(file for file, kind in kinds.items() if kind == _STACKS), _MOST_TRIED):
        try:
            text = checked_json.read_bytes(file, limit_bytes=MAX_STACKS_BYTES).decode(errors="replace")
        except CapsuleError as error:
            gaps.append(f"the stacks in {file.name} cannot be read: {error}")
            continue
        stacks = _stacks(text.splitlines())
        if any(found.threads for found in stacks.values()):
            return ServerTexts(stacks=stacks, stacks_file=file.name, gaps=tuple(gaps))
    return ServerTexts(stacks={}, stacks_file="", gaps=tuple(gaps))


def _newest_first(files: Iterable[Path]) -> list[Path]:
    return sorted(files, key=lambda file: file.name, reverse=True)


def _stacks(lines: Iterable[str]) -> dict[int, RankStacks]:
    parts: dict[int, list[str]] = {}
    part: list[str] = []
    for line in lines:
        if found := _RANK.fullmatch(line):
            part = parts.setdefault(int(found["rank"]), [])
        else:
            part.append(line)
    return {rank: _of_rank(rank, part) for rank, part in sorted(parts.items()) if rank < MAX_IMPORTED_RANKS}


def _of_rank(rank: int, lines: Sequence[str]) -> RankStacks:
    if lines and (found := _NO_ANSWER.fullmatch(lines[0])):
        problem = f"its debug server answered {found['status']}"
        return RankStacks(rank=rank, taken_by=FROM_OUTSIDE, problem=problem)
    return RankStacks(rank=rank, taken_by=FROM_OUTSIDE, threads=tuple(_threads(lines)))


def _threads(lines: Sequence[str]) -> Iterator[ThreadStack]:
    """faulthandler lists the main thread last, because that is the oldest."""
    begins = [at for at, line in enumerate(lines) if _THREAD.fullmatch(line)]
    ends = [*begins[1:], len(lines)]
    for begin, end in list(zip(begins, ends, strict=False))[: -MOST_THREADS - 1 : -1]:
        name = "MainThread" if end == len(lines) else ""
        yield ThreadStack(name=name, holds_gil=False, frames=tuple(islice(_frames(lines[begin:end]), MOST_FRAMES)))


def _frames(lines: Iterable[str]) -> Iterator[Frame]:
    for line in lines:
        if found := _FRAME.fullmatch(line):
            yield Frame(found["file"][:MOST_TEXT], int(found["line"]), found["name"][:MOST_TEXT])


def refuse_tables(files: Iterable[Path]) -> None:
    """`UsageError` with the files to take instead, where one of these is a text table."""
    for file in files:
        if (found := _NAME.fullmatch(file.name)) and found["kind"] in _TABLES and _is_table(file):
            raise UsageError(
                f"{file.name} is a text table of torch's debug server, which is not read", hint=_TAKE_DUMPS
            )


def only_stacks(texts: ServerTexts) -> ImportedJob:
    """A job of which nothing else is there."""
    gaps = (*texts.gaps, f"no call can be compared: {_TAKE_DUMPS}")
    return ImportedJob(logs={}, damaged={}, gaps=gaps, stacks=texts.stacks, stacks_file=texts.stacks_file)


def no_calls(stacks_file: str) -> UsageError:
    """For commands that need calls, where there are only stacks."""
    return UsageError(
        f"{stacks_file} of torch's debug server has stacks, but no calls: only `prismdbg why` reads it without dumps",
        hint=_TAKE_DUMPS,
    )


def _is_table(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            head = opened.read(_HEAD_BYTES)
    except OSError:
        return False
    return any(heading in head for heading in _HEADINGS)
