"""Choose a reward of a spec to try: a declared one, one with arguments, or that of an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from reodsl.diagnostics.model import Diagnostic, error
from reodsl.ir.reward import Reward
from reodsl.ir.training import Advantage
from reodsl.language.bounds import Enough
from reodsl.language.build import Lowering, build, reward
from reodsl.language.context import Failed
from reodsl.language.evaluate import evaluate
from reodsl.language.modules import ParsedFile
from reodsl.language.program import Program, load
from reodsl.language.stages import complete_stages
from reodsl.language.values import Data, DeclaredExperiment, Definition, Record, Scope, StageRef, describe
from reodsl.syntax import parse_expression, tree
from reodsl.syntax.source import Source

SHOWN = "<REWARD>"
UNKNOWN_LENGTH = 2**31
"""The longest response where nothing says how long one may be."""


@dataclass(frozen=True, slots=True)
class ChosenReward:
    """A reward, the settings of its advantages, and the experiment that trains on it.

    `reward` is None if a diagnostic is an error; `sources` are the texts that diagnostics quote.
    """

    reward: Reward | None
    advantage: Advantage
    experiment: str | None
    diagnostics: tuple[Diagnostic, ...]
    sources: Mapping[str, str]


def choose_reward(
    path: str, wanted: str | None, sets: Mapping[str, str] = {}, amends: Mapping[str, str] = {}
) -> ChosenReward:
    """Return the reward that `wanted` names in a spec: a reward, a call of one, an experiment, or a stage of one.

    Without `wanted` it is the only reward that the file declares, or that of its only experiment. An experiment brings
    its settings of `advantage` and `credit`; else they are the defaults.
    """
    program = load(path, sets, amends)
    record: Record | None = None
    if program.main is not None and program.sound:
        with suppress(Enough, Failed):
            record = _find(program, program.main, path, wanted)
    recipe: tuple[Advantage, str | None] = Advantage(), None
    rule: Record | None = record
    limit = UNKNOWN_LENGTH
    ctx = program.context
    if isinstance(record, DeclaredExperiment | StageRef):
        experiment = record if isinstance(record, DeclaredExperiment) else record.of
        stages = complete_stages(ctx, experiment)
        stage = stages[record.position if isinstance(record, StageRef) else -1][1] if stages else None
        rule = stage.sub("reward") if stage is not None else None
        if stage is not None and rule is None:
            ctx.report(_explain_none(f"`{experiment.name}` is trained without a reward", program))
        if stage is not None and rule is not None:
            recipe = (
                build(Advantage, stage.part("advantage"), credit=stage.data("credit")),
                experiment.name,
            )
            limit = stage.part("rollout").data("max_tokens")
    built: Reward | None = None
    if isinstance(rule, Definition) and program.sound:
        with suppress(LookupError, Enough):
            built = reward(Lowering(ctx), rule, limit)
    return ChosenReward(built, *recipe, ctx.findings, ctx.modules.sources)


def _find(program: Program, main: ParsedFile, path: str, wanted: str | None) -> Record:
    """Return the record of a reward or an experiment. Raises `Failed`."""
    ctx = program.context
    if wanted is None:
        declared = {
            item.name.name: item.kind.name for item in main.items.values() if isinstance(item, tree.Decl)
        }
        for kind in ("reward", "experiment"):
            names = [
                name
                for name, declared_kind in declared.items()
                if declared_kind == kind and name in program.values
            ]
            if len(names) == 1:
                return _check_arguments(program, path, program.values[names[0]].data)
            if names:
                break
        several = (
            f"this file has {len(names)} {kind}s" if names else "this file has no reward and no experiment"
        )
        ctx.refuse(_explain_none(several, program, names))
    ctx.modules.sources[SHOWN] = wanted
    parsed = parse_expression(Source(SHOWN, wanted))
    for finding in parsed.diagnostics:
        ctx.report(finding)
    if parsed.expression is None:
        raise Failed
    value = evaluate(ctx, parsed.expression, Scope(main))
    if isinstance(value.data, DeclaredExperiment | StageRef) or (
        isinstance(value.data, Definition) and value.data.kind == "reward"
    ):
        return _check_arguments(program, path, value.data)
    ctx.fail(
        "E0123",
        f"{describe(value)} is neither a reward nor an experiment",
        parsed.expression.span,
        help="name a reward, call one, such as `reo(at: [1K tokens, 4K tokens])`, or name an experiment",
    )


def _check_arguments(program: Program, path: str, record: Data) -> Record:
    """Check that a reward has all of its arguments, since no spec calls it here. Raises `Failed`."""
    if not isinstance(record, Record):
        raise Failed
    if not isinstance(record, Definition):
        return record
    params = record.item.params or ()
    missing = [
        param.name.name for param in params if param.default is None and param.name.name not in record.args
    ]
    if not missing:
        return record
    call = f"{record.name}({', '.join(f'{name}: …' for name in missing)})"
    program.context.fail(
        "E0310",
        f"the reward `{record.name}` needs {', '.join(f'`{name}`' for name in missing)}",
        record.span,
        help=f'name it with its arguments, `reodsl reward {path} "{call}"`, or name an experiment that trains with it',
    )


def _explain_none(message: str, program: Program, names: list[str] | None = None) -> Diagnostic:
    """Return E0123: there is no reward, or it is not clear which is meant."""
    helps = (
        f"name one: {', '.join(names)}" if names else "name a reward of the library: `std.rewards.outcome`"
    )
    where = program.main.path if program.main is not None else None
    return error("E0123", message, where=where, help=helps)
