"""The line debugger: reads a line, asks the rank what the session gives for it, shows the answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, TextIO

from prismdbg.cli import stop_text
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.cli.program import Program, Unseen
from prismdbg.cli.render import plain
from prismdbg.cli.value_text import value_text
from prismdbg.errors import PrismError, RankLost, WaitTimeout
from prismdbg.model.moment import Moment
from prismdbg.protocol.client import AgentClient
from prismdbg.session import notices
from prismdbg.session.line import VERBS, Line, Verb, parse_line, verb_of
from prismdbg.session.session import Ask, Phase, Session
from prismdbg.session.story import render_story

PROMPT = "(prismdbg) "
LOOK_S = 5.0


def run_repl(
    client: AgentClient,
    lines: Iterable[str],
    output: TextIO,
    *,
    program: Program | None = None,
    end_record: int | None = None,
    bound_s: float = 600.0,
    echo: bool = False,
    patient: bool = False,
) -> int:
    """Debugs until `quit` or the end of `lines`; then the replay is ended. Gives an exit code.

    end_record: the capsule's last record. bound_s: how long the rank may run without reaching another collective.
    echo: show each line before its answer. patient: on running out of time go back to the prompt (a person decides),
    else raise `WaitTimeout`.
    """
    repl = Repl(client, Session(end_record), output, program or Unseen(), bound_s=bound_s, patient=patient)
    try:
        repl.begin()
        for line in lines:
            if echo:
                repl.show(f"{PROMPT}{line}")
            if not repl.do(line):
                break
    finally:
        repl.end()
    return repl.exit_code


class Repl:
    def __init__(
        self,
        client: AgentClient,
        session: Session,
        output: TextIO,
        program: Program,
        *,
        bound_s: float,
        patient: bool,
    ) -> None:
        self._client = client
        self._program = program
        self._output = output
        self._bound_s = bound_s
        self._patient = patient
        self._diverged = False
        self._last = ""
        self.session = session
        self._actions: dict[Verb, Callable[[Line], None]] = {
            Verb.NEXT: lambda line: self._go(self.session.next(line.number or 1)),
            Verb.CONTINUE: self._continue,
            Verb.UNTIL: self._until,
            Verb.INFO: self._info,
            Verb.WHERE: lambda _: self._where(),
            Verb.UP: lambda line: self._move(line.number or 1),
            Verb.DOWN: lambda line: self._move(-(line.number or 1)),
            Verb.LIST: lambda line: self._list(line.number),
            Verb.PRINT: lambda line: self.show(value_text(self._ask(self.session.evaluate(line.text))["value"])),
            Verb.LOCALS: lambda _: self.show(stop_text.locals_text(self._ask(self.session.local_names())["locals"])),
            Verb.PEERS: lambda _: self.show(stop_text.peers_text(self._ask(self.session.peers()))),
            Verb.HELP: self._help,
        }

    @property
    def exit_code(self) -> int:
        if self._diverged:
            return ExitCode.DIVERGED
        return ExitCode.RANK_LOST if self.session.phase is Phase.LOST else ExitCode.OK

    def show(self, text: str) -> None:
        """What came from the rank may not steer the terminal."""
        encoding = self._output.encoding or "utf-8"
        self._output.write(plain(text).encode(encoding, "replace").decode(encoding) + "\n")
        self._output.flush()

    def begin(self) -> None:
        """Until the rank stands still for the first time."""
        self.session.begin(self._client.ask("progress"))
        if self.session.phase is Phase.STOPPED:
            self._show_stop()
        else:
            self._wait()

    def do(self, text: str) -> bool:
        """Carries out one line; False for `quit`. An empty line repeats the last `next`."""
        text = text.strip() or self._last
        if not text:
            return True
        try:
            line = parse_line(text)
            self._last = text if line.verb is Verb.NEXT else ""
            if line.verb is Verb.QUIT:
                return False
            self._actions[line.verb](line)
        except RankLost as error:
            self._lost(error)
        except WaitTimeout as error:
            if not self._patient:
                raise
            self._show_error(error)
        except PrismError as error:
            self._show_error(error)
        return True

    def end(self) -> None:
        """Ends the rank; it answers by being gone."""
        ask = self.session.quit()
        if ask is not None:
            try:
                self._client.ask(ask.verb, timeout_s=LOOK_S)
            except PrismError:
                pass  # whoever started the rank waits for its process, with a bound

    def _ask(self, ask: Ask) -> dict[str, Any]:
        return self._client.ask(ask.verb, timeout_s=90.0, **ask.arguments)

    def _go(self, ask: Ask) -> None:
        self._ask(ask)
        self.session.resumed()
        self._wait()

    def _continue(self, _: Line) -> None:
        """While the rank runs (after an interrupt), it means: wait on."""
        if self.session.phase is Phase.RUNNING:
            self._wait()
        else:
            self._go(self.session.continue_())

    def _until(self, line: Line) -> None:
        assert line.moment is not None
        self._go(self.session.until(line.moment))

    def _wait(self) -> None:
        """Until the rank stops, ends or is gone. Ctrl-C asks it to stop, twice leaves it running."""
        paused = False
        while self.session.phase is Phase.RUNNING:
            try:
                self._wait_for_events()
            except KeyboardInterrupt:
                if paused:
                    self.show("the rank runs on; continue waits for it, quit ends it")
                    return
                paused = True
                self._ask(self.session.pause())
                self.show("it stops at its next collective; once more to go back to the prompt")

    def _wait_for_events(self) -> None:
        deadline, moment = time.monotonic() + self._bound_s, self.session.moment
        look_s = max(min(LOOK_S, self._bound_s), 0.01)
        while self.session.phase is Phase.RUNNING:
            try:
                event = self._client.next_event(look_s, "the rank to stop")
            except WaitTimeout:
                if (reached := self._reached(moment)) != moment:
                    deadline, moment = time.monotonic() + self._bound_s, reached
                elif time.monotonic() > deadline:
                    raise WaitTimeout(
                        f"waited {self._bound_s:g} s for the rank's next collective after {moment}",
                        hint="it may compute for longer than that, or hang; give a longer --timeout",
                    ) from None
                continue
            except RankLost as error:
                self._lost(error)
                return
            notice = notices.parse_notice(event)
            if self.session.notice(notice):
                self._tell(notice)

    def _reached(self, moment: Moment) -> Moment:
        """Where the rank is; `moment` where native code that holds the interpreter's lock keeps it from answering."""
        try:
            return Moment.parse(str(self._client.ask("progress", timeout_s=LOOK_S)["moment"]))
        except WaitTimeout:
            return moment

    def _tell(self, notice: notices.Notice) -> None:
        self._show_output()
        if isinstance(notice, notices.Stopped):
            self._show_stop()
        elif text := stop_text.notice_text(notice):
            self.show(text)
        other_state = isinstance(notice, notices.StateCompared) and not notice.equal
        self._diverged |= other_state or isinstance(notice, notices.Diverged)

    def _show_stop(self) -> None:
        stop = self.session.stop
        assert stop is not None
        source: list[str] = []
        if stop.collective:
            self.session.stack_known(self._ask(self.session.stack())["frames"])
            if self.session.frames:
                source = list(stop_text.source_lines(self._ask(self.session.source(around=2))))
        if stop.reason == "diverged" and self.session.divergence is not None:
            self.show(render_story(self.session.divergence.story, source))
        else:
            self.show("\n".join([stop_text.stop_line(stop), *source]))

    def _info(self, _: Line) -> None:
        if self.session.finished is not None:
            self.show(stop_text.finished_text(self.session.finished))
            return
        tally = self._ask(self.session.tally())["tally"]
        stop = self.session.stop
        if stop is None:
            self.show(f"{self.session.phase} after {self.session.moment}: {stop_text.tally_text(tally)}")
        else:
            self.show(stop_text.info_text(stop, tally, self.session.visited))

    def _where(self) -> None:
        self.session.stack_known(self._ask(self.session.stack())["frames"])
        self.show(stop_text.where_text(self.session.frames, self.session.frame))

    def _move(self, outwards: int) -> None:
        self.session.move(outwards)
        self._list(None, around=2)

    def _list(self, line: int | None, around: int = 5) -> None:
        self.show("\n".join(stop_text.source_lines(self._ask(self.session.source(line, around)))))

    def _help(self, line: Line) -> None:
        chosen = [verb_of(line.text)] if line.text else list(VERBS)
        for verb in chosen:
            usage = VERBS[verb]
            short = f" ({usage.short})" if usage.short else ""
            self.show(f"{f'{verb} {usage.takes}'.strip() + short:<24}{usage.meaning}")

    def _show_output(self) -> None:
        for line in self._program.new_output().splitlines():
            self.show(f"| {line}")

    def _lost(self, error: PrismError) -> None:
        ended = self._program.how_it_ended()
        self.session.lost(ended or str(error))
        self._show_output()
        if self.session.phase is Phase.LOST:
            self.show(f"the rank is gone: {self.session.lost_because}")

    def _show_error(self, error: PrismError) -> None:
        self.show(f"error: {error}" + (f"\n  {error.hint}" if error.hint else ""))
