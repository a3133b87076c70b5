"""Why a rank was late: readings of sensors beside logs in, a cause out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from prismdbg.capsule.log.events import RankLog
from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.lateness.cause import LateCause, Why
from prismdbg.diagnosis.lateness.late_cause import why_late
from prismdbg.diagnosis.lateness.stragglers import Straggler
from prismdbg.diagnosis.why import diagnose
from prismdbg.telemetry import sensor as names
from prismdbg.telemetry.sensor import Kind, Provenance, Sensor
from prismdbg.telemetry.series import Series, Telemetry
from tests.unit.logs import MILLISECOND_NS, WORLD, Job

LATE = 3
LATE_MS, STEP_MS = 40, 51.5  # of each step, as the logs of `late_job` have it
ALL_OF_IT = LATE_MS / STEP_MS  # of the time is what the rank was late
QUIET = {names.CPU_TIME: 0.1, names.RUN_QUEUE_WAIT: 0.01, names.QUOTA_THROTTLED: 0.0}
Rates = Mapping[str, float]


def late_job(steps: int = 40) -> Job:
    job = Job(4)
    for _ in range(steps):
        job.call(late_ns={LATE: LATE_MS * MILLISECOND_NS})
        job.now_ns += 10 * MILLISECOND_NS
        for rank in job.ranks:
            job.next_step(rank)
    return job


def counter(subject: str, name: str, job: Job, rate: float) -> Series:
    times = np.arange(900 * MILLISECOND_NS, job.now_ns + 200 * MILLISECOND_NS, 50 * MILLISECOND_NS, dtype=np.int64)
    values = (rate * (times - times[0])).astype(np.int64)
    return Series(sensor=Sensor(subject, name, "ns", Kind.COUNTER), times_ns=times, values=values)


def gauge(subject: str, name: str, job: Job, value: int, provenance: Provenance = Provenance.MEASURED) -> Series:
    flat = counter(subject, name, job, 0.0)
    return Series(
        sensor=Sensor(subject, name, "", Kind.GAUGE, provenance), times_ns=flat.times_ns, values=flat.values + value
    )


def telemetry(job: Job, late: Rates, others: Rates = QUIET, *more: Series, asleep: bool = False) -> Telemetry:
    """Each rank on a CPU of its own."""
    series: list[Series] = [*more]
    for rank in job.ranks:
        subject = f"rank {rank}"
        rates = {**others, **(late if rank == LATE else {})}
        series += [counter(subject, name, job, rate) for name, rate in rates.items()]
        series += [
            gauge(subject, names.LAST_CPU, job, rank),
            gauge(subject, names.DISK_SLEEP, job, int(asleep and rank == LATE)),
            counter(f"cpu {rank}", names.STOLEN_TIME, job, 0.0),
        ]
    by_key = {(each.sensor.subject, each.sensor.name): each for each in series}
    by_key |= {(each.sensor.subject, each.sensor.name): each for each in more}
    return Telemetry(period_ns=50 * MILLISECOND_NS, wall_offset_ns=0, series=by_key)


def without(found: Telemetry, subject: str, name: str, why: str) -> Telemetry:
    series = {key: each for key, each in found.series.items() if key != (subject, name)}
    return replace(found, series=series, missing={(subject, name): why})


def cause_of(job: Job, found: Telemetry | None) -> LateCause | None:
    late = [
        v
        for v in diagnose(Evidence(logs=job.logs, telemetry={"": found} if found else {})).verdicts
        if isinstance(v, Straggler)
    ]
    assert [v.ranks for v in late] == [(LATE,)]
    return late[0].cause


def named(job: Job, found: Telemetry) -> Why:
    cause = cause_of(job, found)
    assert cause is not None
    return cause.why


@pytest.mark.parametrize(
    ("late", "why"),
    [
        ({names.CPU_TIME: 0.1 + ALL_OF_IT}, Why.COMPUTES),
        ({names.RUN_QUEUE_WAIT: 0.01 + ALL_OF_IT}, Why.RUN_QUEUE),
        # a thread that a quota holds is in the run queue as the kernel counts it
        ({names.RUN_QUEUE_WAIT: 0.01 + ALL_OF_IT, names.QUOTA_THROTTLED: ALL_OF_IT}, Why.QUOTA),
        # the kernel adds the times of CPUs that are held at once
        ({names.RUN_QUEUE_WAIT: 0.01 + ALL_OF_IT, names.QUOTA_THROTTLED: 8 * ALL_OF_IT}, Why.QUOTA),
        ({names.QUOTA_THROTTLED: 8 * ALL_OF_IT}, Why.ASLEEP),
        ({}, Why.ASLEEP),
    ],
)
def test_the_cause_that_explains_the_lateness_is_named(late: Rates, why: Why) -> None:
    job = late_job()
    assert named(job, telemetry(job, late)) is why


def test_time_that_the_hypervisor_took_is_no_computation() -> None:
    """Without paravirtual clocks, stolen time counts as time that the thread ran."""
    job = late_job()
    stolen = counter(f"cpu {LATE}", names.STOLEN_TIME, job, ALL_OF_IT)
    assert named(job, telemetry(job, {names.CPU_TIME: 0.1 + ALL_OF_IT}, QUIET, stolen)) is Why.STOLEN


def test_a_sleep_in_the_kernel_is_for_a_disk() -> None:
    job = late_job()
    assert named(job, telemetry(job, {}, asleep=True)) is Why.DISK


def disk_cause(job: Job, found: Telemetry) -> tuple[Why, str, str]:
    cause = cause_of(job, found)
    assert cause is not None
    return cause.why, cause.text, " | ".join(cause.lines)


def test_an_uninterruptible_sleep_without_io_pressure_is_not_confirmed() -> None:
    job = late_job()
    found = telemetry(job, {}, asleep=True)
    why, _, lines = disk_cause(job, replace(found, missing={("host", "io_pressure"): "no such file"}))
    assert why is Why.DISK
    assert "not confirmed by I/O pressure: io_pressure_some of host is not available: no such file" in lines


@pytest.mark.parametrize(
    ("share", "cpus", "why"), [(0.5, 0, Why.DISK), (0.08, 0, Why.DISK), (0.01, 0, Why.ASLEEP), (0.01, 60, Why.DISK)]
)
def test_an_uninterruptible_sleep_with_hardly_any_io_pressure_is_not_called_a_disk(
    share: float, cpus: int, why: Why
) -> None:
    """One thread that sleeps all the time leaves a quarter on four CPUs, and less on more of them; a third of that is
    enough."""
    job = late_job()
    more = [counter(f"cpu {cpu}", names.STOLEN_TIME, job, 0.0) for cpu in range(10, 10 + cpus)]
    pressure = counter("host", names.IO_PRESSURE, job, share)
    found, _, lines = disk_cause(job, telemetry(job, {}, QUIET, pressure, *more, asleep=True))
    assert found is why
    assert ("its sleep was uninterruptible (100% of the readings)" in lines) is (why is Why.ASLEEP)
    assert "not confirmed" not in lines


@pytest.mark.parametrize(("of_others", "why"), [(0.0, Why.DISK), (0.9, Why.ASLEEP)])
def test_a_sleep_while_its_control_group_alone_waited_for_io_is_for_a_disk(of_others: float, why: Why) -> None:
    """The loader reads, and the main thread sleeps until it has."""
    job = late_job()
    groups = [
        counter(f"rank {rank}", names.GROUP_IO_PRESSURE, job, 0.9 if rank == LATE else of_others) for rank in job.ranks
    ]
    found, text, _ = disk_cause(job, telemetry(job, {}, QUIET, *groups))
    assert found is why
    assert ("its control group waited for I/O" in text) is (why is Why.DISK)


@pytest.mark.parametrize(("readings", "is_known"), [(3, False), (5, True)])
def test_pressure_of_another_time_confirms_and_excludes_nothing(readings: int, is_known: bool) -> None:
    """Two readings a second: within a few of their periods lies most of a delay of two seconds."""
    job = late_job()
    whole = counter("host", names.IO_PRESSURE, job, 0.01)
    seldom = replace(whole, times_ns=whole.times_ns[::10][:readings], values=whole.values[::10][:readings])
    why, _, lines = disk_cause(job, telemetry(job, {}, QUIET, seldom, asleep=True))
    assert why is (Why.ASLEEP if is_known else Why.DISK)
    assert ("not confirmed by I/O pressure" in lines and "no readings of that time" in lines) is not is_known


@pytest.mark.parametrize("mate", [0.9, None])
def test_a_control_group_that_another_rank_is_in_or_may_be_in_accuses_nobody(mate: float | None) -> None:
    """Of ranks on several nodes most are in other groups; `None`: the pressure of one was not read."""
    job = late_job()
    shares = {LATE: 0.9, 0: mate, 1: 0.0, 2: 0.0}
    groups = [
        counter(f"rank {rank}", names.GROUP_IO_PRESSURE, job, share)
        for rank, share in shares.items()
        if share is not None
    ]
    assert disk_cause(job, telemetry(job, {}, QUIET, *groups))[0] is Why.ASLEEP


@pytest.mark.parametrize(("share", "is_said"), [(0.9, True), (0.1, False)])
def test_io_pressure_of_the_machine_alone_accuses_nobody(share: float, is_said: bool) -> None:
    job = late_job()
    found, _, lines = disk_cause(job, telemetry(job, {}, QUIET, counter("host", names.IO_PRESSURE, job, share)))
    assert found is Why.ASLEEP
    assert ("a data loader that reads is not excluded" in lines) is is_said


def test_waiting_that_comes_with_more_work_is_work() -> None:
    """Twice the work on a machine on which everybody waits as long as they run."""
    job = late_job()
    half = ALL_OF_IT / 2
    everybody = {**QUIET, names.CPU_TIME: 0.1, names.RUN_QUEUE_WAIT: 0.1}
    late = {names.CPU_TIME: 0.1 + half, names.RUN_QUEUE_WAIT: 0.1 + half}
    assert named(job, telemetry(job, late, everybody)) is Why.COMPUTES


def test_two_causes_of_one_size_are_not_one_cause() -> None:
    job = late_job()
    half = ALL_OF_IT / 2
    cause = cause_of(job, telemetry(job, {names.RUN_QUEUE_WAIT: 0.01 + half, names.CPU_TIME: 0.1 + half}))
    assert cause is not None
    assert cause.why is Why.SEVERAL
    assert cause.text == "why it was late is inconclusive: no single cause explains it"
    assert "run queue" in cause.lines[0] and "longer computation" in cause.lines[0]


def test_a_cause_that_another_one_comes_near_is_not_the_cause() -> None:
    """Both together are more than the lateness: one of them may be in the shadow of the other."""
    job = late_job()
    late = {names.RUN_QUEUE_WAIT: 0.01 + 0.7 * ALL_OF_IT, names.CPU_TIME: 0.1 + 0.5 * ALL_OF_IT}
    assert named(job, telemetry(job, late)) is Why.SEVERAL


def test_the_largest_of_small_causes_is_not_the_cause() -> None:
    job = late_job()
    stolen = counter(f"cpu {LATE}", names.STOLEN_TIME, job, 0.2 * ALL_OF_IT)
    late = {names.RUN_QUEUE_WAIT: 0.01 + 0.44 * ALL_OF_IT, names.CPU_TIME: 0.1 + 0.38 * ALL_OF_IT}
    assert named(job, telemetry(job, late, QUIET, stolen)) is Why.SEVERAL


@pytest.mark.parametrize("name", [names.CPU_TIME, names.RUN_QUEUE_WAIT, names.QUOTA_THROTTLED])
def test_a_sensor_that_is_missing_is_said_and_nothing_concluded(name: str) -> None:
    job = late_job()
    found = without(telemetry(job, {names.RUN_QUEUE_WAIT: ALL_OF_IT}), f"rank {LATE}", name, "no such kernel")
    cause = cause_of(job, found)
    assert cause is not None
    assert cause.why is Why.UNKNOWN
    assert cause.text == f"why it was late is inconclusive: {name} of rank {LATE} is not available: no such kernel"


def test_stolen_time_that_is_missing_is_not_zero() -> None:
    job = late_job()
    found = without(telemetry(job, {names.CPU_TIME: ALL_OF_IT}), f"cpu {LATE}", names.STOLEN_TIME, "not counted")
    assert named(job, found) is Why.UNKNOWN


def test_readings_of_another_time_are_no_readings() -> None:
    job = late_job()
    found = telemetry(job, {names.RUN_QUEUE_WAIT: ALL_OF_IT})
    key = f"rank {LATE}", names.QUOTA_THROTTLED
    early = found.series[key]
    found = replace(
        found, series={**found.series, key: replace(early, times_ns=early.times_ns[:9], values=early.values[:9])}
    )
    cause = cause_of(job, found)
    assert cause is not None
    assert cause.text.endswith("is not available: no readings of that time")


def test_nothing_is_said_without_telemetry_or_of_a_short_delay() -> None:
    assert cause_of(late_job(), None) is None
    job = late_job(steps=9)
    coarse = replace(telemetry(job, {names.CPU_TIME: 1.0}), period_ns=10_000 * MILLISECOND_NS)
    assert cause_of(job, coarse) is None


def test_who_ran_instead_is_said() -> None:
    job = late_job()
    burner = counter("process 71 (stress)", names.CPU_TIME, job, 0.8)
    there = gauge("process 71 (stress)", names.LAST_CPU, job, LATE)
    elsewhere = counter("process 72 (other)", names.CPU_TIME, job, 0.9)
    not_there = gauge("process 72 (other)", names.LAST_CPU, job, 0)
    found = telemetry(job, {names.RUN_QUEUE_WAIT: 0.01 + ALL_OF_IT}, QUIET, burner, there, elsewhere, not_there)
    cause = cause_of(job, found)
    assert cause is not None
    assert [line for line in cause.lines if "process" in line] == [
        "processes that ran there instead: process 71 (stress), 1.6 s"
    ]


@pytest.mark.parametrize("why", ["", "more than 128 used CPUs at once: the others were not read"])
def test_if_nobody_was_seen_it_is_said_whether_all_were_looked_at(why: str) -> None:
    job = late_job()
    found = telemetry(job, {names.RUN_QUEUE_WAIT: 0.01 + ALL_OF_IT})
    cause = cause_of(job, replace(found, missing={("host", "processes"): why} if why else {}))
    assert cause is not None
    (line,) = [line for line in cause.lines if "process" in line]
    assert line.endswith(f"to use as much of it ({why})" if why else "to use as much of it")


def test_a_slower_clock_is_not_slower_code() -> None:
    job = late_job()
    clocks = [
        gauge(f"cpu {cpu}", names.CPU_FREQUENCY, job, 1_000_000_000 if cpu == LATE else 3_000_000_000)
        for cpu in job.ranks
    ]
    assert named(job, telemetry(job, {names.CPU_TIME: 0.1 + ALL_OF_IT}, QUIET, *clocks)) is Why.CLOCK


def test_clocks_that_hardly_differ_are_not_the_cause() -> None:
    job = late_job()
    clocks = [
        gauge(f"cpu {cpu}", names.CPU_FREQUENCY, job, 2_800_000_000 if cpu == LATE else 3_000_000_000)
        for cpu in job.ranks
    ]
    assert named(job, telemetry(job, {names.CPU_TIME: 0.1 + ALL_OF_IT}, QUIET, *clocks)) is Why.COMPUTES


def test_slower_code_says_where_and_that_clocks_were_not_read() -> None:
    job = late_job()
    cause = cause_of(job, telemetry(job, {names.CPU_TIME: 0.1 + ALL_OF_IT}))
    assert cause is not None
    assert "train.py:42" in cause.text
    assert cause.lines[0].startswith("a slower clock of its CPU is not excluded: frequency is not available")


def devices(
    job: Job, reasons: Mapping[int, int], clocks: Mapping[int, int], busy: Mapping[int, int] = {LATE: 95}
) -> tuple[list[Series], dict[tuple[str, str], str]]:
    """The GPU of the late rank computes while the rank is late, unless `busy` says otherwise."""
    series = []
    for rank in job.ranks:
        for name, values, usual in (
            (names.THROTTLE_REASONS, reasons, 0),
            (names.SM_CLOCK, clocks, 1800),
            (names.UTILIZATION, busy, 20),
        ):
            series.append(gauge(f"gpu GPU-{rank}", name, job, values.get(rank, usual), Provenance.FAKE))
    texts = {(f"rank {rank}", names.DEVICE): f"GPU-{rank}" for rank in job.ranks}
    return series, texts


@pytest.mark.parametrize(("reason", "why"), [(0x40, Why.GPU_THERMAL), (0x20, Why.GPU_THERMAL), (0x04, Why.GPU_POWER)])
@pytest.mark.parametrize("late", [{}, {names.CPU_TIME: 0.1 + ALL_OF_IT}], ids=["sleeps", "spins"])
def test_a_throttled_gpu_is_named_and_said_to_be_fake(reason: int, why: Why, late: Rates) -> None:
    """It computes longer at a lower clock, and its host waits for it."""
    job = late_job()
    series, texts = devices(job, {LATE: reason}, {LATE: 600})
    cause = cause_of(job, replace(telemetry(job, late, QUIET, *series), texts=texts))
    assert cause is not None
    assert cause.why is why
    assert cause.is_fake
    assert any(line.startswith("fake:") for line in cause.lines)
    assert "by its clock, that took at most" in cause.lines[0]


@pytest.mark.parametrize(
    ("busy", "clock", "why"),
    [
        (0, 600, Why.ASLEEP),  # its data loader is late: the GPU had nothing to do
        (30, 600, Why.ASLEEP),  # a third of the clock for a third of the time
        (95, 1400, Why.ASLEEP),  # a fifth slower, where it was late by four fifths
        (95, 600, Why.GPU_POWER),
    ],
)
def test_a_gpu_at_its_power_cap_is_the_cause_only_where_that_explains_the_lateness(
    busy: int, clock: int, why: Why
) -> None:
    job = late_job()
    series, texts = devices(job, {LATE: 0x04}, {LATE: clock}, {LATE: busy})
    cause = cause_of(job, replace(telemetry(job, {}, QUIET, *series), texts=texts))
    assert cause is not None
    assert cause.why is why
    assert any("was throttled by power" in line for line in (cause.text, *cause.lines)), "it is named in any case"


@pytest.mark.parametrize("late", [{}, {names.CPU_TIME: 0.1 + ALL_OF_IT}], ids=["sleeps", "computes"])
@pytest.mark.parametrize("name", [names.SM_CLOCK, names.UTILIZATION])
def test_without_its_clock_or_utilization_a_throttled_gpu_is_not_accused(name: str, late: Rates) -> None:
    job = late_job()
    series, texts = devices(job, {LATE: 0x40}, {LATE: 600})
    found = replace(telemetry(job, late, QUIET, *series), texts=texts)
    cause = cause_of(job, without(found, f"gpu GPU-{LATE}", name, "not supported"))
    assert cause is not None
    assert cause.why is Why.UNKNOWN
    assert cause.text.endswith(f"but {name} of gpu GPU-{LATE} is not available: not supported")
    assert cause.lines[0].startswith("as its host saw it: it "), "both are named"


def test_a_disk_is_named_whatever_the_gpu_does() -> None:
    job = late_job()
    series, texts = devices(job, {LATE: 0x40}, {LATE: 600})
    assert named(job, replace(telemetry(job, {}, QUIET, *series, asleep=True), texts=texts)) is Why.DISK


AHEAD_NS = 5_000_000_000_000  # the clock of the second node: it was booted earlier


def ahead(log: RankLog, by_ns: int) -> RankLog:
    """As the same rank would have written it on a node whose clock is so much ahead."""
    moved = [
        replace(
            each,
            time_created_ns=each.time_created_ns + by_ns,
            time_completed_ns=None if each.time_completed_ns is None else each.time_completed_ns + by_ns,
            time_waited_ns=None if each.time_waited_ns is None else each.time_waited_ns + by_ns,
        )
        for each in log.collectives
    ]
    return replace(log, collectives=moved, wall_offset_ns=log.wall_offset_ns - by_ns)


def on_two_nodes(job: Job, late: Rates, second: Sequence[int]) -> Evidence:
    """The ranks of the `second` node, of which the last is late, where CPUs have the same numbers and another clock."""
    nodes = {rank: "n2" if rank in second else "n1" for rank in job.ranks}
    found = telemetry(job, late)
    readings = {}
    for node, by_ns in (("n1", 0), ("n2", AHEAD_NS)):
        subjects = {f"{kind} {rank}" for kind in ("rank", "cpu") for rank, place in nodes.items() if place == node}
        series = {key: each for key, each in found.series.items() if key[0] in subjects}
        moved = {key: replace(each, times_ns=each.times_ns + by_ns) for key, each in series.items()}
        readings[node] = replace(found, series=moved, wall_offset_ns=-by_ns)
    logs = {rank: ahead(log, AHEAD_NS if nodes[rank] == "n2" else 0) for rank, log in job.logs.items()}
    return Evidence(logs=logs, telemetry=readings, nodes=nodes)


def test_ranks_of_nodes_with_other_clocks_are_compared_over_the_same_time() -> None:
    """The late rank is alone on its node: all that it is compared with has the other clock."""
    evidence = on_two_nodes(late_job(), {names.RUN_QUEUE_WAIT: 0.01 + ALL_OF_IT}, second=(LATE,))
    cause = why_late(evidence, WORLD, LATE)
    assert cause is not None
    assert cause.why is Why.RUN_QUEUE
    assert cause.explained[Why.RUN_QUEUE] == pytest.approx(1.0, abs=0.05)


def test_a_node_without_telemetry_is_left_out_of_the_comparison() -> None:
    evidence = on_two_nodes(late_job(), {names.RUN_QUEUE_WAIT: 0.01 + ALL_OF_IT}, second=(2, LATE))
    alone = why_late(replace(evidence, telemetry={"n2": evidence.telemetry["n2"]}), WORLD, LATE)
    assert alone is not None
    assert alone.why is Why.RUN_QUEUE
    unsure = why_late(replace(evidence, telemetry={"n1": evidence.telemetry["n1"]}), WORLD, LATE)
    assert unsure is not None
    assert unsure.why is Why.UNKNOWN
    assert unsure.text.endswith("`record` ran without --telemetry on node n2")


@pytest.mark.parametrize(
    ("reasons", "clocks"),
    [
        ({0: 0x40, 1: 0x40, 2: 0x40, 3: 0x40}, {}),  # all of them are hot
        ({LATE: 0x40}, {}),  # its clock is that of the others
        ({LATE: 0x01}, {LATE: 600}),  # idle
    ],
)
def test_a_gpu_is_not_accused_for_less(reasons: Mapping[int, int], clocks: Mapping[int, int]) -> None:
    job = late_job()
    series, texts = devices(job, reasons, clocks)
    assert named(job, replace(telemetry(job, {}, QUIET, *series), texts=texts)) is Why.ASLEEP


def job_of_messages(steps: int = 40, quiet: int = 10) -> Job:
    """In each step but the first few a message holds the last rank, and it comes late to the collective."""
    job = Job(4)
    for step in range(steps + quiet):
        late_ns = LATE_MS * MILLISECOND_NS * (step >= quiet)
        job.receive(LATE, 0, step, done=True)
        calls = job.calls(LATE)
        calls[-1] = replace(calls[-1], time_completed_ns=calls[-1].time_created_ns + max(late_ns, 1000))
        job.call(late_ns={LATE: late_ns})
        job.now_ns += 10 * MILLISECOND_NS
        for rank in job.ranks:
            job.next_step(rank)
    return job


def grown(subject: str, name: str, job: Job, before: float, later: float) -> Series:
    """A counter of so many a second, until the rank begins to be late and from then on."""
    flat = counter(subject, name, job, 0.0)
    onset_ns = 1_000 * MILLISECOND_NS + 10 * round(12.5 * MILLISECOND_NS)
    seconds = (flat.times_ns - flat.times_ns[0]) / 1e9, (flat.times_ns - onset_ns).clip(min=0) / 1e9
    values = before * (seconds[0] - seconds[1]) + later * seconds[1]
    return replace(flat, values=values.astype(np.int64))


def link_cause(rates: Mapping[str, tuple[float, float]], subject: str, name: str, second: Sequence[int]) -> LateCause:
    """`rates`: of each node's counter, before and later."""
    job = job_of_messages()
    evidence = on_two_nodes(job, {}, second)
    readings = {}
    for node, found in evidence.telemetry.items():
        each = grown(subject, name, job, *rates[node])
        by_ns = AHEAD_NS if node == "n2" else 0
        moved = replace(each, times_ns=each.times_ns + by_ns)
        readings[node] = replace(found, series={**found.series, (subject, name): moved})
    cause = why_late(replace(evidence, telemetry=readings), WORLD, LATE)
    assert cause is not None
    return cause


