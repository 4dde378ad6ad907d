"""Compute rewards of a step's responses at their splits."""
