"""Refuse to check answers on a machine that cannot confine processes."""

from __future__ import annotations

from reodsl.diagnostics import Problem, problem

PROGRAMS = "verifier `tests`"
"""The part that runs programs of models: never without a sandbox."""


def cannot_confine(why: str, where: str = "verifier `package`") -> Problem:
    """E0742: code is to read what a model wrote, or to be what it wrote, and nothing confines it."""
    needed = "run on Linux 5.13 or newer with Landlock"
    return problem(
        "E0742",
        f"the processes that check answers cannot be confined: {why}",
        where=where,
        help=f"{needed}: programs that a model wrote are not run without"
        if where == PROGRAMS
        else f"{needed}, or let the scorer evaluate what models write all the same: --without-sandbox",
    )
