"""A dress rehearsal: a spec made small, and what it cannot show."""

from reodsl.rehearse.shrink import Size, shrink
from reodsl.rehearse.stand_ins import StandIn, StandIns
from reodsl.rehearse.unshown import unshown

__all__ = ["Size", "StandIn", "StandIns", "shrink", "unshown"]
