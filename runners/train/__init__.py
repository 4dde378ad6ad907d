"""Train a stage, in one process or several.

A step of PPO goes through nine types in six files, and `ppo.py` takes the last of them to the loss: `AskedQuestion`
(`rollout/questions.py`), `Rollout` and `GradedRollout` (`rollout/grader.py`), `GradedStep` (`train/rollouts.py`),
`ScoredStep` and `StepData` (`train/gather.py`), `TrainBatch` and `MicroBatch` (`train/batch.py`), `OptimizerStepResult`
(`train/update.py`).

`PpoStage` (`train/ppo_stage.py`) reads from `run_step` to `make_step`: sample, score, update. Responses are sampled in
`RolloutSampler.sample` (`train/rollouts.py`), advantages are made in `section_advantages` (`train/advantages.py`), and the
loss is `PpoObjective` (`train/ppo.py`) with `policy_loss` (`train/losses.py`).
"""
