"""A sweep as a table, and what may be concluded from it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from prismdbg.model.durations import four_digits
from prismdbg.model.plurals import counted
from prismdbg.model.sizes import size
from prismdbg.render.fitting import cut_words
from prismdbg.sweep.result import Interval, Result, State, fastest, pareto
from prismdbg.sweep.search import Regret

HEADER = (
    "configuration", "mesh", "iteration", "interval", "idle", "exposed", "messages", "peak", "fits", "tokens/s",
    "recomputed", "note",
)  # fmt: skip
PREDICTED = (
    "the interval of a predicted time is {error:.1%} on each side, the largest error against measured iterations"
)
NOT_KNOWN = (
    "a predicted time has an interval only where such iterations were measured (GPTs with unfused attention on A100, "
    "hidden 6,144 to 25,600, sequence 2,048, tp=8, no dp, recomputation): the error of others is unknown"
)
NO_ENERGY = "energy: not available, no sensor of this machine counts it (`prismdbg telemetry RUN` says why)"
_MOST_NAMES = 3
_NUMBER = re.compile(r"(?<![\w.=-])\d+(?:,\d{3})*(?:\.\d+)?")  # none in a name
NUMBERS = ("iteration", "idle", "exposed", "messages", "peak", "tokens/s", "recomputed")
_DROPPED_FIRST = ("mesh", "messages", "recomputed", "tokens/s", "idle", "exposed", "fits", "interval", "peak")
_NO_VALUE = ("-", "not traced")
_LEAST_NOTE = 24  # columns
_EDGE = 2  # columns between two columns of a table


@dataclass(frozen=True, slots=True)
class Table:
    """`left_out`: the columns for which there was no room. notes: those that were shortened, in full."""

    header: tuple[str, ...]
    rows: list[tuple[str, ...]]
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def fitted(rows: Sequence[tuple[str, ...]], room: int) -> Table:
    """`room`: columns of the terminal. Where not all fit, columns without any value are left out first, then those of
    least use. The note gets what the others leave."""
    place = {name: number for number, name in enumerate(HEADER)}
    widths = {name: max([len(name), *(len(row[at]) for row in rows)]) for name, at in place.items()}
    note = widths.pop("note")
    dropped = sorted(_DROPPED_FIRST, key=lambda name: any(row[place[name]] not in _NO_VALUE for row in rows))
    left_out: list[str] = []
    while dropped and sum(widths.values()) + _EDGE * len(widths) + min(note, _LEAST_NOTE) > room:
        left_out.append(dropped.pop(0))
        del widths[left_out[-1]]
    note = max(room - sum(widths.values()) - _EDGE * len(widths), _LEAST_NOTE)
    shown = [(*(row[place[name]] for name in widths), cut_words(row[-1], note)) for row in rows]
    shortened = tuple(f"{row[0]}: {row[-1]}" for row in rows if len(row[-1]) > note)
    return Table((*widths, HEADER[-1]), shown, tuple(name for name in HEADER if name in left_out), shortened)


def rows(results: Sequence[Result], cap_bytes: int) -> list[tuple[str, ...]]:
    """The fastest first, then those that have no time. The last column has `*` for each that no other is better than in
    time and memory, or why there is no time; where several have one reason, the first one has it."""
    best = {result.name for result in pareto(results)}
    done = sorted((each for each in results if each.state is State.DONE), key=lambda each: each.time.middle)
    found = [_row(each, "*" if each.name in best else "", cap_bytes) for each in done]
    first: dict[tuple[State, str], str] = {}
    for each in results:
        if each.state is not State.DONE:
            of_it = first.setdefault((each.state, each.why), each.name)
            found.append(_without(each, each.why if of_it == each.name else f"as {of_it}"))
    return found


def _row(result: Result, mark: str, cap_bytes: int) -> tuple[str, ...]:
    time, fits = result.time, result.fits(cap_bytes)
    return (
        result.name,
        result.mesh,
        four_digits(time.middle),
        interval(time),
        idle(result),
        exposed(result),
        messages(result),
        "not traced" if result.peak_bytes is None else size(result.peak_bytes),
        "-" if fits is None else "yes" if fits else "no",
        f"{result.tokens_per_s:,.0f}" if result.tokens else "-",
        recomputed(result),
        mark,
    )


def _without(result: Result, why: str) -> tuple[str, ...]:
    return (result.name, result.mesh, *("-" for _ in HEADER[2:-1]), f"{result.state}: {why}")


def interval(time: Interval) -> str:
    return f"{four_digits(time.low)} to {four_digits(time.high)}" if time.is_known else "-"


def idle(result: Result) -> str:
    return "-" if result.idle_share is None else f"{result.idle_share:.1%}"


def exposed(result: Result) -> str:
    """`dp 3.1%, tp 12.0%`: the largest first; what rounds to nothing is left out."""
    if result.idle_share is None:
        return "-"
    shares = sorted(result.exposed.items(), key=lambda item: -item[1])
    return ", ".join(f"{axis} {share:.1%}" for axis, share in shares if share >= 0.0005) or "0.0%"


def recomputed(result: Result) -> str:
    return "-" if result.recomputed is None else f"{result.recomputed:.1%}"


def messages(result: Result) -> str:
    """`dp 1.2 MiB 61%`: of an axis the mean size, and the share of the links' rate where that is known."""
    sizes = sorted(result.message_bytes.items(), key=lambda item: -item[1])
    shares = {axis: f" {share:.0%}" for axis, share in result.link_share.items()}
    return ", ".join(f"{axis} {size(round(mean))}{shares.get(axis, '')}" for axis, mean in sizes) or "-"


