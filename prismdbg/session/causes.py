"""Why a replay may differ from its record, as far as that can be checked: a pure function over what is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from prismdbg.session.source_calls import Kind, SourceCall

SHOWN = 4
NAMED = 50  # of the files that differ, in a note
_POSSIBLE = "possible: "


class Unhidden(NamedTuple):
    """What a replay may see although it was not there, or was different, when the recorded rank began.

    unsearched: folders with too many entries to search all of them. undated: files that were created since,
    but whose time of modification is older, as a copy that keeps the time has it. younger: what was created or changed
    since and is not hidden. differing: a sentence on each recorded file in whose place the program got another one.
    """

    unsearched: tuple[str, ...] = ()
    undated: tuple[str, ...] = ()
    younger: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()


ALL_HIDDEN = Unhidden()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a replay that diverged.

    values_only: the call is the recorded one, what it sends is not. changed_files: written to after the rank had read
    them. gone_files: opened by the rank, and not there when the capsule was made. unhidden: what the replay may see
    although it is younger than its start. missing: names of what was taken out of the capsule. recorded, now: what the
    rank ran on, by title. unknown_seeds: random generators of which the capsule does not hold what they began with.
    calls: in the program's source. has_root_of_seeds: the capsule has what generators without a seed follow from;
    has_clock_reads: it has what the program reads from clocks; times_not_recorded: except in these places. has_dates:
    clocks of `datetime` are among them. from_state: it begins at a restore point; unregistered: what the program holds
    there and did not register; synthesized_before: calls before it that had no recorded answer.
    """

    values_only: bool = False
    from_start: bool = False
    from_state: bool = False
    unregistered: tuple[str, ...] = ()
    synthesized_before: tuple[str, ...] = ()
    changed_files: tuple[str, ...] = ()
    gone_files: tuple[str, ...] = ()
    unhidden: Unhidden = ALL_HIDDEN
    missing: tuple[str, ...] = ()
    recorded: Mapping[str, str] = field(default_factory=dict)
    now: Mapping[str, str] = field(default_factory=dict)
    unknown_seeds: tuple[str, ...] = ()
    calls: tuple[SourceCall, ...] = ()
    has_root_of_seeds: bool = False
    has_clock_reads: bool = False
    has_dates: bool = False
    times_not_recorded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Causes:
    """`found`: a sentence each. `not_found`: what was looked for without a result."""

    found: tuple[str, ...]
    not_found: tuple[str, ...]


def likely_causes(facts: Facts) -> Causes:
    """What is certain before what is possible, and of that what few programs have before what most have."""
    looked_for = {
        **({"unregistered state": tuple(_state(facts))} if facts.from_state else {}),
        "changed files": tuple(_files(facts)),
        "another environment": tuple(_environment(facts)),
        "uninitialized memory": tuple(_memory(facts)),
        "unseeded random numbers": tuple(_random(facts)),
        "files that were checked but not read": tuple(_asked(facts)),
        "the current time": tuple(_time(facts)),
    }
    found = (text for texts in looked_for.values() for text in texts)
    return Causes(
        found=tuple(sorted(found, key=lambda text: text.startswith(_POSSIBLE))),
        not_found=tuple(name for name, texts in looked_for.items() if not texts),
    )


def _state(facts: Facts) -> Iterator[str]:
    if facts.unregistered:
        yield f"{_POSSIBLE}state that was not registered: {_some(facts.unregistered)}"
    if facts.synthesized_before:
        yield f"answers before the restore point were synthesized: {_some(facts.synthesized_before)}"


def _files(facts: Facts) -> Iterator[str]:
    if facts.changed_files:
        yield f"files were changed after the rank read them: {_some(facts.changed_files)}"
    if facts.gone_files:
        yield (
            f"{_POSSIBLE}the program opened files that did not exist at the capture, so a replay lacks "
            f"them: {_some(facts.gone_files)}"
        )
    if differing := facts.unhidden.differing:
        yield f"the program ran on files that differ from the recorded ones: {_some(differing)}"
    yield from (f"{_POSSIBLE}{text}" for text in _younger(facts.unhidden))
    if undated := facts.unhidden.undated:
        yield f"{_POSSIBLE}files were created after the start moment, but have an older time: {_some(undated)}"


def _asked(facts: Facts) -> Iterator[str]:
    if facts.from_start and (calls := _of(facts, Kind.FILE)):
        yield (
            f"{_POSSIBLE}the program checks for files that it did not read, so they are not in the capsule: "
            f"{_some(calls)}"
        )


def not_hidden(unhidden: Unhidden) -> tuple[str, ...]:
    """A sentence where a replay runs on other files than the recorded ones, and where it may see files that nobody
    looked at. An undated file is one only once a replay differs: most were changed by name or mode alone."""
    texts = [*_younger(unhidden)]
    if differing := unhidden.differing:
        what = "the replay runs with this machine's files, of which these differ from the recorded ones"
        texts.insert(0, f"{what}: {_some(differing, NAMED)}")
    return tuple(texts)


def _younger(unhidden: Unhidden) -> Iterator[str]:
    if younger := unhidden.younger:
        yield f"the replay sees files that were created or changed after the start moment: {_some(younger)}"
    if folders := unhidden.unsearched:
        what = "the replay may see files that were created or changed after the start moment"
        yield f"{what}: too many entries to check in {_some(folders)}"


def _environment(facts: Facts) -> Iterator[str]:
    for title, recorded in facts.recorded.items():
        now = facts.now.get(title, recorded)
        if now != recorded:
            yield f"the {title} was {recorded} in the recorded run and is {now} in the replay"
    if facts.missing:
        yield f"removed from the capsule, so the program runs without it: {_some(facts.missing)}"


def _random(facts: Facts) -> Iterator[str]:
    if facts.from_start and facts.unknown_seeds:
        yield (
            f"{_POSSIBLE}the capsule lacks the start state of the random generators of "
            f"{_some(facts.unknown_seeds)}; a program that does not seed them draws other numbers"
        )
    unseeded = () if facts.has_root_of_seeds else _of(facts, Kind.UNSEEDED)
    if facts.from_start and (calls := (*unseeded, *_of(facts, Kind.ENTROPY))):
        yield f"{_POSSIBLE}the program draws random numbers that no replay can repeat: {_some(calls)}"


def _time(facts: Facts) -> Iterator[str]:
    clocks = () if facts.has_clock_reads else _of(facts, Kind.CLOCK)
    dates = () if facts.has_clock_reads and facts.has_dates else _of(facts, Kind.DATE)
    if calls := (*facts.times_not_recorded, *clocks, *dates):
        yield f"{_POSSIBLE}the program reads the time, which is not recorded there: {_some(calls)}"


def _memory(facts: Facts) -> Iterator[str]:
    """Only values can come from it: what is called does not depend on memory that nobody wrote."""
    if facts.values_only and (calls := _of(facts, Kind.MEMORY)):
        yield f"{_POSSIBLE}a tensor is sent before all of it is written: {_some(calls)}; record --zero-memory fills it"


def _of(facts: Facts, kind: Kind) -> tuple[str, ...]:
    return tuple(str(call) for call in facts.calls if call.kind is kind)


def _some(words: Sequence[str], shown: int = SHOWN) -> str:
    more = len(words) - shown
    return ", ".join(words[:shown]) + (f" and {more} more" if more > 0 else "")
