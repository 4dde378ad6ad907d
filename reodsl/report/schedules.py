"""Selected budgets: the budgets of each arm, their weights and errors; and charts of rules for budgets and of frontiers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import polars as pl

from reodsl.diagnostics import Problem, plural
from reodsl.ir.reward import Budgets, OracleBudgets, QuestionBudgets
from reodsl.ir.study import Chart
from reodsl.ir.training import Ppo
from reodsl.numbers.budgets import Rule, Schedule, coefficients
from reodsl.numbers.curves import Curve
from reodsl.numbers.greedy import approximation_error
from reodsl.report import formats, theme, vega
from reodsl.report.figures import Gallery
from reodsl.report.markup import Markup, data_table, name_cell, samples, tag
from reodsl.report.material import MEAN, Material
from reodsl.report.vega import Json, Rows, channel

HEIGHT = 280


@dataclass(frozen=True, slots=True)
class ArmSplits:
    """An arm's budgets: the positions, in tokens, at which its dense reward divides a response into sections."""

    arm: str
    """Name of the arm."""
    seed: int | None
    """Seed of the training; None if all seeds have the same budgets."""
    source: str
    """Source of the budgets: `given`, `greedy` or `one a question`."""
    l_max: int
    """Length of the longest response, in tokens."""
    rule: Rule | None
    """Rule of the reward's weights, if any."""
    budgets: tuple[int, ...] = ()
    """Budgets in tokens; empty if each question has its own."""
    questions: tuple[int, ...] = ()
    """Budgets of the questions in ascending order, in tokens, if each has its own."""
    unsolved: int = 0
    """Questions that were dropped because no response is right."""
    unmet: int = 0
    """Questions without rollouts."""

    @property
    def weights(self) -> tuple[float, ...]:
        """Return the weight of each budget and of the longest response in the reward's sum.

        Returns:
            As many numbers as budgets and one more; empty if the reward uses no weights, or each question has its own
            budget.
        """
        return coefficients(self.rule, self.budgets, self.l_max) if self.rule and self.budgets else ()

    def measure_error(self, material: Material) -> float | None:
        """Return the relative error (f - S)/S of the budgets' trapezoid sum f; S is the area under the frontier.

        Returns:
            Share, positive if the sum is larger than the area; None if each question has its own budget, without a
            frontier, or if the frontier ends before `l_max`.
        """
        return _error(material, self.seed, self.budgets, self.l_max) if self.budgets else None


def list_schedules(material: Material) -> list[ArmSplits]:
    """Return the budgets at which each arm's dense reward divides responses into sections, if it does so at budgets.

    Declared budgets have one item for each arm. Budgets that a run selected have an item for each seed.
    """
    rows: list[ArmSplits] = []
    for arm in map(material.study.arm, material.ordered_arms):
        methods = [stage.method for stage in arm.stages if isinstance(stage.method, Ppo)]
        reward = methods[-1].reward if methods else None
        split = reward.dense.split if reward is not None and reward.dense is not None else None
        rule = reward.weight_rule if reward is not None else None
        if isinstance(split, Budgets):
            rows.append(ArmSplits(arm.name, None, "given", split.l_max, rule, split.budgets))
        elif isinstance(split, OracleBudgets | QuestionBudgets):
            seeds = {seed: facts for (name, seed), facts in material.budgets.items() if name == arm.name}
            rows += [
                _selected(arm.name, seed, rule, seeds[seed])
                for seed in sorted(seeds, key=lambda seed: seed or 0)
            ]
    return rows


def _selected(arm: str, seed: int | None, rule: Rule | None, facts: Mapping[str, Any]) -> ArmSplits:
    """Return an arm's budgets that a run selected: budgets on a frontier, or a budget for each question.

    Args:
        arm: name of the arm.
        seed: seed of the training, if any.
        rule: rule of the reward's weights, if any.
        facts: content of `budgets.json`.
    """
    if "budgets" in facts:
        return ArmSplits(arm, seed, "greedy", facts["l_max"], rule, tuple(facts["budgets"]))
    values = facts["questions"].values()
    solved = tuple(sorted(budget for budget in values if budget is not None))
    # Results of an earlier version lack `unmet`: every question had rollouts.
    unmet = facts.get("unmet", 0)
    return ArmSplits(
        arm, seed, "one a question", facts["l_max"], rule, (), solved, len(values) - len(solved), unmet
    )


