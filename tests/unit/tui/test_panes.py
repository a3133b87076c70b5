"""What each pane leads with, leaves out and folds: the table, the stack, values, memory; digits, empty panes, help."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from played import TENSOR, PlayedRank, has_values, live_over, resized, screen_of_app, small_capsule, stopped, until
from prismdbg_tui.drawing.table_columns import Column, columns_for, fitted
from prismdbg_tui.drawing.value_drawing import short
from prismdbg_tui.memory.view import CurveView, MemoryNode, MemoryView
from prismdbg_tui.screens.help import Help
from prismdbg_tui.session.actions import ACTIONS
from prismdbg_tui.session.app import PrismApp
from prismdbg_tui.session.messages import MemoryRead, OutputCut, OutputGrew
from prismdbg_tui.session.views import Phase, SourceView, ValueView
from prismdbg_tui.session.visible_panes import NUMBERED
from prismdbg_tui.widgets.stack import folds
from prismdbg_tui.widgets.values import Values
from shown import on_screen, told
from textual.pilot import Pilot

from prismdbg.model.moment import Moment
from prismdbg.session.frames import Frame
from prismdbg.session.watches import WatchList

LIBRARY = "/v/lib/python3.11/site-packages/torch/x.py"


def looking(folder: Path) -> PrismApp:
    return PrismApp(small_capsule(folder), "capsule")


def debugging(folder: Path, rank: PlayedRank) -> PrismApp:
    capsule = small_capsule(folder)
    return PrismApp(capsule, "capsule", live=live_over(capsule, rank))


def values(app: PrismApp) -> list[str]:
    return [line.text.strip() for line in app.panes.values.body.render_lines(app.panes.values.body.region.reset_offset)]


@pytest.mark.parametrize("width", range(40, 200, 7))
def test_the_source_is_left_out_last_but_for_what_a_row_is(width: int) -> None:
    columns = columns_for(width)
    names = {column.name for column in columns}
    assert {"moment", "op", "took", "verdict"} <= names
    assert "source" in names or not names & {"seq", "bar", "group", "bytes"}
    assert sum(column.width + 1 for column in columns) < max(width, 50)


@pytest.mark.parametrize(
    ("source", "width", "expected"),
    [
        ("train_ddp.py:154", 12, "train_d…:154"),
        ("train.py:61", 12, "train.py:61 "),
        ("train.py", 6, "train…"),
        ("a.py:1234567", 8, "a.py:12…"),
    ],
)
def test_the_line_of_a_source_stays(source: str, width: int, expected: str) -> None:
    assert fitted(source, Column("source", "source", width)) == expected


def test_the_table_counts_calls_rules_off_steps_and_says_nothing_twice(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        table = app.panes.collectives
        await pilot.press("g")
        assert str(table.border_subtitle) == "6 calls"
        lines = [table.render_line(y) for y in range(1, 7)]
        ruled = [any(s.style and s.style.underline for s in line) for line in lines]
        assert ruled == [False, True, False, True, False, False], "below the last call of each step but the last"
        assert "world" in lines[0].text and "world" not in lines[3].text and "″" in lines[3].text
        await pilot.press("j", "j", "j")
        assert "world" in table.render_line(4).text, "the row under the cursor is whole"
        await pilot.press("ampersand", *"1.", "enter")
        await until(lambda: str(table.border_subtitle) == "2 of 6 calls: 1.", pilot)

    screen_of_app(looking(tmp_path), part, (160, 45))


@pytest.mark.parametrize(
    ("names", "chosen", "expected"),
    [
        ("llpp", 2, [(3,), (2,), (1, 0)]),
        ("llpp", 0, [(3,), (2,), (1,), (0,)]),
        ("lplp", 1, [(3,), (2,), (1,), (0,)]),
        ("lll", 1, [(2,), (1,), (0,)]),
        ("p", 0, [(0,)]),
        ("", 0, []),
    ],
)
def test_frames_of_libraries_fold_unless_one_is_chosen(
    names: str, chosen: int, expected: list[tuple[int, ...]]
) -> None:
    frames = [Frame(LIBRARY if name == "l" else "/job/train.py", 1, name) for name in names]
    found = list(folds(frames, chosen))
    assert found == expected
    assert sorted(number for fold in found for number in fold) == list(range(len(frames)))


def test_a_click_opens_a_fold(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        stack = app.panes.stack
        await until(lambda: has_values(app), pilot)
        app.panes.show_recorded = lambda *_: None  # type: ignore[method-assign]
        stack.show([Frame(LIBRARY, 1, "a"), Frame(LIBRARY, 2, "b"), Frame("/job/train.py", 3, "c")], 2)
        await pilot.pause()
        await until(lambda: stack.outer_size.height > 3, pilot)
        assert str(stack.body.content).endswith("   ⋯ 2 library frames to a"), "it fits where frames do"
        chosen: list[int] = []
        app.views.choose_frame = lambda by: chosen.append(app.views.frame + by)  # type: ignore[method-assign]
        await pilot.click(stack, (5, 2))
        await until(lambda: chosen == [0], pilot)

    screen_of_app(looking(tmp_path), part)


def test_values_lead_with_watches_and_what_they_were(tmp_path: Path) -> None:
    rank = PlayedRank([stopped("0.1", 2)], [stopped("0.2", 3)])
    app = debugging(tmp_path, rank)
    counts = iter(range(100))
    plain = rank.answers["evaluate"]

    def evaluate(asked: dict) -> dict:
        if asked["expression"] != "count":
            return plain(asked)
        number = next(counts)
        return {"value": {"kind": "scalar", "type": "int", "value": number, "digest": str(number)}}

    rank.answers["evaluate"] = evaluate

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED, pilot)
        await pilot.press("n")
        await until(lambda: str(app.state.moment) == "0.1", pilot)
        await pilot.press("w", *"count", "enter", "n")
        await until(lambda: str(app.state.moment) == "0.2" and "→" in values(app)[0], pilot)
        shown = values(app)
        assert shown[0].split() == ["◉", "count", "0", "→", "1"]
        wrong = next(line for line, text in enumerate(shown) if text.startswith("✕"))
        names = shown.index("names of this frame")
        assert wrong < names < next(line for line, text in enumerate(shown) if text.startswith("input[0]"))
        assert "nan 1" in shown[wrong]

    screen_of_app(app, part, (160, 60))


def test_what_was_printed_before_leaves_the_names_in_sight(tmp_path: Path) -> None:
    """In full where it was printed, in a line at each later stop."""
    rank = PlayedRank([stopped("0.1", 2)], [stopped("0.2", 3)])
    app = debugging(tmp_path, rank)
    plain = rank.answers["evaluate"]
    rank.answers["evaluate"] = lambda asked: {"value": TENSOR} if asked["expression"] == "scores" else plain(asked)

    def below_scores(app: PrismApp) -> int:
        """Lines from it to the names of the frame."""
        shown = values(app)
        at = next((place for place, text in enumerate(shown) if text.startswith("scores")), len(shown))
        return shown.index("names of this frame") - at if "names of this frame" in shown[at:] else -1

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED, pilot)
        await pilot.press("n")
        await until(lambda: str(app.state.moment) == "0.1", pilot)
        await pilot.press("colon", *"print", "space", *"scores", "enter")
        await until(lambda: below_scores(app) > 4, pilot)
        await pilot.press("escape", "n")
        await until(lambda: str(app.state.moment) == "0.2" and below_scores(app) == 1, pilot)

    screen_of_app(app, part, (160, 60))


def test_values_begin_at_the_top_at_another_place_and_stay_where_somebody_scrolled_else(tmp_path: Path) -> None:
    def names(moment: str) -> list[dict[str, str]]:
        return [{"name": f"name{number}", "text": f"{number} at {moment}"} for number in range(99)]

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        pane = app.panes.values
        await until(lambda: "recorded" in str(pane.border_subtitle), pilot)
        pane.show((), names("1.1"), "")
        await until(lambda: pane.max_scroll_y > 30, pilot)
        pane.scroll_to(y=30, animate=False, immediate=True)
        pane.show((), names("1.1"), "")
        await resized(app, pilot, (150, 40))
        assert pane.scroll_y == 30
        pane.show((), names("1.2"), "")
        await until(lambda: "0 at 1.2" in on_screen(app), pilot)
        assert pane.scroll_y == 0

    screen_of_app(looking(tmp_path), part, (160, 40))


def test_a_name_of_the_frame_has_one_line_however_long_its_value_is(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: has_values(app), pilot)  # those of the record, which come from a thread of their own
        long = "torch.nn.parallel.distributed.DistributedDataParallel." * 4
        app.panes.values.show((), [{"name": "ddp", "text": long}, {"name": "rank", "text": "2"}], "")
        await until(lambda: values(app)[:1] == ["names of this frame"], pilot)
        ddp, rank = values(app)[1:3]
        assert ddp.startswith("ddp   torch.nn.parallel.") and ddp.endswith("…")
        assert rank == "rank  2"

    screen_of_app(looking(tmp_path), part, (120, 36))


def test_a_watch_keeps_what_it_was_before() -> None:
    watches = WatchList()
    watch = watches.add("loss")
    first, second = (watches.seen(watch, {"value": n, "digest": str(n)}) for n in (1, 2))
    assert (first.before, first.changed) == (None, None)
    assert second.before == {"value": 1} and second.changed


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
def test_each_pane_has_a_digit(tmp_path: Path, size: tuple[int, int]) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        for number, pane in enumerate(NUMBERED, 1):
            await pilot.press(str(number))
            await pilot.pause()
            shown = app.query_one(f"#{pane}")

            assert app.layout.pane == pane and shown.display and shown.size.height > 0
            assert f"[dim]{number}[/" in str(shown.border_title), pane

    screen_of_app(debugging(tmp_path, PlayedRank()), part, size)


def test_where_nothing_runs_there_is_no_output(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await pilot.press("9")
        (said,) = told(app)
        assert said == "this view is read-only, so nothing is printed: use `prismdbg debug`"

    screen_of_app(looking(tmp_path), part)


def test_empty_panes_give_their_room_to_others(tmp_path: Path) -> None:
    """Also where they fill a box alone; a pane that is the only one seen is never small."""

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        stack, source = app.panes.stack, app.panes.source
        await until(lambda: has_values(app), pilot)
        app.panes.show_recorded = lambda *_: None  # type: ignore[method-assign]
        source.show(SourceView(filename="/job/train.py", line=1, lines=("a()", "b()")))
        stack.show([Frame("/job/train.py", 1, "main")], 0)
        await until(lambda: stack.outer_size.height > 3, pilot)
        before = source.size.height
        stack.show((), 0)
        await until(lambda: stack.outer_size.height == 3 and source.size.height > before, pilot)
        await pilot.press("7")
        await until(lambda: app.query_one("#foot").outer_size.height == 3, pilot)
        await pilot.press("6")
        await until(lambda: app.query_one("#foot").outer_size.height > 3, pilot)
        await pilot.press("4", "z")
        await until(lambda: stack.outer_size.height > 20, pilot)
        await pilot.press("z")
        await resized(app, pilot, (80, 24))
        await until(lambda: stack.outer_size.height > 5, pilot)

    screen_of_app(looking(tmp_path), part, (120, 36))


@pytest.mark.parametrize("size", [(160, 45), (200, 60)])
def test_the_pane_of_the_output_is_there_once_the_rank_prints(tmp_path: Path, size: tuple[int, int]) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED, pilot)
        console, output = app.panes.console, app.panes.output
        await until(lambda: not output.display and "9 Output" in str(console.border_title), pilot)
        alone = console.size.width
        app.post_message(OutputGrew(b"step 1\n", 0))
        await until(lambda: output.display and console.size.width < alone, pilot)
        assert "Output" not in str(console.border_title)
        app.post_message(OutputCut(0))
        await until(lambda: not output.display, pilot)
        await pilot.press("9")
        await until(lambda: output.display, pilot)

    screen_of_app(debugging(tmp_path, PlayedRank()), part, size)


@pytest.mark.parametrize("width", [80, 160])
def test_memory_rows_are_bars_shares_names_and_then_sizes(tmp_path: Path, width: int) -> None:
    nodes = (
        MemoryNode(label="model.py:53 in forward", size_bytes=3 << 20, blocks=7),
        MemoryNode(label="a name that is far too long for any pane " * 9, size_bytes=1 << 20, blocks=1),
        MemoryNode(label=f"aten::mm in {'layers.' * 30}up", size_bytes=1, blocks=1),
    )
    curve = CurveView(low_bytes=(1, 2), high_bytes=(1, 2), steps=(), moments=(Moment(0), Moment(1)), peak=1, here=1)

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await pilot.press("2")
        await app.workers.wait_for_complete()
        app.post_message(MemoryRead(MemoryView(curve=curve, program_bytes=4 << 20, nodes=nodes)))
        blocks = app.panes.memory.blocks
        await until(lambda: len(blocks.root.children) == 3, pilot)
        await pilot.pause()
        app.export_screenshot()  # its lines are known once it is drawn
        *lines, module = [blocks.render_line(y).text for y in range(3)]
        assert "aten::mm in …" in module and "layers.up " in module
        for line, share, size in zip(lines, ("75%", "25%"), ("3.0 MiB", "1.0 MiB"), strict=True):
            assert line.index("█") < line.index(share) < line.index(size)
        assert len({line.index("MiB") for line in lines}) == 1 and "…" in lines[1]
        app.post_message(MemoryRead(MemoryView(curve=curve, since=Moment(0), nodes=nodes)))
        await until(lambda: "%" not in blocks.render_line(0).text and "+3.0 MiB" in blocks.render_line(0).text, pilot)

    screen_of_app(looking(tmp_path), part, (width, 36))


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
def test_help_is_an_overlay_of_keys_and_commands(tmp_path: Path, size: tuple[int, int]) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await pilot.press("colon", *"help", "enter")
        await until(lambda: isinstance(app.screen, Help), pilot)
        await pilot.pause()
        keys, commands = (app.screen.query_one(name).region for name in ("#help-keys", "#help-commands"))
        beside = commands.x > keys.x
        assert beside == (size[0] >= 100) and (beside or commands.y >= keys.bottom)
        seen = on_screen(app)
        for _ in range(20):
            await pilot.press("pagedown")
            await pilot.pause()
            seen += "\n" + on_screen(app)
        assert "\ufffd" not in seen, "what cannot be printed"
        assert all(re.search(rf" {action.name}(?= |│|$)", seen, re.MULTILINE) for action in ACTIONS), "whole names"
        await pilot.press("escape")
        await until(lambda: not isinstance(app.screen, Help), pilot)

    screen_of_app(debugging(tmp_path, PlayedRank()), part, size)


def test_keys_that_come_faster_than_the_screen_follows_are_all_counted(tmp_path: Path) -> None:
    """A move that came round late set the cursor back, and the next key began from there."""

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.recording is not None, pilot)
        app.navigation.move(0)
        table = app.panes.collectives
        table.action_move(1)
        table.action_move(1)
        app.navigation.move(1, 1)  # the first one comes round only now
        table.action_move(1)
        await until(lambda: app.cursor == 3, pilot)
        app.navigation.move(0)
        table.action_move(1)
        await until(lambda: app.cursor == 1, pilot)

    screen_of_app(looking(tmp_path), part)


@pytest.mark.parametrize(("high", "shown"), [(1.5, "float32[] 1.5"), (2.5, "float32[] 1.5 to 2.5")])
def test_a_tensor_of_one_value_is_no_range(high: float, shown: str) -> None:
    assert short({"kind": "tensor", "dtype": "float32", "shape": [], "stats": {"min": 1.5, "max": high}}) == shown


def test_of_several_values_the_one_printed_last_is_copied_else_the_first_of_the_collective() -> None:
    pane = Values()
    printed = [ValueView(title, {"kind": "note", "text": title}) for title in ("later", "earlier")]
    of_call = [ValueView(title, {"kind": "note", "text": title}, of_call=True) for title in ("input[0]", "out[0]")]
    for values, copied in ([*of_call, *printed], "later"), (of_call, "input[0]"):
        pane._last = (values, (), "", ())
        assert pane.first() == (copied, copied)
