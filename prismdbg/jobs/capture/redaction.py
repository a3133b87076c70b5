"""What is taken out of a capsule while it is made: secrets of variables, arguments, credential files and texts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prismdbg.capsule.files import Place, RankFile
from prismdbg.capsule.log_events import RankLog
from prismdbg.capsule.manifest import Manifest
from prismdbg.capsule.secrets import (
    is_secret_setting,
    known_values,
    looks_random,
    redact,
    redact_arguments,
    redact_text,
    worth_a_search,
)
from prismdbg.jobs.capture.secret_rules import find
from prismdbg.jobs.capture.secret_search import Finding, State, note_texts, of_file, taken_out, texts_of

CREDENTIAL_BYTES = 64 << 10  # of a file of credentials that are read for its values
_IN_TEXT = "a secret in a text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """`known`: values that may stand nowhere in the capsule; `masked`: in its log. `findings`: what was taken out."""

    known: tuple[str, ...]
    masked: tuple[str, ...]
    findings: tuple[Finding, ...]
    described: Mapping[str, Any]

    @classmethod
    def of(cls, rank: Mapping[str, Any], files: tuple[RankFile, ...], log: RankLog) -> Redaction:
        """`rank`: its rank.json, with secrets; `files`: what was added of them."""
        secret = [file for file in files if file.place is Place.REDACTED]
        known = known_values(rank["environment"], rank["orig_argv"])
        known = worth_a_search([*known, *(value for file in secret for value in _values_of(file.path))])
        described = _described(rank, known)
        said = {place: found for place, text in note_texts(log) if (found := tuple(find(text)))}
        hidden = {place for place, text in note_texts(log) if any(value in text for value in known)}
        findings = [*taken_out(described), *map(of_file, secret)]
        findings += [_in_text(place, found.what) for place, several in said.items() for found in several]
        findings += [_in_text(place, _IN_TEXT) for place in hidden - said.keys()]
        values = worth_a_search(found.value for several in said.values() for found in several)
        return cls(known=known, masked=(*known, *values), findings=tuple(dict.fromkeys(findings)), described=described)

    def describe(self, rank: Mapping[str, Any]) -> dict[str, Any]:
        return {**rank, **self.described}

    def mask(self, data: bytes) -> bytes:
        """Event segments without the secrets, each byte of them an asterisk: JSON stays JSON, and nothing moves."""
        for form in sorted({form for value in self.masked for form in _forms(value)}, key=len, reverse=True):
            data = data.replace(form, b"*" * len(form))
        return data

    def of_manifest(self, manifest: Manifest) -> tuple[Manifest, list[Finding]]:
        found = [_in_text(place, _IN_TEXT) for place, text in texts_of(manifest).items() if self._text(text) != text]
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
        "redacted_arguments": list(orig_argv.redacted),
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


def _in_text(place: str, what: str) -> Finding:
    return Finding(place=place, what=what, state=State.REDACTED)


def _forms(value: str) -> set[bytes]:
    """As a text is written: plain, and as JSON."""
    escaped = (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
    return {value.encode("utf-8", "surrogatepass"), *(form.encode("utf-8", "surrogatepass") for form in escaped)}
