"""Differences: none between a spec and itself, the same both ways, and every changed field of the representation is one."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reodsl.diff.compare import Diff, SettingDiff, compare, fingerprints, form, work
from reodsl.graph.lower import lower
from reodsl.graph.task import Graph
from reodsl.ir import IR, Spec
from reodsl.ir.cluster import Cluster
from reodsl.ir.reward_text import ABSENT
from reodsl.language import compile_file
from tests.graph import studies as make

ROOT = Path(__file__).resolve().parents[2]
SPECS = sorted(ROOT.glob("specs/**/*.reo"))


def compiled(path: Path, target: str | None = None, **more: Any) -> Spec:
    found = compile_file(path, target=target, **more)
    assert found.spec is not None, [each.message for each in found.diagnostics]
    return found.spec


def diff(a: Spec, b: Spec) -> Diff:
    return compare(a, b, lower(a), lower(b))


def settings_of(found: SettingDiff) -> dict[str, tuple[Any, Any]]:
    return {row.setting: (row.a, row.b) for row in found.rows}


def settings(found: Diff) -> dict[str, tuple[Any, Any]]:
    return {row.setting: (row.a, row.b) for each in (found.study, *found.arms) for row in each.rows}


@pytest.mark.slow
@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_a_spec_does_not_differ_from_itself(path: Path) -> None:
    # A file of two studies has one of its own name.
    spec = compile_file(path).spec or compiled(path, path.stem)
    found = diff(spec, spec)
    assert not found.different
    assert not settings(found)
    assert (found.work.only_a, found.work.only_b) == ((), ())
    assert len(found.work.shared) == len(lower(spec).tasks)


def test_the_other_way_round_the_values_change_places() -> None:
    a, b = compiled(ROOT / "specs" / "quickstart.reo"), compiled(ROOT / "specs" / "qwen3_4b_reo_exp.reo")
    one, two = diff(a, b), diff(b, a)
    assert {name: (y, x) for name, (x, y) in settings(one).items()} == settings(two)
    assert (one.only_a, one.only_b) == (two.only_b, two.only_a)
    assert sorted(one.work.only_a) == sorted(two.work.only_b)


def test_arms_of_other_names_that_mean_the_same_are_compared_with_each_other() -> None:
    trained = {name: make.trained(name, make.ppo(make.outcome(), steps=n)) for n, name in enumerate("xyz", 2)}
    a = make.spec(*(make.arm(f"a_{name}", each) for name, each in trained.items()))
    b = make.spec(*(make.arm(f"b_{name}", trained[name]) for name in "zy"))
    found = diff(a, b)
    assert {(each.a, each.b) for each in found.arms} == {("a_y", "b_y"), ("a_z", "b_z")}
    assert (found.only_a, found.only_b) == (("a_x",), ())
    assert set(settings(found)) <= {"name"} | {row.setting for row in found.study.rows}


def variants(value: Any, annotation: Any) -> Iterator[Any]:
    """Other values of a field's type."""
    options = [each for each in _flat(annotation) if typing.get_origin(each) is typing.Literal]
    literals = [literal for each in options for literal in typing.get_args(each)]
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, str) and literals:
        yield from (literal for literal in literals if literal != value)
    elif isinstance(value, int):
        yield value + 1
    elif isinstance(value, float):
        yield value + 0.125
    elif isinstance(value, str):
        yield value + " more"
    elif value is None:
        kinds = _flat(annotation)
        yield from (each for each in (7, "some", 0.5) if type(each) in kinds)
        yield from literals[:1]


def _flat(annotation: Any) -> list[Any]:
    if typing.get_origin(annotation) is typing.Annotated:
        return _flat(typing.get_args(annotation)[0])
    arguments = typing.get_args(annotation)
    if arguments and typing.get_origin(annotation) is not typing.Literal and type(None) in arguments:
        return [inner for each in arguments for inner in _flat(each)]
    return [annotation]


