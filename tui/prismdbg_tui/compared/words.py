"""What the screen of a sweep says: header, conclusion, a configuration's row and what is known of it beside that."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from prismdbg.model.durations import four_digits
from prismdbg.model.sizes import as_given, size
from prismdbg.render import sweep_text
from prismdbg.sweep.result import Result, State
from prismdbg.sweep.stored import StoredSweep
from prismdbg_tui.drawing import figures

# The first five fit into 80 columns; the others follow where there is room.
TITLES = ("configuration", "time", "interval", "memory", "fits", "idle", "tokens/s", "exposed")
NEEDED = 5
_LEAST_NAME = 12
_LEFT = ("configuration", "interval", "fits", "exposed")


def heading(sweep: StoredSweep, order: str = "") -> tuple[str, ...]:
    """`order`: of the rows, if it was changed."""
    done = sum(each.state is State.DONE for each in sweep.results)
    parts = [f"{done} of {figures.plural(len(sweep.results) + len(sweep.unfinished), 'configuration')} with a time"]
    parts += [f"{len(sweep.unfinished)} without a result"] if sweep.unfinished else []
    return (*parts, *([f"cap {as_given(sweep.cap_bytes)}"] if sweep.cap_bytes else []), *([order] if order else []))


def conclusion(sweep: StoredSweep) -> Text:
    lines = [*sweep_text.conclusion(sweep.results, sweep.cap_bytes), *sweep_text.worth(sweep.results, sweep.cap_bytes)]
    return Text("\n").join(
        [Text(figures.clean(lines[0]), "bold"), *(Text(figures.clean(line), "dim") for line in lines[1:])]
    )


def cells(result: Result, cap_bytes: int, *, is_best: bool, bad: str) -> list[Text]:
    """Of all columns. is_best: no other configuration is better in time and memory. bad: the colour of what does not
    fit or failed."""
    is_done, fits = result.state is State.DONE, result.fits(cap_bytes)
    time, peak = result.time, result.peak_bytes
    texts = (
        f"{'*' if is_best else ' '} {figures.clean(result.name)}",
        four_digits(time.middle) if is_done else str(result.state),
        sweep_text.interval(time) if is_done else "",
        size(peak) if peak is not None else "-",
        "-" if fits is None else "yes" if fits else "no",
        sweep_text.idle(result) if is_done else "-",
        f"{result.tokens_per_s:,.0f}" if is_done and result.tokens else "-",
        sweep_text.exposed(result) if is_done else "-",
    )
    marked = {"time": result.state is State.FAILED, "fits": fits is False}
    style = "" if is_done else "dim"
    return [
        Text(
            text,
            bad if marked.get(title) else style,
            justify="left" if title in _LEFT else "right",
            no_wrap=True,
            overflow="ellipsis",
        )
        for title, text in zip(TITLES, texts, strict=True)
    ]


def detail(result: Result) -> Text:
    """Of the row under the cursor: what has no column, or why there is no time."""
    text = Text().append(figures.clean(result.name), "bold")
    text.append(f"  {figures.clean(result.mesh)}" if result.mesh else "", "dim")
    if result.state is not State.DONE:
        return text.append(f"\n{result.state}: {figures.clean(result.why)}")
    text.append(f"\nexposed {sweep_text.exposed(result)}  idle {sweep_text.idle(result)}")
    text.append(f"  messages {sweep_text.messages(result)}")
    lines = [*sweep_text.energy([result]), figures.clean(result.worth), figures.clean(_doubted(result))]
    return text.append("".join(f"\n{line}" for line in lines if line), "dim")


def _doubted(result: Result) -> str:
    """Without the reasons, for which there is no room."""
    return f"not reliable: {'; '.join(each.partition(': ')[0] for each in result.doubts)}" if result.doubts else ""


def shown_titles(rows: Sequence[Sequence[Text]], room: int) -> list[tuple[str, int]]:
    """Columns and their widths: those that are needed, then as many as fit. Each takes two more for its edges."""
    found: list[tuple[str, int]] = []
    for at, title in enumerate(TITLES):
        width = max([len(title), *(row[at].cell_len for row in rows)])
        if at >= NEEDED and sum(each + 2 for _, each in found) + width + 2 > room:
            break
        found.append((title, width))
    too_wide = max(sum(width + 2 for _, width in found) - room, 0)
    return [(found[0][0], max(found[0][1] - too_wide, _LEAST_NAME)), *found[1:]]


def label(title: str) -> Text:
    return Text(title, justify="left" if title in _LEFT else "right")
