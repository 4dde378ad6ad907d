"""What a study or experiment lacks before it can be lowered."""

from __future__ import annotations

from reodsl.diagnostics.model import Diagnostic, error
from reodsl.language.context import Context
from reodsl.language.resolve import arm_suite, arms_of, own_suite
from reodsl.language.values import Record


def runnable(ctx: Context, record: Record) -> tuple[Diagnostic, ...]:
    """An error for every arm without a suite."""
    if record.kind != "study":
        return () if own_suite(record) is not None else (_no_suite(record),)
    return tuple(_no_suite(arm) for arm in arms_of(record) if arm_suite(record, arm) is None)


def _no_suite(record: Record) -> Diagnostic:
    return error(
        "E0304",
        f"`{record.name}` needs `eval`, a suite: how the checkpoint is evaluated",
        record.span,
        "no `eval`",
        help="add `eval = math_reg`, with a suite of your own or one from `std.suites`",
    )
