"""The host's side of a replay reads a hostile rank's messages: no traceback, no endless wait, bounded memory."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from capsules import IMAGE, make_capsule

from prismdbg.capsule.manifest import Incident, IncidentKind
from prismdbg.cli.commands import replay
from prismdbg.cli.terminal.repl import run_repl
from prismdbg.debugger.debugger import Debugger, Settings
from prismdbg.errors import RankLost, WaitTimeout
from prismdbg.jobs.replay.compare import run_to_end
from prismdbg.jobs.replay.replay import LiveReplay
from prismdbg.model.deadline import Deadline
from prismdbg.protocol import client as protocol_client
from prismdbg.protocol import wire
from prismdbg.protocol.client import AgentClient, AgentError, NotWaitedFor, connect_when_ready
from prismdbg.protocol.messages import EVENTS, REPLIES, checked_event, checked_reply
from prismdbg.protocol.wire import InvalidMessage, parse_line
from prismdbg.render import console
from prismdbg.session.answers import Value
from prismdbg.session.causes import ALL_HIDDEN
from tests.only_forward import OnlyForward
from tests.unit.hostile_rank import TALLY, HostileRank, Says, answers, line

BOUND_S = 20.0
CALL = {
    "profiling_name": "all_reduce", "process_group": "0", "identity": "group 0 #3", "record_id": 1, "op": "allreduce_",
    "inputs": ["float32[1]"], "outputs": [], "reduce_op": "SUM", "root": None, "tag": None, "is_async": False,
}  # fmt: skip
FRAME = {"filename": "train.py", "line": 3, "name": "main"}
RECORDED = {
    "moment": "1.1", "profiling_name": "all_reduce", "process_group": "0", "input_sizes": [[1]], "input_dtypes": ["f"],
    "output_sizes": [[1]], "output_dtypes": ["f"], "frames": [FRAME], "reduce_op": "SUM", "root": None, "tag": None,
}  # fmt: skip
DIFFERENCE = {"field": "op", "expected": "a", "actual": "b", "structural": True}
STORY = {
    "moment": "1.1", "expected": RECORDED, "actual": {**CALL, "frames": [FRAME]}, "differences": [DIFFERENCE],
    "history": [RECORDED], "tally": TALLY,
}  # fmt: skip
GOOD_EVENTS: dict[str, Any] = {
    "stopped": {
        "reason": "until", "moment": "1.1", "number": 2, "collective": CALL, "stops": [1], "ignored": {"1": 2},
        "answered": True, "place": {"sent": "00"}, "hits": [{"moment": "1.1", "stop": 1, "block": 3}], "events": 0,
        "events_before": 1, "writer": {"moment": "1.1.2", "op": "aten::mm", "frames": [FRAME]},
        "origin": {"moment": "1.1.2", "op": "aten::mm", "frames": [FRAME], "born": True},
    },
    "diverged": STORY,
    "departed": STORY,
    "synthesized": {"moment": "1.1", "collective": CALL},
    "skipped": {"moment": "1.1", "begun": 2, "in_a_row": 1},
    "end_of_log": {"moment": "3.1", "tally": TALLY},
    "all_compared": {"moment": "3.1", "tally": TALLY},
    "state": {"moment": "2.1", "equal": True, "expected": "1", "actual": "1"},
    "exception": {"moment": "2.1", "type": "ValueError", "text": "no", "traceback": ["x"], "thread": True},
    "finished": {"moment": "2.1", "code": 0, "tally": TALLY},
    "hit": {"moment": "2.1", "stop": 1, "collective": CALL},
    "stop_failed": {"moment": "2.1", "stop": 1, "error": "no"},
    "note": {"text": "x"},
}  # fmt: skip
TENSOR = {
    "kind": "tensor", "dtype": "float32", "shape": [2], "device": "cpu", "requires_grad": False, "slice": "",
    "stats": {"min": 0.0, "max": 1.0, "mean": "nan", "std": None, "nan": 0, "inf": 0}, "values": [[1.0, "nan"]],
    "histogram": {"low": 0.0, "high": 1.0, "counts": [1, 2]}, "sharded": {"shape": [4], "placements": ["S(0)"]},
}  # fmt: skip
MODULE = {
    "kind": "module", "type": "M", "training": True, "parameters": 1, "trainable": 1, "own": [["a", "b"]],
    "children": [],
}  # fmt: skip
VALUE = {
    "kind": "sequence", "type": "list", "length": 4, "digest": "d", "hidden": ["x"], "assumed": False,
    "items": [
        TENSOR, MODULE, {"kind": "scalar", "type": "int", "value": 2**400}, {"kind": "more"},
        {"kind": "mapping", "type": "dict", "length": 1, "items": [["k", {"kind": "of tomorrow"}]]},
        {"kind": "object", "type": "O", "text": "o", "fields": [["f", {"kind": "more"}]]},
    ],
}  # fmt: skip
GOOD_REPLIES: dict[str, Any] = {
    "progress": {**GOOD_EVENTS["stopped"], "stopped": "until", "tally": TALLY},
    "stack": {"frames": [FRAME]},
    "threads": {"threads": [{"thread": 1 << 47, "name": "loader", "frames": [FRAME]}]},
    "stacks": {"threads": [{"name": "MainThread", "frames": [FRAME]}]},
    "source": {"filename": "x", "line": 1, "first": 1, "lines": ["a"], "function": "f", "length": 3},
    "locals": {"locals": [{"from": "local", "name": "x", "type": "int", "text": "1"}]},
    "evaluate": {"value": VALUE},
    "bytes": {"data": "AAA=", "count": 2, "bytes": 8, "address": 4096, "dtype": "int8", "shape": [8]},
    "difference": {"equal": False, "differing": 1, "elements": 2, "largest": 0.5, "value": TENSOR},
    "address": {"address": 1 << 63},
    "block": {"block": {"moment": "1.1", "op": "x", "frames": [FRAME], "size_bytes": 1, "is_before": False}},
    "peers": {
        "group": "0", "title": "0", "size": 1, "recorded_ns": None,
        "members": [{"rank": 0, "group_rank": 0, "role": "recorded", "arrived": "unknown"}],
    },
    "history": {"moments": ["1.1"]},
    "surroundings": {"surroundings": {"version of torch": "2"}},
    "trace": {"on": True, "path": "/x/trace", "records": 3},
    "replay": {"record_id": 3},
}  # fmt: skip
HOSTILE: list[Any] = [
    None, True, -1, 2**70, 1e300, "x", "", "9.9.9.9", "\0", "\ud800", [], [None], [[[[]]]], {}, {"": None}, {"x": []},
]  # fmt: skip


def damaged(value: Any, every: int = 1) -> Iterator[dict[str, Any]]:
    """The messages that one change anywhere in it gives: another value, or nothing. every: that of so many; of 5,
    each place has some of the values, and each value some of the places."""
    return (message for message in itertools.islice(_damaged(value), None, None, every) if isinstance(message, dict))


def _damaged(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield {key: each for key, each in value.items() if key != name}
            yield from ({**value, name: other} for other in _damaged(item))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from ([*value[:place], other, *value[place + 1 :]] for other in _damaged(item))
    yield from HOSTILE


def test_every_message_of_a_replay_has_an_example() -> None:
    assert GOOD_EVENTS.keys() == EVENTS.keys() and GOOD_REPLIES.keys() == REPLIES.keys()
    for kind, event in GOOD_EVENTS.items():
        assert checked_event({"event": kind, **event})
    for verb, reply in GOOD_REPLIES.items():
        assert checked_reply(verb, reply)


def lines_of(message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.sock"


@contextlib.contextmanager
def rank_that(path: Path, says: Says) -> Iterator[AgentClient]:
    rank = HostileRank(path, says)
    try:
        with AgentClient(path) as client:
            yield client
    finally:
        rank.close()


CHATTER = [
    pytest.param([{"id": 77, "ok": True}], id="answers to no request"),
    pytest.param([{"event": "note", "text": "x"}], id="events"),
]


def endless(said: list[Any]) -> Iterator[bytes]:
    while True:
        yield from map(line, said)


@pytest.mark.parametrize("said", CHATTER)
def test_a_rank_that_chatters_does_not_lengthen_the_wait_for_an_answer(path: Path, said: list[Any]) -> None:
    began = time.monotonic()
    with rank_that(path, lambda _: endless(said)) as client, pytest.raises((WaitTimeout, InvalidMessage)):
        client.ask("progress", timeout_s=0.3)
    assert time.monotonic() - began < BOUND_S


def test_a_rank_that_chatters_does_not_lengthen_the_wait_for_an_event(path: Path) -> None:
    """One that has many requests to answer may do so late, but each only once."""

    def says(request: dict[str, Any]) -> Any:
        return None if request["id"] < 50 else endless([answers({"id": number}) for number in range(1, 51)])

    with rank_that(path, says) as client:
        for _ in range(49):
            with pytest.raises(WaitTimeout):
                client.ask("quit", timeout_s=0.001)
        client.ask("quit", timeout_s=BOUND_S)
        began = time.monotonic()
        with pytest.raises((WaitTimeout, InvalidMessage)):
            client.next_event(0.3, "an event")
        assert time.monotonic() - began < BOUND_S


def test_late_answers_are_none_to_a_later_request_and_cost_no_time(path: Path) -> None:
    """Each request has one reply; that to a request that nobody waits for any more is passed over."""

    def says(request: dict[str, Any]) -> Any:
        if request["do"] == "stack":
            return None
        late = answers({"id": request["id"] - 1}, frames=[])
        return [late, answers(request, moments=["1.1"])]

    with rank_that(path, says) as client:
        with pytest.raises(WaitTimeout, match=r"waited 0\.05 s for the agent's answer to 'stack'"):
            client.ask("stack", timeout_s=0.05)
        assert client.ask("history", timeout_s=BOUND_S)["moments"] == ["1.1"]


LINES = [
    pytest.param(b"\xff\xfe{}\n", id="not UTF-8"),
    pytest.param(b'{"event": "note", "text": "\xed\xa0\x80"}\n', id="a surrogate in UTF-8"),
    pytest.param(b"[" * 5000 + b"]" * 5000 + b"\n", id="nested lists"),
    pytest.param(b'{"event": "x", "y": ' + b"[" * 100 + b"]" * 100 + b"}\n", id="nested a little"),
    pytest.param(b'{"id": ' + b"9" * 5000 + b"}\n", id="a huge number"),
    pytest.param(b'{"event": "note", "text": NaN}\n', id="NaN"),
    pytest.param(b'{"event": "note", "text": 1e999}\n', id="an infinity"),
    pytest.param(b"[]\n", id="a list"),
    pytest.param(b"3\n", id="a number"),
    pytest.param(b"\n", id="nothing"),
    pytest.param(b"{}\n", id="an answer without a number"),
    pytest.param(b'{"id": [1], "ok": true}\n', id="a list as a number"),
    pytest.param(b'{"id": 1, "ok": true}\n{"id": 1, "ok": true}\n', id="two answers to one request"),
    pytest.param(b'{"event": null}\n', id="an event without a name"),
    pytest.param(b'{"event": ["note"]}\n', id="a list as an event"),
    pytest.param(b'{"event": "x", "y": [' + b"[]," * 300_000 + b"[]]}\n", id="many objects"),
    pytest.param(b'{"event": "x", "y": [' + b"0," * 3_000_000 + b"0]}\n", id="many values"),
    pytest.param(b"x" * (wire.MAX_LINE_BYTES + (1 << 20)), id="a line without end"),
]


@pytest.mark.parametrize("said", LINES)
def test_a_line_that_is_no_message_ends_the_connection(path: Path, said: bytes) -> None:
    with rank_that(path, lambda _: said) as client:
        with pytest.raises(InvalidMessage, match=r"received|the rank sent"):
            client.ask("quit", timeout_s=BOUND_S)
            client.next_event(BOUND_S, "an event")
        with pytest.raises(RankLost):
            client.ask("quit", timeout_s=BOUND_S)


def test_half_a_line_is_waited_for_and_then_lost(path: Path) -> None:
    with rank_that(path, lambda _: b'{"id": 1, "o') as client, pytest.raises(WaitTimeout):
        client.ask("quit", timeout_s=0.1)


def test_texts_of_a_rank_can_be_encoded() -> None:
    """A lone surrogate stays no surrogate; two that are a character stay that."""
    told = parse_line(b'{"event": "note", "text": "a\\ud800b\\ud83d\\ude00c\\\\ud800"}')
    assert told["text"] == "a?b\U0001f600c\\ud800"
    assert parse_line('{"event": "é\U0001f600"}'.encode())["event"] == "é\U0001f600"


@pytest.mark.parametrize("bound", ["count", "bytes"])
def test_events_that_nobody_takes_are_bounded(path: Path, monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    monkeypatch.setattr(protocol_client, "MAX_EVENTS", 100 if bound == "count" else 1 << 20)
    monkeypatch.setattr(protocol_client, "MAX_EVENT_BYTES", 1 << 40 if bound == "count" else 10_000)
    told, why = [{"event": "note", "text": "x" * 100}] * 200, r"more than \d+ events or \d+ MiB of them at once"
    with rank_that(path, lambda _: told) as client, pytest.raises(InvalidMessage, match=why):
        client.ask("quit", timeout_s=BOUND_S)


def test_many_events_that_are_taken_are_not(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long replay tells more than may be kept at once."""
    monkeypatch.setattr(protocol_client, "MAX_EVENTS", 10)
    monkeypatch.setattr(protocol_client, "MAX_EVENT_BYTES", 1000)

    def says(request: dict[str, Any]) -> Any:
        return [answers(request), *[{"event": "note", "text": "x"}] * 1000]

    with rank_that(path, says) as client:
        client.ask("resume", timeout_s=BOUND_S)
        for _ in range(1000):
            client.next_event(BOUND_S, "an event")


