"""A whole `replay`, `replay -x` and `replay --script` over a socket whose other end is hostile."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import capsules
import pytest
from capsules import make_capsule

from prismdbg.cli.exit_codes import ExitCode
from prismdbg.cli.terminal.lines_of_rank import by_lines
from prismdbg.cli.terminal.replay_script import exit_code
from prismdbg.debugger import driver, time_travel
from prismdbg.debugger.time_travel import open_travel
from prismdbg.errors import PrismError, WaitTimeout
from prismdbg.jobs.replay import replay
from prismdbg.jobs.replay.compare import COMPARED, run_to_end
from prismdbg.jobs.replay.replay import ReplayRequest, open_replay
from prismdbg.jobs.replay.verdict import End
from prismdbg.model.deadline import Deadline
from prismdbg.model.meanwhile import looked_on_by
from prismdbg.model.moment import Moment
from prismdbg.protocol import client as protocol_client
from prismdbg.protocol.wire import InvalidMessage
from prismdbg.script.findings import Ending
from prismdbg.script.reader import read
from prismdbg.script.scripted import Scripted, run_scripted
from prismdbg.session.causes import ALL_HIDDEN
from tests.unit.hostile_rank import TALLY, HostileRank, answers, line

BOUND_S = 30.0
STANDS = {"moment": "0.0", "stopped": "start", "number": 1, "collective": {}, "tally": TALLY}
SCRIPT = b"stop_at: [{name: each, when: step >= 0}]\nrecord: [{name: loss, at: each, value: loss}]\n"


class LivesOn:
    """The process of a hostile rank."""

    def rank_pid(self) -> None:
        return None

    def exit_code(self) -> None:
        return None

    def kill(self) -> None:
        return None

    def wait(self, timeout_s: float) -> int:
        return 137

    def require_within_limits(self) -> None:
        return None

    def require_no_limit_met(self, *, ends: bool) -> None:
        return None


class Hostile:
    """Greets, stands at its start, and then does `act` from its first `resume` on."""

    def __init__(self, act: Any) -> None:
        self._act = act
        self._stops = 1
        self.tally = TALLY

    def __call__(self, request: dict[str, Any]) -> Any:
        match request["do"]:
            case "hello":
                return answers(request, protocol=2)
            case "progress":
                return answers(request, **{**STANDS, "tally": self.tally})
            case "resume":
                return self._resumed(request)
            case "evaluate":
                return answers(request, value={"kind": "scalar", "type": "str", "value": "x" * (1 << 20)})
            case "stack":
                return answers(request, frames=[])
            case _:
                return answers(request)

    def _resumed(self, request: dict[str, Any]) -> Iterator[Any]:
        yield answers(request)
        yield from self._act(self)

    def stop(self, moment: str) -> dict[str, Any]:
        self._stops += 1
        call = {"profiling_name": "all_reduce", "process_group": "0"}
        told = {"event": "stopped", "reason": "stop", "moment": moment, "number": self._stops, "collective": call}
        return {**told, "stops": list(range(1, 9))}


def chatters(_: Hostile) -> Iterator[Any]:
    while True:
        yield line({"event": "note", "text": "x" * 1000}) * 100


def stops_without_end(rank: Hostile) -> Iterator[Any]:
    while True:
        yield rank.stop("0.1")


def stops_once(rank: Hostile) -> Iterator[Any]:
    yield rank.stop("0.1")


def falls_silent(_: Hostile) -> Iterator[Any]:
    yield from ()


def breaks_off(_: Hostile) -> Iterator[Any]:
    yield b'{"event": "stop'


def talks_nonsense(_: Hostile) -> Iterator[Any]:
    yield b'{"event": "stopped", "moment": [], "reason": {}}\n'


def raises_without_end(_: Hostile) -> Iterator[Any]:
    raised = {"event": "exception", "moment": "0.1", "type": "E", "text": "x" * 1000, "traceback": [], "thread": True}
    while True:
        yield line(raised) * 100


def makes_up_answers(_: Hostile) -> Iterator[Any]:
    while True:
        yield line({"event": "synthesized", "moment": "0.1", "collective": {"op": "x" * 1000, "record_id": 1}}) * 100


ACTS = [
    chatters,
    stops_without_end,
    stops_once,
    falls_silent,
    breaks_off,
    talks_nonsense,
    raises_without_end,
    makes_up_answers,
]


@pytest.fixture
def request_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Gives the request for a replay of which this hostile rank is the process."""
    monkeypatch.setattr(protocol_client, "MAX_EVENTS", 1000)
    ranks: list[HostileRank] = []

    def hostile(act: Any) -> ReplayRequest:
        def plan(_: Any, session: Path, own: Any) -> Any:
            spec = SimpleNamespace(session=session, saving=None, origin=None)
            return SimpleNamespace(
                own=own, agent="agent.sock", spec=spec, unhidden=ALL_HIDDEN, awaits_restore_point=False
            )

        def start(_: Any, plan: Any, *__: Any) -> LivesOn:
            ranks.append(HostileRank(plan.own.path / plan.agent, Hostile(act)))
            return LivesOn()

        runtime = SimpleNamespace(name="local")
        for module in (replay, time_travel):
            monkeypatch.setattr(module, "require_replayable", lambda capsule: capsule)
            monkeypatch.setattr(module, "make_plan", plan)
            monkeypatch.setattr(module, "start", start)
            monkeypatch.setattr(module, "choose", lambda *_, **__: runtime)
        monkeypatch.setattr(time_travel, "with_saving", lambda plan, *_: (plan, "there are none here"))
        monkeypatch.setattr(time_travel, "clear_start", lambda _: None)
        return ReplayRequest(capsule=make_capsule(tmp_path / "capsule"))

    yield hostile
    for rank in ranks:
        rank.close()


