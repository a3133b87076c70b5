"""Whether `why` names why a rank was late, and what the sampler costs: a job of four ranks, made late on purpose."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.lateness.cause import LateCause, Why
from prismdbg.diagnosis.lateness.delays import Delay
from prismdbg.diagnosis.lateness.stragglers import Straggler
from prismdbg.diagnosis.why import diagnose
from prismdbg.jobs.evidence import gather
from prismdbg.telemetry.sensor import CPU_TIME, SAMPLER
from tests import c_library, fake_nvml
from tests.bench.jobs import PROGRAMS, BenchError, recorded, remove_run, run, torchrun
from tests.bench.settings import Settings
from tests.bench.table import Measured, Row

TITLE = "Telemetry: why a rank was late"
RANKS, LATE_RANK = 4, 3
PERIOD_US = 10_000
PERIOD_MS = 50.0  # of the sampler
BEGIN = 3  # of so many parts of the steps the first is without delay
PRIORITY = -15  # the rest of the machine is to be no cause
_GROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    title: str
    late: str
    expected: Why | None
    has_devices: bool = False
    at_cap: bool = False  # the last rank's device all the time, which computes little


SCENARIOS = (
    Scenario(title="a CPU quota of 50 %", late="group", expected=Why.QUOTA),
    Scenario(title="two competing processes", late="burner", expected=Why.RUN_QUEUE),
    Scenario(title="slower code", late="code", expected=Why.COMPUTES),
    Scenario(title="a GPU that is hot (FAKE, scripted)", late="hot", expected=Why.GPU_THERMAL, has_devices=True),
    Scenario(title="a pause in the program", late="pause", expected=Why.ASLEEP),
    Scenario(
        title="a pause, its GPU at its power cap (FAKE, scripted)", late="pause", expected=Why.ASLEEP, at_cap=True
    ),
    Scenario(title="nothing: the clean job", late="no", expected=None),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """late: the ranks that `why` found late, with the cause that it named, if any. held_s: how long the quota held the
    last rank, by the kernel, where there is one. onset_ms: between when the rank began to be late, by its program, and
    where `why` says that its delay begins; None where it says nothing of that."""

    late: Sequence[tuple[int, LateCause | None]]
    seconds: float
    sampler_share: float
    held_s: float = 0.0
    onset_ms: float | None = None

    def named(self) -> list[tuple[int, Why]]:
        return [(rank, cause.why) for rank, cause in self.late if cause is not None and cause.why.is_named]

    def say(self) -> str:
        said = [f"rank {rank}: {'no cause' if cause is None else cause.why}" for rank, cause in self.late]
        return ", ".join(said) or "no rank late"


def measure(settings: Settings, folder: Path) -> Measured:
    library = fake_nvml.build(folder / "library") if c_library.compiler() else None
    notes: list[str] = []
    outcomes: dict[str, list[Outcome]] = {scenario.title: [] for scenario in SCENARIOS}
    bare_s: list[float] = []
    for number in range(settings.late_runs):  # in turns, so that all meet the same machine
        for scenario in SCENARIOS:
            if (scenario.has_devices or scenario.at_cap) and library is None:
                continue
            outcomes[scenario.title].append(_outcome(settings, folder / f"{number}", scenario, library))
        bare_s.append(_run(settings, folder / "bare", "no", [], telemetry=False))
    for scenario in SCENARIOS:
        notes.append(_summary(scenario, outcomes[scenario.title]))
    clean = outcomes[SCENARIOS[-1].title]
    shares = [100 * outcome.sampler_share for found in outcomes.values() for outcome in found]
    ratios = [outcome.seconds / bare for outcome, bare in zip(clean, bare_s, strict=True)]
    return Measured(
        rows=[
            Row(
                what="steps of the job, with telemetry",
                against="recorded without",
                values=[outcome.seconds for outcome in clean],
                unit="s",
                ratios=ratios,
                goal=1.005,
            ),
            *_onsets(outcomes),
            Row(what="the sampler's CPU time", values=shares, unit="% of a core", goal=0.5, digits=2),
        ],
        notes=[
            *notes,
            f"the default period, 50 ms; {settings.late_steps} steps, {RANKS} ranks on CPUs 0 and 1 with gloo",
            f"the job runs at priority {PRIORITY} (nice), so that other programs of the machine are no cause",
            "no run delays a link: no cause is named for one",
        ],
    )


def _onsets(outcomes: Mapping[str, Sequence[Outcome]]) -> list[Row]:
    """Late ranks whose delay `why` places; of how many it does not is the difference of `runs` to all."""
    late = [outcome for title, found in outcomes.items() if title != SCENARIOS[-1].title for outcome in found]
    placed = [abs(outcome.onset_ms) for outcome in late if outcome.onset_ms is not None]
    if not placed:
        return []
    what = f"where a delay begins: distance from when it did ({len(placed)} of {len(late)} runs)"
    return [Row(what=what, values=placed, unit="ms", goal=PERIOD_MS)]


def _outcome(settings: Settings, folder: Path, scenario: Scenario, library: Path | None) -> Outcome:
    folder.mkdir(exist_ok=True)
    place = folder / "run"
    prefix: list[str] = []
    options: list[object] = []
    if (scenario.has_devices or scenario.at_cap) and library is not None:
        level = {
            "throttle_reasons": [(0, 0)],
            "sm_clock": [(0, 1800)],
            "utilization": [(0, 20)],
            "temperature": [(0, 60)],
        }
        capped = {**level, "throttle_reasons": [(0, 4)], "sm_clock": [(0, 1200)]} if scenario.at_cap else level
        script = fake_nvml.write_script(folder / "script", [*[level] * LATE_RANK, capped])
        options = ["--devices", script]
        prefix = ["env", f"FAKE_NVML={script}", f"LD_LIBRARY_PATH={library}"]
    try:
        with _group(scenario) as group:
            inside = [*options, "--group", group] if group else options
            seconds = _run(settings, place, scenario.late, inside, prefix=prefix)
            held_s = _held_s(group) if group else 0.0
        return replace(_seen(place, seconds), held_s=held_s)
    finally:
        remove_run(place)
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()


def _run(
    settings: Settings,
    place: Path,
    late: str,
    options: Sequence[object],
    *,
    prefix: Sequence[str] = (),
    telemetry: bool = True,
) -> float:
    """How long its steps took, by the job itself."""
    told, onset = place.with_suffix(".seconds"), place.with_suffix(".onset")
    job = torchrun(
        RANKS, PROGRAMS / "late_rank.py", "--late", late,
        "--steps", settings.late_steps, "--begin", settings.late_steps // BEGIN,
        "--seconds", told, "--onset", onset, "--priority", PRIORITY, *options,
    )  # fmt: skip
    wanted = ["--telemetry"] if telemetry else []
    run([*prefix, *recorded(place, wanted, job)], place.with_suffix(".txt"))
    if not telemetry:
        remove_run(place)
    return float(told.read_text())


def _seen(place: Path, seconds: float) -> Outcome:
    evidence = gather(place)
    telemetry = evidence.telemetry_of(LATE_RANK)
    own = telemetry.find(SAMPLER, CPU_TIME) if telemetry is not None else None
    if own is None or len(own.times_ns) < 2:
        raise BenchError("the sampler wrote nothing of itself")
    lasted_ns = int(own.times_ns[-1] - own.times_ns[0])
    share = int(own.values[-1] - own.values[0]) / lasted_ns
    verdicts = diagnose(evidence).verdicts
    onset_ns = int(place.with_suffix(".onset").read_text())
    places = [_begins_ns(evidence, v) for v in verdicts if isinstance(v, Delay) and v.ranks == (LATE_RANK,)]
    late = [(v.ranks[0], v.cause) for v in verdicts if isinstance(v, Straggler | Delay)]
    onset_ms = (places[0] - onset_ns) / 1e6 if places else None
    return Outcome(late=late, seconds=seconds, sampler_share=share, onset_ms=onset_ms)


def _begins_ns(evidence: Evidence, delay: Delay) -> int:
    """After the call before the first to which the rank came late. In ns of the wall clock."""
    before = delay.before.collective if delay.before is not None else delay.first.collective
    return evidence.wall_ns(LATE_RANK, before.time_completed_ns or before.time_created_ns)


def _summary(scenario: Scenario, outcomes: Sequence[Outcome]) -> str:
    if not outcomes:
        return f"{scenario.title}: not measured, no C compiler builds the fake driver"
    if scenario.expected is None:
        accused = [outcome for outcome in outcomes if outcome.named()]
        text = f"a cause was named in {len(accused)} of {len(outcomes)} runs"
        wrong = [outcome.say() for outcome in accused]
    else:
        right = [outcome for outcome in outcomes if outcome.named() == [(LATE_RANK, scenario.expected)]]
        silent = [outcome for outcome in outcomes if not outcome.named()]
        false = len(outcomes) - len(right) - len(silent)
        text = f"named right in {len(right)} of {len(outcomes)} runs, wrong in {false}, no cause named in {len(silent)}"
        wrong = [outcome.say() for outcome in outcomes if outcome not in right]
        text += f", its begin told in {sum(outcome.onset_ms is not None for outcome in outcomes)}"
    held_s = [outcome.held_s for outcome in outcomes]
    text += f", held by the quota for {min(held_s):.2f} to {max(held_s):.2f} s" if any(held_s) else ""
    return f"{scenario.title}: {text}" + (f" ({'; '.join(wrong)})" if wrong else "")


def _held_s(group: Path) -> float:
    """Of the whole run, by `cpu.stat`: without this the run says nothing of quotas."""
    rows = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    held_s = int(rows["throttled_usec"]) / 1e6 if "throttled_usec" in rows else int(rows["throttled_time"]) / 1e9
    if not held_s:
        raise BenchError("the quota held nobody")
    return held_s


@contextmanager
def _group(scenario: Scenario) -> Iterator[Path | None]:
    """A control group with half a CPU, of which other groups take nothing."""
    if scenario.late != "group":
        yield None
        return
    is_v2 = (_GROUPS / "cgroup.controllers").exists()
    group = (_GROUPS if is_v2 else _GROUPS / "cpu") / f"prismdbg-bench-{os.getpid()}"
    try:
        group.mkdir()
        if is_v2:
            (group / "cpu.max").write_text(f"{PERIOD_US // 2} {PERIOD_US}")
            (group / "cpu.weight").write_text("10000")
        else:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(PERIOD_US // 2))
            (group / "cpu.shares").write_text("262144")
    except OSError as error:
        raise BenchError(f"no control group with a quota: {error}") from error
    try:
        yield group
    finally:
        group.rmdir()
