"""Execute a task graph: rollout engines, training, evaluation, and the executors that run them."""