def in_line_s() -> float:
    """How long threads of this process, both ends of the socket, have waited for a CPU: that is not the product's."""
    return sum(int(path.read_text().split()[1]) for path in Path("/proc/self/task").glob("*/schedstat")) / 1e9


def nothing(_: str) -> None:
    return None


def compared(request: ReplayRequest) -> None:
    with open_replay(request, nothing) as live:
        verdict = run_to_end(live, until=None, strict=False, deadline=Deadline.after(1.0))
        assert verdict.summary


def by_commands(request: ReplayRequest) -> None:
    with open_travel(request, nothing) as travel:
        by_lines(travel, ["next", "info", "print loss", "continue", "where"], bound_s=0.5, echo=True, strict=True)


def by_script(request: ReplayRequest, script: bytes = SCRIPT) -> None:
    run_scripted(request, read(script, "checks.yaml"), Scripted(), bound_s=2.0, say=nothing)


def to_a_moment(request: ReplayRequest) -> None:
    by_script(request, b'run_to: "1.1"\nforbid: [{name: no NaN, on: nan}]\n')


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("ways", [compared, by_commands, by_script])
def test_it_ends_with_an_answer_or_an_error_of_ours(
    request_of: Any, ways: Any, act: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    began_s, computed_s, queued_s = time.monotonic(), time.process_time(), in_line_s()
    try:
        ways(request_of(act))
    except PrismError as error:
        assert str(error)
    took_s = time.monotonic() - began_s
    assert time.process_time() - computed_s < BOUND_S
    assert took_s - (in_line_s() - queued_s) < BOUND_S
    assert "is a bug" not in capsys.readouterr().out


def ends_with(tally: dict[str, int]) -> Any:
    finished = {"event": "finished", "moment": "2.2", "code": 0, "tally": {**TALLY, **tally}}
    return lambda _: iter([line(finished)])


def stops_with(tally: dict[str, int]) -> Any:
    """Where it is told to; `progress` has its tally."""
    until = {"event": "stopped", "reason": "until", "moment": "1.1", "number": 2, "collective": {}, "stops": []}

    def act(rank: Hostile) -> Iterator[Any]:
        rank.tally = {**TALLY, **tally}
        yield line(until)

    return act


def goes_beyond_and_dies(_: Hostile) -> Iterator[Any]:
    """After all that was recorded, without its last message."""
    whole = {**TALLY, **dict.fromkeys(("compared", "fingerprints"), 6)}
    yield line({"event": "all_compared", "moment": "2.2", "tally": whole})
    yield line({"event": "end_of_log", "moment": "3.1", "tally": whole})
    raise ConnectionError


def test_a_rank_that_is_lost_beyond_the_recording_forbids_nothing(request_of: Any) -> None:
    result = Scripted()
    script = read(b'run_to: "9.1"\nforbid: [{name: no NaN, on: nan}]\n', "checks.yaml")
    run_scripted(request_of(goes_beyond_and_dies), script, result, bound_s=20.0, say=nothing)
    assert result.verdict is not None and result.verdict.end is End.NEXT_CALL
    assert result.findings.ending is Ending.LOST and result.findings.undecided
    assert exit_code(result, edited=False, bisect=False) == ExitCode.RANK_LOST


class Onlooker:
    def __init__(self) -> None:
        self.shown: list[str] = []

    def show(self, text: str) -> None:
        self.shown.append(text)

    def over(self) -> None:
        self.shown.append("")


def test_a_scripted_replay_says_how_far_it_is(request_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "PROGRESS_S", 0.05)
    onlooker = Onlooker()
    with looked_on_by(onlooker), contextlib.suppress(WaitTimeout):
        to_a_moment(request_of(falls_silent))
    assert "replaying: collective 0 of 3, at 0.0" in onlooker.shown and onlooker.shown[-1] == ""


def stopping(request: ReplayRequest) -> None:
    with open_replay(request, nothing) as live:
        run_to_end(live, until=Moment(1, 1), strict=False, deadline=Deadline.after(1.0))


CONTEXT = {"past_records": 4}  # the log has four collectives from before the start


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("past", [{}, CONTEXT])
@pytest.mark.parametrize(
    ("way", "act", "field"),
    [
        *((compared, ends_with, field) for field in COMPARED),
        (by_script, ends_with, "compared"),
        (stopping, stops_with, "compared"),
        (to_a_moment, stops_with, "compared"),
    ],
)
def test_a_rank_that_compared_more_than_was_recorded_is_not_believed(
    request_of: Any, way: Any, act: Any, field: str, past: dict[str, int], more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither with a verdict of its own nor by a script. What the log has from before the start counts for nothing."""
    monkeypatch.setattr(capsules, "RANK", {**capsules.RANK, **past})
    spanned = 6 - past.get("past_records", 0)
    told = {**dict.fromkeys(("compared", "fingerprints"), spanned), field: spanned + more}
    refused = pytest.raises(InvalidMessage, match=f"compared {spanned + 1} collectives, of {spanned} recorded")
    with refused if more else contextlib.nullcontext():
        way(request_of(act(told)))
