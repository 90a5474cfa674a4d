# SPDX-License-Identifier: GPL-2.0-or-later
"""Plots of the benches, as SVG: lines over logarithmic axes."""
from math import ceil, floor, log10

COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f")
LEFT, TOP, WIDTH, HEIGHT = 80, 40, 510, 340


def exponent(points):
    """Of the power law that fits best (least squares of the logarithms)."""
    logs = [(log10(x), log10(max(y, 1e-9))) for x, y in points]
    mx, my = (sum(v) / len(logs) for v in zip(*logs))
    return sum((x - mx) * (y - my) for x, y in logs) / sum((x - mx) ** 2 for x, _ in logs)


def loglog(title, ticks, lines):
    """lines: (name, [(x, y), ...]) each; ticks: numbers on the x axis, the first and the last are its ends."""
    low = floor(min(log10(max(y, 1)) for _, points in lines for _, y in points))
    high = max(low + 1, ceil(max(log10(max(y, 1)) for _, points in lines for _, y in points)))

    def x(v):
        return LEFT + log10(v / ticks[0]) / log10(ticks[-1] / ticks[0]) * WIDTH

    def y(v):
        return TOP + HEIGHT - (log10(max(v, 10 ** low)) - low) / (high - low) * HEIGHT

    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="880" height="430" font-family="sans-serif" '
           'font-size="12"><rect width="100%" height="100%" fill="white"/>', f'<text x="{LEFT}" y="20">{title}</text>']
    for v in ticks:
        out.append(f'<line x1="{x(v):.0f}" y1="{TOP}" x2="{x(v):.0f}" y2="{TOP + HEIGHT}" stroke="#ddd"/>'
                   f'<text x="{x(v):.0f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{v}</text>')
    for e in range(low, high + 1):
        out.append(f'<line x1="{LEFT}" y1="{y(10**e):.0f}" x2="{LEFT + WIDTH}" y2="{y(10**e):.0f}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 6}" y="{y(10**e) + 4:.0f}" text-anchor="end">{10**e:,}</text>')
    for i, (name, points) in enumerate(lines):
        colour = COLOURS[i % len(COLOURS)]
        at = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in points)
        out.append(f'<polyline points="{at}" fill="none" stroke="{colour}" stroke-width="2"/>'
                   f'<text x="{LEFT + WIDTH + 15}" y="{60 + 20 * i}" fill="{colour}">{name}</text>')
    return "\n".join(out) + "\n</svg>\n"
