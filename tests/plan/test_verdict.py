"""Plans: the verdict on every task, and the reason with old, new and the line."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from reodsl.graph.lower import lower
from reodsl.ir import Origin, Spec, digest
from reodsl.ir.base import locate
from reodsl.ir.reward_text import value_text
from reodsl.plan import Item, Keys, Plan, make_plan
from reodsl.plan.places import Difference, differences, words
from reodsl.plan.render import ago, to_json, to_text
from reodsl.store import runs
from tests.execute.bench import Bench
from tests.graph import studies as make


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def planned(bench: Bench, spec: Spec) -> Plan:
    return make_plan(spec, lower(spec), bench.store, Keys(bench.store, bench.folder))


def recorded(bench: Bench, spec: Spec) -> None:
    record = runs.begin(bench.store.open(), spec, digest(spec))
    record.tasks = bench.run(spec).keys
    runs.end(bench.store, record, "finished")


def verdicts(plan: Plan) -> dict[str, str]:
    return {item.task.id: item.verdict for item in plan.items}


def item(plan: Plan, name: str) -> Item:
    return next(item for item in plan.items if item.task.id == name)


def vanilla(lr: float = 1e-4, steps: int = 2, line: Origin | None = None) -> Spec:
    optim = make.Optimizer(algorithm="adam", lr=lr)
    if line is not None:
        locate(optim, {"lr": line})
    experiment = make.trained("vanilla", make.ppo(make.outcome(), steps=steps, optim=optim))
    arms = (make.arm("base", make.base()), make.arm("vanilla", experiment))
    return make.spec(*arms)


def test_planning_needs_no_store_and_makes_none(bench: Bench) -> None:
    plan = planned(bench, make.four())
    assert set(verdicts(plan).values()) == {"run"}
    assert not bench.store.root.exists()


def test_all_is_reused_after_a_run(bench: Bench) -> None:
    recorded(bench, make.four())
    plan = planned(bench, make.four())
    assert not plan.work
    assert plan.totals == {"reuse": len(plan.items), "run": 0, "rerun": 0, "later": 0}
    assert "Nothing to do" in to_text(plan)


def test_a_changed_setting_is_named_with_its_values_and_its_line(bench: Bench) -> None:
    recorded(bench, vanilla())
    line = Origin(path="specs/x.reo", line=8)
    plan = planned(bench, vanilla(lr=1e-6, line=line))
    found = item(plan, "vanilla.train.s1")
    assert (found.verdict, found.reason) == ("rerun", "optim.lr 0.0001 -> 1e-6")
    assert found.changes[0].origin == line
    assert item(plan, "vanilla.eval.s1").reason == "vanilla.train.s1 runs first"
    assert item(plan, "base.eval.s1").verdict == "reuse"
    text = to_text(plan)
    assert "~ vanilla.train" in text
    assert "specs/x.reo:8" in text
    assert "tasks unchanged (--all shows them)" in text


def test_what_no_line_gave_is_shown_at_the_declaration_around_it(bench: Bench) -> None:
    recorded(bench, vanilla())
    cooler = make.suite().model_copy(update={"rollout": make.Sampling(max_tokens=16, temperature=0.5)})
    arms = (
        make.arm("base", make.base()),
        make.arm("vanilla", vanilla().study.arm("vanilla").checkpoint, cooler),
    )
    found = item(planned(bench, make.spec(*arms)), "vanilla.eval.s1")
    assert [change.name for change in found.changes] == ["rollout.temperature"]
    assert found.changes[0].origin is None
    locate(cooler, {"": Origin("specs/x.reo", 9), "samples": Origin("specs/x.reo", 8)})
    found = item(planned(bench, make.spec(*arms)), "vanilla.eval.s1")
    assert found.changes[0].origin == Origin("specs/x.reo", 9)


def named(names: dict[str, str]) -> Spec:
    """The four arms by other names, in the order of `names`."""
    old = make.four()
    arms = [make.arm(new, old.study.arm(name).checkpoint) for name, new in names.items()]
    score = old.study.score
    assert score is not None
    update = {
        "arms": tuple(arms),
        "frontiers": tuple(
            each.model_copy(update={"of": tuple(names[arm] for arm in each.of)})
            for each in old.study.frontiers
        ),
        "score": score.model_copy(update={"relative_to": names[score.relative_to or "base"]}),
        "tables": (),
        "charts": (),
    }
    return old.model_copy(update={"study": old.study.model_copy(update=update)})


def test_arms_by_other_names_in_another_order_make_the_report_alone_anew(bench: Bench) -> None:
    names = {arm.name: arm.name for arm in make.four().study.arms}
    recorded(bench, named(names))
    for other in ({name: f"my {name}" for name in names}, dict(reversed(names.items()))):
        plan = planned(bench, named(other))
        assert {item.task.kind for item in plan.items if item.verdict != "reuse"} == {"report"}
        bench.run(named(other))
        assert bench.of("started") == ["report"]


def test_an_arm_that_changed_is_named_where_others_did_not(bench: Bench) -> None:
    recorded(bench, vanilla())
    bench.run(vanilla(lr=1e-6))
    found = item(planned(bench, vanilla(lr=1e-6)), "score.s1")
    # All of it is there again; what the record tells of is the study's last run.
    assert found.verdict == "reuse"
    bench.store.remove(found.key or "")
    found = item(planned(bench, vanilla(lr=1e-6)), "score.s1")
    assert found.reason == "vanilla.eval.s1 changed"


def test_the_plan_is_what_the_run_then_does(bench: Bench) -> None:
    recorded(bench, make.four())
    bench.started()
    spec = vanilla(steps=9)
    plan = planned(bench, spec)
    bench.run(spec)
    assert set(bench.started()) == {name for name, verdict in verdicts(plan).items() if verdict != "reuse"}


def test_budgets_of_a_frontier_to_come_are_known_later(bench: Bench) -> None:
    spec = make.spec(
        make.arm("base", make.base()), make.arm("oracle", make.trained("oracle", make.ppo(make.oracle())))
    )
    plan = planned(bench, spec)
    assert item(plan, "oracle.budgets.s1").reason == "needs edge.frontier.s1"
    later = {name for name, verdict in verdicts(plan).items() if verdict == "later"}
    assert {"oracle.budgets.s1", "oracle.train.s1", "oracle.eval.s1"} <= later
    recorded(bench, make.spec(make.arm("base", make.base())))
    assert item(planned(bench, spec), "oracle.budgets.s1").verdict == "run"


def test_an_interrupted_task_goes_on(bench: Bench) -> None:
    def stop(event: Any) -> None:
        if event.kind == "progress" and event.task == "vanilla.train.s1":
            raise KeyboardInterrupt

    bench.on_event = stop
    with pytest.raises(KeyboardInterrupt):
        bench.run(vanilla())
    assert item(planned(bench, vanilla()), "vanilla.train.s1").reason == "goes on where it stopped"


def test_damage_and_removal_are_told_apart(bench: Bench) -> None:
    recorded(bench, vanilla())
    key = item(planned(bench, vanilla()), "edge.frontier.s1").key
    assert key
    file = bench.store.path(key) / "frontier.json"
    file.chmod(0o644)
    file.write_text("")
    assert item(planned(bench, vanilla()), "edge.frontier.s1").reason == "its result is damaged"
    bench.store.remove(key)
    assert item(planned(bench, vanilla()), "edge.frontier.s1").reason == "its result was removed"


def test_a_data_file_that_changed_is_told(bench: Bench) -> None:
    (bench.folder / "weights").mkdir()
    (bench.folder / "a.jsonl").write_text("1\n")
    stage = make.sft(data=make.file_data("a.jsonl"))
    spec = make.spec(make.arm("a", make.trained("a", stage, start=make.downloaded())))
    recorded(bench, spec)
    (bench.folder / "a.jsonl").write_text("2\n")
    found = item(planned(bench, spec), "filed.data")
    assert (found.verdict, found.reason) == ("rerun", "the file it reads changed")


def test_seeds_share_a_line(bench: Bench) -> None:
    text = to_text(planned(bench, make.four(seeds=(1, 2, 3))))
    assert "+ reo_exp.train x3" in text
    assert "Plan: 42 run."  # 13 tasks a seed, two data sets, one report in text


def test_the_json_is_complete_and_plain(bench: Bench) -> None:
    recorded(bench, vanilla())
    data = json.loads(json.dumps(to_json(planned(bench, vanilla(lr=1e-6)))))
    assert set(data) == {
        "study",
        "spec",
        "arms",
        "frontiers",
        "seeds",
        "changes",
        "schedules",
        "tasks",
        "totals",
    }
    train = next(task for task in data["tasks"] if task["id"] == "vanilla.train.s1")
    assert train["changes"] == [
        {"path": "payload.stage.optim.lr", "name": "optim.lr", "old": 1e-4, "new": 1e-6, "origin": None}
    ]
    assert data["totals"]["rerun"] == 4


def test_differences_name_the_smallest_part_and_keep_lists_whole() -> None:
    old = {"a": {"b": 1, "c": [1, 2]}, "d": [{"x": 1}, {"x": 2}]}
    new = {"a": {"b": 1, "c": [1, 3]}, "d": [{"x": 1}, {"x": 5}], "e": None}
    assert list(differences(old, new)) == [(("a", "c"), [1, 2], [1, 3]), (("d", "1", "x"), 2, 5)]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-6, "1e-6"),
        (1024, "1024"),
        (True, "on"),
        (None, "none"),
        (2**62 + 1, "4611686018427387905"),
        ([4, 8], "[4, 8]"),
        ("math", "math"),
        ("", '""'),
    ],
)
def test_values_are_brief(value: object, text: str) -> None:
    assert value_text("", value) == text


def test_rates_have_the_units_of_data_sheets() -> None:
    rates = {"interconnect": 400e9, "bandwidth": 3.35e12, "flops": 989.4e12, "memory": 80}
    texts = ["400 GB/s", "3,350 GB/s", "989.4 TFLOP/s", "80 GiB"]
    assert [value_text(f"cluster.hardware.{name}", value) for name, value in rates.items()] == texts


def test_long_values_are_cut() -> None:
    assert value_text("", list(range(100))) == "100: 0, 1, 2, …, 99"
    long = words(Difference("payload.data.name", "x" * 1000, "y"))
    assert long == f"name {'x' * 47}… -> y"


def test_ages() -> None:
    now = datetime(2026, 1, 10, tzinfo=UTC)
    assert ago("2026-01-08T00:00:00+00:00", now) == "2 days ago"
    assert ago("2026-01-09T23:00:00+00:00", now) == "1 hour ago"
    assert ago("2026-01-09T23:59:30+00:00", now) == "just now"
