"""Freezes what a replayed rank's agent and its clients say to each other: the shape of every request's answer and of
every event. `make golden` writes it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from chain import Taken

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.jobs.replay.replay import ReplayRequest, open_replay
from prismdbg.protocol.client import AgentClient, AgentError

pytestmark = [pytest.mark.job]

GOLDEN = Path(__file__).parents[2] / "golden" / "wire.json"
BOUND_S = 60.0
BY_NAME = ("place", "ignored")  # their keys are data


def shape(value: Any, name: str = "") -> Any:
    """Keys and kinds instead of values; of a list its first element."""
    if isinstance(value, dict):
        return "by name" if name in BY_NAME else {key: shape(item, key) for key, item in sorted(value.items())}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


class Talk:
    """What was said over one client, by verb and by event; the first of each kind."""

    def __init__(self, client: AgentClient, end_record: int) -> None:
        self._client = client
        self.end_record = end_record
        self.said: dict[str, Any] = {"requests": {}, "events": {}}

    def ask(self, verb: str, **arguments: Any) -> dict[str, Any]:
        reply = self._client.ask(verb, timeout_s=BOUND_S, **arguments)
        answer = {key: value for key, value in reply.items() if key not in ("id", "ok")}
        entry = {"request": shape(arguments), "reply": shape(answer)}
        self.said["requests"].setdefault(verb, entry)
        return reply

    def until(self, wanted: str) -> dict[str, Any]:
        while True:
            event = self._client.next_event(BOUND_S, wanted)
            kind = event["event"] + (f" ({event['reason']})" if event["event"] == "stopped" else "")
            self.said["events"].setdefault(kind, shape(event))
            if kind == wanted:
                return event

    def verbs(self) -> list[str]:
        with pytest.raises(AgentError) as raised:
            self._client.ask("no such verb")
        return re.findall(r"\w+", raised.value.hint.removeprefix("verbs: "))


@contextmanager
def talking(capsule: Path) -> Iterator[Talk]:
    request = ReplayRequest(capsule=Capsule.open(capsule), runtime="local")
    with open_replay(request, lambda _: None) as live:
        yield Talk(live.client, live.end_record)


def a_run_to_the_end(talk: Talk) -> None:
    talk.ask(
        "stops", stops=[{"number": 1, "kind": "collective", "op": "all_reduce", "log_only": True, "message": "{seq}"}]
    )
    talk.ask("resume", end=talk.end_record, stops="apply")
    talk.until("stopped (end of the log)")
    talk.ask("progress")
    talk.ask("resume", stops="off")
    talk.until("finished")


def every_look_and_a_departure(talk: Talk) -> None:
    talk.ask("hello")
    talk.ask("depart", peers=[{"since": "3.2", "until": None, "ranks": [0], "group": "", "answer": "zeros"}])
    talk.ask("resume", count=2, until=None, end=None, strict=False, stops="apply")
    talk.until("stopped (next)")
    for verb in ("progress", "stack", "threads", "peers", "groups"):
        talk.ask(verb)
    for verb in ("evaluate", "difference", "address"):
        talk.ask(verb, expression="out[0]", frame=0)
    talk.ask("bytes", expression="out[0]", frame=0, offset=0, count=4)
    talk.ask("locals", frame=0)
    talk.ask("source", frame=0, around=2, line=None)
    talk.ask("history", count=3)
    talk.ask("pause")
    talk.ask("resume", until="2.1", stops="apply")
    talk.until("stopped (paused)")
    talk.ask("stops", stops=[{"number": 2, "kind": "collective", "condition": "nowhere > 3"}])
    talk.ask("resume", until="4.1", stops="apply")
    talk.until("stopped (until)")


def a_call_that_fails(talk: Talk) -> None:
    talk.ask("depart", peers=[{"since": "1.1", "ranks": [0], "missing": True}])
    talk.ask("resume", stops="apply")
    talk.until("stopped (exception)")


def test_the_messages_are_the_frozen_ones(nan_from_start: Taken, request: pytest.FixtureRequest) -> None:
    said: dict[str, Any] = {"requests": {}, "events": {}}
    for scene in (every_look_and_a_departure, a_run_to_the_end, a_call_that_fails):
        with talking(nan_from_start.capsule) as talk:
            said["verbs"] = talk.verbs()
            scene(talk)
        said["requests"] = {**talk.said["requests"], **said["requests"]}
        said["events"] = {**talk.said["events"], **said["events"]}
    text = json.dumps(said, indent=1, sort_keys=True) + "\n"
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(text)
    assert json.loads(text) == json.loads(GOLDEN.read_text()), "changed on purpose? `make golden`"
