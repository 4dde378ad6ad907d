"""Rollout engines behind one protocol: they sample responses and force answers."""
