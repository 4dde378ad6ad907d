"""Train a stage, in one process or several.

A step of PPO goes through nine types in six files, and `ppo.py` takes the last of them to the loss: `AskedQuestion`
(`rollout/questions.py`), `Rollout` and `GradedRollout` (`rollout/grader.py`), `GradedStep` (`train/rollouts.py`),
`ScoredStep` and `StepData` (`train/gather.py`), `TrainBatch` and `MicroBatch` (`train/batch.py`), `Stepped`
(`train/update.py`).
"""
