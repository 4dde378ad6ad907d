"""Verification: read an answer from a response's text, and decide whether it is right."""

from runners.verify.answer import SEPARATOR, Claim, Status, Verdict, Verifier
from runners.verify.final import final_answer, forced_answer
from runners.verify.readers import Thinking, answer_changes, opens_box, read_answer
from runners.verify.verifier import (
    ExactVerifier,
    PooledVerifier,
    answer_row,
    make_verifier,
    open_verifier,
)

__all__ = [
    "SEPARATOR",
    "Claim",
    "ExactVerifier",
    "PooledVerifier",
    "Status",
    "Thinking",
    "Verdict",
    "Verifier",
    "answer_changes",
    "answer_row",
    "final_answer",
    "forced_answer",
    "make_verifier",
    "open_verifier",
    "opens_box",
    "read_answer",
]
