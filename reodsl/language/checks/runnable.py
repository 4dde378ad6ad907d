"""What a study or experiment lacks before it can be lowered."""

from __future__ import annotations

from collections.abc import Sequence

from reodsl.diagnostics.model import Diagnostic, Label, error
from reodsl.language.checks.clusters import check_room
from reodsl.language.context import Context
from reodsl.language.resolve import arm_suite, own_suite
from reodsl.language.values import Record, Study


def runnable(ctx: Context, record: Record) -> tuple[Diagnostic, ...]:
    """An error for what has no suite: an experiment, or a study with all of its arms that have none; and for every
    experiment of a study that its cluster has no room for.
    """
    if not isinstance(record, Study):
        return () if own_suite(record) is not None else (_no_suite(record, ()),)
    arms = [arm for arm in record.arms if arm_suite(record, arm) is None]
    bare = (_no_suite(record, arms),) if arms else ()
    return (*bare, *check_room(ctx, record))


def _no_suite(record: Record, arms: Sequence[Record]) -> Diagnostic:
    """`arms` are those of a study that have none."""
    what = "how its arms are evaluated" if arms else "how the checkpoint is evaluated"
    return error(
        "E0304",
        f"`{record.name}` needs `eval`, a suite: {what}",
        record.span,
        "no `eval`",
        others=[Label(arm.span, "no suite of its own") for arm in arms],
        help=f"add `eval = math_reg`{' to the study' if arms else ''}, a suite of your own or one from `std.suites`",
    )
