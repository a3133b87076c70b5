"""Questions that only the past answers: who wrote a value, who allocated it, where the first NaN came from.

Each runs back to the moment, first from collective to collective, then from operator to operator where these can be
traced; the rank stands there afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from prismdbg.debugger.driver import Driver, Interrupted, Json
from prismdbg.debugger.inspection import Inspection
from prismdbg.debugger.routes import ANY_COLLECTIVE, Routes
from prismdbg.errors import FacilityError, PrismError, RankLost, UsageError, quoted, shortened
from prismdbg.expr.parser import parse
from prismdbg.model.breakpoints import BreakpointKind
from prismdbg.model.frame import Frame, source_of
from prismdbg.model.moment import Moment
from prismdbg.session import answers
from prismdbg.session.answers import Answer
from prismdbg.session.breakpoints import BreakpointSpec
from prismdbg.session.frames import frames_of
from prismdbg.session.line import Line, Verb
from prismdbg.session.notices import Stopped
from prismdbg.session.query_checks import require_block, require_number, require_written
from prismdbg.session.session import Ask, Phase

SEARCHED = 1 << 30  # the number of a search's own stop: none of the session's
SETTLED = 200  # events looked at for the operator that was found


class HistoryQueries:
    def __init__(
        self,
        driver: Driver,
        inspection: Inspection,
        routes: Routes,
        recorded_nan: Moment | None = None,
        nan_since: int = 0,
    ) -> None:
        """recorded_nan: the NaN or infinity that the capsule was made for. nan_since: its step, where there are others
        before it."""
        self._recorded_nan = recorded_nan
        self._nan_since = nan_since
        self._driver = driver
        self._session = driver.session
        self._inspection = inspection
        self._routes = routes

    def verbs(self) -> dict[Verb, Callable[[Line], Answer]]:
        return {
            Verb.WHO: self._who,
            Verb.ORIGIN: self._origin_of,
            Verb.WHERE: self._where,
        }

    def _who(self, line: Line) -> Answer:
        word, _, text = line.text.partition(" ")
        text = text.strip()
        if word not in ("wrote", "allocated") or not text:
            raise UsageError(
                "who needs `wrote` or `allocated`, and an expression",
                hint="type for example: who wrote model.head.weight",
            )
        expression = parse(text)
        value = self._inspection.value_untraced(text)  # what cannot be asked is refused before anything runs
        if word == "wrote":
            require_written(expression, value, self._inspection.event_names())
            return self._searched(text, lambda: self.wrote(text))
        require_block(expression, value)
        return self._searched(text, lambda: self.allocated(text))

    def _origin_of(self, line: Line) -> Answer:
        """What has no value here may have had one before; what has one must be able to be NaN."""
        if text := line.text:
            expression = parse(text)
            try:
                value = self._inspection.value_untraced(text)
            except (RankLost, Interrupted):
                raise
            except PrismError:
                return self._searched(text, lambda: self.origin(text))
            require_number(expression, value)
            self._inspection.value_untraced(f"finite({text})")
        return self._searched(text, lambda: self.origin(text))

    def _searched(self, text: str, look: Callable[[], Answer]) -> Answer:
        """What finds nothing leaves the rank where it stood; a name that is not there is the reason to say."""
        session = self._session
        stood = session.position if session.phase is Phase.STOPPED else None
        try:
            return look()
        except (RankLost, Interrupted):
            raise
        except PrismError:
            if stood is not None and session.phase in (Phase.STOPPED, Phase.FINISHED):
                if session.position != stood:
                    self._routes.back_to(stood)
                    session.arrives()
                if text and not self._routes.at_origin:
                    self._inspection.value(text)
            raise

    def _where(self, line: Line) -> Answer:
        if not line.text:
            return self._inspection.stack()
        if line.text.split() != ["from", "nan"]:
            raise UsageError(
                f"where takes no arguments or `from nan`, not {quoted(line.text)}",
                hint="type `where` or `where from nan`",
            )
        return self._searched("", lambda: self.origin(""))

    def wrote(self, text: str) -> Answer:
        """The last change before here."""
        here, asked_at = self._routes.here(), self._session.moment
        is_behind = self._is_behind_collective
        self._trace_if_one_can()
        self._driver.say_progress(f"searching for the last write of {shortened(text)} before {asked_at}", asked_at)
        writer, after = None, None
        if is_behind:
            after = self._routes.before(1)
            writer = self._writer(text, after, here) if after is not None else None
        if writer is None:
            last = self._routes.last_hit(
                here, [BreakpointSpec(kind=BreakpointKind.CHANGE, expression=text)], up_to_here=True
            )
            if last is None:
                self._routes.back_to(here)
                raise UsageError(
                    f"{shortened(text)} was not written between the start moment and {asked_at}",
                    hint="run to a place after it was written, or name another value",
                )
            found = last.moment
            self._routes.back_to(found)
            after = self._routes.before(1)
            writer = self._writer(text, after, found) if after is not None else None
            if writer is None:
                return self._wrote_by_collective(text, after, found, asked_at)
        self._routes.back_to(Moment.parse(str(writer["moment"])))
        return answers.Wrote(
            asked_at=asked_at,
            text=text,
            moment=Moment.parse(str(writer["moment"])),
            after=after,
            op=str(writer["op"]),
            frames=frames_of(writer["frames"]),
            exact=True,
            **self._arrive(),
        )

    @property
    def _is_behind_collective(self) -> bool:
        """Behind the last one that was answered: what happened since is part of the past, too."""
        stop = self._session.stop
        return stop is not None and not stop.answered and not self._routes.at_origin

    def _wrote_by_collective(self, text: str, after: Moment | None, found: Moment, asked_at: Moment) -> Answer:
        """All that is known where operators are not traced."""
        self._routes.back_to(found)
        arrived = self._arrive()
        return answers.Wrote(
            asked_at=asked_at,
            text=text,
            moment=found,
            after=after,
            op="",
            frames=self._frames(),
            exact=False,
            **arrived,
        )

    def _trace_if_one_can(self) -> None:
        try:
            self._routes.need_trace_of_past()
        except FacilityError as error:
            self._driver.say(f"searching only the collectives: {error}")

    def _writer(self, text: str, begin: Moment, end: Moment) -> Json | None:
        """The last operator from a collective on, or the second collective, that changed it; None where none did, or
        none is traced."""
        if not self._driver.traces:
            return None
        self._routes.back_to(begin)
        ask = self._session.resume(until=str(end), events={"writer_of": text, "until": str(end)})
        self._driver.run(ask, stops="ignore", silent=True)
        stop = self._session.stop
        return stop.found.get("writer") if stop is not None else None

    def allocated(self, text: str) -> Answer:
        """Whose block the tensor's elements lie in."""
        here = self._session.moment
        self._routes.need_trace()
        block = self._block(text)
        if block is None:
            raise UsageError(
                f"the trace begins at {self._beginning()} and has no allocation of {shortened(text)}: its memory was "
                "allocated earlier and only torch holds it (a DDP bucket, for example), or a file or another library "
                "owns it",
                hint="use a capsule that begins earlier, if the memory is older",
            )
        moment = Moment.parse(str(block["moment"]))
        if not block["is_before"]:
            self._routes.back_to(moment)
        return answers.Allocated(
            asked_at=here,
            text=text,
            moment=moment,
            op=str(block["op"]),
            size_bytes=int(block["size_bytes"]),
            frames=frames_of(block["frames"]),
            before=bool(block["is_before"]),
            **self._arrive(),
        )

    def _beginning(self) -> Moment:
        """Where the trace begins: at A."""
        return min(kept.moment for kept in self._driver.travel.checkpoints)

    def _block(self, text: str) -> Json | None:
        self._inspection.know_frames()
        arguments = {"expression": parse(text).text, "frame": self._session.frame}
        address = self._driver.ask(Ask("address", arguments))["address"]
        found = self._driver.ask(Ask("block", {"address": address}))["block"]
        return dict(found) if found else None

    def origin(self, text: str) -> Answer:
        """The first NaN or infinity before or at this place: in a value, or in what is sent and received. There the
        recorded one is looked for, too, where the rank has not come to it: who asks at the start asks about that."""
        here, asked_at = self._routes.here(), self._session.moment
        end = here if text or self._recorded_nan is None else max(here, self._recorded_nan)
        stands_at_end = end == here and self._is_behind_collective
        condition = f"not finite({text})" if text else self._since(end, here)
        self._trace_if_one_can()
        if text:
            parse(condition)
        kind = BreakpointKind.COLLECTIVE if text else BreakpointKind.NAN
        seen = self._first_seen(BreakpointSpec(kind=kind, number=SEARCHED, condition=condition), end)
        if seen is None and stands_at_end and self._is_seen_at(end, f"not finite({text or 'input'})"):
            seen = end
        if seen is None:
            what = shortened(text) or "the data sent and received"
            raise UsageError(
                f"no NaN or infinity in {what} up to {end.told}",
                hint="run on with `continue`: a breakpoint on NaN stops at the first one",
            )
        nan_only = self._holds(f"nan({text})") if text else self._holds("nan(input) or nan(out)")
        what = "NaN" if nan_only else "infinity"
        received = not text and self._holds("finite(input)")
        found = None if received else self._operator(seen, nan_only)
        if text and not (found is not None and found["born"]) and (got := self._received(seen, found)) is not None:
            seen, found = got, None
        if found is None:
            self._routes.back_to(seen)
            arrived = self._arrive()
            stop = arrived["stop"]
            op = str(stop.collective.get("profiling_name", "")) if stop is not None else ""
            return answers.Originated(
                asked_at=asked_at,
                moment=seen.told,
                op=op,
                born=False,
                what=what,
                seen_at=seen.told,
                frames=self._frames(),
                exact=False,
                **arrived,
            )
        moment = self._back_to_operator(found)
        return answers.Originated(
            asked_at=asked_at,
            moment=moment,
            op=str(found["op"]),
            born=bool(found["born"]),
            what=what,
            seen_at=seen.told,
            frames=frames_of(found["frames"]),
            exact=True,
            **self._arrive(),
        )

    def _since(self, end: Moment, here: Moment | None = None) -> str:
        """The condition that leaves out what the recorded rank had before the NaN that the capsule was made for, where
        that is looked for. `here`: where the rank stands: who stands at one of the others asks about that."""
        if not 0 < self._nan_since <= end.step:
            return ""
        is_at_other = here is not None and here.step < self._nan_since and self._holds("not finite([input, out])")
        return "" if is_at_other else f"step >= {self._nan_since}"

    def _back_to_operator(self, found: Json) -> Moment:
        """Where it runs, which is what is named. Operators are counted otherwise under the microscope: it is looked for
        by its name and the program's line, first from its number on, then before that; an operator that is a part of
        another is found by its line alone."""
        counted = Moment.parse(str(found["moment"]))
        named, op = frames_of(found["frames"]), str(found["op"]).partition(".")[0]  # without its overload
        before = Moment(counted.step, counted.collective, max(counted.op - SETTLED, 1))
        on_line = None
        for start, end in ((counted, None), (before, counted)):
            self._routes.back_to(start)
            same = None
            for stop in self._operators(end):
                frames = self._inspection.stack().frames
                if not frames or (named and source_of(frames) != source_of(named)):
                    continue
                on_line = on_line or stop.moment
                if stop.collective["profiling_name"] == op:
                    same = stop.moment
                    if end is None:
                        return same
            if same is not None:
                self._routes.back_to(same)
                return same
        self._routes.back_to(on_line or counted)
        if on_line is None:
            self._driver.say(f"{found['op']} was not found again: the rank is stopped near it")
        return on_line or counted

    def _operators(self, end: Moment | None) -> Iterator[Stopped]:
        """From where the rank stands, event by event: a few, to the next collective or to `end`."""
        for _ in range(SETTLED):
            stop = self._session.stop
            if stop is None or "kind" not in stop.collective or (end is not None and stop.moment >= end):
                return
            if stop.collective["kind"] == "op":
                yield stop
            self._routes.between(count=1)

    def _first_seen(self, spec: BreakpointSpec, here: Moment) -> Moment | None:
        """From A on, up to here, where it is at a collective; the rank stands there."""
        self._driver.return_to(0)
        self._driver.say_progress(f"searching for the first NaN up to {here.told}", here.told)
        self._driver.run(self._session.resume(until=str(here)), silent=True, only=[spec])
        stop = self._session.stop
        return stop.moment if stop is not None and spec.number in stop.stops and stop.position <= here else None

    def _is_seen_at(self, place: Moment, condition: str) -> bool:
        """Where no breakpoint is looked at."""
        if self._session.position != place:
            self._routes.back_to(place)
        return self._holds(condition)

    def _operator(self, seen: Moment, nan_only: bool) -> Json | None:
        """The operator that made the value: looked for from the last collective outside of a backward pass, then from
        earlier ones at growing distances, until one made it of finite inputs. What looks at operators does not outlive
        a backward pass. Where none made it, the first that was given it."""
        found, end = None, seen
        for start in self._starts(seen):
            found = self._looked_at(start, end, nan_only) or found
            end = start or end
            if found is not None and found["born"]:
                return found
        return found

    def _starts(self, seen: Moment) -> Iterator[Moment | None]:
        """The last collective first, then doubly as far each time; None for where the capsule begins."""
        hits, _ = self._routes.noted(seen, only=[ANY_COLLECTIVE])
        last = _outside(hits)
        yield from last[-1:]
        self._driver.return_to(0)
        ask = self._session.resume(until=str(seen))
        hits = self._driver.run(ask, stops="note", silent=True, only=[ANY_COLLECTIVE], checkpoints=False)
        earlier = [moment for moment in _outside(hits) if moment < min(last, default=seen)]
        back = 1
        while back < len(earlier):
            yield earlier[-back]
            back *= 2
        yield from earlier[:1]
        yield None

    def _looked_at(self, start: Moment | None, end: Moment, nan_only: bool) -> Json | None:
        """The first operator that gave the value between the two."""
        if start is None:
            self._driver.return_to(0)
            if self._driver.traces and not self._routes.out_of_backward(end):
                return None
        else:
            self._routes.back_to(start)
        if self._routes.at_origin:
            return None  # nothing can be asked of a rank that is still parked
        self._driver.say_progress(f"checking each operator up to {end.told}", self._session.moment)
        self._driver.ask(Ask("microscope", {"nan_only": nan_only}))
        self._driver.run(self._session.resume(until=str(end)), stops="ignore", silent=True, checkpoints=False)
        stop = self._session.stop
        return stop.found.get("origin") if stop is not None else None

    def _received(self, seen: Moment, found: Json | None) -> Moment | None:
        """Where the rank received its first NaN or infinity, if that was before any operator was given one."""
        spec = BreakpointSpec(kind=BreakpointKind.NAN, number=SEARCHED, condition=self._since(seen))
        first = self._first_seen(spec, seen)
        if first is None or not self._holds("finite(input)"):
            return None
        return first if found is None or first < Moment.parse(str(found["moment"])) else None

    def _holds(self, text: str) -> bool:
        try:
            return bool(self._inspection.value(text).get("value"))
        except (RankLost, Interrupted):
            raise
        except PrismError:
            return False

    def _arrive(self) -> dict[str, Any]:
        """Where the rank stands, and every watch there, for an answer."""
        arrived = self._inspection.arrived()
        return {"stop": arrived.stop, "watched": arrived.watched}

    def _frames(self) -> tuple[Frame, ...]:
        return self._inspection.stack().frames if self._session.stop is not None else ()


def _outside(hits: Sequence[Json]) -> list[Moment]:
    """Of the hits those outside of a backward pass, in order."""
    return sorted(Moment.parse(str(hit["moment"])) for hit in hits if not hit.get("backward"))
