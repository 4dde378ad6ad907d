"""Starting specs: a method and a model in, by name; the text of a spec that is sound and ready to be changed out."""

from __future__ import annotations

from reodsl.start.methods import METHODS
from reodsl.start.places import PLACES
from reodsl.start.write import starting_spec

__all__ = ["METHODS", "PLACES", "starting_spec"]
