"""Room for V8, which draws charts: it ends the whole process where its address space is limited."""

from __future__ import annotations

import resource

from reodsl.diagnostics import problem


def require_space() -> None:
    """Refuse to draw charts under a limit of address space, of which V8 reserves far more than it uses: E0985."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        raise problem(
            "E0985",
            f"charts cannot be drawn where a process may have {soft >> 20:,} MiB of address space",
            notes=[
                "V8, which draws them, reserves far more than it uses, and ends the process under any limit"
            ],
            help="lift the limit and run again, which draws the report alone: ulimit -v unlimited",
        )
