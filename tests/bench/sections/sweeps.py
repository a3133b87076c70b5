"""Whether a sweep by emulation orders configurations as they really are: 12 of them on two ranks of this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.jobs import PROGRAMS, RANKS, prismdbg, run, torchrun
from tests.bench.settings import Settings
from tests.bench.spread import kendall, quantile
from tests.bench.table import Measured, Row

TITLE = "Configurations compared"
TRIED = ("pp=1,2", "tp=1,2", "mbs=1,4", "rc=none,full")
PROGRAM = "examples/sweep/train.py"
TAU_GOAL, REGRET_GOAL = 0.8, 3.0
LEAST_LOADED = 0.1  # quantile of the steps: other programs make steps longer, never shorter


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """By configuration: milliseconds emulated, of each real step, and as `sweep --how record` says; bytes emulated and
    recorded."""

    emulated: Mapping[str, float]
    steps: Mapping[str, Sequence[float]]
    recorded: Mapping[str, float]
    bytes_emulated: Mapping[str, int]
    bytes_recorded: Mapping[str, int]

    @property
    def real(self) -> dict[str, float]:
        return {name: quantile(steps, LEAST_LOADED) for name, steps in self.steps.items()}

    def half(self, first: int) -> dict[str, float]:
        """Of every second round."""
        return {name: quantile(steps[first::2], LEAST_LOADED) for name, steps in self.steps.items()}

    @property
    def chosen(self) -> str:
        return min(self.emulated, key=self.emulated.__getitem__)

    @property
    def regret(self) -> float:
        """In percent: how much longer the chosen one really takes than the one that is really fastest."""
        return 100 * (self.real[self.chosen] / min(self.real.values()) - 1)


def measure(settings: Settings, folder: Path) -> Measured:
    kept = folder_of(settings, folder)
    emulated = by_name(swept_by_emulation(settings, kept)["results"])
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "{world}"]
    recorded = by_name(_sweep("record", launcher, settings, kept)["results"])
    steps = _interleaved(list(emulated), settings, folder)
    found = Compared(
        emulated={name: each["middle_ns"] / 1e6 for name, each in emulated.items()},
        steps=steps,
        recorded={name: each["middle_ns"] / 1e6 for name, each in recorded.items()},
        bytes_emulated={name: each["peak_bytes"] for name, each in emulated.items()},
        bytes_recorded={name: each["peak_bytes"] for name, each in recorded.items()},
    )
    return Measured(rows=_rows(found), notes=_notes(found))


def folder_of(settings: Settings, folder: Path) -> Path:
    """Where sweeps are kept, with a calibrated cluster file."""
    kept = settings.kept_sweeps or folder
    kept.mkdir(parents=True, exist_ok=True)
    if not cluster_in(kept).exists():
        run(prismdbg("calibrate", "-o", cluster_in(kept), "--ranks", RANKS), kept / "calibrate.txt")
    return kept


def swept_by_emulation(settings: Settings, kept: Path, *options: object) -> dict[str, Any]:
    """What the command says as JSON."""
    known = ["--cluster", cluster_in(kept), "--steps", 6, "--jobs", 1]
    return _sweep("emulate", [sys.executable], settings, kept, *known, *options)


def by_name(results: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Those that have a time."""
    return {each["name"]: each for each in results if each["state"] == "done"}


def cluster_in(kept: Path) -> Path:
    return kept / "cluster.yaml"


def _sweep(how: str, launcher: Sequence[str], settings: Settings, kept: Path, *options: object) -> dict[str, Any]:
    """What it says. In a folder of an earlier start nothing runs again."""
    job = [*launcher, PROGRAM, *["--pp", "{pp}", "--tp", "{tp}", "--microbatch", "{mbs}", "--recompute", "{rc}"]]
    more = ["-o", kept / how, "--memory", *options, "--", *job, "--steps", settings.sweep_steps]
    return said_of(how, more, kept / f"{how}.txt")


def said_of(how: str, words: Sequence[object], output: Path) -> dict[str, Any]:
    """What `sweep --how` says of the 12 configurations."""
    tried = [word for each in TRIED for word in ("--try", each)]
    asked = ["--world", RANKS, "--mesh", "pp,dp,tp", *tried, "--how", how, "--json"]
    said = run(prismdbg("sweep", *asked, *words), output)
    values, _ = json.JSONDecoder().raw_decode(said[("\n" + said).index("\n{") :])
    return dict(values)


def _interleaved(names: Sequence[str], settings: Settings, folder: Path) -> dict[str, list[float]]:
    """Milliseconds."""
    out = folder / "steps.json"
    words = [settings.sweep_rounds, settings.sweep_bound_s, out, *names]
    run(torchrun(RANKS, PROGRAMS / "swept_steps.py", *words), folder / "steps.txt")
    return {name: [1e3 * each for each in taken] for name, taken in json.loads(out.read_text()).items()}


def _rows(found: Compared) -> list[Row]:
    odd, even = found.half(1), found.half(0)
    differences = [abs(found.bytes_emulated[name] - found.bytes_recorded[name]) for name in found.emulated]
    return [
        _one("1 - Kendall's tau of emulated times", 1 - kendall(found.emulated, found.real), "", 1 - TAU_GOAL),
        _one("1 - Kendall's tau of every second real step", 1 - kendall(odd, even), "", None, "the other steps"),
        _one("regret of the fastest emulated one", found.regret, "%", REGRET_GOAL),
        Row(
            what="peak memory, largest difference",
            against="recorded",
            values=[max(differences)],
            unit="B",
            digits=0,
            goal=0,
        ),
    ]


def _one(what: str, value: float, unit: str, goal: float | None, against: str = "real") -> Row:
    return Row(what=what, values=[value], unit=unit, digits=3, goal=goal, against=against)


def _notes(found: Compared) -> list[str]:
    real = found.real
    odd, even = found.half(1), found.half(0)
    noise = median(100 * abs(odd[name] / even[name] - 1) for name in real)
    said = [
        f"{name}: emulated {found.emulated[name]:.0f} ms, real {real[name]:.0f} ms (median step "
        f"{median(found.steps[name]):.0f} ms), recorded by `sweep --how record` {found.recorded[name]:.0f} ms; peak "
        f"memory {found.bytes_emulated[name]:,} B, {found.bytes_emulated[name] - found.bytes_recorded[name]:+,} B"
        for name in sorted(real, key=real.__getitem__)
    ]
    equal = sum(found.bytes_emulated[name] == found.bytes_recorded[name] for name in real)
    rounds = len(next(iter(found.steps.values())))
    return [
        f"`{PROGRAM}`, batch 16 on {RANKS} ranks over gloo, one thread a rank. Real: the "
        f"{LEAST_LOADED:.0%} quantile of {rounds} steps of each, taken in turn in one job: other programs make steps "
        f"longer and never shorter. Every second step against the others: median difference {noise:.1f} %.",
        f"Peak memory is the same to the byte in {equal} of {len(real)}.",
        f"Chosen: {found.chosen}. Really fastest: {min(real, key=real.__getitem__)}. Against the median real steps tau "
        f"is {kendall(found.emulated, {name: median(steps) for name, steps in found.steps.items()}):.2f}, against one "
        f"`sweep --how record` {kendall(found.emulated, found.recorded):.2f}.",
        *said,
    ]