def changed(value: Any) -> Iterator[tuple[str, Any]]:
    """(path, copy with one field changed) for every field below a value that is not a presentation."""
    if isinstance(value, IR):
        for name, field in type(value).model_fields.items():
            if name in value.presentation:
                continue
            own = getattr(value, name)
            for other in variants(own, field.annotation):
                yield name, value.model_copy(update={name: other})
            for path, copy in changed(own):
                yield f"{name}.{path}", value.model_copy(update={name: copy})
    elif isinstance(value, tuple):
        if value and not isinstance(value[0], IR):
            yield "first", value[1:]
            for other in variants(value[0], type(value[0])):
                yield "0", (other, *value[1:])
        for index, item in enumerate(value):
            for path, copy in changed(item):
                yield f"{index}.{path}", (*value[:index], copy, *value[index + 1 :])


SUBJECTS = {
    "stages": lambda: make.spec(
        make.arm("late", make.trained("late", make.ppo(make.budgets(4)), make.ppo(make.outcome())))
    ),
    "oracle": lambda: make.spec(make.arm("o", make.trained("o", make.ppo(make.oracle())))),
    "questions": lambda: make.spec(
        make.arm("q", make.trained("q", make.ppo(make.question_wise("base"), references=2)))
    ),
    "paper": lambda: compiled(ROOT / "specs" / "qwen3_4b_reo_exp.reo"),
}
NO_WORK = Graph(())


@pytest.mark.parametrize("subject", SUBJECTS)
def test_every_changed_field_is_a_difference(subject: str) -> None:
    spec = SUBJECTS[subject]()
    count = 0
    for path, study in changed(spec.study):
        count += 1
        found = compare(spec, spec.model_copy(update={"study": study}), NO_WORK, NO_WORK)
        assert found.different, path
    assert count > 100


def test_an_arm_by_another_name_shares_all_work_but_the_report() -> None:
    def named(name: str) -> Spec:
        experiment = make.trained("trained", make.ppo(make.outcome()))
        return make.spec(make.arm("base", make.base()), make.arm(name, experiment), of=("base", name))

    found = work(lower(named("vanilla")), lower(named("ppo")))
    assert (found.only_a, found.only_b) == (("report",), ("report",))
    assert "score.s1" in {one for one, _ in found.shared}


def test_names_for_people_are_no_difference() -> None:
    spec = make.four()
    other = spec.model_copy(
        update={
            "path": "elsewhere.reo",
            "study": spec.study.model_copy(update={"name": "another", "doc": "Said otherwise."}),
        }
    )
    assert not diff(spec, other).different


def test_comments_order_and_units_are_no_difference(tmp_path: Path) -> None:
    text = (ROOT / "specs" / "qwen3_4b_reo_exp.reo").read_text()
    assert "32K tokens" in text
    other = tmp_path / "other.reo"
    other.write_text("# a comment\n" + text.replace("32K tokens", "32768 tokens"))
    assert not diff(compiled(ROOT / "specs" / "qwen3_4b_reo_exp.reo"), compiled(other)).different


def test_a_changed_param_shows_where_it_matters_and_nowhere_else() -> None:
    path = ROOT / "specs" / "quickstart.reo"
    found = diff(compiled(path), compiled(path, sets={"n": "3"}))
    assert set(settings(found)) == {"reward", "reward.at.budgets"}
    assert [each.a for each in found.arms if each.rows] == ["reo_exp"]
    assert set(found.work.only_a) == {"reo_exp.train.s1", "reo_exp.eval.s1", "score.s1", "report"}


def test_arms_of_other_names_are_compared_where_one_is_left() -> None:
    a = make.spec(
        make.arm("base", make.base()), make.arm("one", make.trained("one", make.ppo(make.outcome())))
    )
    b = make.spec(
        make.arm("base", make.base()), make.arm("two", make.trained("two", make.ppo(make.budgets(4, 8))))
    )
    found = diff(a, b)
    assert [(each.a, each.b) for each in found.arms] == [("base", "base"), ("one", "two")]
    assert settings(found)["reward.at.budgets"] == (ABSENT, [4, 8])
    assert settings(found)["name"] == ("one", "two")
    # The name is the only thing that tables and frontiers see change.
    assert not found.study.rows
    assert ("base.eval.s1", "base.eval.s1") in found.work.shared


def test_arms_without_a_counterpart_are_told() -> None:
    fewer = make.spec(make.arm("base", make.base()))
    found = diff(make.four(), fewer)
    assert set(found.only_a) == {"vanilla", "reo_exp", "shrink", "shrink_long"}
    assert found.different


