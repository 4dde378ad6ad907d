"""Doubts about results: warnings of finished tasks and runs whose numbers mislead."""
