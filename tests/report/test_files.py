"""The pictures beside a page: what is drawn faster looks the same."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from reodsl.report.drawer import PIXELS, remove_layers

SHAPES = """<svg xmlns="http://www.w3.org/2000/svg" width="60" height="40"><g fill="none" stroke="none">
<path d="M5,5h30v20h-30z" fill="#c03000" opacity="0.4"/>
<path d="M2,9L50,30" stroke="#0030c0" stroke-width="4" opacity="0.5"/>
<line transform="translate(9,9)" x2="20" y2="20" stroke="#000000" stroke-width="2" opacity="0.3"/>
<path aria-label="a opacity=&quot;1&quot; b" d="M20,20h30v10h-30z" fill="#00a030" stroke="#000000" opacity="0.5"/>
</g></svg>"""


def test_shapes_of_one_paint_need_no_layer_and_look_the_same() -> None:
    import vl_convert

    plain = remove_layers(SHAPES)
    assert plain.count("fill-opacity=") == 1
    assert plain.count("stroke-opacity=") == 2
    # Over a fill and a stroke that overlap, one opacity is not the same as two.
    assert plain.count(' opacity="0.5"') == 1
    one, two = (
        np.asarray(Image.open(io.BytesIO(vl_convert.svg_to_png(svg, scale=PIXELS)))).astype(int)
        for svg in (SHAPES, plain)
    )
    assert one.any()
    assert abs(one - two).max() <= 3
