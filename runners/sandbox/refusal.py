"""The refusal of a machine that cannot confine: why it cannot, in; the problem that says so, out."""

from __future__ import annotations

from reodsl.diagnostics import Problem, problem


def cannot_confine(why: str) -> Problem:
    """E0742: a package's scorer is to evaluate what a model wrote, and nothing confines it, for the reason given."""
    return problem(
        "E0742",
        f"the processes that check answers cannot be confined: {why}",
        where="verifier `package`",
        help="run on Linux 5.13 or newer with Landlock, or let the scorer evaluate what models write all the same: "
        "--without-sandbox",
    )
