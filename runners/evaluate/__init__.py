"""Evaluation: samples, forced answers, curves, frontiers, budgets and scores of checkpoints."""
