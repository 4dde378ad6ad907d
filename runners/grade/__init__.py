"""Verification: read an answer from a response's text, and decide whether it is right."""

from runners.grade.answer import SEPARATOR, Claim, Status, Verdict, Verifier
from runners.grade.compare.final import final_answer, forced_answer
from runners.grade.readers import Thinking, answer_changes, opens_box, read_answer, read_texts
from runners.grade.verifier import ExactVerifier, PooledVerifier, answer_row, make_verifier, open_verifier

__all__ = [
    "SEPARATOR", "Claim", "ExactVerifier", "PooledVerifier", "Status", "Thinking", "Verdict", "Verifier",
    "answer_changes", "answer_row", "final_answer", "forced_answer", "make_verifier", "open_verifier",
    "opens_box", "read_answer", "read_texts",
]  # fmt: skip