def test_a_hostile_greeting_is_not_asked_for_again(path: Path) -> None:
    rank = HostileRank(path, lambda _: b"nonsense\n")
    try:
        with pytest.raises(InvalidMessage, match="invalid JSON"):
            connect_when_ready(path, bound_s=BOUND_S, still_alive=lambda: True)
        assert rank.connections == 1
    finally:
        rank.close()


# the whole of `replay` and of `debug`, over every message with one damage anywhere


class Ended:
    """The process of a hostile rank, which lives on."""

    def wait(self, timeout_s: float) -> int:
        raise WaitTimeout(f"waited {timeout_s:g} s for the rank to end")

    def require_no_limit_met(self, *, ends: bool) -> None:
        return None

    def rank_pid(self) -> None:
        return None


class OneMessage:
    """A client whose rank sends these events, and these answers, checked as the real one's are."""

    def __init__(self, events: list[Any], replies: dict[str, Any] | None = None) -> None:
        self._events, self._replies = iter(events), replies or {}

    def ask(self, verb: str, **_: Any) -> Any:
        return checked_reply(verb, parse_line(json.dumps(self._replies.get(verb, {})).encode()))

    def next_event(self, timeout_s: float, what: str) -> Any:
        try:
            return checked_event(parse_line(json.dumps(next(self._events)).encode()))
        except StopIteration:
            raise RankLost("the connection closed") from None


