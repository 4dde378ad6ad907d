"""Train a checkpoint on a stage's data."""
