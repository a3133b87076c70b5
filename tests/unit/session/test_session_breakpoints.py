"""What is typed after break, the list of stops, the planning of ways back, and places that are compared."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismdbg.capsule.manifest import IncidentKind
from prismdbg.errors import UsageError
from prismdbg.model.breakpoints import BreakpointKind
from prismdbg.model.moment import Moment
from prismdbg.session.breakpoint_line import first_breakpoints, parse_breakpoint
from prismdbg.session.breakpoints import MAX_BREAKPOINTS, BreakpointList, BreakpointSpec
from prismdbg.session.checkpoint import Checkpoint
from prismdbg.session.places import Places
from prismdbg.session.reverse import Leg, nearest, to_drop, way_to, windows
from prismdbg.session.visits import Visits
from prismdbg.session.watches import WatchList


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("all_reduce", BreakpointSpec(kind=BreakpointKind.COLLECTIVE, op="all_reduce")),
        ("allreduce_", BreakpointSpec(kind=BreakpointKind.COLLECTIVE, op="all_reduce")),
        (
            "all_reduce on dp if bytes > 1e6",
            BreakpointSpec(kind=BreakpointKind.COLLECTIVE, op="all_reduce", group="dp", condition="bytes > 1e6"),
        ),
        ("if nan(out)", BreakpointSpec(kind=BreakpointKind.COLLECTIVE, condition="nan(out)")),
        ("on tp #12", BreakpointSpec(kind=BreakpointKind.COLLECTIVE, group="tp", seq=12)),
        ("train.py:73", BreakpointSpec(kind=BreakpointKind.COLLECTIVE, file="train.py", line=73)),
        ("in layers.3", BreakpointSpec(kind=BreakpointKind.COLLECTIVE, module="layers.3")),
        ("12.3", BreakpointSpec(kind=BreakpointKind.COLLECTIVE, moment=Moment(12, 3))),
        ("12 if nan(out)", BreakpointSpec(kind=BreakpointKind.COLLECTIVE, moment=Moment(12), condition="nan(out)")),
        ("exception", BreakpointSpec(kind=BreakpointKind.EXCEPTION)),
        ("nan", BreakpointSpec(kind=BreakpointKind.NAN)),
        ("inf if step > 2", BreakpointSpec(kind=BreakpointKind.NAN, condition="step > 2")),
        ("divergence", BreakpointSpec(kind=BreakpointKind.DIVERGENCE)),
        ("peer 3", BreakpointSpec(kind=BreakpointKind.PEER, peer=3)),
        ("alloc if size > 2GiB", BreakpointSpec(kind=BreakpointKind.ALLOCATION, condition="size > 2GiB")),
        ("allocation aten::mm", BreakpointSpec(kind=BreakpointKind.ALLOCATION, op="aten::mm")),
        ("change model.w[0] + 1", BreakpointSpec(kind=BreakpointKind.CHANGE, expression="model.w[0] + 1")),
    ],
)
def test_what_is_typed_after_break(text: str, spec: BreakpointSpec) -> None:
    assert parse_breakpoint(text) == spec


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "break needs a place"),
        ("all_redcue", "unknown collective 'all_redcue'"),
        ("all_reduce if bytes >", "ends too early"),
        ("all_reduce on", "'on' needs an argument"),
        ("peer you", "is not a rank"),
        ("peer", "'peer' needs an argument"),
        ("nan if", "condition is missing after if"),
        ("if", "condition is missing after if"),
        ("#one", "not a sequence number"),
        ("on dp on tp", "given twice"),
        ("change", "needs an expression"),
        ("change x.__class__", "private"),
        ("12.x", "not a moment"),
        ("if eval(x)", "unknown function 'eval'"),
    ],
)
def test_a_wrong_stop_is_refused_when_it_is_typed(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_breakpoint(text)


@pytest.mark.parametrize("text", ["peer 0", "all_reduce #0", "train.py:1", "nan", "change x"])
def test_what_is_typed_reaches_the_rank(text: str) -> None:
    """Rank 0 and sequence 0, too."""
    sent = parse_breakpoint(text).to_json()
    assert BreakpointSpec(**sent) == parse_breakpoint(text)
    assert sent.get("peer") == (0 if text == "peer 0" else None)


def test_a_wrong_expression_gets_a_caret() -> None:
    with pytest.raises(UsageError) as refused:
        parse_breakpoint("all_reduce if bytes > > 1")
    *_, shown, caret = str(refused.value).splitlines()
    assert shown.strip() == "bytes > > 1" and caret.index("^") == shown.index("> 1", 10)


def test_a_near_miss_is_named() -> None:
    with pytest.raises(UsageError) as refused:
        parse_breakpoint("all_redcue")
    assert refused.value.hint == "use all_reduce, if you mean that"


@given(st.text(max_size=40))
def test_anything_is_a_stop_or_is_refused(text: str) -> None:
    try:
        assert parse_breakpoint(text).kind in BreakpointKind
    except UsageError as refusal:
        assert str(refusal)


@pytest.mark.parametrize(
    "text",
    [
        "all_reduce on dp #3 train.py:7 in m if bytes > 1",
        "nan",
        "peer 2",
        "change x + 1",
        "12.3",
        "12",
        "12.3 on dp if nan(out)",
    ],
)
def test_a_title_is_what_one_would_type(text: str) -> None:
    assert parse_breakpoint(parse_breakpoint(text).title) == parse_breakpoint(text)


def test_a_moment_is_named_as_one() -> None:
    assert parse_breakpoint("12.3").title == "12.3"
    assert parse_breakpoint("all_reduce if step == 12 and collective == 3").title.startswith("all_reduce if step")


def test_a_condition_leaves_a_moment_where_it_is() -> None:
    stops = BreakpointList()
    stops.add(parse_breakpoint("12.3"))
    assert stops.condition(1, "numel(out) > 5").title == "12.3 if numel(out) > 5"
    (told,) = stops.to_json()
    assert told["condition"] == "(step == 12 and collective == 3) and (numel(out) > 5)" and "moment" not in told
    assert stops.condition(1, "").title == "12.3"
    with pytest.raises(UsageError, match="moment is given twice"):
        parse_breakpoint("12.3 12.4")


def test_numbers_are_given_once() -> None:
    stops = BreakpointList()
    first = stops.add(parse_breakpoint("nan"))
    stops.remove(first.number)
    assert stops.add(parse_breakpoint("nan")).number == 2
    with pytest.raises(UsageError, match="no breakpoint number 1"):
        stops.get(1)


@pytest.mark.parametrize(
    ("text", "traced"),
    [
        ("allocation", True), ("if allocated > 2GiB", True), ("nan if step > 3 and total > 1", True),
        ("change allocated // 1MB", True), ("if bytes > 2GiB", False), ("if local.allocated", False),
    ],
)  # fmt: skip
def test_who_asks_for_memory_needs_a_trace(text: str, traced: bool) -> None:
    stops = BreakpointList()
    stops.add(parse_breakpoint(text))
    assert stops.needs_trace is traced


def test_what_is_sent_holds_only_what_is_given() -> None:
    stops = BreakpointList()
    stops.add(parse_breakpoint("all_reduce #0"))
    assert stops.to_json() == [{"kind": "collective", "number": 1, "op": "all_reduce", "seq": 0}]


def test_there_are_only_so_many() -> None:
    stops = BreakpointList()
    for _ in range(MAX_BREAKPOINTS):
        stops.add(parse_breakpoint("nan"))
    with pytest.raises(UsageError, match="already"):
        stops.add(parse_breakpoint("nan"))


def test_conditions_counts_and_switches() -> None:
    stops = BreakpointList()
    stops.add(parse_breakpoint("nan"))
    assert stops.condition(1, "step > 3").condition == "step > 3"
    with pytest.raises(UsageError):
        stops.condition(1, "step >")
    assert stops.condition(1, "").condition == ""
    assert stops.ignore(1, 5).ignore == 5
    assert stops.log_only(1).log_only and not stops.log_only(1).log_only
    told = stops.log_only(1, "loss={loss}")
    assert told.log_only and told.to_json()["message"] == stops.message(1) == "loss={loss}"
    assert stops.log_only(1, "{seq}").log_only, "another text leaves it one"
    off = stops.log_only(1)
    assert not off.log_only and "message" not in off.to_json() and stops.message(9) == ""
    assert stops.log_only(1).to_json()["message"] == "{seq}", "it has its text again"
    stops.log_only(1)
    with pytest.raises(UsageError):
        stops.log_only(1, "{loss")
    stops.stopped((1,), {1: 0})
    assert stops.get(1).ignore == 0 and stops.hits == {1: 1}


def image(number: int, moment: str, size_bytes: int = 10) -> Checkpoint:
    return Checkpoint(number=number, moment=Moment.parse(moment), size_bytes=size_bytes, cost_s=0.1)


IMAGES = (image(0, "1.1"), image(3, "1.1"), image(5, "2.4"), image(6, "4.1"))


@pytest.mark.parametrize(("moment", "number"), [("9", 6), ("4.1", 6), ("4", 5), ("2.4.1", 5), ("1.1", 3), ("1", 0)])
def test_the_nearest_earlier_image(moment: str, number: int) -> None:
    assert nearest(IMAGES, Moment.parse(moment)).number == number


def test_the_way_to_an_image_of_the_moment_needs_no_run() -> None:
    assert way_to(IMAGES, Moment(2, 4)) == Leg(checkpoint=5, until=None)
    assert way_to(IMAGES, Moment(2, 5)) == Leg(checkpoint=5, until=Moment(2, 5))
    assert way_to(IMAGES[:1], Moment(1, 1)) == Leg(checkpoint=0, until=Moment(1, 1)), "A itself shows nothing"


def test_windows_cover_everything_before_here_once_the_latest_first() -> None:
    legs = windows(IMAGES, Moment(3))
    assert [(leg.checkpoint, str(leg.until)) for leg in legs] == [(5, "3.0"), (3, "2.4"), (0, "1.1")]
    assert all(leg.note for leg in legs)
    assert windows(IMAGES, Moment(3), first=Moment(2, 9)) == legs[:1]
    at_an_image = [(leg.checkpoint, str(leg.until)) for leg in windows(IMAGES, Moment(2, 4))]
    assert at_an_image == [(3, "2.4"), (0, "1.1")], "nothing lies between it and here"


def test_an_image_at_an_exception_comes_after_one_of_its_collective() -> None:
    """It is told with the same moment, and may have the lower number."""
    images = (IMAGES[0], replace(image(7, "4.1"), side="raised"), replace(image(8, "4.1"), side="asked"))
    behind = Moment(4, 1).behind
    assert nearest(images, behind).number == 7 and nearest(images, Moment(4, 1)).number == 8
    legs = windows(images, Moment(4, 1).end)
    assert [(leg.checkpoint, leg.until) for leg in legs] == [(7, Moment(4, 1).end), (8, behind), (0, Moment(4, 1))]


def test_the_image_between_the_closest_neighbours_is_dropped() -> None:
    at_s = {0: 0.0, 3: 1.0, 5: 1.5, 6: 9.0}
    assert to_drop(IMAGES, at_s, frozenset(), 9, 10**9) is None
    assert to_drop(IMAGES, at_s, frozenset(), 2, 10**9) == 3
    assert to_drop(IMAGES, at_s, frozenset({3}), 2, 10**9) == 5
    assert to_drop(IMAGES, at_s, frozenset(), 9, 25) == 3
    assert to_drop(IMAGES, at_s, frozenset({3, 5}), 1, 1) is None, "never the newest, never the origin"


def test_a_place_is_compared_with_its_first_visit() -> None:
    places = Places()
    assert places.visit(Moment(1, 1), "answered", {"sent": "a", "torch": "b"}) == ()
    assert places.visit(Moment(1, 1), "asked", {"sent": "z"}) == ()
    assert places.visit(Moment(1, 1), "answered", {"sent": "a", "torch": "b"}) == ()
    assert places.visit(Moment(1, 1), "answered", {"sent": "x", "torch": "b"}) == ("what was sent",)
    assert places.visit(Moment(1, 1), "answered", {}) == ()
    places.forget()
    assert places.visit(Moment(1, 1), "answered", {"sent": "x"}) == ()


def test_visits_are_a_list_with_a_cursor() -> None:
    visits = Visits()
    for step in (1, 1, 2, 3):
        visits.arrive(Moment(step))
    assert [moment.step for moment in visits.moments] == [1, 2, 3]
    assert visits.target(-2) == Moment(1)
    visits.put_back(visits.moments, 0)
    visits.arrive(Moment(7))
    assert [moment.step for moment in visits.moments] == [1, 7]


def test_watches_know_what_changed() -> None:
    watches = WatchList()
    watch = watches.add("x + 1")
    assert watches.add("x + 1") is watch
    assert watches.seen(watch, {"value": 1, "digest": "a"}).changed is None
    assert watches.seen(watch, {"value": 1, "digest": "a"}).changed is False
    assert watches.seen(watch, {"value": 2, "digest": "b"}).changed is True
    with pytest.raises(UsageError):
        watches.add("x +")


def test_a_session_does_not_stop_at_overflows_before_its_incident() -> None:
    assert first_breakpoints(IncidentKind.NAN, nan_since=11) == ("break nan if step >= 11",)
    assert first_breakpoints(IncidentKind.EXCEPTION, nan_since=11) == ("break exception",)
    assert parse_breakpoint("nan if step >= 11").whole_condition == "step >= 11"


@pytest.mark.parametrize("kind", IncidentKind)
def test_a_session_begins_with_the_stop_of_its_incident(kind: IncidentKind) -> None:
    lines = first_breakpoints(kind)
    kinds = [parse_breakpoint(line.partition(" ")[2]).kind for line in lines]
    known = {IncidentKind.NAN: [BreakpointKind.NAN], IncidentKind.EXCEPTION: [BreakpointKind.EXCEPTION]}
    assert kinds == known.get(kind, [BreakpointKind.EXCEPTION] if kind is IncidentKind.OUT_OF_MEMORY else [])
