"""What a fast search misses: its choice against the emulation of all 12 configurations of `sweeps`, in one folder."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.jobs import RANKS, prismdbg, run
from tests.bench.sections.sweeps import PROGRAM, by_name, cluster_in, folder_of, said_of, swept_by_emulation
from tests.bench.settings import Settings
from tests.bench.spread import kendall
from tests.bench.table import Measured, Row

TITLE = "A fast search of configurations"
MODEL = "examples/sweep/gpt.yaml --batch 16 --microbatch {mbs} --recompute {rc}"
GOAL = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """By configuration: milliseconds emulated, of all and of those that the search ran, and predicted. stated: by the
    search, in percent. factors: real by predicted, of what it ran."""

    emulated: Mapping[str, float]
    ran: Mapping[str, float]
    predicted: Mapping[str, float]
    stated: float
    factors: tuple[float, float]

    @property
    def regret(self) -> float:
        """In percent: how much longer the best that ran takes than the best of all."""
        return 100 * (min(self.ran.values()) / min(self.emulated.values()) - 1)


def measure(settings: Settings, folder: Path) -> Measured:
    kept = folder_of(settings, folder)
    ops = kept / "ops"
    if not ops.exists():
        job = [sys.executable, PROGRAM, "--microbatch", 4, "--steps", 3]
        sampling = ["-o", ops, "--mesh", f"dp={RANKS}", "--budget", f"{settings.search_budget_s:g}s"]
        run(prismdbg("sample", *sampling, "--", *job), kept / "sample.txt")
    emulated = by_name(swept_by_emulation(settings, kept)["results"])
    found = swept_by_emulation(settings, kept, "--ops", ops, "--search", MODEL)
    words = ["--ops", ops, "--cluster", cluster_in(kept), "--", *MODEL.split()]
    predicted = said_of("predict", words, kept / "predict.txt")
    return _measured(
        Searched(
            emulated=_milliseconds(emulated),
            ran=_milliseconds(by_name(found["results"])),
            predicted=_milliseconds(by_name(predicted["results"])),
            stated=100 * found["regret"]["most"],
            factors=(found["regret"]["least"], found["regret"]["greatest"]),
        )
    )


def _milliseconds(results: Mapping[str, dict[str, Any]]) -> dict[str, float]:
    return {name: each["middle_ns"] / 1e6 for name, each in results.items()}


def _measured(found: Searched) -> Measured:
    chosen = min(found.ran, key=found.ran.__getitem__)
    best = min(found.emulated, key=found.emulated.__getitem__)
    return Measured(
        rows=[
            Row(
                what="regret of the search",
                against="the sweep of all",
                values=[found.regret],
                unit="%",
                digits=2,
                goal=GOAL,
            ),
            Row(what="regret that the search states", values=[found.stated], unit="%", digits=2),
            Row(
                what="1 - Kendall's tau of predicted times",
                against="emulated",
                values=[1 - kendall(found.predicted, found.emulated)],
                unit="",
                digits=3,
            ),
        ],
        notes=[
            f"`--search '{MODEL}'` ran {len(found.ran)} of {len(found.emulated)} configurations of `{PROGRAM}`. "
            f"Chosen: {chosen}. Fastest of all that were emulated: {best}.",
            f"What it ran took {found.factors[0]:.2f} to {found.factors[1]:.2f} times the predicted time.",
            *(
                f"{name}: predicted {found.predicted[name]:.0f} ms, emulated {found.emulated[name]:.0f} ms"
                + (", run by the search" if name in found.ran else "")
                for name in sorted(found.emulated, key=found.emulated.__getitem__)
            ),
        ],
    )
