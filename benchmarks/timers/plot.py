"""Plot: cost over the number of timers as an SVG: three panels, both axes in powers of ten."""

from collections.abc import Iterator, Mapping
from math import log10

PANELS = ("arm", "disarm", "expire")
COLOURS = ("#0b6e4f", "#c1121f", "#1d4ed8", "#b45309", "#6d28d9", "#0891b2", "#525252", "#be185d")
WIDTH, HEIGHT, LEFT, TOP, GAP = 270, 240, 60, 30, 70
Found = Mapping[tuple[str, int], Mapping[str, float]]


def write_plot(found: Found) -> str:
    """Return the picture of what was found: (side, number of timers) → costs in ns."""
    names = list(dict.fromkeys(name for (name, _), costs in found.items() if costs))
    sizes = sorted({count for _, count in found})
    costs = [costs[what] for costs in found.values() for what in PANELS if what in costs]
    low, high = 10 ** int(log10(min(costs))), 10 ** (int(log10(max(costs))) + 1)
    wide = LEFT + len(PANELS) * (WIDTH + GAP)
    tall = TOP + HEIGHT + 60 + 18 * -(-len(names) // 4)
    box = f'viewBox="0 0 {wide} {tall}" font-family="sans-serif" font-size="12"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box}>',
        f'<rect width="{wide}" height="{tall}" fill="white"/>',
    ]
    for place, what in enumerate(PANELS):
        lines += _panel(found, what, names, sizes, (low, high), LEFT + place * (WIDTH + GAP))
    for n, name in enumerate(names):
        x, y = LEFT + n % 4 * 240, TOP + HEIGHT + 62 + n // 4 * 18
        colour = COLOURS[n % len(COLOURS)]
        lines.append(f'<rect x="{x}" y="{y - 9}" width="14" height="4" fill="{colour}"/>')
        lines.append(f'<text x="{x + 20}" y="{y - 3}">{name}</text>')
    return "\n".join([*lines, "</svg>\n"])


def _panel(
    found: Found, what: str, names: list[str], sizes: list[int], span: tuple[int, int], left: int
) -> Iterator[str]:
    def x(count: int) -> float:
        first, last = log10(sizes[0]), log10(sizes[-1])
        return left + WIDTH * ((log10(count) - first) / (last - first) if last > first else 0.5)

    def y(cost: float) -> float:
        share = (log10(cost) - log10(span[0])) / (log10(span[1]) - log10(span[0]))
        return TOP + HEIGHT * (1 - share)

    yield f'<text x="{left}" y="{TOP - 12}" font-weight="bold">{what}, ns per timer</text>'
    mark = span[0]
    while mark <= span[1]:
        ends = f'x1="{left}" x2="{left + WIDTH}" y1="{y(mark):.1f}" y2="{y(mark):.1f}"'
        yield f'<line {ends} stroke="#ddd"/>'
        yield f'<text x="{left - 6}" y="{y(mark) + 4:.1f}" text-anchor="end">{mark:,}</text>'
        mark *= 10
    for count in sizes:
        at = f'x="{x(count):.1f}" y="{TOP + HEIGHT + 18}"'
        yield f'<text {at} text-anchor="middle">{count:,}</text>'
    for n, name in enumerate(names):
        dots = [(c, found[name, c][what]) for c in sizes if what in found.get((name, c), {})]
        if dots:
            path = " ".join(f"{x(count):.1f},{y(cost):.1f}" for count, cost in dots)
            colour = COLOURS[n % len(COLOURS)]
            yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
            for count, cost in dots:
                yield f'<circle cx="{x(count):.1f}" cy="{y(cost):.1f}" r="3" fill="{colour}"/>'
