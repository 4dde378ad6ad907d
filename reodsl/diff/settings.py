"""Settings of an arm and of a study: from the intermediate representation to sections of named values.

Everything in the canonical form is in some section, so that no difference can go unseen; only names that are for
people alone are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from reodsl.ir.base import IR, canonical, identifying
from reodsl.ir.cluster import Cluster
from reodsl.ir.expression import Expression, Node
from reodsl.ir.reward import Budgets, Exits, OracleBudgets, QuestionBudgets, Reward, Split, Steps
from reodsl.ir.reward_text import expression_text, reward_lines
from reodsl.ir.study import Arm, Study
from reodsl.ir.training import Experiment, FromModel, FromTraining, Ppo, Stage, Start

Sections = dict[str, Any]
DERIVED = "second generation"


def arm_settings(arm: Arm, staged: bool, cluster: Cluster | None = None) -> Sections:
    """Sections of an arm, its training's settings among them; under `stages` where `staged`.

    With `cluster`, the study's, what each experiment trains on is among them too.
    """
    return {**_start(arm.checkpoint, staged, cluster), "eval": canonical(arm.suite)}


def placed(arm: Arm) -> bool:
    """Whether an experiment that leads to an arm has a cluster for itself."""
    start = arm.checkpoint
    while isinstance(start, FromTraining):
        if start.experiment.cluster is not None:
            return True
        start = start.experiment.start
    return False


def stages_of(start: Start) -> int:
    """How many stages lead to a checkpoint or follow it; 0 for a model as it comes."""
    return 0 if isinstance(start, FromModel) else max(len(start.experiment.stages), start.stage + 1)


def study_settings(study: Study) -> Sections:
    """Sections of what belongs to the study as a whole."""
    whole = canonical(study)
    return {name: value for name, value in whole.items() if name != "arms"}


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of everything under a section: numbers, texts, lists of such, expressions."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}" if path and key else path or str(key))
    elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        names = [item.get("name") for item in value]
        named = all(names) and len(set(names)) == len(names)
        if named and len(names) > 1:
            yield f"{path}.order", names
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}.{names[index]}" if named else f"{path}[{index}]")
        if not named:
            yield f"{path}.count", len(value)
    else:
        yield path, value


def plain(value: Any) -> Any:
    """The canonical form with every expression as a text of the language."""
    if isinstance(value, Node):
        return expression_text(cast("Expression", value))
    if isinstance(value, IR):
        return {name: plain(getattr(value, name)) for name in identifying(value)}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return canonical(value)


def _start(start: Start, staged: bool, cluster: Cluster | None) -> Sections:
    if isinstance(start, FromModel):
        return {"base": {"model": canonical(start.model)}}
    experiment = start.experiment
    sections: Sections = {"base": _base(experiment, cluster)}
    if experiment.shared:
        sections["stages_for_all_seeds"] = experiment.shared
    if cluster is not None:
        sections["cluster"] = canonical(experiment.cluster or cluster)
    if not staged:
        return {**sections, **_stage(experiment.stages[0])}
    stages = {str(index): _stage(stage) for index, stage in enumerate(experiment.stages)}
    return {**sections, "stages": stages, "checkpoint": {"stage": start.stage, "of": len(experiment.stages)}}


def _base(experiment: Experiment, cluster: Cluster | None) -> Sections:
    start = experiment.start
    if isinstance(start, FromModel):
        return {"model": canonical(start.model)}
    return _start(start, stages_of(start) > 1, cluster)


def _stage(stage: Stage) -> Sections:
    """A stage's settings by the names that a spec uses: a method's among them, not below it."""
    fields = plain(stage)
    method = fields.pop("method")
    sections: Sections = {"method": method.pop("kind"), "data": fields.pop("data")}
    if isinstance(stage.method, Ppo):
        reward = stage.method.reward
        method.pop("reward")
        sections["reward"] = _reward(reward)
        sections[DERIVED] = second_generation(reward)
        advantage = method.pop("advantage")
        sections["credit"] = advantage.pop("credit")
        sections["advantage"] = advantage
        sections["clip"] = {"low": method.pop("clip_low"), "high": method.pop("clip_high")}
    sections.update(method)
    sections.update(fields)
    return sections


def _reward(reward: Reward) -> Sections:
    """How a reward looks at a response, its expressions as text, and its split."""
    sections: Sections = {"": [form(reward), *reward_lines(reward)]}
    if reward.splits is not None:
        # `form` tells the kind.
        sections["at"] = {name: value for name, value in canonical(reward.splits).items() if name != "kind"}
    if reward.dense is not None and reward.dense.var != "L":
        sections["variable"] = reward.dense.var
    return sections


def form(reward: Reward) -> str:
    """`dense over 6 budgets`, `one number per response`, `a sum of 2 parts, of 6 budgets`."""
    split = reward.splits
    if reward.dense is not None and split is not None:
        return f"dense over {_spoken(split)}"
    what = f"a sum of {len(reward.parts)} parts" if reward.parts else "one number per response"
    return what if split is None else f"{what}, of {_spoken(split)}"


def _spoken(split: Split) -> str:
    match split:
        case Budgets(budgets=budgets):
            return f"{len(budgets) + 1} budgets"
        case OracleBudgets(n=n):
            return f"{n + 1} budgets found on a frontier"
        case QuestionBudgets():
            return "one budget a question"
        case Steps():
            return "reasoning steps"
        case Exits(n=n):
            return f"{n} random exits and the end"


def second_generation(reward: Reward) -> str:
    """What is generated once more after the responses: forced answers, as far as a reward asks for them."""
    cuts = reward.forced
    if not cuts.any:
        return "none"
    count = len(cuts.fixed) + cuts.computed
    match reward.splits if cuts.splits else None:
        case Budgets(budgets=budgets):
            count += len(budgets)
        case OracleBudgets(n=n):
            count += n
        case QuestionBudgets():
            count += 1
        case Exits(n=n):
            count += n
        case Steps():
            return "a forced answer per reasoning step"
    return f"{count} forced answer{'' if count == 1 else 's'} per response"
