"""A terminal that gets small and large again: what was looked at is looked at still."""

from __future__ import annotations

from pathlib import Path

from capsules import MANIFEST, make_capsule
from played import has_values, resized, screen_of_app, until
from prismdbg_tui.session.app import PrismApp
from prismdbg_tui.session.views import SourceView
from textual.pilot import Pilot

LARGE, SMALL = (200, 50), (80, 24)


def test_what_was_scrolled_to_stays(tmp_path: Path) -> None:
    app = PrismApp(make_capsule(tmp_path / "capsule", MANIFEST), "capsule")
    source = SourceView(filename="/job/train.py", line=80, first=1, lines=tuple(f"line_{n}" for n in range(1, 200)))

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        said, shown = app.panes.console.log_pane, app.panes.source
        await until(lambda: has_values(app), pilot)
        for number in range(60):
            said.say(f"{number} " + "word " * 30)
        shown.show(source)
        await pilot.pause()
        assert shown.scroll_y > 50, "the marked line is seen"
        line = next(y for y, strip in enumerate(said.lines) if strip.text.startswith("20 "))
        said.scroll_to(y=line, animate=False, immediate=True)
        shown.scroll_to(y=120, animate=False, immediate=True)
        await pilot.pause()
        for size in (SMALL, LARGE, SMALL, LARGE):
            await resized(app, pilot, size)
        assert said.lines[int(said.scroll_y)].text.startswith("20 ")
        assert shown.scroll_y == 120
        app.layout.choose("console")
        said.scroll_end(animate=False, immediate=True)
        for size in (SMALL, LARGE):
            await resized(app, pilot, size)
            assert said.scroll_y == said.max_scroll_y, "who was at the end stays there"

    screen_of_app(app, part, LARGE)


def test_the_table_is_scrolled_as_it_was(tmp_path: Path) -> None:
    """Where there is less room the cursor's row stays in sight; where there is more again, so does what stood above."""
    app = PrismApp(make_capsule(tmp_path / "capsule", MANIFEST, steps=60), "capsule")

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        table = app.panes.collectives
        app.navigation.move(60)
        await pilot.pause()
        table.scroll_to(y=38, animate=False, immediate=True)
        await pilot.pause()
        for size in (SMALL, LARGE, SMALL, (200, 40), LARGE):
            await resized(app, pilot, size)
            seen = range(int(table.scroll_y), int(table.scroll_y) + table.size.height - 1)
            assert app.cursor == 60 and 60 in seen, size
            if size == LARGE:
                assert table.scroll_y == 38
        assert table.vertical_scrollbar.position == 38

    screen_of_app(app, part, LARGE)
