"""Benchmarks: each script measures one claim of the documentation against its peer, interleaved, and prints ratios."""
