"""Select traces and pairs to train on from sampled responses."""
