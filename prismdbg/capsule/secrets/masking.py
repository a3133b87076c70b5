"""Secrets taken out of texts, environments and command lines. Standard library only.

Where a secret is found in one place of a text, it is masked in the others, too. The constants say which values can be
searched for without masking what others hold by chance.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from prismdbg.capsule.secrets.names import WEAK_WORD, Strength, ends_as_a_pat, last_word, strength
from prismdbg.capsule.secrets.rules import (
    LEAST_KNOWN,
    NO_PASSWORD,
    SETTING,
    found_in,
    is_attached,
    is_secret_setting,
    looks_random,
)
from prismdbg.capsule.secrets.shapes import Found

REDACTED = "<redacted>"
MOST_ELSEWHERE = 200  # values of one text that are searched for in the rest of it: a text may be one long list
LEAST_WORD = 4  # characters: a shorter value is not searched for at all
LEAST_NUMBER_KNOWN = 8  # digits
_COMMON = re.compile(rf"{SETTING.pattern}|[A-Za-z]{{1,11}}|[~.]?/[\w/.-]*", re.IGNORECASE)
_ASSIGNMENT = re.compile(r"([-+~]{0,2}[A-Za-z][\w.-]*)=(.*)", re.DOTALL)
_MYSQL = re.compile(r"(?:.*/)?(?:mysql|mariadb|sshpass)[\w-]*")  # its -pX is a password, whatever X is
_OTHER_P = re.compile(r"(?:.*/)?(?:mkdir|sinfo|squeue|srun|salloc|sbatch)")  # -p X is a folder or a partition
_USER = re.compile(r"[^\s:/]+:(?!\d{1,5}$)[^\s/]{3,}")
Finder = Callable[[str], Iterable[Found]]


def looks_secret(name: str, value: str) -> bool:
    """Of an environment variable: its name, or whatever is in its value."""
    if not value:
        return False
    return (
        is_secret_setting(name, value) or any(found_in(value)) or bool(redact_arguments(["", *value.split()]).redacted)
    )


def redact_text(text: str, known: Iterable[str] = (), find: Finder = found_in) -> str:
    """The text with REDACTED in the place of every secret that `find` sees and of every value in `known`."""
    return hidden(text, spans(text, known, find), lambda _: REDACTED)


def hidden(text: str, places: Iterable[tuple[int, int]], shown: Callable[[str], str]) -> str:
    """The text with what `shown` makes of it in the place of each part from start to stop; `places`: as `spans`."""
    parts, end = [], 0
    for start, stop in places:
        parts += [text[end:start], shown(text[start:stop])]
        end = stop
    return "".join([*parts, text[end:]])


def is_redacted_of(redacted: str, text: str) -> bool:
    """Whether `redacted` is the text with nothing but values replaced by REDACTED, none of them empty."""
    return redacted == text if REDACTED not in redacted else bool(redacted_parts(redacted, text))


def redacted_parts(redacted: str, text: str) -> list[tuple[int, int]]:
    """Start and stop of each part of the text that `redacted` has REDACTED for; empty if it is not of this text."""
    first, *between = redacted.split(REDACTED)
    if not between or not text.startswith(first):
        return []
    last, at, parts = between.pop(), len(first), []
    for part in between:
        start = at
        if (at := text.find(part, start + 1)) < 0:
            return []
        parts.append((start, at))
        at += len(part)
    end = len(text) - len(last)
    return [*parts, (at, end)] if end > at and text.endswith(last) else []


def spans(text: str, known: Iterable[str] = (), find: Finder = found_in) -> list[tuple[int, int]]:
    """Where secrets stand in a text, in order, none within another; all places of a value that is long enough."""
    found = list(find(text))
    places = [(f.start, f.start + len(f.value)) for f in found if f.start >= 0]
    unplaced = sorted({f.value for f in found if f.start < 0})[:MOST_ELSEWHERE]
    places += [match.span() for value in unplaced for match in re.finditer(re.escape(value), text)]
    for value in {*sorted({f.value for f in found if len(f.value) >= LEAST_KNOWN})[:MOST_ELSEWHERE], *known}:
        if value in text:  # a pattern is made for no other
            places += [match.span() for match in _wherever(value).finditer(text)]
    return merged(places)


def merged(places: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """In order, none within another."""
    found: list[tuple[int, int]] = []
    for start, stop in sorted(places):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        else:
            found.append((start, stop))
    return found


@lru_cache(maxsize=1024)
def _wherever(value: str) -> re.Pattern[str]:
    """A value that others may hold by chance is met as a word of its own only, and not as a part of a path."""
    pattern = re.escape(value)
    return re.compile(pattern if _is_telling(value) else rf"(?<![\w./\\-]){pattern}(?![\w/\\-]|\.\w)")


def stands_in(value: str, text: str) -> bool:
    """Whether a known value is met in a text."""
    return value in text and _wherever(value).search(text) is not None


def known_values(environ: Mapping[str, str], words: Sequence[str]) -> tuple[str, ...]:
    """The secrets of a process that texts are searched for: of its variables and of its command line.

    Among them are words (`postgres`), of variables whose name ends as a secret's does: of `DB_PASSWORD`, not of
    `CREDENTIAL_HELPER`. `worth_a_search` gives those that say something wherever they are met.
    """
    secret = {name: value for name, value in environ.items() if is_secret_setting(name, value)}
    values = [v for name, v in secret.items() if _is_sure(name, v) and (_is_telling(v) or strength(last_word(name)))]
    values += [found.value for value in environ.values() for found in found_in(value)]
    return words_or_more([*values, *(value for _, value in secret_words(words))])


def words_or_more(values: Iterable[str]) -> tuple[str, ...]:
    """Of `values` those that can be masked in a text: not `true`, not 4096, not `x`."""
    return tuple(sorted({v for v in values if _is_telling(v) or _is_word(v)}))


def worth_a_search(values: Iterable[str]) -> tuple[str, ...]:
    """Of `values` those that say something where they are met: not `true`, not 4096, not `postgres`."""
    return tuple(sorted({v for v in values if _is_telling(v)}))


def _is_telling(value: str) -> bool:
    return len(value) >= LEAST_KNOWN and not _is_common(value) and "\0" not in value


def _is_word(value: str) -> bool:
    return len(value) >= LEAST_WORD and SETTING.fullmatch(value) is None and "\0" not in value and "/" not in value


def _is_common(value: str) -> bool:
    return _COMMON.fullmatch(value) is not None and not (value.isdecimal() and len(value) >= LEAST_NUMBER_KNOWN)


def _is_sure(name: str, value: str) -> bool:
    return strength(name) >= Strength.LIKELY or looks_random(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """`variables` without what looks like a secret; `redacted` names what was left out, sorted.

    A replay sets `variables`; reading one of `redacted` there is an error that says so.
    """

    variables: Mapping[str, str]
    redacted: tuple[str, ...]


def redact(environ: Mapping[str, str], known: Iterable[str] = ()) -> Environment:
    """`known`: values that no variable may hold, whatever its name; words among them are no reason to take one out."""
    known = worth_a_search(known)
    secret = {n for n, value in environ.items() if looks_secret(n, value) or any(k in value for k in known)}
    return Environment(
        variables={name: value for name, value in environ.items() if name not in secret},
        redacted=tuple(sorted(secret)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """`words` with `REDACTED` in the place of what looks like a secret; `redacted` says of which options."""

    words: tuple[str, ...]
    redacted: tuple[str, ...]


def redact_arguments(words: Sequence[str], known: Iterable[str] = (), find: Finder = found_in) -> Arguments:
    """Of a command line; its first word is the program."""
    secret = dict(secret_words(words))
    known = worth_a_search(known)
    kept, redacted = list(words[:1]), []
    for position, (option, word) in enumerate(pairwise(words), start=1):
        name = _option_of(option, word) or f"argument {position}"
        shown = redact_text(word, known, find)
        if (value := secret.get(position)) is not None:
            shown = word[: len(word) - len(value)] + REDACTED
            name = "-p" if word == f"-p{value}" else name
        kept.append(shown)
        redacted += [name] if shown != word else []
    return Arguments(words=tuple(kept), redacted=tuple(redacted))


def secret_words(words: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Position and value of what an option says is secret; the value is the end of the word."""
    takes_p = not any(map(_OTHER_P.fullmatch, words[:1]))
    of_mysql = any(map(_MYSQL.fullmatch, words[:2]))  # a line of its own, or what a script is to start
    for position, (option, word) in enumerate(pairwise(words), start=1):
        assigned = _ASSIGNMENT.fullmatch(word)
        if assigned is not None and _is_secret_option(assigned[1], assigned[2]):
            yield position, assigned[2]
        elif option.startswith("-") and not word.startswith("-") and _is_secret_after(option, word, takes_p=takes_p):
            yield position, word
        elif is_attached(word, of_mysql=of_mysql):
            yield position, word.removeprefix("-p")


