"""`prismdbg sample`: times of the operators that one emulated rank calls, each of them alone, on a grid of sizes."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from prismdbg.checkpoint.bounded import run_bounded
from prismdbg.emulate.emulate import emulate
from prismdbg.emulate.request import EmulateRequest
from prismdbg.errors import FacilityError, RankLost, UsageError
from prismdbg.jobs.capture.capture import Say
from prismdbg.model.plurals import counted
from prismdbg.predict.samples.operator_call import OperatorCall, grid
from prismdbg.predict.samples.sample_folder import write_file
from prismdbg.predict.samples.samples import Phase, Samples

STEPS = 2  # start-up belongs to the first one
_PROGRAM = "prismdbg.rank.operator_timing"
_MARGIN_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """`measured`: of `wanted` calls, of which `called` are the program's own. left_out: how many, by reason.

    emulated_s, timed_s: how long the rank ran, and how long operators were timed, which the budget limits."""

    wanted: int
    called: int
    measured: int
    operators: int
    left_out: dict[str, int]
    emulated_s: float
    timed_s: float


def operator_calls(request: EmulateRequest, say: Say) -> tuple[list[OperatorCall], int]:
    """What the rank calls in its last step, and how many threads it computes with."""
    with tempfile.TemporaryDirectory(prefix="prismdbg-sample-") as folder:
        shapes = Path(folder) / "calls.json"
        run = replace(request, output=Path(folder) / "run", steps=STEPS, shapes=shapes, verbose=True)
        try:
            emulate(run, say)
        except RankLost as error:  # its hint leads to what is removed here
            hint = "see its output above; prismdbg emulate of the same program keeps what you can step through"
            raise RankLost(str(error), hint=hint) from None
        if not shapes.exists():
            raise UsageError(
                "the program ended before its first step, so no operators are known",
                hint="check that it calls optimizer.step(), or prismdbg.step(n)",
            )
        found = json.loads(shapes.read_text())
    calls = [OperatorCall(described=call, count=call.pop("count")) for call in found["calls"]]
    return [call for call in calls if not call.is_empty], int(found["threads"])


def sample(
    request: EmulateRequest,
    output: Path,
    budget_s: float,
    say: Say,
    looked_on: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Sampled:
    """Fills `output`, an existing folder, with a CSV file for each operator. `looked_on`: around the timing, which
    prints nothing itself, so that it is shown how far it is."""
    began = time.monotonic()
    calls, threads = operator_calls(request, say)
    say(f"{counted(len(calls), 'distinct call')} of operators in a step; timing each alone, for {budget_s:g} s at most")
    wanted = [*sorted(calls, key=_weight), *grid(sorted(calls, key=_weight))]
    wanted = list({json.dumps(call.described, sort_keys=True): call for call in reversed(wanted)}.values())[::-1]
    timing_began = time.monotonic()
    with looked_on():
        rows = timed(wanted, threads, budget_s)
    timed_s = time.monotonic() - timing_began
    measured = [(call, row["ns"]) for call, row in zip(wanted, rows, strict=True) if "ns" in row]
    operators = write(measured, output)
    return Sampled(
        wanted=len(wanted),
        called=len(calls),
        measured=len(measured),
        operators=operators,
        left_out=dict(Counter(row["left_out"] for row in rows if "left_out" in row).most_common()),
        emulated_s=timing_began - began,
        timed_s=timed_s,
    )


def timed(calls: Sequence[OperatorCall], threads: int, budget_s: float) -> list[dict[str, Any]]:
    """`ns` or `left_out` for each."""
    with tempfile.TemporaryDirectory(prefix="prismdbg-sample-") as folder:
        plan, result = Path(folder) / "plan.json", Path(folder) / "result.json"
        described = [dict(call.described) for call in calls]
        plan.write_text(json.dumps({"threads": threads, "budget_s": budget_s, "calls": described}))
        ended = run_bounded(
            [sys.executable, "-m", _PROGRAM, str(plan), str(result)],
            timeout_s=budget_s + _MARGIN_S,
            what="the process that times operators",
            doing=f"timing up to {len(calls):,} shapes of operators, for {budget_s:g} s at most",
        )
        if ended.returncode or not result.exists():
            said = (ended.output.strip().splitlines() or ["it printed nothing"])[-1]
            raise FacilityError(
                f"the process that times operators ended with code {ended.returncode}: {said[:200]}",
                hint="check that torch works in this environment",
            )
        rows: list[dict[str, Any]] = json.loads(result.read_text())["rows"]
    return rows


def write(measured: Sequence[tuple[OperatorCall, float]], output: Path) -> int:
    """How many operators there are. Calls of one operator with equal columns are one shape: their mean."""
    by_operator: dict[str, dict[tuple[tuple[str, float], ...], list[float]]] = defaultdict(lambda: defaultdict(list))
    for call, time_ns in measured:
        by_operator[call.operator][tuple(call.columns.items())].append(time_ns)
    for operator, shapes in by_operator.items():
        names = [name for name, _ in next(iter(shapes))]
        table = np.array([[size for _, size in shape] for shape in shapes], dtype=np.float64)
        samples = Samples(
            operator=operator,
            columns=dict(zip(names, table.T, strict=True)),
            times_ns={Phase.WHOLE: np.array([float(np.mean(times)) for times in shapes.values()])},
        )
        write_file(output / f"{operator}.csv", samples)
    return len(by_operator)


def _weight(call: OperatorCall) -> float:
    """Those that probably take longest come first."""
    columns = call.columns
    work = columns["items"] if "items" in columns else prod(columns.values()) / 16
    return -work * call.count
