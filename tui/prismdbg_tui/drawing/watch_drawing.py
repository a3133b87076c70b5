"""What leads the values: watch expressions with what they were before, and tensors in which something is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from prismdbg.session.watches import Watched
from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.value_drawing import Ink, short

if TYPE_CHECKING:
    from prismdbg_tui.session.views import ValueView


def draw_watches(watches: Sequence[Watched], ink: Ink) -> Text:
    """`◉ nan(scores)  False → True`, a line each."""
    text = Text(no_wrap=True, overflow="ellipsis")
    for watch in watches:
        text.append("◉ ", ink.bar)
        text.append(f"{figures.clean(watch.text)}  ", f"bold {ink.name}")
        text.append_text(_now(watch, ink))
        text.append("\n")
    text.rstrip()
    return text


def _now(watch: Watched, ink: Ink) -> Text:
    if watch.error:
        return Text(figures.clean(watch.error).split("\n", 1)[0], ink.quiet)
    if watch.value is None:
        return Text("not evaluated yet", ink.quiet)
    now = figures.clean(short(watch.value))
    if not watch.changed or watch.before is None:
        return Text(now)
    before = figures.clean(short(watch.before))
    return Text.assemble((f"{before} → ", ink.quiet), (now if now != before else f"{now}, other elements", "bold"))


def draw_wrong(view: ValueView, ink: Ink) -> Text | None:
    """A tensor that holds NaN or Inf, or is not as it was recorded; None for others."""
    stats = view.value.get("stats") or {}
    bad = [f"{name} {stats[name]}" for name in ("nan", "inf") if stats.get(name)]
    if view.differs is not None and not view.differs.equal:
        bad.append(f"{figures.plural(view.differs.differing, 'element')} not as recorded")
    if not bad:
        return None
    shape = ", ".join(map(str, view.value["shape"]))
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"✕ {view.title}  ", f"bold {ink.bad}")
    return text.append(f"{view.value['dtype']}[{shape}]  {', '.join(bad)}", ink.bad)
