"""A run's results in the forms of others: evaluation logs of inspect_ai, and models for a hub."""
