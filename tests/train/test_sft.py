"""Batches of supervised training: of similar lengths, and still every trace in an epoch."""

import numpy as np

from runners.train.stages import draw_traces


def test_batches_of_similar_length_cover_an_epoch():
    lengths = tuple(int(n) for n in np.random.default_rng(0).integers(1, 100, 70))
    batches = [draw_traces(lengths, 7, step, 8, True) for step in range(8)]
    seen = [i for batch in batches for i in batch]
    assert len(set(seen)) == 64
    spread = [max(lengths[i] for i in b) - min(lengths[i] for i in b) for b in batches]
    assert np.mean(spread) < 25
    assert draw_traces(lengths, 7, 3, 8, True) == batches[3]
    assert {i for step in range(8, 16) for i in draw_traces(lengths, 7, step, 8, True)} != set(seen)
    assert len(draw_traces((5, 6), 7, 0, 8, True)) == 8
