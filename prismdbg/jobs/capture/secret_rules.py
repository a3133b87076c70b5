"""All rules by which the host looks for secrets: prismdbg's own and those of detect-secrets.

Of detect-secrets the detectors of tokens by their shape are used, by their text alone: nothing is verified over the
network. Its entropy and keyword detectors and the one of public addresses are not: they find something in most
programs, and a replay misses what was taken out.

Three of the patterns take the square of a text's length: they look at the rest of it from each place where a token
may begin. `_LINEAR` finds the same in one pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from importlib import import_module
from itertools import pairwise
from pkgutil import iter_modules
from typing import Any

from prismdbg.capsule.secrets.rules import (
    found_in,
)
from prismdbg.capsule.secrets.shapes import Found

WINDOW, OVERLAP = 4096, 512  # characters
_LEFT_OUT = frozenset(("ip_public", "keyword", "high_entropy_strings", "basic_auth"))  # the last one: ours has places
_HINTS = {"artifactory": "ap", "cloudant": "cloudant", "ibm_cloud_iam": "ibm", "ibm_cos_hmac": "cos", "softlayer": "sl"}


def find(text: str) -> Iterator[Found]:
    """Every secret in a text, some of them twice."""
    yield from found_in(text)
    for start in range(0, max(len(text) - OVERLAP, 1), WINDOW - OVERLAP):
        window = text[start : start + WINDOW]
        lowered = window.lower()
        for hint, what, places in _detectors():
            if hint in lowered:
                yield from (Found(what, value, start + at) for at, value in places(window))


Places = Callable[[str], Iterable[tuple[int, str]]]  # of a text: where each secret stands, and what it is


def _npm(text: str) -> Iterator[tuple[int, str]]:
    """As in `.npmrc`, whatever stands before it: the registry's address."""
    for match in _NPM.finditer(text):
        yield match.start(1), match[1]


def _openai(text: str) -> Iterator[tuple[int, str]]:
    """From the first `sk-` of a word to the end of the last core in it."""
    for word in _WORD.finditer(text) if "T3BlbkFJ" in text else ():
        cores = [core.span(1) for core in _CORE.finditer(word[0])]
        begin = word[0].find("sk-")
        if cores and 0 <= begin <= cores[-1][0] - len("sk-"):
            yield word.start() + begin, word[0][begin : cores[-1][1]]


def _jwt(text: str) -> Iterator[tuple[int, str]]:
    """Two words with a point between them, the first from its first `eyJ` on, that decode to JSON."""
    is_valid = import_module("detect_secrets.plugins.jwt").JwtTokenDetector.is_formally_valid
    words = [word.span() for word in _JWT_WORD.finditer(text)] if "eyJ" in text else []
    for (start, end), (behind, stop) in pairwise(words):
        begin = text.find("eyJ", start, end)
        if begin < 0 or end - begin < 4 or behind != end + 1 or text[end] != ".":
            continue
        token = text[begin : stop + 1] if text[stop : stop + 1] == "." else text[begin:stop]
        try:
            if is_valid(token):
                yield begin, token
        except RecursionError:  # JSON that is nested deeper than any token's
            continue


_NPM_KEY, _UUID = r"/:_authToken=\s*", "[A-Fa-f0-9-]{36}"
# up to the next one, which may stand in the same line
_NPM = re.compile(rf"{_NPM_KEY}(npm_(?:(?!{_NPM_KEY}(?:npm_.|{_UUID})).)+|{_UUID})")
_WORD = re.compile(r"[A-Za-z0-9_-]+")
_CORE = re.compile(r"(?=([A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20}))")
_JWT_WORD = re.compile(r"[A-Za-z0-9_=-]+")
_LINEAR: dict[str, Places] = {"npm": _npm, "openai": _openai, "jwt": _jwt}


def _by_patterns(patterns: tuple[re.Pattern[str], ...], text: str) -> Iterator[tuple[int, str]]:
    """The whole of what a pattern without groups matches, else each of its groups."""
    for pattern in patterns:
        groups = range(1, pattern.groups + 1) if pattern.groups else (0,)
        for match in pattern.finditer(text):
            yield from ((match.start(group), match[group]) for group in groups if match[group])


def _by_plugin(detector: Any, text: str) -> Iterator[tuple[int, str]]:
    """Of one with a search of its own, which tells no places."""
    yield from ((text.find(value), value) for value in detector.analyze_string(text) if value)


@cache
def _detectors() -> tuple[tuple[str, str, Places], ...]:
    """Each with a text in lower case without which it is not asked, for some are slow; and what it finds."""
    plugins = import_module("detect_secrets.plugins")
    base = import_module("detect_secrets.plugins.base").RegexBasedDetector
    found: list[tuple[str, str, Places]] = []
    for module in iter_modules(plugins.__path__):
        if module.name in _LEFT_OUT or module.name == "base":
            continue
        members = vars(import_module(f"detect_secrets.plugins.{module.name}")).values()
        kinds = [kind for kind in members if isinstance(kind, type) and issubclass(kind, base) and kind is not base]
        for detector in (kind() for kind in kinds):
            is_plain = type(detector).analyze_string is base.analyze_string
            usual = partial(_by_patterns, tuple(detector.denylist)) if is_plain else partial(_by_plugin, detector)
            places = _LINEAR.get(module.name, usual)
            found.append((_HINTS.get(module.name, ""), str(detector.secret_type), places))
    return tuple(found)
