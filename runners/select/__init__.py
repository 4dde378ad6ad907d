"""Selections: sampled responses in, traces and pairs to train on out."""
