"""Draw the extension's icon: `python -m editors.icon` writes editors/vscode/icon.png."""

from __future__ import annotations

from pathlib import Path

IMAGE = Path(__file__).parent / "vscode" / "icon.png"
# A curve below its frontier, and the gap between them.
PICTURE = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 128 128" width="128" height="128">
<rect width="128" height="128" rx="24" fill="#1d2430"/>
<path d="M20 104 C34 40 60 28 108 24 L108 44 C76 48 46 62 20 104 Z" fill="#0f99d3" opacity="0.35"/>
<path d="M20 104 C34 40 60 28 108 24" fill="none" stroke="#eceff4" stroke-width="5" stroke-dasharray="10 6"/>
<path d="M20 104 C46 62 76 48 108 44" fill="none" stroke="#0f99d3" stroke-width="8" stroke-linecap="round"/>
</svg>
"""


def draw_icon() -> bytes:
    """Return the icon as PNG, 128 by 128."""
    import vl_convert

    return bytes(vl_convert.svg_to_png(PICTURE))


if __name__ == "__main__":
    IMAGE.write_bytes(draw_icon())
