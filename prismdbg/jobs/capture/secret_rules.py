"""All rules by which the host looks for secrets: prismdbg's own and those of detect-secrets.

Of detect-secrets the detectors of tokens by their shape are used, by their text alone: nothing is verified over the
network. Its entropy and keyword detectors and the one of public addresses are not: they find something in most
programs, and a replay misses what was taken out.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from prismdbg.capsule.secrets.rules import found_in
from prismdbg.capsule.secrets.shapes import Found

WINDOW, OVERLAP = 4096, 512  # characters: some patterns take the square of a text's length
_LEFT_OUT = frozenset(("ip_public", "keyword", "high_entropy_strings", "basic_auth"))  # the last one: ours has places
_HINTS = {"artifactory": "ap", "cloudant": "cloudant", "ibm_cloud_iam": "ibm", "ibm_cos_hmac": "cos", "softlayer": "sl"}


def find(text: str) -> Iterator[Found]:
    """Every secret in a text, some of them twice."""
    yield from found_in(text)
    for start in range(0, max(len(text) - OVERLAP, 1), WINDOW - OVERLAP):
        window = text[start : start + WINDOW]
        lowered = window.lower()
        for hint, detector in _detectors():
            if hint in lowered:
                yield from (Found(detector.secret_type, value) for value in detector.analyze_string(window) if value)


@cache
def _detectors() -> tuple[tuple[str, Any], ...]:
    """Each with a text in lower case without which it is not asked, for some are slow."""
    plugins = import_module("detect_secrets.plugins")
    base = import_module("detect_secrets.plugins.base").RegexBasedDetector
    found: list[tuple[str, Any]] = []
    for module in iter_modules(plugins.__path__):
        if module.name in _LEFT_OUT or module.name == "base":
            continue
        members = vars(import_module(f"detect_secrets.plugins.{module.name}")).values()
        kinds = [kind for kind in members if isinstance(kind, type) and issubclass(kind, base) and kind is not base]
        found += [(_HINTS.get(module.name, ""), kind()) for kind in kinds]
    return tuple(found)
