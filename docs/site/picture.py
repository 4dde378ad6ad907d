"""Draw the flows that pages explain; `python -m benchmarks.pictures` writes them into docs/."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Flow:
    """Boxes from left to right, each a name over a place; brackets above, and an arrow below back to an earlier box."""

    steps: tuple[tuple[str, str], ...]
    brackets: tuple[tuple[str, int, int], ...] = ()
    back: tuple[int, int, str] | None = None


FLOWS = {
    "spec-to-report": Flow(
        (
            ("spec file", "mine.reo"),
            ("syntax tree", "syntax/"),
            ("typed values", "language/"),
            ("spec", "ir/"),
            ("task graph", "graph/"),
            ("plan, price", "plan/ price/"),
            ("run", "runners/"),
            ("results", "store/"),
            ("report", "report/"),
        ),
        (("reodsl check", 0, 3), ("reodsl plan", 4, 5), ("reodsl run", 6, 8)),
        (7, 5, "finished results are used again"),
    ),
    "evaluation": Flow(
        (
            ("question", "benchmark"),
            ("responses", "samples"),
            ("cuts", "every budget"),
            ("answers", "forced"),
            ("right or not", "verifier"),
            ("curve", "J(L)"),
            ("frontier", "best of arms"),
            ("REG", "area between"),
        ),
        (("one evaluation of each arm", 0, 5), ("one score", 6, 7)),
    ),
    "training-step": Flow(
        (
            ("questions", "prompts"),
            ("responses", "rollouts"),
            ("answers", "forced"),
            ("right or not", "verifier"),
            ("rewards", "a formula"),
            ("advantages", "in groups"),
            ("minibatches", "by FLOPs"),
            ("update", "optim"),
        ),
        (("the engine", 1, 2), ("the first process", 3, 5), ("all processes", 6, 7)),
        (7, 1, "weights; with lag, the next steps are sampled meanwhile"),
    ),
    "imported-results": Flow(
        (
            ("logs", "of other tools"),
            ("rows", "by their form"),
            ("one table", ".parquet"),
            ("an arm", "results(…)"),
            ("curve", "J or ended"),
            ("report", "beside others"),
        ),
        (("reodsl import", 0, 2), ("reodsl run", 3, 5)),
    ),
}
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


def draw_flow(flow: Flow, style: str = STYLE) -> str:
    """Return the picture as SVG, for a light and for a dark page."""
    left = [LEFT + step * (WIDTH + GAP) for step in range(len(flow.steps))]
    middle, bottom = TOP + HEIGHT // 2, TOP + HEIGHT
    parts = []
    for x, (name, place) in zip(left, flow.steps, strict=True):
        parts += [
            f'<rect x="{x}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" rx="7"/>',
            f'<text x="{x + WIDTH // 2}" y="{TOP + 23}">{name}</text>',
            f'<text class="code" x="{x + WIDTH // 2}" y="{TOP + 41}">{place}</text>',
        ]
    parts += [arrow(f"M{x - GAP} {middle}H{x - 3}", x, middle) for x in left[1:]]
    for words, first, last in flow.brackets:
        start, end = left[first], left[last] + WIDTH
        parts += [
            f'<path d="M{start} 30v-6H{end}v6"/>',
            f'<text class="code" x="{(start + end) // 2}" y="17">{words}</text>',
        ]
    if flow.back is not None:
        start, end = (left[place] + WIDTH // 2 for place in flow.back[:2])
        parts += [
            arrow(f"M{start} {bottom}v20H{end}v-17", end, bottom, -90),
            f'<text x="{(start + end) // 2}" y="{bottom + 38}">{flow.back[2]}</text>',
        ]
    size = f"{left[-1] + WIDTH + LEFT} {bottom + (48 if flow.back else 8)}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}">',
            f"<style>{style}</style>",
            *parts,
            "</svg>\n",
        ]
    )


def split_schemes(picture: str) -> dict[str, str]:
    """Return a picture as it is on a light page and on a dark one, whatever the browser prefers."""
    before, _, rest = picture.partition("@media (prefers-color-scheme: dark) {")
    dark, _, after = rest.partition("\n}\n")
    return {"light": before + after, "dark": before + dark + "\n" + after}
