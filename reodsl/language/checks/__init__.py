"""Checks: what is legal and still wrong, each a function from an evaluated program to its findings."""

from __future__ import annotations

from reodsl.language.program import Program


def check_program(program: Program) -> None:
    """Run every check; findings go into the program's context."""
    if program.main is None:
        return
