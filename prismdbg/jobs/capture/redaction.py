"""What is taken out of a capsule while it is made: secrets of variables, arguments, credential files and texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from prismdbg.capsule.files import Place, RankFile
from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.log.notes import PATH_NOTES, PROGRAM
from prismdbg.capsule.manifest import Manifest
from prismdbg.capsule.rank_json import variables_of
from prismdbg.capsule.secrets.masking import (
    REDACTED,
    hidden,
    known_values,
    merged,
    redact,
    redact_arguments,
    redact_text,
    redacted_parts,
    secret_words,
    spans,
    stands_in,
    words_or_more,
    worth_a_search,
)
from prismdbg.capsule.secrets.rules import (
    is_secret_setting,
    looks_random,
)
from prismdbg.capsule.secrets.shapes import Found
from prismdbg.capsule.spawned import is_spawned
from prismdbg.errors import CapsuleError
from prismdbg.jobs.capture.many_values import Values
from prismdbg.jobs.capture.pickled_masking import masked
from prismdbg.jobs.capture.secret_rules import find
from prismdbg.jobs.capture.secret_search import (
    Finding,
    State,
    command_lines,
    in_command_line,
    note_texts,
    of_file,
    taken_out,
    texts_of,
)

CREDENTIAL_BYTES = 64 << 10  # of a file of credentials that are read for its values
_IN_TEXT = "a secret in a text"


_Places = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """`known`: values that may stand in no text of the capsule; `masked`: nowhere in its log. `texts`: of the log's
    notes those that hold secrets, with where. `pickled`: what stands in the place of texts in pickles. `findings`: what
    was taken out, and what was not."""

    known: tuple[str, ...]
    masked: tuple[str, ...]
    texts: Mapping[str, _Places]
    pickled: Mapping[bytes, bytes]
    findings: tuple[Finding, ...]
    described: Mapping[str, Any]

    @classmethod
    def of(cls, rank: Mapping[str, Any], files: tuple[RankFile, ...], logs: Collection[RankLog]) -> Redaction:
        """`rank`: its rank.json, with secrets; `files`: what was added of them."""
        secret = [file for file in files if file.place is Place.REDACTED]
        in_files = worth_a_search(value for file in secret for value in _values_of(file.path))
        given = known_values({}, rank["argv"]) if is_spawned(rank["orig_argv"]) else ()
        variables = (rank["environment"], variables_of(rank))  # one that was set anew has held two secrets
        of_variables = [value for each in variables for value in known_values(each, rank["orig_argv"])]
        known = words_or_more([*dict.fromkeys(of_variables), *given, *in_files])
        described = _described(rank, known)
        said = [text for log in logs for text in note_texts(log)]
        ruled = {text: tuple(find(text)) for _, text in said}
        started = [words for log in logs for words in command_lines(log)]
        # elsewhere in the log what the rules of texts find: `-p X` of a command line is sometimes a name that many hold
        in_lines = [found for line in dict.fromkeys(map(" ".join, started)) for found in find(line)]
        in_texts = [found for several in ruled.values() for found in several]
        values = words_or_more([*known, *(found.value for found in (*in_texts, *in_lines))])
        index = Values(values)
        places = {text: tuple(spans(text, index.held_by(text), lambda text: ruled[text])) for text in ruled}
        findings = [*taken_out(described), *_words_kept(described, known), *map(of_file, secret)]
        findings += [finding for words in started for finding in in_command_line(words, State.REDACTED)]
        for place, text in said:
            findings += _told(place, ruled[text], hidden(text, places[text], _stars)) if places[text] else []
        return cls(
            known=known,
            masked=worth_a_search(values),
            texts={text: where for text, where in places.items() if where},
            pickled=_pickled(rank, described, known),
            findings=tuple(dict.fromkeys(findings)),
            described=described,
        )

    def describe(self, rank: Mapping[str, Any]) -> dict[str, Any]:
        of_start: dict[str, Any] = {"variables_set": {}} if "variables_set" in rank else {}  # a replay sets them itself
        return {**rank, **of_start, **self.described}

    def mask(self, data: bytes) -> bytes:
        """An event segment without the secrets. Nothing in it moves: notes stay as long as they were, and in all else
        each byte of a secret is an asterisk."""
        edited = bytearray(data)
        for start, stop in _notes_in(data):
            edited[start:stop] = self._note(data[start:stop])
        return self.starred(bytes(edited))

    def starred(self, data: bytes) -> bytes:
        """Any bytes, with asterisks for those of the secrets that are known."""
        for form in sorted(_forms_of(self.masked).held_by(data), key=len, reverse=True):
            data = data.replace(form, b"*" * len(form))
        return data

    def in_pickles(self, data: bytes) -> bytes:
        """Pickles without the secrets. A word that others may hold by chance is masked where it is a whole text."""
        return self.starred(masked(data, self.pickled))

    def _note(self, body: bytes) -> bytes:
        """A replay raises again what a collective raised, so its text is what the rank itself would make of it; where
        that is too long, asterisks: they fit, for no recorder writes JSON that is shorter."""
        fields = json.loads(body.rstrip(b"\0"))
        if fields["kind"] in PATH_NOTES or self._cleaned(fields, _redacted) == fields:
            return body
        for shown in (_redacted, _stars):
            text = json.dumps(self._cleaned(fields, shown), separators=(",", ":"), ensure_ascii=body.isascii())
            if len(encoded := text.encode("utf-8", "surrogatepass")) <= len(body):
                return encoded.ljust(len(body), b"\0")
        raise CapsuleError(f"the log has a note of {len(body)} bytes that cannot be masked", hint="capture it again")

    def _clean(self, value: Any, shown: Callable[[str], str]) -> Any:
        """A JSON value with its texts cleaned, the names of its fields as they are."""
        match value:
            case str():
                return hidden(value, self.texts.get(value, ()), shown)
            case list():
                return [self._clean(inner, shown) for inner in value]
            case dict():
                return {name: self._clean(inner, shown) for name, inner in value.items()}
        return value

    def _cleaned(self, fields: dict[str, Any], shown: Callable[[str], str]) -> dict[str, Any]:
        clean = {name: self._clean(value, shown) for name, value in fields.items()}
        if fields["kind"] == PROGRAM:
            clean["arguments"] = self._clean_words(fields["arguments"], shown)
        return clean

    def _clean_words(self, words: list[str], shown: Callable[[str], str]) -> list[str]:
        """A command line, also without what its options say is secret."""
        places = [[*self.texts.get(word, ())] for word in words]
        for at, secret in secret_words(words):
            places[at].append((len(words[at]) - len(secret), len(words[at])))
        return [hidden(word, merged(found), shown) for word, found in zip(words, places, strict=True)]

    def of_manifest(self, manifest: Manifest) -> tuple[Manifest, list[Finding]]:
        found: list[Finding] = []
        for place, text in texts_of(manifest).items():
            if (clean := self._text(text)) != text:
                found += _told(place, tuple(find(text)), clean)
        incident = replace(manifest.incident, text=self._text(manifest.incident.text))
        notes = tuple(map(self._text, manifest.notes))
        return replace(manifest, incident=incident, notes=notes, job=self._text(manifest.job)), found

    def _text(self, text: str) -> str:
        return redact_text(text, self.known, find)


def homes_of(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The rank's home, as it knows it and as links lead there."""
    home = environ.get("HOME", "")
    return tuple({home.rstrip("/"), str(Path(home).resolve())} - {"", "/"}) if home.startswith("/") else ()


