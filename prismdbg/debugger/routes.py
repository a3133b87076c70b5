"""The ways through a rank's time that verbs and searches are made of: there exactly, forwards or backwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prismdbg.debugger.driver import Driver, Json
from prismdbg.errors import FacilityError, UsageError
from prismdbg.model.breakpoints import AT_NO_EVENT, BreakpointKind
from prismdbg.model.moment import Moment
from prismdbg.session.breakpoints import BreakpointSpec
from prismdbg.session.checkpoint import Checkpoint
from prismdbg.session.reverse import way_to, windows
from prismdbg.session.session import Phase

ANY_COLLECTIVE = BreakpointSpec(kind=BreakpointKind.COLLECTIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """Something that lies behind. block: of an allocation, by which it is found again; stops: the session's, whose hit
    it was."""

    moment: Moment
    block: int = 0
    stops: tuple[int, ...] = ()


class Routes:
    """Each method leaves the rank standing where it says, or raises; what is passed on a way back was told before."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._session = driver.session

    @property
    def at_origin(self) -> bool:
        stop = self._session.stop
        return stop is not None and not stop.collective and stop.reason in AT_NO_EVENT

    def here(self) -> Moment:
        """What lies before this place is the past."""
        self._session.require_no_run()
        return self._session.position

    def require_inside(self, moment: Moment) -> None:
        """`UsageError` for what lies before the start moment or, unless the rank was there already, behind B."""
        session = self._session
        first = min((kept.moment for kept in self._driver.travel.checkpoints), default=Moment(0))
        known = (*session.recorded[-1:], session.moment, *session.visits.moments)
        last = max(known).told
        spans = f"this replay goes from {first} to {last}"
        if moment < first and not (moment.step == first.step and not moment.collective):
            raise UsageError(
                f"{moment} is before the capsule's start moment; {spans}", hint="give a moment inside the capsule"
            )
        if session.recorded and Moment(moment.step, moment.collective) > last:
            raise UsageError(
                f"{moment} is after the capsule's end moment; {spans}",
                hint="type `until` to continue past it, with synthesized peers",
            )

    def goto(self, moment: Moment) -> None:
        """Stops are passed."""
        session = self._session
        session.require_no_run()
        if session.phase is Phase.STOPPED and moment > session.position:
            session.may_go_beyond(False)
            self._forward_to(moment)
        elif session.position != moment:
            self.back_to(moment)

    def stands(self) -> bool:
        """Where the program has ended, or the rank is gone, it is brought to the last place known first: False."""
        session = self._session
        session.require_no_run()
        if session.phase is Phase.STOPPED:
            return True
        if session.phase is Phase.FINISHED and not session.moment.collective:  # no place, but that of a later one
            self._back_to_last_collective()
        else:
            self.back_to(session.moment)
        return False

    def _back_to_last_collective(self) -> None:
        """The last recorded one, unless the rank issued others."""
        here, session = self.here(), self._session
        if last_recorded := self._last_recorded(here):
            self.back_to(last_recorded)
            if session.position == last_recorded:
                return
        last = self.last_hit(here, [ANY_COLLECTIVE])
        if last is None:
            self._driver.return_to(0)
        else:
            self.back_to(last.moment)

    def _last_recorded(self, before: Moment) -> Moment | None:
        """None where none is, or the rank has left the recording."""
        recorded = () if self._session.left_recording else self._session.recorded
        return max((at for at in recorded if at < before), default=None)

    def back_to(self, place: Moment) -> None:
        """Exactly there, by the nearest checkpoint; what lies on the way was told before."""
        if place.is_between:
            self._back_between(place)
            return
        leg = way_to(self._driver.travel.checkpoints, place)
        self._driver.return_to(leg.checkpoint)
        if leg.until is not None and not (self._session.position >= leg.until and self.at_origin):
            self._driver.run(self._session.resume(until=str(leg.until)), stops="ignore", silent=True)

    def back_to_hit(self, past: Past) -> None:
        """Exactly there; an older rank, which knows no blocks, comes to the operator that allocated it."""
        if not past.block:
            self.back_to(past.moment)
            return
        self._back_to_collective_before(past.moment)
        ask = self._session.resume(until=str(past.moment), events={"block": past.block})
        self._driver.run(ask, stops="ignore", silent=True)
        stop = self._session.stop
        if stop is None or stop.collective.get("block") != past.block:
            self.back_to(past.moment)

    def _back_between(self, moment: Moment) -> None:
        """To an operator: from the last collective before it."""
        self._back_to_collective_before(moment)
        self.between(until=str(moment))

    def _back_to_collective_before(self, moment: Moment) -> None:
        """Before a step's first one that is a step's before."""
        self.need_trace()
        collective = _collective_of(moment)
        self.back_to(collective)
        if not moment.collective and self._session.moment > collective:
            before = self.before(1)
            if before is None:
                self._driver.return_to(0)
            else:
                self.back_to(before)

    def back_to_event(self, collective: Moment, number: int) -> None:
        """The number-th event after a collective; 0 is the collective."""
        self.back_to(collective)
        if number:
            self.between(count=number)

    def need_trace(self) -> None:
        """Everything is traced up to here: where it was not, the rank is run again from A. Traced from one and the same
        place, events have the same numbers each time; checkpoints of an untraced rank are of no use any more, and those
        that a person asked for are taken again."""
        if self._driver.traces:
            return
        self._session.require_stop()
        self._driver.require_tracer()
        here, kept = None if self.at_origin else self._session.position, self._driver.checkpoints.asked_for
        if self._driver.switched_off:
            self._driver.say("replaying with tracing on, to search between the collectives")
        if kept:
            self._driver.say(f"replaying from the start moment with tracing; {_listed(kept)} taken again on the way")
        self._driver.checkpoints.forget_all()
        if here is not None:
            self._driver.say_progress("replaying from the start moment with tracing", here.told)
            self._driver.return_to(0)
        try:
            self._driver.trace()
            self._take_again(kept)
        finally:
            self._again_at(here)

    def need_trace_of_past(self) -> None:
        """As `need_trace`, also where the program has ended, or the rank is gone."""
        if not self._driver.traces:
            self.stands()
            self.need_trace()

    def _take_again(self, kept: Sequence[Checkpoint]) -> None:
        """Images of the traced rank, at the same moments and under the same numbers. What is lost is said."""
        left, why = list(kept), "cancelled"
        try:
            for checkpoint in kept:
                with self._driver.checkpoints.coming_to_one():
                    self._on_to(checkpoint.position)
                stop = self._session.stop
                if stop is None or not checkpoint.is_at(stop.position):
                    why = f"the rank reached {self._session.moment} instead"
                    return
                self._driver.checkpoints.save(stop.moment, stop.side, asked=True, number=checkpoint.number)
                del left[0]
        except FacilityError as error:
            why = str(error)
        finally:
            if left:
                self._driver.say(f"{_listed(left)} deleted: {why}; goto MOMENT still works")

    def _again_at(self, here: Moment | None) -> None:
        """None: the origin."""
        if here is None:
            if not self.at_origin:
                self._driver.return_to(0)
        elif self._session.phase is Phase.STOPPED and (self.at_origin or self._session.position < here):
            self._on_to(here)
        elif self._session.position != here:
            self.back_to(here)

    def _on_to(self, place: Moment) -> None:
        """Forwards, in silence; to an operator where they are traced, else to the collective before it."""
        until = _collective_of(place) if place.is_between else place
        if self.at_origin or self._session.position < until:
            self._driver.run(self._session.resume(until=str(until)), stops="ignore", silent=True)
        if place.is_between and self._driver.traces and self._session.position < place:
            self.between(until=str(place))

    def before(self, count: int) -> Moment | None:
        """The count-th collective before here, from where the rank stands; None where the beginning is nearer."""
        if self.at_origin:
            return None
        moments = [Moment.parse(text) for text in self._driver.ask(self._session.history(count))["moments"]]
        return moments[-count] if len(moments) >= count else None

    def noted(
        self,
        here: Moment,
        only: Sequence[BreakpointSpec] | None = None,
        finish: Json | None = None,
        *,
        up_to_here: bool = False,
        last_told: Moment | None = None,
    ) -> tuple[list[Json], Moment | None]:
        """rr's way: forward from an earlier checkpoint, hits only noted; from the one before where there are none. All
        hits before here of the window that has any, and where it began; the rank is anywhere afterwards.

        up_to_here: those at this very place count, too. last_told: as `_last_told` was, where the rank was moved since.
        """
        stood = self._session.stop
        block = _block(stood.collective) if stood is not None and stood.position == here else 0
        made, only = only is None, self._stopping if only is None else only
        arguments = {"finish": finish} if finish is not None else {}
        last = self._runs_to(here, last_told or self._last_told)
        for leg in windows(self._driver.travel.checkpoints, here):
            self._driver.return_to(leg.checkpoint)
            began = self._session.moment
            hits = []
            for run in last if leg.until == here else [{"until": str(leg.until)}]:
                if self._session.phase is Phase.STOPPED and self._session.position < Moment.parse(run["until"]):
                    ask = self._session.resume(**run, **arguments)
                    hits += self._driver.run(ask, stops="note", silent=True, only=only)
            if past := [hit for hit in hits if _is_past(hit, here, block, up_to_here) and (made or _is_hit(hit))]:
                return past, began
        return [], None

    @property
    def _last_told(self) -> Moment | None:
        """Where a rank that hangs or was lost was last heard of: behind that it tells nothing, so it is run up to that.
        None for any other."""
        return self._session.moment if self._session.phase in (Phase.HUNG, Phase.LOST) else None

    def _runs_to(self, here: Moment, last_told: Moment | None) -> list[Json]:
        """What is asked for on the way to a place from anywhere before it, without running past it. To an operator by
        the collective before it, where that is known: from there on each event is looked at. To the program's end by
        the last recorded one: an older rank tells no hits where it ends, but does where it stops."""
        session, place = self._session, last_told or here
        if place == place.end:
            return [{"until": str(at)} for at in (self._last_recorded(place), place) if at is not None]
        if not (place.is_between and self._driver.traces):
            return [{"until": str(place)}]
        before = _collective_of(place)
        if not before.collective:
            before = max((at for at in session.recorded if at < place), default=before)
        op = place.op + (last_told is None)  # what the operator here does counts
        until = str(Moment(place.step, place.collective, op))
        return [{"until": str(before)}, {"until": until, "events": {"until": until}}]

    def last_hit(
        self,
        here: Moment,
        only: Sequence[BreakpointSpec] | None = None,
        finish: Json | None = None,
        *,
        up_to_here: bool = False,
    ) -> Past | None:
        last_told = self._last_told  # before a trace moves the rank
        if self._session.breakpoints.needs_trace and only is None:
            self.need_trace_of_past()
        if only is None and not self._driver.traces:  # then once for each window, and once to the hit
            self._driver.expect_passes(len(windows(self._driver.travel.checkpoints, here)) + 1)
        hits, _ = self.noted(here, only, finish, up_to_here=up_to_here, last_told=last_told)
        return _last(hits)

    def before_module(self, here: Moment, finish: Json) -> Past | None:
        """The last operator, or hit of a stop, before the call of a module in which the rank stands; None where that
        began before the last collective. The rank is anywhere afterwards."""
        before = self.before(1)
        if before is None:
            self._driver.return_to(0)
        else:
            self.back_to(before)
        ask = self._session.resume(until=str(here), finish=finish, events={"until": str(here), "finish": True})
        hits = self._driver.run(ask, stops="note", silent=True, only=self._stopping)
        return _last([hit for hit in hits if Moment.parse(str(hit["moment"])) < here])

    @property
    def _stopping(self) -> list[BreakpointSpec]:
        """Without those that only tell: on a way back they were told before."""
        return [stop for stop in self._session.breakpoints if not stop.log_only]

    def _forward_to(self, moment: Moment) -> None:
        until = _collective_of(moment) if moment.is_between else moment
        if until > self._session.moment:
            self._driver.run(self._session.resume(until=str(until)), stops="ignore")
        if not moment.is_between or self._session.phase is not Phase.STOPPED:
            return
        if self._session.moment > moment or not self._driver.traces:
            self._back_between(moment)
        elif self._session.moment < moment:
            self.between(until=str(moment))

    def out_of_backward(self, end: Moment) -> bool:
        """On to the first operator outside of a backward pass, where one lies before `end`; operators are traced."""
        while self._session.phase is Phase.STOPPED and self._session.moment < end:
            ask = self._session.resume(events={"outside_backward": True}, count=1)
            self._driver.run(ask, stops="ignore", silent=True, checkpoints=False)
            if self._session.stop is not None and "kind" in self._session.stop.collective:
                return True
        return False

    def between(self, **events: object) -> None:
        """On by events, not further than the next collective."""
        self._session.require_stop()
        self._driver.run(self._session.resume(events=events, **_bound(events)), stops="ignore", silent=True)