MANY = [
    ("peers", {"members": [{"rank": 0, "group_rank": 0, "role": "x", "arrived": "x"}] * 5000}),
    ("peers", {"members": [{"rank": 0, "group_rank": 0, "role": "x" * 10_000, "arrived": "x"}]}),
    ("progress", {"place": {str(number): "0" for number in range(100)}}),
    ("progress", {"place": {"x" * 10_000: "0"}}),
    ("progress", {"hits": [{"moment": "1.1", "stop": 1}] * 100_001}),
    ("evaluate", {"value": {**TENSOR, "digest": "x" * 10_000}}),
]


@pytest.mark.parametrize(("verb", "more"), MANY)
def test_what_is_kept_or_shown_in_columns_is_short(verb: str, more: dict[str, Any]) -> None:
    """A column is as wide as its longest cell, in every row."""
    with pytest.raises(InvalidMessage, match=r"is longer than|more than"):
        checked_reply(verb, GOOD_REPLIES[verb] | more)


@pytest.mark.parametrize("shape", [[-1, -4], [0, 2**62, 2**62], [2**32, 2**31]], ids=str)
def test_a_shape_is_one_that_a_tensor_can_have(shape: list[int]) -> None:
    """Else it would be written into the header of a file."""
    with pytest.raises(InvalidMessage, match="shape"):
        checked_reply("bytes", GOOD_REPLIES["bytes"] | {"shape": shape})
    checked_reply("bytes", GOOD_REPLIES["bytes"] | {"shape": [0, 2**31, 2**31]})


