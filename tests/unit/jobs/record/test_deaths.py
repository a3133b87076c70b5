"""Which processes died, and which of them first, as far as that can be known."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM

import psutil
import pytest
from kernels import PIDFDS_TELL
from waiting import wait_for

from prismdbg.jobs.record import steady_clock
from prismdbg.jobs.record.deaths import Death, DeathWatch, likely_first, perhaps_first

ENDLESS = ["sleep", "1000"]


def death(name: str, wall_ns: int, signal: int | None, alive_ns: int = 0) -> Death:
    return Death(name=name, wall_ns=wall_ns, signal=signal, alive_wall_ns=alive_ns)


def names(deaths: list[Death]) -> list[str]:
    return [death.name for death in deaths]


def test_who_was_seen_alive_after_a_death_was_not_the_first() -> None:
    assert names(perhaps_first([death("0", 10, 0), death("1", 20, SIGKILL, alive_ns=10)])) == ["0"]
    assert names(perhaps_first([death("0", 10, 0, alive_ns=5), death("1", 20, SIGKILL)])) == ["0", "1"]
    assert names(perhaps_first([death("0", 10, 0, alive_ns=5), death("1", 10, 0, alive_ns=5)])) == ["0", "1"]
    assert perhaps_first([]) == []


@pytest.mark.parametrize(
    ("ends", "raised", "first"),
    [
        pytest.param([SIGTERM, None], {}, "1", id="told to end, and not known"),
        pytest.param([SIGTERM, SIGKILL], {}, "1", id="told to end, and killed"),
        pytest.param([None, None], {"0": True}, "1", id="raised in a collective, and without a word"),
        pytest.param([0, SIGKILL], {"0": True}, "1", id="raised in a collective, and killed"),
        pytest.param([None, None], {"1": False}, "1", id="not known, and raised by itself"),
        pytest.param([SIGTERM, 0], {"1": False}, "1", id="told to end, and raised by itself"),
        pytest.param([0, 0], {"1": False}, "1", id="ended with a code, and raised by itself"),
        pytest.param([None, SIGKILL], {}, "1", id="not known, and killed"),
        pytest.param([None, None], {}, "0", id="nothing is known"),
    ],
)
def test_of_deaths_seen_at_once_the_first_is_who_follows_nobody(
    ends: list[int | None], raised: dict[str, bool], first: str
) -> None:
    together = [death(str(rank), 10, signal) for rank, signal in enumerate(ends)]
    assert likely_first(together, raised).name == first


def test_an_order_that_is_known_counts_more() -> None:
    assert likely_first([death("0", 10, SIGTERM), death("1", 20, SIGKILL, alive_ns=10)], {}).name == "0"


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    started = [subprocess.Popen(ENDLESS) for _ in range(3)]
    yield started
    for process in started:
        process.kill()
        process.wait(10)


def test_deaths_seen_in_one_look_have_one_time_and_no_known_order(processes: list[subprocess.Popen[bytes]]) -> None:
    watch = DeathWatch()
    for name, process in enumerate(processes):
        watch.watch(str(name), process.pid)
    with watch._lock:  # it has no processor: when it looks, two are gone
        for process in (processes[1], processes[0]):
            process.kill()
            process.wait(10)
    both = watch.deaths()
    assert {death.name for death in both} == {"0", "1"}
    assert {death.signal for death in both} == {SIGKILL if PIDFDS_TELL else None}
    assert len({death.wall_ns for death in both}) == 1
    assert len(perhaps_first(both)) == 2

    processes[2].kill()  # and not yet waited for
    wait_for(lambda: len(watch.deaths()) == 3, 10, "the third death")
    last = watch.deaths()[-1]
    assert (last.name, last.signal, last.code) == ("2", SIGKILL, 128 + SIGKILL)
    assert last.alive_wall_ns >= both[0].wall_ns
    assert len(perhaps_first(watch.deaths())) == 2


def test_of_one_that_was_waited_for_already_is_known_what_the_kernel_keeps() -> None:
    watch = DeathWatch()
    ends = {"0": ["true"], "1": ["sh", "-c", "exit 7"], "2": ["sh", "-c", "kill -TERM $$"]}
    started = {name: subprocess.Popen(["sh", "-c", 'read go; exec "$@"', "sh", *end], stdin=subprocess.PIPE)
               for name, end in ends.items()}  # fmt: skip
    for name, process in started.items():
        watch.watch(name, process.pid)
    with watch._lock:
        for process in started.values():
            process.communicate(b"go\n", 10)
    how = {death.name: (death.signal, death.code) for death in watch.deaths()}
    known = {"0": (0, 0), "1": (0, 7), "2": (SIGTERM, 128 + SIGTERM)}
    assert how == (known if PIDFDS_TELL else dict.fromkeys(ends, (None, None)))


def test_who_was_told_to_end_when_another_died_died_with_it(processes: list[subprocess.Popen[bytes]]) -> None:
    watch = DeathWatch()
    for name, process in enumerate(processes):
        watch.watch(str(name), process.pid)
    processes[0].send_signal(SIGSTOP)  # so long may a process take to end on a busy machine
    wait_for(lambda: psutil.Process(processes[0].pid).status() == psutil.STATUS_STOPPED, 10, "the first to stand still")
    processes[0].terminate()
    processes[1].terminate()
    wait_for(lambda: len(watch.deaths()) == 1, 10, "the first death")
    first_seen_ns = steady_clock.wall_ns()
    ends = watch.ends()
    assert ends.keys() == {"0", "1"} and ends["0"] == ends["1"] == watch.deaths()[0].wall_ns, "one is not dead yet"
    os.kill(processes[0].pid, SIGCONT)
    os.kill(processes[2].pid, SIGTERM)
    wait_for(lambda: len(watch.deaths()) == 3, 10, "the other deaths")
    died = {death.name: death for death in watch.deaths()}
    assert died["0"].wall_ns == died["1"].wall_ns < first_seen_ns < died["2"].wall_ns
    assert died["0"].signal == SIGTERM and died["0"].alive_wall_ns <= died["0"].wall_ns
    assert sorted(names(perhaps_first(watch.deaths()))) == ["0", "1"]


def test_who_was_gone_before_it_was_watched_may_be_the_first(processes: list[subprocess.Popen[bytes]]) -> None:
    watch = DeathWatch()
    for process in processes[:2]:
        process.terminate()
    processes[1].wait(10)
    for name, process in enumerate(processes[:2]):
        watch.watch(str(name), process.pid)
    wait_for(lambda: len(watch.deaths()) == 2, 10, "both deaths")
    assert likely_first(watch.deaths(), {}).name == "1"


def test_whoever_sets_the_clock_back_moves_no_death(monkeypatch: pytest.MonkeyPatch) -> None:
    before_ns = steady_clock.wall_ns()
    monkeypatch.setattr("time.time_ns", lambda: 0)
    assert steady_clock.wall_ns() >= before_ns
