"""A fast search: all configurations are predicted, and only those that seem best are run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from prismdbg.errors import UsageError
from prismdbg.jobs.capture.capture import Say
from prismdbg.model.durations import four_digits
from prismdbg.sweep.predictor import Predictor
from prismdbg.sweep.request import SweepRequest
from prismdbg.sweep.result import Result, State
from prismdbg.sweep.sweep import sweep, sweep_of_predictions

_PART = 4  # one of so many is run
_FEWEST = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Regret:
    """`most`: how much longer the fastest that ran and fits may take than the best that was left out, if predictions of
    these are off by no more than those of what ran: the real time was `least` to `greatest` times the predicted one."""

    most: float
    least: float
    greatest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """`line`: what `prismdbg predict` takes for one configuration, with `{name}`s. keep: so many are run; 0 for a
    quarter of them, and two at least."""

    line: str
    keep: int = 0
    cap_bytes: int = 0

    def words(self) -> tuple[str, ...]:
        try:
            return tuple(shlex.split(self.line))
        except ValueError as error:
            raise UsageError(
                f"--search {self.line!r} cannot be split into words: {error}", hint="close the quotes"
            ) from error


def search(request: SweepRequest, asked: Search, predictor: Predictor, say: Say) -> tuple[list[Result], Regret | None]:
    """One result for each configuration; those that were predicted and did not run are left out. `UsageError` where
    none can be chosen."""
    predicted = sweep_of_predictions(replace(request, command=asked.words()), predictor, say)
    chosen = best(predicted, asked.keep, asked.cap_bytes)
    if not chosen:
        why = next((each.why for each in predicted if each.why), "none fits into --memory-cap")
        raise UsageError(
            f"no configuration can be chosen: {why}",
            hint="give other values with --try, --search, --ops or --memory-cap",
        )
    say(f"{len(chosen)} of {len(predicted)} configurations are run: those with the shortest predicted times")
    ran = sweep(request, say, only={each.name for each in chosen})
    known = {each.name: each for each in ran}
    results = [known.get(each.name) or left_out(each, asked.cap_bytes) for each in predicted]
    return results, regret(results, predicted, asked.cap_bytes)


def best(predicted: Sequence[Result], keep: int, cap_bytes: int) -> list[Result]:
    """The fastest of those that fit."""
    able = [each for each in predicted if each.state is State.DONE and each.fits(cap_bytes) is not False]
    count = keep or max(-(-len(able) // _PART), _FEWEST)
    return sorted(able, key=lambda each: each.time.middle)[:count]


def left_out(predicted: Result, cap_bytes: int) -> Result:
    """What is impossible stays so."""
    if predicted.state is not State.DONE:
        return predicted
    more = ", and it does not fit" if predicted.fits(cap_bytes) is False else ""
    why = f"predicted {four_digits(predicted.middle_ns)}{more}"
    return Result(name=predicted.name, values=predicted.values, state=State.LEFT_OUT, mesh=predicted.mesh, why=why)


def regret(results: Sequence[Result], predicted: Sequence[Result], cap_bytes: int = 0) -> Regret | None:
    """None where nothing that fits ran, or nothing that fits was left out."""
    told = {each.name: each.middle_ns for each in predicted if each.fits(cap_bytes) is not False}
    done = [each for each in results if each.state is State.DONE and each.name in told]
    rest = [told[each.name] for each in results if each.state is State.LEFT_OUT and each.name in told]
    fitting_ns = [each.middle_ns for each in done if each.fits(cap_bytes) is not False]
    if not (fitting_ns and rest):
        return None
    factors = [each.middle_ns / told[each.name] for each in done]
    most = max(min(fitting_ns) / (min(rest) * min(factors)) - 1, 0.0)
    return Regret(most=most, least=min(factors), greatest=max(factors))