def _described(rank: Mapping[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    environment = redact(rank["environment"], known)
    argv, orig_argv = (redact_arguments(rank[name], known, find) for name in ("argv", "orig_argv"))
    return {
        "environment": dict(environment.variables),
        "redacted": list(environment.redacted),
        "argv": list(argv.words),
        "orig_argv": list(orig_argv.words),
        "redacted_arguments": list((argv if is_spawned(orig_argv.words) else orig_argv).redacted),
    }


def _values_of(path: str) -> list[str]:
    """What a file of credentials holds that would tell it elsewhere."""
    try:
        with Path(path).open(errors="replace") as file:
            text = file.read(CREDENTIAL_BYTES)
    except OSError:
        return []
    words = text.split()
    values = [found.value for found in find(text)] + [word for word in words if looks_random(word)]
    lines = [line.partition("=") for line in text.splitlines()]
    values += [value for name, _, after in lines if is_secret_setting(name.strip(), value := after.strip("'\" "))]
    return values + (words if len(words) == 1 else [])


def _words_kept(described: Mapping[str, Any], known: tuple[str, ...]) -> Iterator[Finding]:
    """Variables and arguments that hold the word that is also a secret: a replay may need them for what they are."""
    words = set(known) - set(worth_a_search(known))
    of = {f"variable {name[:200]}": value for name, value in described["environment"].items()}
    of |= {f"argument {number}": word for number, word in enumerate(described["orig_argv"]) if number}
    for place, value in of.items():
        if any(stands_in(word, value) for word in words):
            yield Finding(place=place, what="a word that is also the value of a secret", state=State.KEPT)


def _told(place: str, ruled: tuple[Found, ...], clean: str) -> list[Finding]:
    """Of a text with secrets, which is `clean` now: what was taken out, and what the rules still find."""
    kept = {found.what for found in find(clean)}
    gone = {found.what for found in ruled} - kept or ({_IN_TEXT} - kept)
    state = {**dict.fromkeys(sorted(gone), State.REDACTED), **dict.fromkeys(sorted(kept), State.KEPT)}
    return [Finding(place=place, what=what, state=known) for what, known in state.items()]


def _notes_in(data: bytes) -> Iterator[tuple[int, int]]:
    """Where the bodies of a segment's notes begin and end."""
    at = fmt.HEADER.size
    while at + fmt.RECORD.size <= len(data):
        size_bytes, kind, _ = fmt.RECORD.unpack_from(data, at)
        if size_bytes < fmt.RECORD.size or at + size_bytes > len(data):  # not written yet
            return
        if kind == fmt.Kind.NOTE:
            yield at + fmt.RECORD.size, at + size_bytes
        at += size_bytes


def _redacted(_: str) -> str:
    return REDACTED


def _stars(text: str) -> str:
    return "*" * len(text)


def _pickled(rank: Mapping[str, Any], described: Mapping[str, Any], known: tuple[str, ...]) -> dict[bytes, bytes]:
    """Values, and arguments with one behind their name (`--password=...`), as pickles have them; each as long."""
    variables = words_or_more(rank["environment"][name] for name in described["redacted"])
    shown = {value: _all_stars(value) for value in (*known, *variables)}
    for word, redacted in zip(rank["argv"], described["argv"], strict=True):
        if redacted != word:
            shown.setdefault(word, hidden(word, redacted_parts(redacted, word), _all_stars))
    return {_encoded(text): _encoded(instead) for text, instead in shown.items()}


@lru_cache(maxsize=1)
def _forms_of(values: tuple[str, ...]) -> Values[bytes]:
    """Once for all segments of a log."""
    return Values(form for value in values for form in _forms(value))


def _forms(value: str) -> set[bytes]:
    """As a text is written: plain, and as JSON."""
    escaped = (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
    return {_encoded(form) for form in (value, *escaped)}


def _all_stars(text: str) -> str:
    return "*" * len(_encoded(text))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
