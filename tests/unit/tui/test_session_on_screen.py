"""The session's stops, watches, ways back and losses, by keys: what the debugger is told, and what the screen knows."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from capsules import MANIFEST, make_capsule
from played import (
    CALL,
    FRAMES,
    TALLY,
    Json,
    PlayedRank,
    PlayedTravel,
    live_over,
    screen_of,
    screen_of_app,
    small_capsule,
    stopped,
    until,
)
from prismdbg_tui.session.app import PrismApp
from prismdbg_tui.session.messages import OutputCut, OutputGrew
from prismdbg_tui.session.views import Phase, State
from prismdbg_tui.timeline.recording import Recording
from prismdbg_tui.widgets.timeline import LABEL_WIDTH
from shown import on_screen, told
from textual.pilot import Pilot
from textual.widgets import Input
from tiny_log import TinyLog

from prismdbg.capsule.stacks import FROM_OUTSIDE, HangPlace, JobStacks, RankStacks, ThreadStack
from prismdbg.errors import RankLost
from prismdbg.model.frame import Frame
from prismdbg.model.moment import Moment
from prismdbg.protocol.client import AgentError
from prismdbg.session.outside_collective import OutsideCollective
from prismdbg.session.recorded_hang import RecordedHang
from prismdbg.session.watches import Watched


def asked(rank: PlayedRank, verb: str) -> list[dict[str, object]]:
    return [arguments for name, arguments in rank.asked if name == verb]


def said(app: PrismApp) -> str:
    return "\n".join(app.panes.console.log_pane.lines_said)


async def stands(app: PrismApp, pilot: Pilot[int], moment: str) -> None:
    await until(lambda: app.state.phase is Phase.STOPPED and str(app.state.moment) == moment, pilot)


def test_a_breakpoint_by_key_its_mark_and_its_end(tmp_path: Path) -> None:
    rank = PlayedRank([stopped("1.2", 2, "stop") | {"stops": [1]}])

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await stands(app, pilot, "0.0")
        await pilot.press("g", "j", "j", "j", "b")
        await until(lambda: app.state.stops, pilot)
        assert app.state.stops[0].moment == Moment(1, 2)
        assert "●1.2" in on_screen(app)
        await pilot.press("c")
        await stands(app, pilot, "1.2")
        assert app.state.hits == {1: 1} and app.state.hit_here == (1,)
        named = "breakpoint 1: 1.2"
        assert named in str(app.panes.status.content) and f"stopped at 1.2 ({named})" in said(app)
        assert asked(rank, "stops")[0]["stops"] == [
            {"kind": "collective", "number": 1, "condition": "step == 1 and collective == 2", "seq": None}
        ]
        await pilot.press("b")
        await until(lambda: not app.state.stops, pilot)

    screen_of(part, tmp_path, rank)


def test_a_checkpoint_has_one_line_in_the_console(tmp_path: Path) -> None:
    """It had two, and a table that said it once more; and what is shown elsewhere left an empty line."""

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await stands(app, pilot, "0.0")
        await pilot.press("n")
        await stands(app, pilot, "0.1")
        await pilot.press("m")
        await until(lambda: len(app.state.checkpoints) == 2 and app.state.phase is Phase.STOPPED, pilot)
        lines = app.panes.console.log_pane.lines_said
        assert lines[lines.index("› checkpoint") :] == ["› checkpoint", "checkpoint 1 at 0.1: 1.0 MiB in 0.20 s"]
        assert "" not in lines
        await until(lambda: lines[-1] in str(app.panes.status.content), pilot)  # the console may be out of sight
        await pilot.press("colon", *"checkpoints", "enter", "escape")
        await until(lambda: re.search(r"1  0\.1 +1\.0 MiB +0\.20 s", said(app)), pilot)

    screen_of(part, tmp_path, PlayedRank([stopped("0.1", 2)]))


def test_a_condition_is_of_the_breakpoint_here_else_of_all_such_collectives(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await stands(app, pilot, "0.0")
        await pilot.press("g", "B", *"nan(out)", "enter")
        await until(lambda: app.state.stops, pilot)
        assert app.state.stops[0].title == "all_reduce on world if nan(out)"
        await pilot.press("j", "b")
        await until(lambda: len(app.state.stops) == 2, pilot)
        await pilot.press("B", *"bytes > 4", "enter")
        await until(lambda: app.state.stops[1].condition == "bytes > 4", pilot)
        assert app.state.stops[1].title.endswith(" if bytes > 4") and "●" in on_screen(app), "and it is still here"
        await pilot.press("H")
        await until(lambda: len(app.state.stops) == 3 and app.state.stops[2].once, pilot)
        await pilot.press("H")
        await until(lambda: len(app.state.stops) == 2, pilot)

    screen_of(part, tmp_path, PlayedRank())


def test_a_watch_that_fails_has_one_line_in_the_list(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await stands(app, pilot, "0.0")
        failed = Watched(number=1, text="scores", value=None, changed=None, error="unknown name\n    scores\n    ^")
        app.panes.stops.show(State(phase=Phase.STOPPED, watches=(failed,)), {})
        await pilot.pause()
        assert str(app.panes.stops.body.content).splitlines() == ["◉  1 scores  unknown name"]

    screen_of(part, tmp_path, PlayedRank())


def test_a_watch_is_shown_at_each_stop(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await stands(app, pilot, "0.0")
        await pilot.press("w", *"loss", "enter")
        await until(lambda: app.state.watches, pilot)
        await until(lambda: "loss" in app.panes.status.render_line(0).text, pilot)
        assert "42" in app.panes.status.render_line(0).text
        await pilot.press("n")
        await stands(app, pilot, "0.1")
        assert "loss" not in app.panes.status.render_line(0).text
        (watch,) = app.state.watches
        assert watch.text == "loss" and watch.value == {"kind": "scalar", "type": "int", "value": 42}

    screen_of(part, tmp_path, PlayedRank([stopped("0.1", 2)]))


def test_between_collectives_peers_are_of_the_one_under_the_cursor(tmp_path: Path) -> None:
    """Nobody takes part where the rank stands then; who took part at the stop before is no answer either."""
    raises = stopped("1.0", 3, "exception") | {"collective": {}}

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await stands(app, pilot, "0.0")
        await pilot.press("n")
        await stands(app, pilot, "0.1")
        await until(lambda: "when recorded" in str(app.panes.peers.border_subtitle), pilot)
        await pilot.press("c")
        await stands(app, pilot, "1.0")
        await until(lambda: "took " in str(app.panes.peers.border_subtitle), pilot)

    screen_of(part, tmp_path, PlayedRank([stopped("0.1", 2)], [raises]))


def test_keys_go_back(tmp_path: Path) -> None:
    rank = PlayedRank([stopped("0.2", 2)], [stopped("0.1", 3, "until")])
    rank.answers["history"] = lambda _: {"moments": ["0.1"]}

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await stands(app, pilot, "0.0")
        await pilot.press("n")
        await stands(app, pilot, "0.2")
        await pilot.press("N")
        await stands(app, pilot, "0.1")
        assert app.here == app.cursor == 0

    travel = screen_of(part, tmp_path, rank)
    assert travel.returned == [0]


def test_an_image_by_key_and_the_difference_to_the_record(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await stands(app, pilot, "0.0")
        await pilot.press("n")
        await stands(app, pilot, "1.1")
        view = next(view for view in app.state.values if view.title == "out[0]")
        assert view.differs is not None and view.differs.largest == 0.25
        await pilot.press("m")
        await until(lambda: len(app.state.checkpoints) == 2, pilot)
        await pilot.press("o", "n")  # one by one, and the rank away from there
        await stands(app, pilot, "1.2")
        await until(lambda: on_screen(app).count("◇") == 2, pilot)

    screen_of(part, tmp_path, PlayedRank([stopped("1.1", 2)], [stopped("1.2", 3)]))


def test_a_lost_rank_comes_back_at_an_image(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await stands(app, pilot, "0.0")
        await pilot.press("n")
        await stands(app, pilot, "1.1")
        await pilot.press("m")
        await until(lambda: len(app.state.checkpoints) == 2, pilot)
        rank.tell(None)
        await until(lambda: app.state.phase is Phase.LOST, pilot)
        assert any("R restores it" in note for note in told(app))
        await pilot.press("R")
        await stands(app, pilot, "1.1")
        assert app.state.exit_code == 0 and not app.state.why_exit_code

    rank = PlayedRank([stopped("1.1", 2)])
    assert screen_of(part, tmp_path, rank).returned == [1]


def test_a_rank_that_dies_while_it_is_looked_at_comes_back(tmp_path: Path) -> None:
    """The screen asks for frames and values once it stands at a checkpoint, or as soon as it stops."""

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await stands(app, pilot, "0.0")
        await pilot.press("n")
        await stands(app, pilot, "1.1")
        alive = dict(rank.answers)

        def dies(_: Json) -> Json:
            if rank.answers["stack"] is not dies:
                rank.tell(None)
            rank.answers.update(dict.fromkeys(("stack", "locals", "evaluate", "peers"), dies))
            raise RankLost("the connection closed while waiting for the agent's answer")

        rank.answers["locals"] = dies
        await pilot.press("m")
        await until(lambda: app.state.phase is Phase.LOST, pilot)
        rank.answers.update(alive)
        await pilot.press("R")
        await stands(app, pilot, "1.1")

    rank = PlayedRank([stopped("1.1", 2)])
    assert screen_of(part, tmp_path, rank).returned == [1]


def test_escape_interrupts_what_takes_long(tmp_path: Path) -> None:
    rank = PlayedRank([])
    rank.answers["pause"] = lambda _: rank.tell(stopped("0.2", 2, "paused")) or {}

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await stands(app, pilot, "0.0")
        await pilot.press("c")
        await until(lambda: app.state.phase is Phase.RUNNING and asked(rank, "resume"), pilot)
        await pilot.press("escape")
        await stands(app, pilot, "0.2")

    screen_of(part, tmp_path, rank)


def test_output_is_cut_back_with_the_time(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        app.post_message(OutputGrew(b"step 0\nstep 1\nste", 0))
        app.post_message(OutputGrew(b"p 2\n", 17))
        await until(lambda: app.panes.output.lines_said == ["step 0", "step 1", "step 2"], pilot)
        app.post_message(OutputCut(7))
        await until(lambda: app.panes.output.lines_said == ["step 0"], pilot)
        app.post_message(OutputGrew(b"step 1\n", 7))
        await until(lambda: app.panes.output.lines_said == ["step 0", "step 1"], pilot)

    screen_of(part, tmp_path, PlayedRank())


def test_completion_knows_verbs_names_and_what_was_typed(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await stands(app, pilot, "0.0")
        await pilot.press("n")
        await stands(app, pilot, "0.1")
        await pilot.press("colon", *"reverse-c")
        line = app.query_one("#line", Input)
        await until(lambda: "reverse-continue" in on_screen(app), pilot)
        await pilot.press("ctrl+u", *"print lo")
        await until(lambda: "print loss" in on_screen(app), pilot)
        await pilot.press("tab")
        assert line.value == "print loss"

    screen_of(part, tmp_path, PlayedRank([stopped("0.1", 2)]))


def test_an_error_that_the_rank_finds_in_an_expression_has_its_caret(tmp_path: Path) -> None:
    rank = PlayedRank([stopped("0.1", 2)])

    def unknown(asked: dict[str, object]) -> dict[str, object]:
        raise AgentError("unknown name 'foo'", column=str(asked["expression"]).index("foo"))

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await stands(app, pilot, "0.0")
        await pilot.press("n")
        await stands(app, pilot, "0.1")
        rank.answers["evaluate"] = unknown
        await pilot.press("colon", *"print max(out, foo)", "enter")
        await until(lambda: "unknown name" in said(app), pilot)
        lines = said(app).splitlines()
        at = next(number for number, line in enumerate(lines) if "unknown name 'foo'" in line)
        assert lines[at].endswith("unknown name 'foo'") and lines[at + 1].endswith("max(out, foo)")
        assert lines[at + 2].rstrip().endswith("^") and lines[at + 2].index("^") == lines[at + 1].index("foo")

    screen_of(part, tmp_path, rank)


@pytest.mark.parametrize("size", [(80, 24), (160, 45), (200, 60)])
def test_a_debugger_opens_where_it_is_told_to(tmp_path: Path, size: tuple[int, int]) -> None:
    capsule, rank = small_capsule(tmp_path), PlayedRank([stopped("1.2", 2, "until")])
    live = live_over(capsule, rank, first_lines=("goto 1.2",))

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await stands(app, pilot, "1.2")
        assert app.cursor == 3
        assert "stopped at 1.2 (goto)" in said(app)

    screen_of(part, tmp_path, rank, app=PrismApp(capsule, "capsule", live=live, at=Moment(1, 2)), size=size)


def test_between_two_collectives_the_panes_show_the_rank(tmp_path: Path) -> None:
    """Where it raises there is no collective, but a stack and names."""

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await stands(app, pilot, "0.0")
        await pilot.press("c")
        await stands(app, pilot, "2.0")
        assert app.cursor == app.here == 3 and app.views.at_rank
        assert app.state.frame == 1
        assert "train.py:7" in on_screen(app) and re.search(r"loss +3.5", on_screen(app))

    screen_of(part, tmp_path, PlayedRank([stopped("2.0", 2, "exception") | {"collective": {}}]))


def test_a_defect_is_told_and_the_next_key_still_works(tmp_path: Path) -> None:
    rank = PlayedRank([stopped("0.1", 2)], [stopped("0.2", 3)])
    good, rank.answers["source"] = rank.answers["source"], lambda _: {"nonsense": 1}

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await stands(app, pilot, "0.0")
        await pilot.press("n")
        await stands(app, pilot, "0.1")
        rank.answers["source"] = good
        await pilot.press("n")
        await stands(app, pilot, "0.2")
        assert app.state.source.lines and app.state.runtime

    screen_of(part, tmp_path, rank)


@pytest.mark.parametrize("size", [(80, 24), (160, 45), (200, 60)])
def test_after_a_command_keys_are_keys_again(tmp_path: Path, size: tuple[int, int]) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await stands(app, pilot, "0.0")
        line = app.query_one("#line", Input)
        await pilot.press("colon", *"watch loss", "enter")
        await until(lambda: app.state.watches, pilot)
        assert line.value == "" and app.panes.console.display, "the answer is seen"
        await pilot.press("escape", "n")
        await stands(app, pilot, "0.1")
        await pilot.press("colon", *"half a com", "escape")
        assert line.value == ""
        await pilot.press("n")
        await stands(app, pilot, "0.2")

    screen_of(part, tmp_path, PlayedRank([stopped("0.1", 2)], [stopped("0.2", 3)]), size=size)


def test_what_a_captured_rank_waits_in_is_no_past_yet(tmp_path: Path) -> None:
    rank = PlayedRank([stopped("0.1", 2)])
    rank.answers["progress"] = lambda _: {"moment": "0.1", "stopped": "parked", "number": 1, "tally": {}}

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await stands(app, pilot, "0.1")
        timeline, verdicts = app.panes.timeline, app.panes.collectives.verdicts
        assert timeline.range is not None and app.recording is not None
        assert verdicts.of(app.recording, 0).text == "" and verdicts.pointer(0) == "▶"
        assert timeline.paint().present == -1
        await pilot.press("n")
        await until(lambda: app.state.reason == "next", pilot)
        assert app.panes.collectives.verdicts.of(app.recording, 0).text == "= identical"
        assert timeline.paint().present == timeline.range.end(0)

    screen_of(part, tmp_path, rank)


def test_before_the_program_ran_anything_nothing_is_past(tmp_path: Path) -> None:
    """The first collective may be long: so far its ruler was that of what had run."""

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await stands(app, pilot, "0.0")
        timeline = app.panes.timeline
        assert "━" not in timeline.render_line(0).text
        await pilot.press("n")
        await stands(app, pilot, "0.1")
        await until(lambda: "━" in timeline.render_line(0).text, pilot)

    screen_of(part, tmp_path, PlayedRank([stopped("0.1", 2)]))


@pytest.mark.parametrize(("count", "counted"), [(1, "1 call"), (12_345, "12,345 calls"), (1_234_567, "1,234,567")])
def test_a_lane_says_what_its_numbers_are(tmp_path: Path, count: int, counted: str) -> None:
    """A group that nobody named has a number for a name."""

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        assert app.recording is not None
        timeline, lanes = app.panes.timeline, app.recording.by_group
        timeline.show_lanes(replace(lanes, all=(replace(lanes.all[0], title="12", count=count),)))
        first, second = (timeline.render_line(y).text[:LABEL_WIDTH].strip() for y in (1, 2))
        assert (first, second) == ("group 12 0 1", counted)

    screen_of_app(PrismApp(small_capsule(tmp_path), "capsule"), part)


def test_a_rank_that_was_captured_outside_of_a_collective_is_shown_where_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    issue, called = TinyLog.issue, (("/v/site-packages/torch/c10d.py", 7, "all_reduce"), ("/job/train.py", 8, "main"))
    monkeypatch.setattr(TinyLog, "issue", lambda log, *at, **more: issue(log, *at, **more, stack=log.stack(*called)))
    load, main = Frame("/job/data.py", 27, "load"), Frame("/job/train.py", 9, "main")
    rank = PlayedRank([stopped("0.1", 2)])
    is_seen = threading.Event()  # the stack of the call under the cursor, in which another frame is the program's own

    def progress(_: dict) -> dict:
        assert is_seen.wait(60)
        return {"moment": "0.1", "stopped": "parked", "number": 1, "tally": {}}

    rank.answers["progress"] = progress
    capsule = small_capsule(tmp_path)
    live = live_over(capsule, rank, standing=OutsideCollective(rank=1, frames=(load, main)))

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await pilot.press("g")
        await until(lambda: app.cursor == 0 and "▶  1 main" in on_screen(app), pilot)
        is_seen.set()
        await until(lambda: app.state.frames == (load, main), pilot)
        assert app.state.frame == 0 and not app.state.doing
        assert "captured outside a collective, at /job/data.py:27 in load" in said(app)
        await until(lambda: "▶  0 load" in on_screen(app), pilot)
        await pilot.press("n")
        await until(lambda: "(none was recorded)" in said(app), pilot)
        assert not asked(rank, "resume")
        await pilot.press("c")
        await until(lambda: app.state.frames != (load, main), pilot)
        await stands(app, pilot, "0.1")

    screen_of_app(PrismApp(capsule, "capsule", live=live), part)


def test_a_rank_that_hangs_again_is_shown_where_it_is_and_one_goes_back(tmp_path: Path) -> None:
    then, now = Frame("/job/data.py", 26, "load"), Frame("/job/data.py", 27, "load")
    rank = PlayedRank([{"event": "all_compared", "moment": "0.2", "tally": TALLY}])
    covered = {"moment": "0.2", "stopped": None, "number": 1, "tally": {**TALLY, "missing": 0}}
    starts = {"moment": "0.1", "stopped": "parked", "number": 1, "collective": {}, "tally": TALLY}
    rank.answers["progress"] = lambda _: covered if asked(rank, "resume") and not travel.returned else starts
    frames = [{"filename": now.filename, "line": now.line, "name": now.name}]
    rank.answers["stacks"] = lambda _: {"threads": [{"name": "MainThread", "frames": frames}]}
    capsule = small_capsule(tmp_path)
    travel = PlayedTravel(capsule, rank)
    hang = RecordedHang(rank=1, bound_s=0.05, frames=(then,))
    live = live_over(capsule, rank, travel, hang=hang, bound_s=0.2)

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.frames == (then,), pilot)
        await pilot.press("c")
        await until(lambda: app.state.phase is Phase.HUNG, pilot)
        assert (app.state.frames, str(app.state.moment), app.state.doing) == ((now,), "0.2", "")
        assert "hangs again, as recorded: no further collective within 0.05 s after 0.2" in said(app)
        await until(lambda: "▶  0 load" in on_screen(app), pilot)
        await pilot.press("up")  # to a call, which has a stack of its own
        await until(lambda: "▶  0 load" not in on_screen(app), pilot)
        app.type_line("restart 0")
        await until(lambda: app.state.phase is Phase.STOPPED and app.state.frames == (then,), pilot)

    screen_of_app(PrismApp(capsule, "capsule", live=live), part)


def test_where_the_ranks_of_a_hang_stand_and_who_never_came(tmp_path: Path) -> None:
    """Looking at the record alone."""
    frame = Frame("/job/data.py", 27, "load")
    culprit = RankStacks(
        rank=1, taken_by=FROM_OUTSIDE, threads=(ThreadStack(name="MainThread", holds_gil=False, frames=(frame,)),)
    )
    hang = HangPlace(identity="group 0 #5", waiting=(0,), never_came={1: "1.2 /job/train.py:9 in main"})
    taken = JobStacks(taken_wall_ns=5, attempt=0, ranks={1: culprit}, hang=hang)
    capsule = make_capsule(tmp_path / "capsule", replace(MANIFEST, rank=0), stacks=taken.to_json())

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: "rank 1 was at /job/data.py:27 in load" in said(app), pilot)
        await pilot.press("G")
        await until(lambda: "never joined, last at 1.2 train.py:9 in main" in str(app.panes.peers.body.render()), pilot)
        assert app.recording is not None
        app.recording.columns.ended_ns[-1] = -1
        await pilot.press("g", "G")
        who = "rank 1  never joined, last at 1.2 train.py:9 in main"
        await until(lambda: who in str(app.panes.peers.body.render()), pilot)

    screen_of_app(PrismApp(capsule, "capsule"), part)


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
def test_a_call_that_does_not_end_is_given_up_and_the_rank_is_said_to_run_on(key: str, tmp_path: Path) -> None:
    """Of a rank that was captured in it: no collective will come at which it could stop. A second key says something,
    and `R` goes back."""
    load = Frame("/job/data.py", 27, "load")
    rank = PlayedRank([])
    parked = {"moment": "0.1", "stopped": "parked", "number": 1, "tally": {}}
    runs = {"moment": "0.1", "stopped": None, "number": 1, "tally": {}}
    rank.answers["progress"] = lambda _: runs if asked(rank, "resume") and not travel.returned else parked
    capsule = small_capsule(tmp_path)
    travel = PlayedTravel(capsule, rank)
    live = live_over(capsule, rank, travel, standing=OutsideCollective(rank=1, frames=(load,)))

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.frames == (load,), pilot)
        await pilot.press("c")
        await until(lambda: "esc cancels it" in on_screen(app), pilot)
        await pilot.press(key)
        await until(lambda: "still running" in on_screen(app), pilot)
        status = app.panes.status.render_line(0).text.strip()
        assert status == "runs on in a call at data.py:27 in load · c waits, R restarts it, q quits"
        assert not [note for note in told(app) if "next collective" in note]
        await pilot.press(key)
        await until(lambda: any("the rank stops at its next collective" in note for note in told(app)), pilot)
        await pilot.press("R")
        await until(lambda: travel.returned == [0] and app.state.phase is Phase.STOPPED, pilot)

    screen_of_app(PrismApp(capsule, "capsule", live=live), part, (80, 24))


def test_a_rank_that_nobody_waits_for_is_still_said_to_hang_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prismdbg.debugger.driver.PROGRESS_S", 0.05)
    now = Frame("/job/data.py", 27, "load")
    rank = PlayedRank([{"event": "all_compared", "moment": "0.2", "tally": TALLY}])
    covered = {"moment": "0.2", "stopped": None, "number": 1, "tally": {**TALLY, "missing": 0}}
    starts = {"moment": "0.1", "stopped": "parked", "number": 1, "collective": {}, "tally": TALLY}
    rank.answers["progress"] = lambda _: covered if asked(rank, "resume") else starts
    frames = [{"filename": now.filename, "line": now.line, "name": now.name}]
    rank.answers["stacks"] = lambda _: {"threads": [{"name": "MainThread", "frames": frames}]}
    capsule = small_capsule(tmp_path)
    standing, hang = OutsideCollective(rank=1, frames=(now,)), RecordedHang(rank=1, bound_s=4.0, frames=(now,))
    live = live_over(capsule, rank, standing=standing, hang=hang)

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.frames == (now,), pilot)
        await pilot.press("c")
        await until(lambda: app.state.phase is Phase.RUNNING, pilot)
        await pilot.press("escape")
        await until(lambda: app.state.phase is Phase.RUNS_ON, pilot)
        await until(lambda: app.state.phase is Phase.HUNG, pilot)
        assert "hangs again, as recorded" in app.panes.status.render_line(0).text

    screen_of_app(PrismApp(capsule, "capsule", live=live), part)


def test_a_rank_that_is_to_pause_is_said_to_pause(tmp_path: Path) -> None:
    """It does not do so before its next collective, however long that takes."""
    rank = PlayedRank([])
    rank.answers["progress"] = lambda _: {
        "moment": "0.3" if asked(rank, "resume") else "0.0",
        "stopped": None if asked(rank, "resume") else "start", "number": 1, "tally": {}
    }  # fmt: skip

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED, pilot)
        await pilot.press("c")
        await until(lambda: asked(rank, "resume"), pilot)
        assert app.panes.console.line.placeholder == ": begins a command (help lists them)"
        await pilot.press("colon")
        await until(lambda: "esc cancels what runs, then leaves" in app.panes.console.line.placeholder, pilot)
        await pilot.press("escape")
        await until(lambda: "pausing at the next collective" in app.panes.status.render_line(0).text, pilot)
        await until(lambda: str(app.state.moment) == "0.3", pilot)
        await pilot.press("escape")
        await until(lambda: app.state.phase is Phase.RUNS_ON, pilot)
        assert "the rank still runs, after 0.3 · c waits for it, R restarts it, q quits" in on_screen(app)
        assert str(app.state.moment) == "0.3", "where it was seen, not where it last stopped"
        assert app.panes.console.line.placeholder == "type a command (help lists them), esc leaves"
        await pilot.press("escape")
        await until(lambda: app.panes.console.line.placeholder.startswith(": begins"), pilot)

    screen_of(part, tmp_path, rank)


def test_behind_the_end_of_the_program_no_stop_is_told_any_more(tmp_path: Path) -> None:
    rank = PlayedRank(
        [{**stopped("0.2", 2, "stop"), "stops": [1]}],
        [{"event": "finished", "moment": "0.2", "code": 1, "tally": TALLY}],
    )

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await stands(app, pilot, "0.0")
        app.type_line("break exception")
        await pilot.press("c")
        await until(lambda: "stopped at breakpoint 1: exception" in app.panes.status.render_line(0).text, pilot)
        await pilot.press("n")
        await until(lambda: app.state.phase is Phase.FINISHED, pilot)
        assert app.panes.status.render_line(0).text.strip() == "the program ended with 1"

    screen_of(part, tmp_path, rank)


def green_rows(app: PrismApp) -> list[str]:
    """The collectives above which the ruler is green."""
    timeline, recording = app.panes.timeline, app.recording
    assert timeline.range is not None and recording is not None
    looks = [(segment.style, text) for segment in timeline.render_line(0) for text in segment.text][LABEL_WIDTH:]
    cells = [style is not None and style.color is not None and style.color.name for style, _ in looks]
    begins = [timeline.range.begin(row) for row in range(len(recording))]
    return [
        str(recording.columns.moment(row))
        for row, begin in enumerate(begins)
        if timeline.paint().good.lower() in cells[begin : timeline.range.end(row) + 1]
    ]


def test_the_ruler_is_green_only_where_the_replay_was_compared_and_is_identical(tmp_path: Path) -> None:
    rank = PlayedRank(
        [stopped("0.1", 2)],
        [
            {"event": "synthesized", "moment": "0.2", "collective": {"op": "allreduce_"}},
            {"event": "diverged", "moment": "1.1", "story": {"kind": "payload", "moment": "1.1"}},
            stopped("1.2", 3),
        ],
    )

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await stands(app, pilot, "0.0")
        await pilot.press("o")  # equal widths
        await until(lambda: app.panes.timeline.range is not None and not app.panes.timeline.range.axis.by_time, pilot)
        assert green_rows(app) == [], "nothing ran yet"
        await pilot.press("n")
        await stands(app, pilot, "0.1")
        assert green_rows(app) == ["0.1"]
        await pilot.press("n")
        await stands(app, pilot, "1.2")
        assert green_rows(app) == ["0.1", "1.2"]

    screen_of(part, tmp_path, rank)


def test_what_is_shown_of_many_synthesized_answers_costs_the_same_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the end of the recording each one cost as much as all before it."""
    count, looked, shown = 500, list[Moment](), list[object]()
    exact_row, on_state_changed = Recording.exact_row, PrismApp.on_state_changed
    monkeypatch.setattr(Recording, "exact_row", lambda of, moment: (looked.append(moment), exact_row(of, moment))[1])
    monkeypatch.setattr(PrismApp, "on_state_changed", lambda of, told: (shown.append(told), on_state_changed(of, told)))
    told = [{"event": "synthesized", "moment": f"{3 + n}.1", "collective": {"op": "allreduce_"}} for n in range(count)]
    rank = PlayedRank([*told, stopped("999.1", 2)])

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await stands(app, pilot, "0.0")
        await pilot.press("c")
        await stands(app, pilot, "999.1")
        assert len(app.state.synthesized) == count and said(app).count("synthesized") >= count
        assert len(looked) < 4 * count and len(shown) < count / 2

    screen_of(part, tmp_path, rank)


def test_where_the_rank_goes_from_a_divergence_its_words_are_gone(tmp_path: Path) -> None:
    call = {**CALL, "frames": FRAMES}
    sent = {"field": "sent", "structural": False, "expected": "a", "actual": "b"}
    story = {"moment": "1.1", "expected": call, "actual": call, "differences": [sent], "history": []}
    diverged = {"event": "diverged", **story}
    rank = PlayedRank([diverged, stopped("1.1", 2, "diverged")])

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await stands(app, pilot, "0.0")
        await pilot.press("n")
        await stands(app, pilot, "1.1")
        assert app.state.story in app.panes.status.render_line(0).text and app.state.story
        await pilot.press("R")
        await until(lambda: app.state.phase is Phase.STOPPED and str(app.state.moment) != "1.1", pilot)
        assert app.state.story == ""
        await until(lambda: f"stopped at {app.state.moment}" in app.panes.status.render_line(0).text, pilot)

    screen_of(part, tmp_path, rank)
