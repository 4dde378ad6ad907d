"""Trackers: the steps of a run's trainings, sent on while they are done to programs that draw and keep them."""
