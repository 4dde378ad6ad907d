"""Sample responses, force answers out of them, read their answers, and grade these: for training and evaluation."""
