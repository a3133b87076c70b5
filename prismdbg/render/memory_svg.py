"""Live memory of one rank as SVG: an area over the trace, with the peak and where steps begin."""

from __future__ import annotations

from prismdbg.memory.curve import Curve
from prismdbg.model.sizes import size

WIDTH, HEIGHT, LABEL, FOOT = 900, 140, 80, 16
_LEAST_BETWEEN = 40


def memory_svg(curve: Curve) -> str:
    """Empty where nothing was traced. Events are spaced evenly, not time."""
    if not len(curve):
        return ""
    top = max(int(curve.high_bytes.max(initial=0)), 1)
    per_point = (WIDTH - LABEL) / len(curve)
    area = HEIGHT - FOOT
    steps = "".join(
        f" L{LABEL + at * per_point:.1f},{area - high / top * area:.1f} h{per_point:.1f}"
        for at, high in enumerate(curve.high_bytes.tolist())
    )
    peak = LABEL + (curve.peak_point + 0.5) * per_point
    return "".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-size="11" '
            f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" fill="currentColor"><title>live memory</title>',
            f'<text x="0" y="11">{size(top)}</text>',
            f'<path d="M{LABEL},{area}{steps} V{area} Z" fill="#4c8bb8" fill-opacity=".55"/>',
            f'<line x1="{peak:.1f}" x2="{peak:.1f}" y1="0" y2="{area}" stroke="#c0392b"/>',
            *_steps(curve, per_point),
            "</svg>",
        ]
    )


def _steps(curve: Curve, per_point: float) -> list[str]:
    labels, free_from = [], 0.0
    for step, point in curve.step_points:
        x = LABEL + point * per_point
        if free_from <= x <= WIDTH - _LEAST_BETWEEN:
            labels.append(f'<text x="{x:.1f}" y="{HEIGHT - 4}" fill-opacity=".7">step {step}</text>')
            free_from = x + _LEAST_BETWEEN
    return labels
