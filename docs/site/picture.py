"""Draw the way from a spec to its report: `python docs/site/picture.py` writes docs/spec-to-report.svg."""

from __future__ import annotations

from pathlib import Path

IMAGE = Path(__file__).parents[1] / "spec-to-report.svg"
STEPS = (
    ("spec file", "mine.reo"),
    ("syntax tree", "syntax/"),
    ("typed values", "language/"),
    ("spec", "ir/"),
    ("task graph", "graph/"),
    ("plan, price", "plan/ price/"),
    ("run", "runners/"),
    ("results", "store/"),
    ("report", "report/"),
)
COMMANDS = (("reodsl check", 0, 3), ("reodsl plan", 4, 5), ("reodsl run", 6, 8))
WIDTH, GAP, LEFT, TOP, HEIGHT = 92, 15, 6, 40, 52
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2430; text-anchor: middle }
.code { font: 11.5px ui-monospace, monospace; fill: #5a6272 }
rect { fill: #f4f6fa; stroke: #8d97a8 }
path { fill: none; stroke: #5a6272; stroke-width: 1.3 }
.head { fill: #5a6272; stroke: none }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e9ef }
  .code { fill: #a9b2c3 }
  rect { fill: #232936; stroke: #6c7688 }
  path { stroke: #a9b2c3 }
  .head { fill: #a9b2c3 }
}
"""


def arrow(line: str, x: int, y: int, turn: int = 0) -> str:
    """Return a line that ends in an arrowhead at (x, y), turned by degrees."""
    head = f'<path class="head" d="M0 0l-6 -3.5v7z" transform="translate({x} {y}) rotate({turn})"/>'
    return f'<path d="{line}"/>{head}'


def drawing() -> str:
    """Return the picture as SVG, for a light and for a dark page."""
    left = [LEFT + step * (WIDTH + GAP) for step in range(len(STEPS))]
    middle, bottom = TOP + HEIGHT // 2, TOP + HEIGHT
    parts = []
    for x, (name, place) in zip(left, STEPS, strict=True):
        parts += [
            f'<rect x="{x}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" rx="7"/>',
            f'<text x="{x + WIDTH // 2}" y="{TOP + 23}">{name}</text>',
            f'<text class="code" x="{x + WIDTH // 2}" y="{TOP + 41}">{place}</text>',
        ]
    parts += [arrow(f"M{x - GAP} {middle}H{x - 3}", x, middle) for x in left[1:]]
    for command, first, last in COMMANDS:
        start, end = left[first], left[last] + WIDTH
        parts += [
            f'<path d="M{start} 30v-6H{end}v6"/>',
            f'<text class="code" x="{(start + end) // 2}" y="17">{command}</text>',
        ]
    back, plan = left[7] + WIDTH // 2, left[5] + WIDTH // 2
    parts += [
        arrow(f"M{back} {bottom}v20H{plan}v-17", plan, bottom, -90),
        f'<text x="{(back + plan) // 2}" y="{bottom + 38}">finished results are used again</text>',
    ]
    size = f"{left[-1] + WIDTH + LEFT} {bottom + 48}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}">',
            f"<style>{STYLE}</style>",
            *parts,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    IMAGE.write_text(drawing())
