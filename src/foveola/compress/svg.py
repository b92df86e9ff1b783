"""Two plots as SVG text, without a plotting library: points in a plane, and horizontal bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#b83280", "#4a5568")
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _LEGEND = 560, 320, 78, 40, 190


@dataclass(frozen=True, slots=True)
class Point:
    """A point with a title that is shown when the pointer rests on it; ``group`` gives its colour."""

    x: float
    y: float
    title: str
    group: str = ""


def scatter(
    points: Sequence[Point],
    x_label: str,
    y_label: str,
    *,
    log: bool = False,
    log_y: bool = False,
    diagonal: bool = False,
    line: Sequence[Point] = (),
) -> str:
    """Points on linear or logarithmic axes (``log``: both); ``diagonal`` draws y = x, ``line`` joins points of its own.

    Points that have no place are left out.
    """
    log_y = log_y or log

    def has_a_place(p: Point) -> bool:
        return math.isfinite(p.x) and math.isfinite(p.y) and (not log or p.x > 0) and (not log_y or p.y > 0)

    shown, joined = list(filter(has_a_place, points)), list(filter(has_a_place, line))
    if not shown:
        return "<p>Nothing to draw.</p>"
    xs, ys = _Axis([p.x for p in (*shown, *joined)], log), _Axis([p.y for p in (*shown, *joined)], log_y)
    if diagonal:
        xs = ys = _Axis([v for p in shown for v in (p.x, p.y)], log)
    groups = list(dict.fromkeys(p.group for p in shown))
    parts = [*_frame(xs, ys, x_label, y_label)]
    if diagonal:
        parts.append(f'<line x1="{_x(0)}" y1="{_y(0)}" x2="{_x(1)}" y2="{_y(1)}" stroke="#a0aec0"/>')
    if len(joined) > 1:
        places = " ".join(f"{_x(xs.at(p.x)):.1f},{_y(ys.at(p.y)):.1f}" for p in joined)
        parts.append(f'<polyline points="{places}" fill="none" stroke="#a0aec0" stroke-width="1.5"/>')
    for p in shown:
        colour = _COLOURS[groups.index(p.group) % len(_COLOURS)]
        parts.append(
            f'<circle cx="{_x(xs.at(p.x)):.1f}" cy="{_y(ys.at(p.y)):.1f}" r="4" fill="{colour}" fill-opacity=".75">'
            f"<title>{escape(p.title)}</title></circle>"
        )
    for number, group in enumerate(g for g in groups if g):
        colour = _COLOURS[groups.index(group) % len(_COLOURS)]
        parts.append(f'<text x="{_WIDTH}" y="{24 + 16 * number}" fill="{colour}">{escape(group)}</text>')
    return _svg(parts, _HEIGHT, _WIDTH + (_LEGEND if any(groups) else 0))


def bars(values: Sequence[tuple[str, float]], label: str) -> str:
    """One bar per name, longest value full width."""
    if not values:
        return "<p>Nothing to draw.</p>"
    most = max(max(value for _, value in values), 1e-30)
    parts = []
    for number, (name, value) in enumerate(values):
        y = 8 + 20 * number
        parts.append(f'<text x="150" y="{y + 12}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect x="158" y="{y}" width="{320 * value / most:.1f}" height="14" fill="{_COLOURS[0]}"/>')
        parts.append(f'<text x="{164 + 320 * value / most:.1f}" y="{y + 12}">{value:,.4g}</text>')
    parts.append(f'<text x="158" y="{22 + 20 * len(values)}" fill="#4a5568">{escape(label)}</text>')
    return _svg(parts, 32 + 20 * len(values))


class _Axis:
    def __init__(self, values: Sequence[float], log: bool) -> None:
        self._log = log
        low, high = (min(map(self._bent, values)), max(map(self._bent, values)))
        margin = 0.06 * (high - low) or 0.5
        self.low, self.high = low - margin, high + margin

    def _bent(self, value: float) -> float:
        return math.log10(value) if self._log else value

    def at(self, value: float) -> float:
        """Where the value lies, 0..1."""
        return (self._bent(value) - self.low) / (self.high - self.low)

    def ticks(self) -> list[tuple[float, str]]:
        """Five places and what stands there."""
        places = [self.low + (self.high - self.low) * share for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
        return [((p - self.low) / (self.high - self.low), f"{10**p if self._log else p:.3g}") for p in places]


def _x(share: float) -> float:
    return _LEFT + share * (_WIDTH - _LEFT - 16)


def _y(share: float) -> float:
    return 12 + (1 - share) * (_HEIGHT - 12 - _BOTTOM)


def _frame(xs: _Axis, ys: _Axis, x_label: str, y_label: str) -> list[str]:
    parts = [f'<rect x="{_LEFT}" y="12" width="{_x(1) - _LEFT}" height="{_y(0) - 12}" fill="none" stroke="#cbd5e0"/>']
    for share, text in xs.ticks():
        parts.append(f'<text x="{_x(share):.0f}" y="{_y(0) + 15}" text-anchor="middle">{text}</text>')
    for share, text in ys.ticks():
        parts.append(f'<text x="{_LEFT - 6}" y="{_y(share) + 4:.0f}" text-anchor="end">{text}</text>')
    parts.append(f'<text x="{_x(0.5)}" y="{_HEIGHT - 6}" text-anchor="middle" fill="#4a5568">{escape(x_label)}</text>')
    parts.append(
        f'<text x="12" y="{_y(0.5)}" transform="rotate(-90 12 {_y(0.5)})" text-anchor="middle" fill="#4a5568">'
        f"{escape(y_label)}</text>"
    )
    return parts


def _svg(parts: Sequence[str], height: int, width: int = _WIDTH) -> str:
    return f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img">{"".join(parts)}</svg>'