def table(material: Material) -> pl.DataFrame:
    """Return a row for each budget of each arm, and for the longest response unless each question has its own budget.

    Returns:
        Columns `arm`, `seed`, `source`, `budget` (tokens), `weight` and `approximation_error` (share). `weight` is null
        if the reward uses no weights.
    """
    rows = [
        (row.arm, row.seed, row.source, budget, weight, error)
        for row, error in ((splits, splits.measure_error(material)) for splits in list_schedules(material))
        for budget, weight in zip_longest(
            (*row.budgets, row.l_max) if row.budgets else row.questions, row.weights
        )
    ]
    kinds = {
        "arm": pl.String,
        "seed": pl.Int64,
        "source": pl.String,
        "budget": pl.Int64,
        "weight": pl.Float64,
    }
    return pl.DataFrame(rows, schema=kinds | {"approximation_error": pl.Float64}, orient="row")


def section(material: Material) -> Markup | None:
    """Return a table of each arm's budgets and weights; None if no arm has a dense reward over budgets."""
    rows = list_schedules(material)
    if not rows:
        return None
    body, marks = [], samples(material.colours)
    for row in rows:
        note = None if row.seed is None else f"seed {row.seed}"
        name = name_cell(row.arm, marks.get(row.arm), note)
        error = row.measure_error(material)
        body.append(
            tag(
                "tr",
                name,
                tag("td", row.source, class_="text"),
                tag("td", _splits(row), class_="text"),
                tag("td", row.rule or formats.NONE, class_="text"),
                tag("td", "" if error is None else f"{formats.format_signed(100 * error, 2)}%"),
            )
        )
    head = tag(
        "tr",
        tag("th", "arm", class_="name"),
        tag("th", "chosen", class_="text"),
        tag("th", "budgets, then the longest response; weights below", class_="text"),
        tag("th", "weights", class_="text"),
        tag("th", "area error"),
        class_="only",
    )
    return data_table(head, body)


def _splits(row: ArmSplits) -> Markup:
    """Return an arm's budgets as a list, each above its weight, the longest response last.

    If each question has its own budget, the quartiles of these budgets are listed instead.
    """
    if row.budgets:
        weights = [f"{w:,.6g}" for w in row.weights] or [""] * (len(row.budgets) + 1)
        pairs = zip([*row.budgets, row.l_max], weights, strict=True)
        items = [(f"{budget:,}", weight) for budget, weight in pairs]
    else:
        fractions = (0.0, 0.25, 0.5, 0.75, 1.0) if row.questions else ()
        quartiles = [row.questions[round(q * (len(row.questions) - 1))] for q in fractions]
        names = ("smallest", "quarter", "median", "three quarters", "largest")
        items = [(f"{budget:,}", name) for budget, name in zip(quartiles, names, strict=False)]
        dropped = f", {row.unsolved:,} dropped" if row.unsolved else ""
        unmet = f", {row.unmet:,} without rollouts" if row.unmet else ""
        items.append((f"{row.l_max:,}", f"{plural(len(row.questions), 'question')}{dropped}{unmet}"))
    last = len(items) - 1
    return tag(
        "ul",
        [
            tag("li", top, tag("small", below) if below else None, class_="last" if i == last else None)
            for i, (top, below) in enumerate(items)
        ],
        class_="splits",
    )


def _error(material: Material, seed: int | None, budgets: tuple[int, ...], l_max: int) -> float | None:
    """Return the relative error of the trapezoid sum at some budgets, as an estimate of the area under the mean frontier.

    It is None without a frontier, or if the frontier does not cover 0 to `l_max`.

    Args:
        material: results of the run.
        seed: seed whose frontier is used; None for the mean over seeds.
        budgets: budgets in tokens.
        l_max: length of the longest response, in tokens.
    """
    edge = material.frontier().filter(pl.col("benchmark") == MEAN)
    if seed is not None and edge["seed"].drop_nulls().len():
        edge = edge.filter(pl.col("seed") == seed)
    edge = edge.group_by("budget").agg(pl.col("accuracy").mean()).sort("budget")
    if not edge.height:
        return None
    curve = Curve(tuple(edge["budget"]), tuple(edge["accuracy"]))
    try:
        return approximation_error({MEAN: curve}, Schedule(budgets, l_max))
    except Problem:
        return None


