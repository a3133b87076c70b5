"""What a client may ask of a replayed rank: to go on, to stop, and everything that is looked at while it stands."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING, Any

import torch

from prismdbg.expr.parser import parse
from prismdbg.model.breakpoints import StopReason
from prismdbg.protocol.values import group_to_json
from prismdbg.protocol.wire import Message
from prismdbg.rank.debug.gate import Stop
from prismdbg.rank.debug.inspection import (
    address_of,
    bytes_of,
    difference_at,
    evaluate_at,
    frames_of,
    locals_at,
    source_at,
)
from prismdbg.rank.debug.threads import all_stacks, other_threads
from prismdbg.rank.program.frames import described
from prismdbg.rank.replay.departure import Departure
from prismdbg.rank.replay.membership import peers_at, ranks_of
from prismdbg.rank.replay.what_if import Assumption, WhatIf
from prismdbg.rank.tracing.verbs import tracing_verbs

if TYPE_CHECKING:
    from prismdbg.rank.agent import Verb
    from prismdbg.rank.replay.replayed_rank import Replaying
    from prismdbg.rank.replay.replayer import Replayer


def verbs_of(replaying: Replaying) -> dict[str, Verb]:
    counters = replaying.counters
    traced = tracing_verbs(
        replaying.agent.path.parent, lambda: (counters.step, counters.collective), lambda: replaying.at_start
    )
    traced |= {"trace": _on_the_thread(replaying, traced["trace"])}
    return {**_moving(replaying), **_surveying(replaying), **_inspecting(replaying), **traced}


def _take_end(replayer: Replayer, message: Message) -> None:
    """B, of which clients tell."""
    if message.get("end") is not None:
        replayer.end = int(message["end"])


def _on_the_thread(replaying: Replaying, verb: Verb) -> Verb:
    """Where a program stands in the middle of `import torch`, only its own thread may import more of it."""

    def asked(message: Message) -> Message:
        if replaying.gate.current is None:
            return verb(message)
        return replaying.gate.ask(lambda _: verb(message))  # type: ignore[no-any-return]

    return asked


def _moving(replaying: Replaying) -> dict[str, Verb]:
    gate, replayer = replaying.gate, replaying.replayer

    def resume(message: Message) -> Message:
        _take_end(replayer, message)
        replayer.measure.take(message)
        stop, stops = gate.current, replayer.halts.stops
        if stop is not None and stop.reason == StopReason.START:
            stops.measure_nothing()
        elif stop is not None and stop.frame is not None and not message.get("continued"):
            gate.ask(lambda stop: stops.measure(stop.names.__getitem__, stop.frame))
        gate.resume(message)
        return {}

    def depart(message: Message) -> Message:
        """From here on the rank may leave the record; `peers`: what is assumed of them."""
        replayer.departure = replayer.departure or Departure()
        replayer.what_if = WhatIf(
            [Assumption.from_json(item) for item in message.get("peers", ())],
            members=lambda group: ranks_of(group, replaying.log),
            titles=replayer.titles,
        )
        return {}

    def stops(message: Message) -> Message:
        """The whole list anew."""
        replayer.halts.stops.replace(list(message["stops"]))
        return {}

    def microscope(message: Message) -> Message:
        """From here on every operator's outputs are looked at; to be gone back from."""
        gate.ask(lambda _: replaying.look_closely(nan_only=bool(message.get("nan_only", True))))
        return {}

    def pause(_: Message) -> Message:
        gate.pause()
        return {}

    def leave(message: Message) -> Message:
        os._exit(int(message.get("code", 0)))

    return {"resume": resume, "depart": depart, "stops": stops, "microscope": microscope, "pause": pause, "quit": leave}


def _surveying(replaying: Replaying) -> dict[str, Verb]:
    """The replay as a whole, and where in it the rank stands."""
    gate, replayer, log = replaying.gate, replaying.replayer, replaying.log

    def progress(message: Message) -> Message:
        _take_end(replayer, message)
        stop = gate.current
        reply: dict[str, Any] = {"moment": str(replaying.counters.moment), "stopped": None, "collective": {}}
        if stop is not None:
            reply |= {**gate.told, "stopped": stop.reason}
        return {**reply, "number": gate.number, "tally": replayer.tally_json()}

    def surroundings(_: Message) -> Message:
        """What results may depend on beside the program, by title."""
        found = {
            "number of threads": torch.get_num_threads(),
            "instruction set": torch.backends.cpu.get_cpu_capability(),
            "version of Python": platform.python_version(),
            "version of torch": torch.__version__,
        }
        told = {"surroundings": {title: str(value) for title, value in found.items()}, **replaying.before_a}
        return {**told, **replaying.times()}

    def peers(_: Message) -> Message:
        return gate.ask(lambda stop: peers_at(stop, log))  # type: ignore[no-any-return]

    def groups(_: Message) -> Message:
        return {"groups": [group_to_json(group) for group in log.groups.values()]}

    def history(message: Message) -> Message:
        """The last collectives before the place where the rank stands."""
        count = int(message["count"])
        return {"moments": gate.ask(lambda stop: replayer.place.history(count, 1 if stop.answered else 0))}

    return {
        "progress": progress,
        "surroundings": surroundings,
        "peers": peers,
        "groups": groups,
        "history": history,
    }


def _inspecting(replaying: Replaying) -> dict[str, Verb]:
    """The program at the place where it stands: its frames and values."""
    gate, replayer = replaying.gate, replaying.replayer

    def stack(_: Message) -> Message:
        return {"frames": gate.ask(lambda stop: described(frames_of(stop)))}

    def threads(_: Message) -> Message:
        return {"threads": gate.ask(lambda _: other_threads())}

    def stacks(_: Message) -> Message:
        """Also of a rank that runs."""
        return {"threads": all_stacks()}

    def evaluate(message: Message) -> Message:
        text, frame = str(message["expression"]), int(message.get("frame", 0))
        digest = bool(message.get("digest", False))

        def value(stop: Stop) -> dict[str, Any]:
            found = evaluate_at(stop, text, frame, digest)
            if replayer.assumes(stop.moment, parse(text).names):
                found["assumed"] = True
            return found

        return {"value": gate.ask(value)}

    def difference(message: Message) -> Message:
        text, frame = str(message["expression"]), int(message.get("frame", 0))
        return gate.ask(lambda stop: difference_at(stop, text, frame, replayer.recorded_outputs))  # type: ignore[no-any-return]

    def address(message: Message) -> Message:
        text, frame = str(message["expression"]), int(message.get("frame", 0))
        return gate.ask(lambda stop: address_of(stop, text, frame))  # type: ignore[no-any-return]

    def tensor_bytes(message: Message) -> Message:
        text, frame = str(message["expression"]), int(message.get("frame", 0))
        offset, count = max(int(message.get("offset", 0)), 0), max(int(message["count"]), 0)
        return gate.ask(lambda stop: bytes_of(stop, text, frame, offset, count))  # type: ignore[no-any-return]

    def local_names(message: Message) -> Message:
        return {"locals": gate.ask(lambda stop: locals_at(stop, int(message.get("frame", 0))))}

    def source(message: Message) -> Message:
        frame, around = int(message.get("frame", 0)), int(message.get("around", 5))
        line = int(message["line"]) if message.get("line") is not None else None
        return gate.ask(lambda stop: source_at(stop, frame, around, line))  # type: ignore[no-any-return]

    return {
        "stack": stack,
        "threads": threads,
        "stacks": stacks,
        "evaluate": evaluate,
        "difference": difference,
        "address": address,
        "bytes": tensor_bytes,
        "locals": local_names,
        "source": source,
    }
