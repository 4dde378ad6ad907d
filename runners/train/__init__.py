"""Training: a starting checkpoint, data and a stage in; trained weights and what happened on the way out."""
