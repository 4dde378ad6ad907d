"""A process that draws charts and bundles Vega's script in V8; a script that needs the standard library and vl-convert.

It reads a Vega-Lite chart as JSON from each line. For each chart it writes two blocks: the SVG, and with `png` or `pdf` that
image, with `script` Vega, Vega-Lite and Vega-Embed as one script. A block is eight bytes of length, then the bytes.
"""

from __future__ import annotations

import json
import re
import sys
from typing import BinaryIO

PIXELS = 2.0
"""PNG pixels for each SVG pixel."""
POINTS = 0.75
"""PDF points (72 per inch) for each SVG pixel (96 per inch)."""


def main() -> None:
    """Write an SVG of each chart that standard input has, and a PNG, a PDF or the script of Vega."""
    import vl_convert

    out, form = sys.stdout.buffer, sys.argv[1]
    for line in sys.stdin.buffer:
        svg = renumber_ids(vl_convert.vegalite_to_svg(json.loads(line)))
        _send(out, svg.encode())
        if form == "script":
            # The type stub requires a `snippet` argument; the function does not.
            script = vl_convert.javascript_bundle()  # type: ignore[call-arg]
            _send(out, script.replace("</script", "<\\/script").replace("<!--", "<\\!--").encode())
        elif form == "png":
            _send(out, vl_convert.svg_to_png(svg, scale=PIXELS))
        else:
            _send(out, vl_convert.svg_to_pdf(scale(svg, POINTS)))
        out.flush()


def _send(out: BinaryIO, content: bytes) -> None:
    """Write a block: its length in eight bytes, then its bytes."""
    out.write(len(content).to_bytes(8, "big"))
    out.write(content)


def scale(svg: str, factor: float) -> str:
    """Return an SVG with another width and height.

    Args:
        svg: text of the SVG.
        factor: new size over old size.
    """
    head, end, rest = svg.partition(">")
    resized = re.sub(r' (width|height)="([0-9.]+)"', lambda m: f' {m[1]}="{float(m[2]) * factor:g}"', head)
    return resized + end + rest


def renumber_ids(svg: str) -> str:
    """Return an SVG whose clips and gradients are numbered from 0, in order of appearance.

    Vega continues its numbers from chart to chart, so equal charts would give different files.
    """
    numbers: dict[str, str] = {}
    return re.sub(
        r'(id="|url\(#)(gradient_|clip)(\d+)',
        lambda m: m[1] + m[2] + numbers.setdefault(m[2] + m[3], str(len(numbers))),
        svg,
    )


if __name__ == "__main__":
    main()
