"""A process that draws charts and bundles Vega's script in V8; a script that needs the standard library and vl-convert.

With `png` or `pdf` it answers each line, a Vega-Lite chart as JSON, with its SVG and that form of it, each as its length in
eight bytes and itself. With `script` it writes Vega, Vega-Lite and Vega-Embed as one script for a page.
"""

from __future__ import annotations

import json
import re
import sys
from typing import BinaryIO

PIXELS = 2.0
"""PNG pixels for each unit of a chart's size."""
POINTS = 0.75
"""Points of a PDF, 72 an inch, for each unit, of which an SVG has 96 an inch."""


def main() -> None:
    """Write the script of Vega, or draw each chart of the input."""
    import vl_convert

    out = sys.stdout.buffer
    if sys.argv[1:] == ["script"]:
        # Its type stub asks for a snippet, its code does not.
        out.write(vl_convert.javascript_bundle().encode())  # type: ignore[call-arg]
        return
    for line in sys.stdin.buffer:
        svg = renumber_ids(vl_convert.vegalite_to_svg(json.loads(line)))
        _send(out, svg.encode())
        png = sys.argv[1:] == ["png"]
        _send(
            out,
            vl_convert.svg_to_png(svg, scale=PIXELS) if png else vl_convert.svg_to_pdf(scale(svg, POINTS)),
        )
        out.flush()


def _send(out: BinaryIO, content: bytes) -> None:
    out.write(len(content).to_bytes(8, "big"))
    out.write(content)


def scale(svg: str, factor: float) -> str:
    """Return the same picture in another size.

    Args:
        svg: text of the picture.
        factor: new size over old size.
    """
    head, end, rest = svg.partition(">")
    resized = re.sub(r' (width|height)="([0-9.]+)"', lambda m: f' {m[1]}="{float(m[2]) * factor:g}"', head)
    return resized + end + rest


def renumber_ids(svg: str) -> str:
    """Return an SVG whose clips and gradients are numbered from 0, since Vega counts on from chart to chart."""
    numbers: dict[str, str] = {}

    def renumber(match: re.Match[str]) -> str:
        return match[1] + match[2] + numbers.setdefault(match[2] + match[3], str(len(numbers)))

    return re.sub(r'(id="|url\(#)(gradient_|clip)(\d+)', renumber, svg)


if __name__ == "__main__":
    main()
