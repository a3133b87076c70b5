"""Looks for secrets in the parts of a capsule that a replay needs as they are: files, received objects, raw memory.

What is found there is kept, and told by place. What could be taken out was taken out when the capsule was made, and
stands in its `secrets.json`. Nothing here unpickles anything: a pickle is read as a list of its texts.
"""

from __future__ import annotations

import io
import os
import pickletools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from prismdbg.capsule import checked_json, layout, transfer
from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.files import SMALL_FILE_BYTES, Place, RankFile, read_files
from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.log.notes import PATH_NOTES, PROGRAM
from prismdbg.capsule.manifest import Manifest
from prismdbg.capsule.secrets.masking import (
    redact_arguments,
    redact_text,
    worth_a_search,
)
from prismdbg.capsule.secrets.rules import (
    is_secret_setting,
)
from prismdbg.capsule.secrets.shapes import Found
from prismdbg.capsule.state_snapshot import DESCRIPTION, PROLOGUE
from prismdbg.jobs.capture.many_values import Values
from prismdbg.jobs.capture.redacted_lines import read_part, reading, values_in_lines
from prismdbg.jobs.capture.secret_rules import find
from prismdbg.jobs.storage.verify import require_named_files
from prismdbg.log.rank_log import read_log
from prismdbg.model.collective import Collective
from prismdbg.model.meanwhile import Tell, by_bytes, unheard, working
from prismdbg.runtime.environment import Environment

# While a capsule is made, of one text file; what lies behind is searched for tokens and known values only. And of all
# of them, the small ones first: a program and its settings come before its data.
TEXT_BYTES = 1 << 20
TEXTS_BYTES = 16 << 20
ALL_TEXTS_BYTES = 128 << 20  # where somebody asks what a whole capsule contains: each to its end
PAYLOAD_BYTES = 4 << 20  # of one collective: objects are smaller
PAYLOADS_BYTES = 16 << 20
MEMORY_CHUNK = 16 << 20
MEMORY_WINDOW = 512
NAMES_ONE_BY_ONE = 64
PICKLES = 1000  # of one payload
NAME_MOST, VALUE_MOST = 256, 16384  # characters of a name in a pickle, and of a secret that it says is one
_PATHS = ("absent", "changed", "folders", "gone", "listed", "sys_path")  # of rank.json
_PATH = ("base_prefix", "executable", "inject", "prefix", "socket")
KNOWN = "a value that was redacted elsewhere"
RAW_MEMORY = "raw memory of the rank, which cannot be searched exhaustively"
SPAWNED = "what multiprocessing gave the rank"
STATE_TENSORS = "the tensors and bytes of the state snapshot"
_NAMED = re.compile(rb"\0([^\0=]{1,500}+)=")
_BYTES = ("uint8", "int8")
_PICKLED = (*(bytes((0x80, version)) for version in range(2, 6)), b"PK\x03\x04")  # a file of pickle's, of torch.save's
_PREFIXES = tuple(
    prefix.encode()
    for prefix in (
        "AKIA", "ASIA", "ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "hf_", "sk-", "sk_live_", "xoxb-", "xoxp-",
        "AIza", "PRIVATE KEY-----", "hooks.slack.com/services/", "AGE-SECRET-KEY-1", "uthorization: ", "nvapi-",
    )
)  # fmt: skip


