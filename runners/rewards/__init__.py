"""Rewards: from a reward expression and what was measured of a step's responses to numbers at their splits."""
