"""Evaluation: checkpoints and questions in; samples, forced answers, curves, frontiers, budgets and scores out."""
