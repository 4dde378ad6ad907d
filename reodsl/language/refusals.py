"""What is said of a change from the command line that reaches nothing, and of one that may not be made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reodsl.diagnostics.model import Diagnostic, error
from reodsl.language.context import Context
from reodsl.language.kinds import KINDS
from reodsl.language.schema import Field
from reodsl.language.suggest import advice, nearest
from reodsl.language.values import Change, Record, Section


class PassedBy(Exception):
    """A change of what is set has nothing to change here; there may be others that it reaches."""


def unmet(ctx: Context, changes: Iterable[Change]) -> None:
    """Reports changes that nothing took: what they name is set nowhere, or is not used."""
    for change in changes:
        if change.target in ctx.met:
            continue
        head = change.target.split(".")[0]
        if change.where_set:
            remedy = f"set it whole: `--amend {head}=…`"
        elif change.path == tuple(change.target.split(".")):
            remedy = f"leave it out: nothing that this spec trains could take `{head}`"
        else:
            remedy = f"use `{head}` in what runs, or leave it out"
        message = f"nothing that runs has `{change.target}`"
        found = error("E0211", message, change.value.span, help=remedy)
        ctx.report(ctx.passed.get(change.target, found))
        ctx.met.add(change.target)


def unset(ctx: Context, change: Change, head: str, field: Field) -> None:
    """Refuses a change inside a setting that has no value."""
    place = change.target.removesuffix("." + ".".join(change.path[1:]))
    example = f", as in `{field.example}`" if field.example else ""
    refuse(ctx, change, f"`{head}` is not set there", f"set it whole: `--amend {place}=…`{example}")


def lacks(ctx: Context, change: Change, whose: str, known: list[str], none: str = "it takes none") -> None:
    """Refuses a change of an argument that there is none of; `none` is the remedy where there are none at all."""
    name = change.path[0]
    helps = advice(name, known, "it takes") if known else none
    refuse(ctx, change, f"{whose} has no argument `{name}`", helps)


def refuse(ctx: Context, change: Change, message: str, remedy: str) -> None:
    """Reports a change as refused; one of what is set passes by, and is told if it reaches nothing else."""
    finding = error("E0211", message, change.value.span, help=remedy)
    if change.where_set:
        if change.target not in ctx.passed or remedy.startswith("did you mean"):
            ctx.passed[change.target] = finding
        raise PassedBy
    ctx.met.add(change.target)
    ctx.report(finding)


def held(record: Record, block: str, change: Change, name: str | None = None) -> str:
    """How to write a change of what stands in a block that has no settings itself: the first of these, or `name`."""
    inner = record.sub(block)
    parts = dict(inner.children) if isinstance(inner, Section) else {}
    name = next(iter(parts), None) if name is None else name
    setting = next(iter(KINDS[parts[name][0].kind.name].fields)) if name in parts else "SETTING"
    place = change.target.split(f"{block}.")[0].removesuffix(block)
    return f"`--amend {place}{block}.{name or 'NAME'}.{setting}=…`"


def no_stage(change: Change, experiment: str, wanted: str, names: Sequence[str]) -> Diagnostic:
    """What is said of a change to a stage that there is not; the others by name, with their numbers."""
    near = nearest(wanted, names)
    known = ", ".join(f"`{name}` ({number})" for number, name in enumerate(names, start=1))
    return error(
        "E0211",
        f"`{experiment}` has no stage `{wanted}`",
        change.value.span,
        help=f"did you mean `{near}`?" if near else f"its stages are {known}",
    )