@pytest.mark.parametrize(
    ("subject", "name"),
    [("host", "tcp_retransmits"), ("interface eth0", "errin"), ("interface eth0", "dropout"),
     ("port mlx5_0/1", "symbol_error"), ("port mlx5_0/1", "out_of_sequence")],
)  # fmt: skip
@pytest.mark.parametrize("second", [(LATE,), (2, LATE)])
def test_a_link_that_loses_data_is_named(subject: str, name: str, second: Sequence[int]) -> None:
    cause = link_cause({"n1": (1, 1), "n2": (1, 50)}, subject, name, second)
    assert cause.why is Why.LINK
    assert cause.lines[0].startswith(f"{name} of its node grew by ")
    assert "1.0 on other nodes" in cause.lines[0]


@pytest.mark.parametrize(
    ("rates", "second"),
    [
        ({"n1": (1, 1), "n2": (50, 50)}, (LATE,)),  # it did so before
        ({"n1": (1, 50), "n2": (1, 50)}, (LATE,)),  # so did the other node
        ({"n1": (0, 0), "n2": (0, 3)}, (LATE,)),  # a few
        ({"n1": (1, 50), "n2": (1, 1)}, (LATE,)),  # only the other node did
        ({"n1": (1, 50), "n2": (1, 50)}, (2, LATE)),
    ],
)
def test_a_link_is_not_accused_for_less(rates: Mapping[str, tuple[float, float]], second: Sequence[int]) -> None:
    cause = link_cause(rates, "host", "tcp_retransmits", second)
    assert cause.why is Why.SEVERAL
    assert "held it longer than the others, by slow peers or links" in cause.text


