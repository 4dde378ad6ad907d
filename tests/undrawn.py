"""Pages with the places of their charts and no charts, which take most of a small run's time: for tests of anything else."""

from __future__ import annotations

from collections.abc import Callable

from reodsl.report.figures import Gallery
from reodsl.report.markup import Markup, tag


def place_figure(gallery: Gallery, name: str, draw: object, **options: bool) -> Markup:
    """What `Gallery.figure` gives, with nothing to draw in it."""
    return tag("figure", tag("div", class_="vega", data_chart=name))


def undraw(setattr: Callable[[object, str, object], None]) -> None:
    """Set with a `setattr` what makes charts, and the script that draws them."""
    from reodsl.report import drawing

    setattr(Gallery, "figure", place_figure)
    setattr(drawing, "vega_script", str)
