"""Characters that are drawings, as SVG shapes that meet their neighbours: blocks, frames, hatching."""

from __future__ import annotations

_UP = "▁▂▃▄▅▆▇█"
_RIGHT = "▏▎▍▌▋▊▉"
_LINES = {  # a path in units of half a cell, from 0 to 2
    "│": "M1 0V2", "┃": "M1 0V2", "┆": "M1 0V2", "╷": "M1 1V2",
    "╭": "M2 1H1.6Q1 1 1 1.5V2", "╮": "M0 1H0.4Q1 1 1 1.5V2",
    "╰": "M2 1H1.6Q1 1 1 0.5V0", "╯": "M0 1H0.4Q1 1 1 0.5V0",
}  # fmt: skip
_ACROSS = "─━┄"
_HEAVY = "┃━"
_DOTTED = "┄┆"


def shape(character: str, count: int, left: float, top: float, width: float, height: float, color: str) -> str:
    """`count` equal characters from a place on; empty where they are text."""
    across = count * width
    if character in _UP:
        part = height * (_UP.index(character) + 1) / 8
        return _rect(left, top + height - part, across, part + (0.2 if character == "█" else 0), color)
    if character in _RIGHT:
        part = width * (_RIGHT.index(character) + 1) / 8
        return "".join(_rect(left + n * width, top, part, height, color) for n in range(count))
    if character == "▒":
        return _rect(left, top, across, height + 0.2, color, opacity=0.38) + _hatching(left, top, across, height, color)
    if character in _ACROSS:
        middle = top + height / 2
        return _path(f"M{left:.1f} {middle:.1f}H{left + across:.1f}", color, character)
    if character in _LINES:
        return "".join(
            _path(_scaled(_LINES[character], left + n * width, top, width / 2, height / 2), color, character)
            for n in range(count)
        )
    return ""


def _rect(left: float, top: float, width: float, height: float, color: str, opacity: float = 1.0) -> str:
    see_through = f' fill-opacity="{opacity}"' if opacity < 1 else ""
    return f'<rect x="{left:.1f}" y="{top:.2f}" width="{width:.1f}" height="{height:.2f}" fill="{color}"{see_through}/>'


def _hatching(left: float, top: float, width: float, height: float, color: str) -> str:
    """Slanted lines that go on from cell to cell."""
    lines, at = [], left - left % 6 - height
    while at < left + width:
        # a line from (at, top + height) up to (at + height, top), cut at the sides
        begin, end = max(at, left), min(at + height, left + width)
        if begin < end:
            lines.append(f"M{begin:.1f} {top + height - (begin - at):.1f}L{end:.1f} {top + height - (end - at):.1f}")
        at += 6
    return f'<path d="{"".join(lines)}" stroke="{color}" stroke-width="1.1" stroke-opacity="0.8" fill="none"/>'


def _path(path: str, color: str, character: str) -> str:
    dashes = ' stroke-dasharray="2.1 2.1"' if character in _DOTTED else ""
    return (
        f'<path d="{path}" stroke="{color}" stroke-width="{2.4 if character in _HEAVY else 1.1}" fill="none"{dashes}/>'
    )


def _scaled(path: str, left: float, top: float, half_width: float, half_height: float) -> str:
    """Commands M, H, V and Q with their numbers."""
    out, at = [], 0
    axes = {"M": "xy", "H": "x", "V": "y", "Q": "xyxy"}
    while at < len(path):
        command = path[at]
        end = at + 1
        while end < len(path) and path[end] not in axes:
            end += 1
        numbers = [float(number) for number in path[at + 1 : end].split()]
        placed = [
            left + number * half_width if axis == "x" else top + number * half_height
            for number, axis in zip(numbers, axes[command], strict=True)
        ]
        out.append(command + " ".join(f"{number:.1f}" for number in placed))
        at = end
    return "".join(out)
