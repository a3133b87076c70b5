"""A replayed rank and the agent's verbs for it, the same from the program's start and after a restore."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from prismdbg.capsule.log_reader import RankLog, read_log
from prismdbg.errors import UsageError
from prismdbg.model.moment import Moment
from prismdbg.protocol.values import group_to_json
from prismdbg.protocol.wire import Message
from prismdbg.rank import kernels, state_hash
from prismdbg.rank.agent import Agent
from prismdbg.rank.counters import Counters
from prismdbg.rank.departure import Departure
from prismdbg.rank.gate import Gate, Stop
from prismdbg.rank.inspection import evaluate_at, locals_at, source_at
from prismdbg.rank.membership import peers_at, ranks_of
from prismdbg.rank.peers import RecordedPeers
from prismdbg.rank.replayer import Replayer, stack_of
from prismdbg.rank.steps import COUNTER
from prismdbg.rank.what_if import Assumption, WhatIf


class Replaying:
    """Holds the parts together: `prepare`, then `install`."""

    def __init__(self, log_folder: Path, agent: Agent, counters: Counters) -> None:
        self.agent = agent
        self.log: RankLog = read_log(log_folder)
        self.counters = counters
        self.gate = Gate(agent.publish)
        self._log_folder = log_folder
        self._hashes = {int(n.data["step"]): n for n in self.log.notes if n.kind == "state"}
        self.ended = False

    def prepare(self, past_records: int = 0) -> None:
        """`past_records`: collectives that the program had issued at A."""
        past = [r for r in self.log.collectives if r.record_id < past_records]
        if past:
            self.counters.resume_before(past, past[-1].moment.step, past[-1].moment.collective)
        self.replayer = Replayer(
            self.log, RecordedPeers(self._log_folder), self.counters, self.gate, self.agent.publish
        )
        self.agent.verbs |= self.verbs()

    def install(self) -> None:
        """From here on every collective reaches the virtual peers."""
        kernels.install(self.replayer)
        os.register_at_fork(after_in_child=self._in_child)

    def _in_child(self) -> None:
        """What the rank forks is not replayed: its collectives pass, its end is not the rank's."""
        self.ended = True
        kernels.install(None)

    def on_step(self, step: int, _source: object) -> None:
        self._check_state(step)
        self.counters.begin_step(step)

    def exception(self, report: dict[str, Any]) -> None:
        self.agent.publish("exception", moment=str(self.counters.moment), **report)

    def end(self, code: int) -> None:
        """The program ends by itself."""
        if not self.ended:
            self.ended = True
            if code == 0:
                self._check_state(COUNTER.step, at_exit=True)
            self.agent.publish(
                "finished", code=code, moment=str(self.counters.moment), tally=self.replayer.tally_json()
            )

    def _check_state(self, step: int, at_exit: bool = False) -> None:
        """Compares the parameters' hash where the record has one for this place."""
        note = self._hashes.get(COUNTER.step if at_exit else step)
        optimizer = COUNTER.optimizer() if COUNTER.optimizer is not None else None
        if self.replayer.departed:
            return
        if note is not None and optimizer is not None and (at_exit or step in self._hashes):
            actual = f"{state_hash.of(optimizer):016x}"
            expected = note.data["hash"]
            self.agent.publish(
                "state",
                moment=str(self.counters.moment),
                expected=expected,
                actual=actual,
                equal=actual == expected,
            )

    def verbs(self) -> dict[str, Any]:
        gate, replayer = self.gate, self.replayer

        def resume(message: Message) -> Message:
            until = message.get("until")
            if "end" in message and message["end"] is not None:
                replayer.end = int(message["end"])
            replayer.strict = bool(message.get("strict", replayer.strict))
            gate.resume(Moment.parse(str(until)) if until else None, int(message.get("count", 0)))
            return {}

        def depart(message: Message) -> Message:
            """From here on the rank may leave the record; `peers`: what is assumed of them."""
            replayer.departure = replayer.departure or Departure()
            replayer.what_if = WhatIf(
                [Assumption.from_json(item) for item in message.get("peers", ())],
                members=lambda group: ranks_of(group, self.log),
                titles=self._titles,
            )
            return {}

        def progress(_: Message) -> Message:
            stop = gate.current
            return {
                "moment": str(self.counters.moment),
                "stopped": stop.reason if stop is not None else None,
                "number": gate.number,
                "collective": stop.event if stop is not None else {},
                "tally": replayer.tally_json(),
            }

        def stack(_: Message) -> Message:
            return {"frames": gate.ask(lambda stop: stack_of(stop.frame))}

        def evaluate(message: Message) -> Message:
            text, frame = str(message["expression"]), int(message.get("frame", 0))
            return {"value": gate.ask(lambda stop: evaluate_at(stop, text, frame))}

        def local_names(message: Message) -> Message:
            return {"locals": gate.ask(lambda stop: locals_at(stop, int(message.get("frame", 0))))}

        def source(message: Message) -> Message:
            frame, around = int(message.get("frame", 0)), int(message.get("around", 5))
            line = int(message["line"]) if message.get("line") is not None else None
            return gate.ask(lambda stop: source_at(stop, frame, around, line))  # type: ignore[no-any-return]

        def peers(_: Message) -> Message:
            return gate.ask(lambda stop: peers_at(stop, self.log))  # type: ignore[no-any-return]

        def groups(_: Message) -> Message:
            return {"groups": [group_to_json(group) for group in self.log.groups.values()]}

        def pause(_: Message) -> Message:
            gate.pause()
            return {}

        def leave(message: Message) -> Message:
            os._exit(int(message.get("code", 0)))

        return {
            "resume": resume,
            "depart": depart,
            "progress": progress,
            "stack": stack,
            "evaluate": evaluate,
            "locals": local_names,
            "source": source,
            "peers": peers,
            "groups": groups,
            "pause": pause,
            "quit": leave,
        }

    def _titles(self, group: str) -> tuple[str, ...]:
        known = self.log.groups.get(group)
        return (group, known.title, known.desc) if known is not None else (group,)

    def hold(self, reason: str) -> None:
        """Stops the calling thread until a client resumes it."""
        self.gate.stop(Stop(reason, self.counters.moment, {}, None, {}))

    def require_idle(self) -> None:
        if self.gate.current is None:
            raise UsageError("the rank is running")