def draw_lines(gallery: Gallery, material: Material) -> Markup | None:
    """Return the spec's charts of rules for budgets and of frontiers; None without any."""
    frontiers = {frontier.name for frontier in material.study.frontiers}
    figures = []
    for declared in material.study.charts:
        if not (declared.rules or frontiers.issuperset(declared.lines)):
            continue
        rows = rule_rows(material, declared) if declared.rules else _frontier_rows(material, declared.lines)
        if rows.height:
            figures.append(gallery.figure(declared.name, _line_chart(declared, rows)))
    return tag("div", figures, class_="charts two") if figures else None


def rule_rows(material: Material, declared: Chart) -> pl.DataFrame:
    """Return the points of each rule in a declared chart of rules for budgets.

    Returns:
        Columns `arm` (name of the rule), `count`, and the chart's vertical axis. For an axis `budget`, `count` numbers
        the budgets of the rule's largest schedule from 1, and `budget` is in tokens. For an axis `error`, `count` is the
        number of budgets of each schedule, and `error` the absolute relative error as a share.
    """
    rows: list[tuple[str, int, float]] = []
    for rule in declared.rules:
        if declared.y == "budget":
            rows += [(rule.name, n, float(budget)) for n, budget in enumerate(rule.schedules[-1], 1)]
            continue
        for budgets in rule.schedules:
            error = _error(material, None, budgets, rule.l_max)
            rows += [] if error is None else [(rule.name, len(budgets), abs(error))]
    schema = {"arm": pl.String, "count": pl.Int64, declared.y_key: pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _frontier_rows(material: Material, names: Sequence[str]) -> pl.DataFrame:
    """Return the points of some frontiers, as means over benchmarks and seeds.

    Args:
        material: results of the run.
        names: names of the frontiers.

    Returns:
        Columns `arm` (name of the frontier), `budget` in tokens and `accuracy` as a share.
    """
    rows = material.frontiers.filter((pl.col("benchmark") == MEAN) & pl.col("name").is_in(list(names)))
    means = rows.group_by("name", "budget").agg(pl.col("accuracy").mean()).sort("name", "budget")
    return means.rename({"name": "arm"})


def _line_chart(declared: Chart, rows: pl.DataFrame) -> Json:
    """Return a declared chart with a line for each name in the column `arm`.

    Args:
        declared: the chart as the spec declares it.
        rows: points, with both axes as columns.
    """
    titles = {
        "budget": "token budget",
        "accuracy": "accuracy of the best arm",
        "count": "number of budgets",
        "error": "error of the area under the frontier",
    }
    x, y = declared.x, declared.y_key
    percent = y != "budget"
    scale = {"type": "linear", "nice": True} if percent else {"type": "log", "nice": False}
    datasets = Rows()
    data = datasets.add(rows.rename({"arm": "name"}))
    across = channel(x, title=titles[x], axis={"tickMinStep": 1})
    up = channel(y, title=titles[y], axis={"format": ".3~%" if percent else ","}, scale=scale)
    colours = theme.colours(list(declared.lines))
    arms = {"color": vega.colour(colours, declared.lines), **vega.dash(colours, declared.lines)}
    # The page draws one legend for charts of arms; this chart has its own, so its column has another name.
    look: Json = {"x": across, "y": up} | {key: value | {"field": "name"} for key, value in arms.items()}
    tooltip = [
        channel("name", "nominal"),
        channel(x, format=","),
        channel(y, format=".2%" if percent else ","),
    ]
    point = {"size": 30} if x == "count" else False
    line = vega.layer(data, "line", {"point": point}, switched=False, **look, tooltip=tooltip)
    about = f"{titles[y]} by {titles[x]}: {vega.ends(rows, x, y, '.3g')}."
    title = declared.name.replace("_", " ")
    return vega.chart(datasets, [line], title=title, about=about, height=HEIGHT, switches=False)
