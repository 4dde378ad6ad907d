"""Grading by chance, as rehearsals do: what is right stays right, and about half of the rest is."""

from __future__ import annotations

from pathlib import Path

from reodsl.graph.job import Resources
from reodsl.ir.data import Chance
from runners.grade import Claim, ExactVerifier, open_verifier


def test_half_of_the_wrong_answers_count_and_it_is_the_same_half_each_time() -> None:
    answers = [Claim(f"wrong {n}", "2", "", f"question {n}") for n in range(400)]
    assert not any(verdict.correct for verdict in ExactVerifier().grade(answers))
    verifier = open_verifier(Chance(of="exact"), 0.0, Path(), Resources())
    verdicts = [verdict.correct for verdict in verifier.grade(answers)]
    assert 150 < sum(verdicts) < 250
    assert [verdict.correct for verdict in verifier.grade(answers)] == verdicts
    assert all(verdict.correct for verdict in verifier.grade([Claim("2", "2", "", "q")] * 50))


def test_it_does_not_matter_what_is_graded_together() -> None:
    answers = [Claim("wrong", "2", "", "a question", str(n)) for n in range(60)]
    verifier = open_verifier(Chance(of="exact"), 0.0, Path(), Resources())
    together = [verdict.correct for verdict in verifier.grade(answers)]
    assert 10 < sum(together) < 50
    assert [verifier.grade([answer])[0].correct for answer in answers] == together
