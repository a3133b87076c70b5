"""What can be known of why a replay diverged: gathered from the capsule and from the rank while it stands there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.files import Place, RankFile, read_files, read_text
from prismdbg.capsule.manifest import Origin
from prismdbg.errors import PrismError
from prismdbg.protocol.client import AgentClient
from prismdbg.protocol.wire import Message
from prismdbg.session.causes import ALL_HIDDEN, Facts, Unhidden, likely_causes
from prismdbg.session.source_calls import source_calls
from prismdbg.settings.seeds import MODULES, UNSEEDED

ASK_BOUND_S = 30.0  # a machine may be busy, and without an answer the story says much less
LONGEST_SOURCE_BYTES = 1 << 20
MOST_SOURCES = 200


def with_causes(story: Message, capsule: Capsule, client: AgentClient, unhidden: Unhidden = ALL_HIDDEN) -> Message:
    """The `diverged` event with its likely causes. `unhidden`: as the replay's plan has it."""
    told = _surroundings(client)
    facts = replace(
        facts_of(story, capsule, _texts(told.get("surroundings"))),
        unhidden=unhidden,
        unregistered=_names(told, "unregistered"),
        synthesized_before=_names(told, "synthesized"),
        has_clock_reads="times_not_recorded" in told,
        has_dates=told.get("has_dates") is True,
        times_not_recorded=_names(told, "times_not_recorded"),
    )
    causes = likely_causes(facts)
    return {**story, "causes": {"found": list(causes.found), "not_found": list(causes.not_found)}}


def facts_of(story: Message, capsule: Capsule, now: Mapping[str, str]) -> Facts:
    """`now`: what the rank runs on, by title; empty where it cannot say."""
    rank = capsule.rank()
    files = read_files(capsule)
    inside = [file for file in files if file.place is Place.INSIDE]
    taken_out = [f"variable {name}" for name in _names(rank, "redacted")]
    taken_out += [f"the value of {name}" for name in _names(rank, "redacted_arguments")]
    taken_out += [file.path for file in files if file.place is Place.REDACTED]
    known = rank.get("seeds")
    seeds = known if isinstance(known, dict) else {}
    sources = [file for file in inside if file.path.endswith(".py") and file.size_bytes <= LONGEST_SOURCE_BYTES]
    differences = story.get("differences") or []
    return Facts(
        values_only=bool(differences) and all(not difference["structural"] for difference in differences),
        from_state=capsule.manifest.origin is Origin.STATE,
        from_start=capsule.manifest.origin.starts_program,
        changed_files=_names(rank, "changed"),
        gone_files=_names(rank, "gone"),
        missing=tuple(taken_out) if capsule.manifest.origin.starts_program else (),
        recorded=recorded_surroundings(capsule),
        now=now,
        unknown_seeds=(
            *(name.partition(".")[0] for name in MODULES if name not in seeds and name != "numpy.random"),
            *(f"torch on {kind}" for kind in capsule.manifest.device_kinds if kind != "cpu"),
        ),
        has_root_of_seeds=UNSEEDED in seeds,
        calls=source_calls({file.path: _text(capsule, file) for file in sources[:MOST_SOURCES]}),
    )


def recorded_surroundings(capsule: Capsule) -> dict[str, str]:
    rank = capsule.rank()
    found = {"number of threads": rank.get("torch_threads"), "instruction set": rank.get("cpu_capability")}
    versions = rank.get("versions")
    for name, title in (("python", "version of Python"), ("torch", "version of torch")):
        found[title] = versions.get(name) if isinstance(versions, dict) else None
    return {title: str(value) for title, value in found.items() if value is not None}


def _surroundings(client: AgentClient) -> Message:
    try:
        return client.ask("surroundings", timeout_s=ASK_BOUND_S)
    except PrismError:  # an older rank, or one that is gone: nothing is said of it
        return {}


def _texts(answer: object) -> dict[str, str]:
    return {str(title): str(value) for title, value in answer.items()} if isinstance(answer, dict) else {}


def _names(rank: Mapping[str, Any], name: str) -> tuple[str, ...]:
    found = rank.get(name)
    return tuple(str(word) for word in found) if isinstance(found, list) else ()


def _text(capsule: Capsule, file: RankFile) -> str:
    try:
        return read_text(capsule, file)
    except OSError:
        return ""
