# SPDX-License-Identifier: GPL-2.0-or-later
"""Plots as SVG, of the benches and of docs/measurements.md: points, their ranges and quartiles, and lines between
them, over axes with names and units. The same input gives the same text."""
from html import escape
from math import ceil, floor, log10
from textwrap import wrap

COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f")
LEFT, TOP, WIDTH, HEIGHT = 80, 40, 510, 340
LEGEND, TICKS = 15, 5
NAME_CHARS, LINE = 11, 14  # sizes of a name below the axis: it is broken into lines
CAP, BOX = 4, 5  # half widths, of the ends of a range and of the box of quartiles


def exponent(points):
    """Returns the exponent of the power law that fits best (least squares of the logarithms)."""
    logs = [(log10(x), log10(max(y, 1e-9))) for x, y in points]
    mx, my = (sum(v) / len(logs) for v in zip(*logs))
    return sum((x - mx) * (y - my) for x, y in logs) / sum((x - mx) ** 2 for x, _ in logs)


class Names:
    """An axis of names, evenly spread."""

    def __init__(self, names, title=""):
        self.ticks, self.title = list(names), title

    def at(self, name):
        return (self.ticks.index(name) + 0.5) / len(self.ticks)

    def show(self, name):
        return str(name)


class Linear:
    """From 0 to the first round number that is not below the largest value."""

    def __init__(self, values, title=""):
        most = max([v for v in values if v is not None] or [1]) or 1
        size = 10 ** floor(log10(most / TICKS))
        step = next(k * size for k in (1, 2, 2.5, 5, 10, 20) if k * size * TICKS >= most)
        count = ceil(most / step - 1e-9)
        self.ticks, self.title = [round(step * i, 9) for i in range(count + 1)], title

    def at(self, v):
        return v / self.ticks[-1]

    def show(self, v):
        return f"{v:,g}" if v < 1000 else f"{v:,.0f}"


class Log:
    """Whole powers of ten around the values, or the ticks given."""

    def __init__(self, values, title="", ticks=None):
        logs = [log10(v) for v in values if v is not None and v > 0] or [0]
        low = floor(min(logs))
        high = max(low + 1, ceil(max(logs)))
        self.ticks, self.title = list(ticks or [10.0 ** e for e in range(low, high + 1)]), title

    def at(self, v):
        v = max(v, self.ticks[0])
        return log10(v / self.ticks[0]) / log10(self.ticks[-1] / self.ticks[0])

    def show(self, v):
        return f"{v:,g}" if v < 1e6 else f"{v:,.0f}"


def point(x, y, low=None, high=None, q1=None, q3=None):
    return {"x": x, "y": y, "low": low, "high": high, "q1": q1, "q3": q3}


def broken(name):
    return wrap(name, NAME_CHARS, break_long_words=False) or [""]


def draw_axes(x, y, px, py):
    out, lines = [], 1
    for v in x.ticks:
        out.append(f'<line x1="{px(v):.1f}" y1="{TOP}" x2="{px(v):.1f}" y2="{TOP + HEIGHT}" stroke="#ddd"/>')
        for i, part in enumerate(broken(x.show(v))):
            lines = max(lines, i + 1)
            out.append(f'<text x="{px(v):.1f}" y="{TOP + HEIGHT + 18 + LINE * i}" text-anchor="middle">{escape(part)}</text>')
    for v in y.ticks:
        out.append(f'<line x1="{LEFT}" y1="{py(v):.1f}" x2="{LEFT + WIDTH}" y2="{py(v):.1f}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 6}" y="{py(v) + 4:.1f}" text-anchor="end">{escape(y.show(v))}</text>')
    out.append(f'<text x="{LEFT + WIDTH / 2:.0f}" y="{TOP + HEIGHT + 24 + LINE * lines}" text-anchor="middle">{escape(x.title)}</text>')
    out.append(f'<text x="18" y="{TOP + HEIGHT / 2:.0f}" text-anchor="middle" '
               f'transform="rotate(-90 18 {TOP + HEIGHT / 2:.0f})">{escape(y.title)}</text>')
    return out


def draw_point(p, at, py, colour):
    out = []
    if p["low"] is not None and p["high"] is not None:
        low, high = py(p["low"]), py(p["high"])
        out.append(f'<path d="M{at:.1f} {low:.1f}V{high:.1f}M{at - CAP:.1f} {low:.1f}h{2 * CAP}'
                   f'M{at - CAP:.1f} {high:.1f}h{2 * CAP}" stroke="{colour}" fill="none"/>')
    if p["q1"] is not None and p["q3"] is not None:
        top, bottom = py(p["q3"]), py(p["q1"])
        out.append(f'<rect x="{at - BOX:.1f}" y="{top:.1f}" width="{2 * BOX}" height="{bottom - top:.1f}" '
                   f'fill="white" stroke="{colour}"/>')
    out.append(f'<circle cx="{at:.1f}" cy="{py(p["y"]):.1f}" r="3.5" fill="{colour}"/>')
    return out


def figure(title, x, y, series, lines=True):
    """series: (name, points) each; x and y: axes. Points of several series over one name stand side by side."""
    most = max(len(broken(x.show(v))) for v in x.ticks)
    shift = 12 if isinstance(x, Names) and len(series) > 1 else 0

    def px(v):
        return LEFT + x.at(v) * WIDTH

    def py(v):
        return TOP + HEIGHT - y.at(v) * HEIGHT

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="880" height="{TOP + HEIGHT + 36 + LINE * most}" font-family="sans-serif" '
           'font-size="12"><rect width="100%" height="100%" fill="white"/>',
           f'<text x="{LEFT}" y="20">{escape(title)}</text>', *draw_axes(x, y, px, py)]
    for i, (name, points) in enumerate(series):
        colour = COLOURS[i % len(COLOURS)]
        aside = shift * (i - (len(series) - 1) / 2)
        if lines:
            at = " ".join(f"{px(p['x']) + aside:.1f},{py(p['y']):.1f}" for p in points)
            out.append(f'<polyline points="{at}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for p in points:
            out += draw_point(p, px(p["x"]) + aside, py, colour)
        out.append(f'<text x="{LEFT + WIDTH + LEGEND}" y="{60 + 20 * i}" fill="{colour}">{escape(name)}</text>')
    return "\n".join(out) + "\n</svg>\n"


def loglog(title, ticks, lines):
    """lines: (name, [(x, y), ...]) each; ticks: numbers on the x axis, the first and the last are its ends."""
    values = [max(y, 1) for _, points in lines for _, y in points]
    return figure(title, Log([], ticks=ticks), Log(values),
                  [(name, [point(x, max(y, 1)) for x, y in points]) for name, points in lines])