def test_a_setting_that_only_one_side_has_is_absent_on_the_other() -> None:
    a, b = make.budgets(4, 8), make.outcome()
    one, two = (
        make.spec(make.arm("base", make.base()), make.arm("it", make.trained("it", make.ppo(reward))))
        for reward in (a, b)
    )
    assert settings(diff(one, two))["reward.at.budgets"] == ([4, 8], ABSENT)


def test_a_condition_of_an_evaluation_is_told_as_it_is_written() -> None:
    path, condition = (
        ROOT / "specs" / "miniature" / "saber.reo",
        "mean(thinking(z) for z in ref) <= {} tokens",
    )
    changed = compiled(path, amends={"fast_think.when": condition.format(32)})
    found = settings(diff(compiled(path), changed))
    assert found["eval.wordings[0].when"] == (condition.format(33), condition.format(32))


def test_a_changed_cluster_of_one_arm_is_told_there_and_changes_no_work() -> None:
    lab = Cluster(name="lab", nodes=2, gpus_per_node=8, gpu="H800", memory_gib=80)
    half = lab.model_copy(update={"name": "half", "nodes": 1})

    def on(study: Cluster | None, own: Cluster | None, start: Cluster | None = None) -> Spec:
        first = make.base().model_copy(update={"cluster": start})
        it = make.trained("it", make.ppo(make.outcome()), start=make.end(first))
        spec = make.spec(make.arm("base", first), make.arm("it", it.model_copy(update={"cluster": own})))
        return spec.model_copy(update={"study": spec.study.model_copy(update={"cluster": study})})

    whole = on(lab, None)
    found = diff(whole, on(lab, half))
    assert [(each.a, settings_of(each)) for each in found.arms] == [
        ("base", {}),
        ("it", {"cluster.nodes": (2, 1)}),
    ]
    assert not found.study.rows
    assert (found.work.only_a, found.work.only_b) == (("report",), ("report",))
    # Where all follow the study, the study tells it.
    found = diff(whole, on(half, None))
    assert [each.setting for each in found.study.rows] == ["cluster.nodes"]
    assert not any(each.rows for each in found.arms)
    # What an arm starts from is in its settings too.
    found = diff(whole, on(lab, None, half))
    assert [settings_of(each) for each in found.arms] == [
        {"cluster.nodes": (2, 1)},
        {"base.cluster.nodes": (2, 1)},
    ]


def test_equal_files_in_two_places_are_shared_work(tmp_path: Path) -> None:
    stage = make.sft(data=make.file_data("a.jsonl"))
    spec = make.spec(make.arm("a", make.trained("a", stage)))
    marks = fingerprints(lower(spec), lambda task: {"same": task.kind})
    assert len(marks) == len(lower(spec).tasks)


def test_forms_of_rewards() -> None:
    assert form(make.outcome()) == "one number per response"
    assert form(make.budgets(4, 8)) == "dense over 3 budgets"
    assert form(make.oracle()) == "dense over 3 budgets found on a frontier"
    assert form(make.question_wise("base")) == "dense over one budget a question"


def test_measures_are_told_by_name_and_by_formula_where_that_alone_differs(tmp_path: Path) -> None:
    text = (ROOT / "specs" / "quickstart.reo").read_text("utf-8")
    text = text.replace("from std.rewards", "from std.measures  import auc_oaa\nfrom std.rewards", 1)
    specs = []
    for count, (column, formula) in enumerate(
        (("auc_oaa(to: 128 tokens)", "1"), ("mine", "correct(z)"), ("mine", "not correct(z)"))
    ):
        place = tmp_path / f"{count}.reo"
        own = f"measure mine {{ mean({formula} for z in arm) }}\nstudy "
        place.write_text(
            text.replace("study ", own, 1).replace(
                "length, reg]", f"length, auc_oaa(to: 64 tokens), {column}]"
            )
        )
        specs.append(compiled(place))
    columns = ["accuracy", "length", "auc_oaa(64 tokens)"]
    found = settings(diff(specs[0], specs[1]))
    assert found == {"tables.main.columns": ([*columns, "auc_oaa(128 tokens)"], [*columns, "mine"])}
    old, new = settings(diff(specs[1], specs[2]))["tables.main.columns"]
    assert (old[-1], new[-1]) == ("mean(correct(z) for z in arm)", "mean(not correct(z) for z in arm)")
    assert not diff(specs[1], specs[1]).different