def test_the_story_of_a_divergence_is_short() -> None:
    for history in ([RECORDED] * 100, [{**RECORDED, "input_sizes": [[1] * 1000]}]):
        with pytest.raises(InvalidMessage, match="more than 64"):
            checked_event({"event": "diverged", **STORY, "history": history})


LOOKS = ("info", "where", "up", "list", "print x", "stats x", "diff out[0]", "locals", "peers", "watch x", "break nan")
MOVES = ("next", "watch y", "step", "who wrote x", "who allocated x", "origin x", "memory", "reverse-next", "finish")


class DamagedRank(OneMessage):
    """In a debugger: it stands at once, and after each `resume`; before that it says `event`."""

    def __init__(self, event: dict[str, Any] | None = None, replies: dict[str, Any] | None = None) -> None:
        super().__init__([], {**GOOD_REPLIES, **(replies or {})})
        self._event, self._number = event, 2
        self._told: list[Any] = []

    def ask(self, verb: str, **told: Any) -> Any:
        if verb == "resume":
            self._number += 1
            stand = {"event": "stopped", **GOOD_EVENTS["stopped"], "number": self._number}
            self._told = [{"number": self._number, **event} for event in (self._event, stand) if event is not None]
        return super().ask(verb, **told)

    def next_event(self, timeout_s: float, what: str) -> Any:
        if not self._told:
            raise WaitTimeout(f"waited for {what}")
        return checked_event(parse_line(json.dumps(self._told.pop(0)).encode()))


