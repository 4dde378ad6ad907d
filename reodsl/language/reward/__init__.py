"""Rewards: from their syntax to expressions of the representation, with units and the range that each value can have."""