class State(StrEnum):
    """REDACTED: not in the capsule. KEPT: in it, word for word."""

    REDACTED = "redacted"
    KEPT = "kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A secret by its place and its kind, never by its value."""

    place: str
    what: str
    state: State


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A secret that is kept: bytes `start` to `stop` of the capsule's file `part`."""

    part: str
    start: int
    stop: int
    place: str
    what: str

    @property
    def finding(self) -> Finding:
        return Finding(place=self.place, what=self.what, state=State.KEPT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """`unsearched`: sentences on what was not searched, or not whole. `cut_texts`: those of them on text files, which
    are searched whole but where there are too many."""

    findings: tuple[Finding, ...]
    hits: tuple[Hit, ...]
    unsearched: tuple[str, ...]
    cut_texts: tuple[str, ...] = ()

    @property
    def kept(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.state is State.KEPT)


class Search:
    """Of one capsule's folder, which need not be whole yet. `known`: values to look for beside the rules; words among
    them are not, for programs and data hold them by chance. Values that a traceback lacks are looked for, too.

    `unsearched` is complete when `hits` has ended, and so is `cut_texts`.
    """

    def __init__(
        self,
        folder: Path,
        files: tuple[RankFile, ...],
        logs: Mapping[str, RankLog],
        known: tuple[str, ...] = (),
        *,
        whole_texts: bool = False,
        tell: Tell = unheard,
    ) -> None:
        """`logs`: by their folder in the capsule. `whole_texts`: text files are searched to their end. tell: how far
        it is."""
        self._searched = by_bytes(tell, "searching for secrets")
        self.folder, self._files, self._logs = folder, files, logs
        recovered = values_in_lines(folder, files, logs.values())
        self._known = worth_a_search([*known, *recovered.values])
        self._text_bytes, self._left = (SMALL_FILE_BYTES, ALL_TEXTS_BYTES) if whole_texts else (TEXT_BYTES, TEXTS_BYTES)
        self.unsearched = [
            f"file {shown_path(path)}: not searched for what was redacted in tracebacks" for path in recovered.unread
        ]
        self.cut_texts = [*self.unsearched]
        self._received: list[tuple[str, int, int, str]] = []  # part, offset, bytes, place

    def hits(self) -> Iterator[Hit]:
        found = []
        for hit in self._by_rules():
            found.append(hit)
            yield hit
        yield from self._again(found)

    def _by_rules(self) -> Iterator[Hit]:
        yield from self._in_files()
        yield from self._in_spawned()
        for home, log in self._logs.items():
            yield from self._in_payloads(home, log)

    def _again(self, found: Collection[Hit]) -> Iterator[Hit]:
        """Values that only their names tell, where they stand without: alone in another object, or in the padding
        behind an object, which torch does not write: it is whatever the memory held before, such as another object."""
        values = [read_part(self.folder / hit.part, hit.start, hit.stop - hit.start) for hit in found]
        told = worth_a_search(value.decode("utf-8", "surrogateescape") for value in values)
        known = Values(value.encode("utf-8", "surrogateescape") for value in {*told} - {*self._known})
        ends = sorted((hit.part, hit.start, hit.stop) for hit in found)
        for part, offset, size_bytes, place in self._received if told else ():
            rest = bytearray(read_part(self.folder / part, offset, size_bytes))
            of_it = ends[bisect_left(ends, (part, offset, 0)) : bisect_left(ends, (part, offset + size_bytes, 0))]
            for _, start, stop in of_it:
                rest[start - offset : stop - offset] = bytes(stop - start)
            data = bytes(rest)
            for start, stop in sorted(span for value in known.held_by(data) for span in _occurrences(data, value)):
                yield Hit(part=part, start=offset + start, stop=offset + stop, what=KNOWN, place=place)

    def _in_files(self) -> Iterator[Hit]:
        done: set[str] = set()
        for file in sorted(self._files, key=lambda file: file.size_bytes):
            if file.place is not Place.INSIDE or file.sha256 in done:
                continue
            done.add(file.sha256)
            part = layout.content(file.sha256)
            path = shown_path(file.path)
            if file.size_bytes > SMALL_FILE_BYTES:
                self.unsearched.append(f"file {path}: {file.size_bytes} bytes")
                self.cut_texts += self.unsearched[-1:]  # it may be one
                continue
            data = read_part(self.folder / part, 0, file.size_bytes)
            self._searched(len(data))
            is_text = _is_text(data)
            most = min(self._left, self._text_bytes) if is_text else 0
            if most < len(data):
                how = f"only its first {most} bytes were searched by rules" if is_text else "it is not a text file"
                self.unsearched.append(f"file {path}: {how}")
                self.cut_texts += self.unsearched[-1:] * is_text
            self._left -= min(most, len(data))
            lines = _line_starts(data)
            rest = [*_spans_in_bytes(data, most), *(_pickled(data) if data.startswith(_PICKLED) else ())]
            for start, stop, what in (*_spans(data[:most], data, self._known), *rest):
                yield Hit(
                    part=part, start=start, stop=stop, what=what, place=f"file {path}:{bisect_right(lines, start)}"
                )

    def _in_spawned(self) -> Iterator[Hit]:
        path = self.folder / layout.SPAWNED
        if not path.exists():
            return
        if (size_bytes := path.stat().st_size) > PAYLOAD_BYTES:
            self.unsearched.append(f"{SPAWNED}: {size_bytes} bytes")
            return
        data = read_part(path, 0, size_bytes)
        self._searched(len(data))
        self._received.append((layout.SPAWNED, 0, size_bytes, SPAWNED))
        for start, stop, what in _received(data, self._known):
            yield Hit(part=layout.SPAWNED, start=start, stop=stop, what=what, place=SPAWNED)

    def _in_payloads(self, home: str, log: RankLog) -> Iterator[Hit]:
        left = PAYLOADS_BYTES
        for record in log.collectives:
            ref = record.payload
            if ref is None or not _holds_bytes(record):
                continue
            part = f"{home}/{fmt.payload_segment(ref.segment)}"
            place = f"payload of {record.moment} ({record.op.removeprefix('c10d::').strip('_')})"
            if ref.size_bytes > min(left, PAYLOAD_BYTES):
                self.unsearched.append(f"{place}: {ref.size_bytes} bytes")
                continue
            data = read_part(self.folder / part, ref.offset, ref.size_bytes)
            self._searched(len(data))
            left -= len(data)
            self._received.append((part, ref.offset, ref.size_bytes, place))
            for start, stop, what in _received(data, self._known):
                yield Hit(part=part, start=ref.offset + start, stop=ref.offset + stop, what=what, place=place)


def report(capsule: Capsule) -> Report:
    """All that is known and all that is found now, raw memory among it. `CapsuleError` where the capsule does not have
    exactly the files of its manifest, before any of them is read."""
    require_named_files(capsule)
    logs = logs_of(capsule)
    with working() as tell:
        search = Search(capsule.path, read_files(capsule), logs, whole_texts=True, tell=tell)
        hits = tuple(search.hits())
        found = [*recorded(capsule), *(hit.finding for hit in hits), *_in_texts(capsule, logs.values())]
        if capsule.manifest.contains_raw_memory:
            found += _in_memory(capsule, tell)
    tensors = [STATE_TENSORS] if _has_state(capsule) else []
    return Report(
        findings=tuple(dict.fromkeys(found)),
        hits=hits,
        unsearched=(*search.unsearched, *tensors),
        cut_texts=tuple(search.cut_texts),
    )


def logs_of(capsule: Capsule) -> dict[str, RankLog]:
    """By their folder: the capsule's log and, of one from a state snapshot, what came before the restore point."""
    before = f"{layout.STATE}/{PROLOGUE}"
    return {layout.LOG: read_log(capsule.log)} | (
        {before: read_log(capsule.path / before)} if _has_state(capsule) else {}
    )


def _has_state(capsule: Capsule) -> bool:
    return f"{layout.STATE}/{DESCRIPTION}" in capsule.manifest.files


def shown_path(path: str) -> str:
    """Without what looks like a secret in it: a place is told, never a value."""
    return redact_text(path, find=find)


def recorded(capsule: Capsule) -> Iterator[Finding]:
    """What was said when the capsule was made; of a capsule without that, names alone."""
    if layout.SECRETS in capsule.manifest.files:
        fields = checked_json.read(capsule.path / layout.SECRETS)
        for entry in fields.objects("findings"):
            state = entry.text("state")
            if state not in tuple(State):
                entry.fail("state", f"is {state[:40]!r}")
            yield Finding(place=entry.text("place"), what=entry.text("what"), state=State(state))
        return
    yield from taken_out(capsule.rank())
    for file in read_files(capsule):
        if file.place is Place.REDACTED:
            yield of_file(file)


def taken_out(rank: Mapping[str, object]) -> Iterator[Finding]:
    """Of rank.json: variables and arguments."""
    for key, place in (("redacted", "variable"), ("redacted_arguments", "argument")):
        names = rank.get(key)
        for name in names if isinstance(names, list) else ():
            shown = str(name)[:200].removeprefix(f"{place} ")
            yield Finding(place=f"{place} {shown}", what="looks like a secret", state=State.REDACTED)


def of_file(file: RankFile) -> Finding:
    what = f"credentials, {file.size_bytes} bytes, sha256 {file.sha256}"
    return Finding(place=f"file {shown_path(file.path)}", what=what, state=State.REDACTED)


def to_json(findings: Iterable[Finding]) -> list[dict[str, str]]:
    return [{"place": f.place, "what": f.what, "state": f.state} for f in findings]


def texts_of(manifest: Manifest) -> dict[str, str]:
    """The free texts of a manifest, by place."""
    notes = {f"manifest: note {number}": text for number, text in enumerate(manifest.notes, start=1)}
    return {"manifest: incident": manifest.incident.text, "manifest: job": manifest.job, **notes}


def note_texts(log: RankLog) -> Iterator[tuple[str, str]]:
    """Place and text of what the rank noted in words; paths are none."""
    for note in log.notes:
        if note.kind not in PATH_NOTES:
            for text in _strings(note.data):
                yield f"log: note {note.kind[:40]!r}", text


def command_lines(log: RankLog) -> list[list[str]]:
    """Of the other programs that the rank started."""
    return [note.data["arguments"] for note in log.notes if note.kind == PROGRAM]


def in_command_line(words: list[str], state: State) -> Iterator[Finding]:
    """What is told of a program that the rank started, as of the rank's own command line."""
    for name in redact_arguments(words, find=find).redacted:
        shown = shown_path(name[:200].removeprefix("argument "))
        yield Finding(place=f"log: note {PROGRAM!r}, argument {shown}", what="looks like a secret", state=state)


def _in_texts(capsule: Capsule, logs: Collection[RankLog]) -> Iterator[Finding]:
    rank = capsule.rank()
    texts = [*texts_of(capsule.manifest).items(), *(said for log in logs for said in note_texts(log))]
    texts += [(f"description of group {shown_path(g.name)}", g.desc) for g in capsule.manifest.groups]
    texts += _paths(capsule, rank, logs)
    texts += [(f"link {shown_path(name)}", f"{name}\n{target}") for name, target in rank.get("links", {}).items()]
    texts += [("working directory", str(rank.get("cwd", "")))]
    for place, text in texts:
        yield from (Finding(place=place, what=found.what, state=State.KEPT) for found in find(text))
    for words in (words for log in logs for words in command_lines(log)):
        yield from in_command_line(words, State.KEPT)
    yield from _in_state(capsule)
    environment = rank.get("environment")
    for name, value in environment.items() if isinstance(environment, dict) else ():
        if any(find(str(value))) or is_secret_setting(str(name), str(value)):
            yield Finding(place=f"variable {str(name)[:200]}", what="looks like a secret", state=State.KEPT)
    for found in find("\n".join(_strings(rank.get("orig_argv", [])))):
        yield Finding(place="argument", what=found.what, state=State.KEPT)


def _paths(capsule: Capsule, rank: Mapping[str, Any], logs: Collection[RankLog]) -> Iterator[tuple[str, str]]:
    """Place and text of each path that the capsule names, once."""
    files = dict.fromkeys([*(file.path for file in read_files(capsule)), *map(str, rank.get("listed", ()))])
    others = [str(path) for key in _PATHS for path in rank.get(key, ())] + [str(rank.get(key, "")) for key in _PATH]
    others += [text for log in logs for note in log.notes if note.kind in PATH_NOTES for text in _strings(note.data)]
    yield from ((f"path of file {shown_path(path)}", path) for path in files)
    yield from ((f"path {shown_path(path)}", path) for path in dict.fromkeys(others) if path not in files)
    yield from _installed_paths(capsule)


def _installed_paths(capsule: Capsule) -> Iterator[tuple[str, str]]:
    """Those with a secret in them. Each folder and each name is searched once: a capsule lists tens of thousands."""
    if (fields := capsule.part(layout.ENVIRONMENT)) is None:
        return
    found = cache(lambda part: any(find(part)))
    for file in Environment.from_json(fields).files:
        folder, _, name = file.path.rpartition("/")
        if any(map(found, (folder, name, file.target))):
            yield f"path of installed file {shown_path(file.path)}", f"{file.path}\n{file.target}"


def _in_state(capsule: Capsule) -> Iterator[Finding]:
    """Of the values of a state snapshot: texts, and those under a name. Tensors hold none."""
    if not _has_state(capsule):
        return
    for name, packed in checked_json.read(capsule.path / layout.STATE / DESCRIPTION).fields("objects").value.items():
        place = f"state snapshot: {shown_path(str(name)[:200])}"
        for inner in _lists(packed):
            if len(inner) == 2 and all(isinstance(each, str) for each in inner) and is_secret_setting(*inner):
                yield Finding(place=place, what=f"value of {shown_path(inner[0][:60])!r}", state=State.KEPT)
        for text in _strings(packed):
            yield from (Finding(place=place, what=found.what, state=State.KEPT) for found in find(text))


def _lists(value: object) -> Iterator[list[Any]]:
    if isinstance(value, list):
        yield value
        for inner in value:
            yield from _lists(inner)


def _in_memory(capsule: Capsule, tell: Tell) -> Iterator[Finding]:
    """Pages that hold what the environment block or a token looks like; each kind once a file."""
    yield Finding(place=layout.CHECKPOINT, what=RAW_MEMORY, state=State.KEPT)
    redacted = capsule.rank().get("redacted")
    variables = _Variables(str(name) for name in (redacted if isinstance(redacted, list) else ()) if name)
    images = [part for part in sorted(capsule.manifest.files) if _is_image(part)]
    total_bytes = sum(capsule.manifest.files[part].size_bytes for part in images)
    read = by_bytes(tell, "searching the raw memory", total_bytes)
    for part in images:
        found: set[str] = set()
        for chunk in _chunks(capsule.path / part):
            read(len(chunk))
            found |= {f"variable {name[:200]}" for name in variables.found_in(chunk)}
            windows = (chunk[begin:end].decode("latin-1") for begin, end in _windows(chunk))
            found |= {item.what for window in windows for item in find(window)}
        for what in sorted(found):
            yield Finding(place=part, what=what, state=State.KEPT)


def _is_image(part: str) -> bool:
    return part.startswith(f"{layout.CHECKPOINT}/") and part.endswith(".img")


class _Variables:
    """Finds names of variables where an environment block has them: after a zero byte and before an equals sign."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {os.fsencode(name): name for name in names}

    def found_in(self, chunk: bytes) -> Iterator[str]:
        """A few names are looked for one by one, which is fast; a capsule may name 20,000."""
        if len(self._names) <= NAMES_ONE_BY_ONE:
            yield from (name for data, name in self._names.items() if b"\0" + data + b"=" in chunk)
            return
        for match in _NAMED.finditer(chunk):
            if (name := self._names.get(match[1])) is not None:
                yield name


def _chunks(path: Path) -> Iterator[bytes]:
    """Overlapping ones, of what is there: holes are not read, and one before a chunk is a zero byte of it."""
    with reading(path), transfer.open_plain(path) as file:
        for start, stop in transfer.data_parts(file.fileno()):
            at, tail = start, b"\0" if start else b""
            while chunk := os.pread(file.fileno(), min(MEMORY_CHUNK, stop - at), at):
                yield tail + chunk
                at, tail = at + len(chunk), chunk[-MEMORY_WINDOW:]


def _windows(data: bytes, start: int = 0) -> list[tuple[int, int]]:
    """Where tokens may stand that begin as many do: parts of what lies behind `start`, in order, none of them twice."""
    around: list[tuple[int, int]] = []
    for prefix in _PREFIXES:
        at = data.find(prefix, start)
        while at >= 0:
            around.append((max(at - 64, start), min(at + MEMORY_WINDOW, len(data))))
            at = data.find(prefix, at + MEMORY_WINDOW)
    windows: list[tuple[int, int]] = []
    for begin, end in sorted(around):
        if windows and begin <= windows[-1][1]:
            windows[-1] = windows[-1][0], max(end, windows[-1][1])
        else:
            windows.append((begin, end))
    return windows


def _spans_in_bytes(data: bytes, start: int) -> list[tuple[int, int, str]]:
    """As `_spans`, of what is no text or too long to be searched whole: tokens that begin as many do."""
    found = set()
    for begin, end in _windows(data, start):
        window = data[begin:end].decode("latin-1")
        for item in find(window):
            found |= {(begin + a, begin + b, what) for a, b, what in _places(window, item)}
    return sorted(found)


def _spans(text: bytes, whole: bytes, known: Iterable[str]) -> Iterator[tuple[int, int, str]]:
    """Start, stop and kind of each secret: by rules in `text`, by value in `whole`, which begins with it."""
    shown = text.decode("latin-1")  # one character a byte
    for found in find(shown):
        yield from _places(shown, found)
    for value in known:
        for start, stop in _occurrences(whole, value.encode("utf-8", "surrogateescape")):
            yield start, stop, KNOWN


def _occurrences(data: bytes, value: bytes) -> Iterator[tuple[int, int]]:
    at = data.find(value)
    while at >= 0:
        yield at, at + len(value)
        at = data.find(value, at + len(value))


def _places(text: str, found: Found) -> Iterator[tuple[int, int, str]]:
    start = found.start if found.start >= 0 else text.find(found.value)
    if start >= 0:
        yield start, start + len(found.value), found.what


def _received(data: bytes, known: Iterable[str]) -> Iterator[tuple[int, int, str]]:
    yield from _spans(data, data, known)
    yield from _pickled(data)


def _pickled(data: bytes) -> Iterator[tuple[int, int, str]]:
    before, searched, paired = "", set[int](), set[tuple[str, int]]()
    for start, text in pickled_texts(data):
        encoded = text.encode("utf-8", "surrogatepass")
        is_new = len(before) <= NAME_MOST and len(text) <= VALUE_MOST and (before, start) not in paired
        if is_new and is_secret_setting(before, text) and "\n" not in text:
            yield start, start + len(encoded), f"value of {before[:60]!r}"
        if is_new:
            paired.add((before, start))
        if start in searched:  # a pickle names a text that it holds once as often as it likes
            before = text
            continue
        searched.add(start)
        for found in find(encoded.decode("latin-1")):
            yield from ((start + a, start + b, what) for a, b, what in _places(encoded.decode("latin-1"), found))
        before = text


def pickled_texts(data: bytes) -> Iterator[tuple[int, str]]:
    """Offset and value of each text in the pickles that lie in `data`, one that stands for another among them."""
    at = 0
    for _ in range(PICKLES):
        at = data.find(b"\x80", at)
        if at < 0:
            return
        at = yield from _texts_of_one(data, at)


def _texts_of_one(data: bytes, start: int) -> Generator[tuple[int, str], None, int]:
    """Returns where to look for the next one."""
    file = io.BytesIO(data)
    file.seek(start)
    memo: dict[int, tuple[int, str] | None] = {}
    last: tuple[int, str] | None = None
    end = start + 1
    try:
        for code, argument, _ in pickletools.genops(file):
            end = file.tell()
            if code.name == "MEMOIZE":
                memo[len(memo)] = last
            elif code.name in ("BINPUT", "LONG_BINPUT"):
                memo[int(str(argument))] = last
            elif code.name in ("BINGET", "LONG_BINGET"):
                if (again := memo.get(int(str(argument)))) is not None:
                    yield again
            else:
                text = _text(argument)
                last = None if text is None else (end - len(text.encode("utf-8", "surrogatepass")), text)
                if last is not None:
                    yield last
    except Exception:  # whatever these bytes are, they are no pickle
        pass
    return end  # nothing is read twice


def _text(argument: object) -> str | None:
    if isinstance(argument, bytes):
        return argument.decode("utf-8", "ignore") if argument.isascii() else None
    return argument if isinstance(argument, str) else None


def _holds_bytes(record: Collective) -> bool:
    return any(meta.dtype in _BYTES for meta in record.outputs)


def _is_text(data: bytes) -> bool:
    return b"\0" not in data[:8192]


def _line_starts(data: bytes) -> list[int]:
    starts, at = [0], data.find(b"\n")
    while at >= 0:
        starts.append(at + 1)
        at = data.find(b"\n", at + 1)
    return starts


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)
