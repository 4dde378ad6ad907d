"""A dress rehearsal: a spec made small, and what it cannot show."""

from reodsl.rehearse.reached import Phase, list_reached
from reodsl.rehearse.shrink import Size, StandIn, StandIns, list_unshown, shrink

__all__ = ["Phase", "Size", "StandIn", "StandIns", "list_reached", "list_unshown", "shrink"]