def test_without_another_node_no_link_is_accused() -> None:
    job = job_of_messages()
    lost = grown("host", "tcp_retransmits", job, 1, 50)
    assert named(job, telemetry(job, {}, QUIET, lost)) is Why.SEVERAL


def test_bytes_are_no_errors() -> None:
    cause = link_cause({"n1": (1, 1), "n2": (1, 50)}, "interface eth0", "bytes_sent", second=(LATE,))
    assert cause.why is Why.SEVERAL


def test_link_errors_of_a_rank_that_sleeps_are_not_the_cause() -> None:
    job = late_job()
    assert named(job, telemetry(job, {}, QUIET, grown("host", "tcp_retransmits", job, 0, 50))) is Why.ASLEEP


def test_the_verdict_prints_the_cause_and_gives_it_to_programs() -> None:
    job = late_job()
    found = telemetry(job, {names.RUN_QUEUE_WAIT: 0.01 + ALL_OF_IT})
    (late,) = (
        v
        for v in diagnose(Evidence(logs=job.logs, telemetry={"": found} if found else {})).verdicts
        if isinstance(v, Straggler)
    )
    assert late.lines[0].startswith("why: it waited ")
    assert late.to_json()["cause"]["why"] == "run_queue"
    assert late.to_json()["cause"]["explained"]["run_queue"] == pytest.approx(1.0, abs=0.05)


def test_where_no_rank_was_late_it_is_said_that_no_cause_was_sought() -> None:
    """What slows all of them alike shows only in the telemetry itself."""
    job = Job(2)
    job.call()
    found = diagnose(Evidence(logs=job.logs, telemetry={"": telemetry(job, {})}))
    assert (
        "no problem found" in found.summary
        and "no rank is clearly later than the others: `prismdbg telemetry` shows" in found.summary
    )
    assert "telemetry" not in diagnose(Evidence(logs=job.logs)).summary


@pytest.mark.parametrize(
    "known", [{"clocks_agree": False}, {"emulated": "dp=2"}, {}], ids=["clocks", "emulated", "one rank"]
)
def test_where_nobody_could_be_found_late_it_is_not_said_that_nobody_was(known: dict[str, Any]) -> None:
    job = Job(2)
    job.call()
    logs = job.logs if known else {0: job.logs[0]}
    found = diagnose(Evidence(logs=logs, telemetry={"": telemetry(job, {})}, **known))
    assert "late" not in found.summary