def debugged(rank: DamagedRank, lines: tuple[str, ...]) -> str:
    """What the terminal shows."""
    travel, shown = OnlyForward(cast(AgentClient, rank)), io.StringIO()
    settings = Settings(bound_s=0.05, checkpoints=False)
    with contextlib.suppress(RankLost, WaitTimeout):
        run_repl(lambda tell: Debugger(travel, tell, settings=settings), lines, shown, patient=True)
    return shown.getvalue()


def test_a_debugger_shows_what_a_good_rank_says() -> None:
    shown = debugged(DamagedRank(), (*LOOKS, *MOVES))
    assert "float32[2] cpu" in shown and "is a bug" not in shown


class RefusingRank(DamagedRank):
    """Says why it gives no value, in lines of its own."""

    def ask(self, verb: str, **told: Any) -> Any:
        if verb == "evaluate":
            raise AgentError("no\nstopped at 9.9", hint="none\nstopped at 9.9")
        return super().ask(verb, **told)


def test_an_error_of_a_hostile_rank_begins_no_line() -> None:
    shown = debugged(RefusingRank(), ("print x",))
    assert "error: no\n  stopped at 9.9\n  try: none stopped at 9.9\n" in shown


def test_what_a_hostile_rank_says_of_an_error_is_one_line(tmp_path: Path) -> None:
    """As a line of its own below an error it would look like our advice."""
    refusal = {"ok": False, "error": "no\ntry: anything", "hint": "none\ntry: anything"}
    rank = HostileRank(tmp_path / "agent.sock", lambda request: {"id": request["id"], **refusal})
    with AgentClient(tmp_path / "agent.sock") as client, pytest.raises(AgentError) as raised:
        client.ask("groups")
    rank.close()
    assert (str(raised.value), raised.value.hint) == ("no try: anything", "none try: anything")


def replay_to_a_verdict_or_an_error(folder: Path, kind: str, incident: IncidentKind, every: int) -> None:
    capsule = make_capsule(folder / "capsule", replace(IMAGE, incident=Incident(kind=incident, text="x")))
    for told in damaged(GOOD_EVENTS[kind], every):
        rank = OneMessage(
            [{**told, "event": kind}, {"event": "end_of_log", "moment": "3.1", "tally": TALLY}], GOOD_REPLIES
        )
        live = SimpleNamespace(
            capsule=capsule,
            client=rank,
            running=Ended(),
            runtime="local",
            first_record=0,
            end_record=5,
            unhidden=ALL_HIDDEN,
        )
        try:
            verdict = run_to_end(cast(LiveReplay, live), until=None, strict=False, deadline=Deadline.after(BOUND_S))
            assert verdict.summary and console.plain(json.dumps(replay._json(verdict, "", "local")))
            replay._print(verdict, "", "")
        except (RankLost, WaitTimeout) as error:
            assert "\n" not in str(error)


