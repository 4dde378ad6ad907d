"""Train a stage, in one process or several.

A step of PPO goes through nine types in six files, and `ppo.py` takes the last of them to the loss: `PromptedQuestion`
(`rollout/questions.py`), `Rollout` and `GradedRollout` (`rollout/grader.py`), `GradedStep` (`train/rollouts.py`),
`ScoredStep` and `StepData` (`train/gather.py`), `TrainBatch` and `MicroBatch` (`train/batch.py`), `OptimizerStepResult`
(`train/update.py`).

`PpoStage` in `ppo_stage.py` reads from `run_step` to `make_step`: sample, score, update. Responses are sampled in
`RolloutSampler.sample` of `rollouts.py`, advantages are made in `section_advantages` of `advantages.py`, and the loss is
`PpoObjective` of `ppo.py` with `policy_loss` of `losses.py`.
"""