def _collective_of(place: Moment) -> Moment:
    return Moment(place.step, place.collective)


def _last(hits: Sequence[Json]) -> Past | None:
    if not hits:
        return None
    at = max(_order(hit) for hit in hits)
    stops = {int(hit["stop"]) for hit in hits if _order(hit) == at}
    return Past(moment=at[0], block=at[1], stops=tuple(sorted(number for number in stops if number > 0)))


def _order(hit: Json) -> tuple[Moment, int]:
    """Blocks are numbered as they are made."""
    return Moment.parse(str(hit["moment"])), int(hit.get("block", 0))


def _is_past(hit: Json, here: Moment, block: int, up_to_here: bool) -> bool:
    """block: where the rank stands at an allocation, of that one; what its operator allocated before is past, too."""
    at, number = _order(hit)
    return at < here or (at == here and (up_to_here or 0 < number < block))


def _is_hit(noted: Json) -> bool:
    """Not a place at which every rank stops."""
    return "reason" not in noted


def _block(event: Json) -> int:
    return int(event.get("block", 0)) if event.get("kind") == "allocation" else 0


def _listed(kept: Sequence[Checkpoint]) -> str:
    """`checkpoint 1 (2.3) is`."""
    shown = ", ".join(f"{checkpoint.number} ({checkpoint.moment})" for checkpoint in kept)
    return f"checkpoint {shown} is" if len(kept) == 1 else f"checkpoints {shown} are"


def _bound(events: dict[str, object]) -> dict[str, str]:
    """An event's moment bounds the run, too: where there is no such operator, the next collective ends it."""
    return {"until": str(events["until"])} if "until" in events else {}