def certainty(results: Sequence[Result], error: float) -> list[str]:
    """What the intervals of predictions are."""
    known = {each.time.is_known for each in results if each.state is State.DONE and each.is_predicted}
    return [PREDICTED.format(error=error) if is_known else NOT_KNOWN for is_known in sorted(known, reverse=True)]


def energy(results: Sequence[Result]) -> list[str]:
    """Of those whose sensors told something."""
    return [
        f"energy of {each.name}: {'not available' if each.joules is None else f'{each.joules:.1f} J per iteration'}"
        + ("" if each.peak_watts is None else f", at most {each.peak_watts:.0f} W of a device")
        for each in results
        if each.joules is not None or each.peak_watts is not None
    ]


def regret(of: Regret) -> str:
    """What a search can have missed."""
    return (
        f"the fastest configuration takes at most {of.most:.1%} longer than any that was left out, if predictions for "
        f"these are as accurate as for those that ran ({of.least:.2f} to {of.greatest:.2f} times the predicted time)"
    )


def conclusion(results: Sequence[Result], cap_bytes: int) -> list[str]:
    """Who is fastest, as far as that can be said."""
    first = fastest(results, cap_bytes)
    if not first:
        return ["no configuration has a time that fits" if cap_bytes else "no configuration has a time"]
    best, *others = first
    if not others:
        return [f"fastest: {best.name}, {four_digits(best.time.middle)} per iteration"]
    names = ", ".join(each.name for each in others)
    unknown = [each for each in first if not each.time.is_known]
    if guessed := [each.name for each in unknown if each.is_predicted]:
        return [
            f"no winner: {best.name} has the shortest time, but the error of the predicted times is unknown: "
            f"{_some(guessed)}; emulate or record the best of them (--search)"
        ]
    if single := [each.name for each in unknown]:
        return [
            f"no winner: {best.name} has the shortest time, but a single step has no interval: {_some(single)}; "
            "measure more steps (--steps, or the program's own)"
        ]
    lines = [
        f"no winner: {best.name} has the shortest time, and the intervals of "
        f"{counted(len(others), 'other configuration')} overlap with its interval: {names}"
    ]
    return lines


def worth(results: Sequence[Result], cap_bytes: int) -> list[str]:
    """What the times of the fastest rest on."""
    said = [(each.name, each.worth) for each in fastest(results, cap_bytes) if each.worth]
    return [f"fidelity of {_some(names)}: {text}" for text, names in _once(said).items()]


def doubts(results: Sequence[Result], cap_bytes: int) -> list[str]:
    """What is not reliable of the fastest. Of which of them, unless it is so of all."""
    first = fastest(results, cap_bytes)
    found = _once([(each.name, doubt) for each in first for doubt in each.doubts])
    return [
        f"not reliable{'' if len(names) == len(first) else f' for {_some(names)}'}: {text}"
        for text, names in found.items()
    ]


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {counted(rest, 'other')}" if rest > 0 else "")


def _once(said: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    """The names of whom a text is said, by text. Texts in which only numbers differ become one text."""
    alike: dict[str, list[tuple[str, str]]] = {}
    for name, text in said:
        alike.setdefault(_NUMBER.sub("0", text), []).append((name, text))
    return {
        _with_ranges([text for _, text in of_form]): list(dict.fromkeys(name for name, _ in of_form))
        for of_form in alike.values()
    }


def _with_ranges(texts: Sequence[str]) -> str:
    """`times of 3 to 12 shapes`, of texts in which only numbers differ."""
    numbers = iter(zip(*(_NUMBER.findall(text) for text in texts), strict=True))
    return _NUMBER.sub(lambda _: _range(next(numbers)), texts[0])


def _range(numbers: Sequence[str]) -> str:
    ordered = sorted(set(numbers), key=lambda number: float(number.replace(",", "")))
    return ordered[0] if len(ordered) == 1 else f"{ordered[0]} to {ordered[-1]}"
