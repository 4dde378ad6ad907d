"""Refuse to check answers on a machine that cannot confine processes."""

from __future__ import annotations

from reodsl.diagnostics import Problem, problem


def cannot_confine(why: str, where: str = "verifier `package`") -> Problem:
    """E0742: code is to read what a model wrote, a package's scorer or the user's own, and nothing confines it."""
    return problem(
        "E0742",
        f"the processes that check answers cannot be confined: {why}",
        where=where,
        help="run on Linux 5.13 or newer with Landlock, or let the scorer evaluate what models write all the same: "
        "--without-sandbox",
    )
