"""The thread that owns a replayed rank: starts it, carries lines to it, tells what it does, cleans up after it."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from textual.message import Message

from prismdbg.errors import PrismError, RankLost, WaitTimeout
from prismdbg.session.session import Session
from prismdbg_tui.conversation import Conversation
from prismdbg_tui.messages import Failed, LiveEnded, OutputGrew, Said, StateChanged
from prismdbg_tui.output_tail import OutputTail
from prismdbg_tui.views import Phase, State

if TYPE_CHECKING:  # to look at a record needs nothing that runs one
    from prismdbg.workflows.replay import LiveReplay

LOOK_S = 0.1
END_BOUND_S = 10.0
Tell = Callable[[Message], object]
Say = Callable[[str], None]
Opens = Callable[[Say], "AbstractContextManager[LiveReplay]"]
Command = Callable[[Conversation], None]


class Live(Protocol):
    """What the screen asks of a rank. Returns at once; answers come as messages."""

    def start(self, tell: Tell) -> None: ...

    def type_line(self, text: str) -> None: ...

    def choose_frame(self, by: int) -> None: ...

    def pause(self) -> None: ...

    def close(self) -> None: ...

    def wait(self, bound_s: float) -> bool: ...


class _Cancelled(PrismError):
    """The person did not want to wait for the start."""


class LiveRank:
    """`opens` starts the rank; everything else is messages to `tell` and commands from any thread."""

    def __init__(self, opens: Opens) -> None:
        self._opens = opens
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="prismdbg-live", daemon=True)
        self._tell: Tell = lambda _: None
        self._state = State(phase=Phase.STARTING, since_s=time.monotonic(), doing="starting the replay")

    def start(self, tell: Tell) -> None:
        self._tell = tell
        self._thread.start()

    def type_line(self, text: str) -> None:
        self._commands.put(lambda conversation: conversation.line(text))

    def choose_frame(self, by: int) -> None:
        self._commands.put(lambda conversation: conversation.choose_frame(by))

    def pause(self) -> None:
        """While it starts: give up."""
        if self._state.phase is Phase.STARTING:
            self._closing.set()
        self._commands.put(Conversation.pause)

    def close(self) -> None:
        self._closing.set()

    def wait(self, bound_s: float) -> bool:
        """Until everything is cleaned up; False where that takes longer."""
        if self._thread.ident is not None:
            self._thread.join(bound_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._progress("starting the replay")
            with self._opens(self._progress) as live:
                self._serve(live)
        except _Cancelled:
            self._lost("the start was given up")
        except PrismError as error:
            self._lost(str(error))
            self._tell(Failed(str(error), error.hint, fatal=True))
        except Exception as error:  # a defect here must not leave a screen that waits for ever
            self._lost(f"{type(error).__name__}: {error}")
            self._tell(Failed(f"{type(error).__name__}: {error}", "this is a defect of prismdbg", fatal=True))
        finally:
            self._tell(LiveEnded())

    def _progress(self, text: str) -> None:
        if self._closing.is_set():
            raise _Cancelled("given up")
        self._state = replace(self._state, doing=text)
        self._tell(StateChanged(self._state))
        self._tell(Said(text, "event"))

    def _lost(self, why: str) -> None:
        self._state = replace(self._state, phase=Phase.LOST, lost_because=why)
        self._tell(StateChanged(self._state))

    def _serve(self, live: LiveReplay) -> None:
        self._state = replace(
            self._state, phase=Phase.RUNNING, runtime=live.runtime, first_record=live.first_record, doing=""
        )
        conversation = Conversation(live.client, Session(live.end_record), self._tell, self._state)
        tail = OutputTail(Path(live.output))
        try:
            conversation.begin()
            while not self._closing.is_set():
                self._turn(live, conversation)
                self._state = conversation.state
                if text := tail.grown():
                    self._tell(OutputGrew(text))
        except RankLost as error:
            conversation.lost(_how_it_ended(live) or str(error))
            self._state = conversation.state
            self._tell(OutputGrew(tail.grown()))
            self._closing.wait()
        else:
            conversation.end()

    def _turn(self, live: LiveReplay, conversation: Conversation) -> None:
        """One command, or a short wait for what the rank tells: also a stopped rank may die."""
        try:
            self._commands.get_nowait()(conversation)
        except queue.Empty:
            try:
                conversation.event(live.client.next_event(LOOK_S, "what the rank tells"))
            except WaitTimeout:
                pass


def _how_it_ended(live: LiveReplay) -> str:
    try:
        return f"its process ended with {live.running.wait(END_BOUND_S)}"
    except PrismError as error:
        return str(error)