def _option_of(option: str, word: str) -> str:
    """The name that a word of the command line stands under; empty where there is none."""
    assigned = _ASSIGNMENT.fullmatch(word)
    if assigned is not None and assigned[1].startswith("-"):
        return assigned[1]
    if assigned is not None and strength(assigned[1]):
        return assigned[1]
    return option if option.startswith("-") and "=" not in option and not word.startswith("-") else ""


def _is_secret_after(option: str, word: str, *, takes_p: bool) -> bool:
    if option == "-p":
        return takes_p and not (SETTING.fullmatch(word) or NO_PASSWORD.fullmatch(word))
    if option in ("-u", "--user"):
        return _USER.fullmatch(word) is not None
    return "=" not in option and _is_secret_option(option, word)


def _is_secret_option(option: str, value: str) -> bool:
    """As of a variable, but a program has options of its own: `--token-embedding learned`, `--sort-key loss`."""
    if not is_secret_setting(option.lstrip("-+~"), value):
        return False
    if strength(option) is Strength.STRONG:
        return True
    word = last_word(option)
    is_key = word.rstrip("0123456789") in ("KEY", "KEYS")
    return (WEAK_WORD.fullmatch(word) is not None or ends_as_a_pat([word])) and not (
        is_key and re.fullmatch(r"[A-Za-z_./-]+|.{0,7}", value)
    )