def debug_hostile_events(kind: str, every: int) -> None:
    for told in damaged(GOOD_EVENTS[kind], every):
        assert "is a bug" not in debugged(DamagedRank({**told, "event": kind}), ("next", "info")), told


def debug_hostile_answers(verb: str, every: int) -> None:
    lines = (*LOOKS, *MOVES) if verb != "evaluate" else ("print x",)
    for told in damaged(GOOD_REPLIES[verb], every):
        shown = debugged(DamagedRank(replies={verb: told}), lines)
        assert "is a bug" not in shown, (told, shown)


of_kinds = pytest.mark.parametrize("kind", sorted(GOOD_EVENTS))
of_incidents = pytest.mark.parametrize("incident", [IncidentKind.HANG, IncidentKind.LOST])
of_verbs = pytest.mark.parametrize("verb", sorted(GOOD_REPLIES))


@of_kinds
@of_incidents
def test_a_replay_of_a_hostile_rank_ends_with_a_verdict_or_an_error(
    tmp_path: Path, kind: str, incident: IncidentKind
) -> None:
    replay_to_a_verdict_or_an_error(tmp_path, kind, incident, every=5)


@of_kinds
@of_incidents
def test_a_replay_of_a_rank_with_any_damage_ends_with_a_verdict_or_an_error(
    tmp_path: Path, kind: str, incident: IncidentKind
) -> None:
    replay_to_a_verdict_or_an_error(tmp_path, kind, incident, every=1)


@of_kinds
def test_a_debugger_of_a_hostile_rank_takes_its_events(kind: str) -> None:
    debug_hostile_events(kind, every=5)


@of_kinds
def test_a_debugger_takes_events_with_any_damage(kind: str) -> None:
    debug_hostile_events(kind, every=1)


@of_verbs
def test_a_debugger_of_a_hostile_rank_takes_its_answers(verb: str) -> None:
    debug_hostile_answers(verb, every=5)


@of_verbs
def test_a_debugger_takes_answers_with_any_damage(verb: str) -> None:
    debug_hostile_answers(verb, every=1)


def test_a_rank_that_only_chatters_does_not_lengthen_a_debuggers_wait() -> None:
    """Whatever it tells, only a collective says that it gets on."""
    rank = DamagedRank()
    debugger = Debugger(
        OnlyForward(cast(AgentClient, rank)), lambda _: None, settings=Settings(bound_s=0.3, checkpoints=False)
    )
    debugger.begin()
    said = itertools.repeat({"event": "note", "text": "x"})
    rank.next_event = lambda *_: checked_event(next(said))  # type: ignore[method-assign]
    began = time.monotonic()
    with pytest.raises(WaitTimeout, match=r"waited 0\.3 s for the rank's next collective"):
        debugger.do("next")
    assert time.monotonic() - began < BOUND_S


def test_ctrl_c_gives_up_an_answer_that_does_not_come_and_the_next_one_is_told_apart(path: Path) -> None:
    asked, free = threading.Event(), threading.Event()

    def says(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "evaluate" and not asked.is_set():
            asked.set()
            free.wait(BOUND_S)
            return answers(request, value={**TENSOR, "shape": [99]})
        return answers(request, **GOOD_REPLIES[request["do"]])

    with rank_that(path, says) as client:
        debugger = Debugger(OnlyForward(client), lambda _: None, settings=Settings(checkpoints=False))
        debugger.begin()

        def interrupt() -> None:
            asked.wait(BOUND_S)
            assert not debugger.interrupt(), "no rank is asked to stop"

        with ThreadPoolExecutor(1) as one:
            told = one.submit(interrupt)
            with pytest.raises(NotWaitedFor, match="the wait for the agent's answer to 'evaluate' was cancelled"):
                debugger.do("print x")
            told.result()
        free.set()
        answer = debugger.do("print x")
        assert isinstance(answer, Value) and answer.value.get("shape") != [99]
