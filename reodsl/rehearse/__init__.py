"""A dress rehearsal: a spec made small, and what it cannot show."""

from reodsl.rehearse.shrink import Size, StandIn, StandIns, list_unshown, shrink

__all__ = ["Size", "StandIn", "StandIns", "list_unshown", "shrink"]
