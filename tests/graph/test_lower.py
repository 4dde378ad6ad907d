"""Lowering: the tasks of a study, shared where they are equal, with payloads that runners can read back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from reodsl.diagnostics import Problem
from reodsl.graph.lower import lower
from reodsl.graph.task import Graph, reads
from reodsl.ir import Spec, canonical_json
from reodsl.ir.base import dumped
from reodsl.ir.data import Columns, Data, File
from reodsl.ir.expression import Aggregate, Attribute, Constant, Infix
from reodsl.ir.model import Model
from reodsl.ir.reward import Reward
from reodsl.ir.study import Benchmark, Suite
from reodsl.ir.training import Optimizer, Stage
from reodsl.ir.wording import Wording
from reodsl.language import compile_file
from tests.graph import studies as make
from tests.graph.everything import everything

ROOT = Path(__file__).resolve().parents[2]


def kinds(graph: Graph) -> Counter[str]:
    return Counter(task.kind for task in graph.tasks)


def test_inputs_come_before_their_readers_and_ids_are_unique() -> None:
    seen: set[str] = set()
    graph = lower(make.four(seeds=(1, 2)))
    for task in graph.tasks:
        assert task.id not in seen
        assert set(task.inputs.values()) <= seen
        seen.add(task.id)


def test_a_shared_start_is_trained_once_a_seed() -> None:
    graph = lower(make.four(seeds=(1, 2, 3)))
    found = kinds(graph)
    # overthinker, vanilla, reo_exp, shrink.long, shrink.short, each once a seed
    assert found["train"] == 5 * 3
    assert found["model"] == 3
    assert found["evaluate"] == 5 * 3
    assert found["data"] == 2  # both stages train on the same questions
    assert found["frontier"] == 3
    assert found["score"] == 1  # over all seeds
    assert found["report"] == 1
    assert len([task for task in graph.tasks if task.id == "overthinker.train.s2"]) == 1


def test_a_stage_that_is_an_arm_of_its_own_is_not_trained_again() -> None:
    graph = lower(make.four())
    assert graph["shrink_long.eval.s1"].inputs["start"] == "shrink.train.long.s1"
    assert graph["shrink.train.short.s1"].inputs["start"] == "shrink.train.long.s1"


def test_equal_work_under_two_names_is_one_task() -> None:
    one, two = (make.trained(name, make.ppo(make.outcome(name))) for name in ("first", "second"))
    graph = lower(make.spec(make.arm("a", one), make.arm("b", two)))
    assert kinds(graph)["train"] == 2  # the base and one of the two
    assert kinds(graph)["evaluate"] == 1
    assert graph["report"].inputs["evaluate:a@1"] == graph["report"].inputs["evaluate:b@1"]


@pytest.mark.parametrize("spec", [everything(), make.four(seeds=(1, 2))])
def test_a_dump_that_shares_its_parts_says_what_pydantic_does(spec: Spec) -> None:
    assert dumped(spec) == spec.model_dump(mode="json")
    assert Spec.model_validate(dumped(spec)) == spec


def test_payloads_that_share_their_parts_leave_each_other_alone() -> None:
    """A reward at an oracle's budgets loses the frontier's name in a payload, and there alone."""
    reward = make.oracle()
    stages = [make.ppo(reward, steps=steps) for steps in (2, 3)]
    arms = [make.arm(f"a{n}", make.trained(f"e{n}", stage)) for n, stage in enumerate(stages)]
    graph = lower(make.spec(make.arm("base", make.base()), *arms))
    splits = [graph[f"e{n}.train.s1"].payload["stage"]["method"]["reward"]["dense"]["split"] for n in (0, 1)]
    assert splits[0] == splits[1] == {"kind": "oracle", "frontier": "", "n": 2, "step": 1, "l_max": 16}
    assert '"frontier":"edge"' in canonical_json(graph["report"].payload)


def test_experiments_with_one_teacher_train_each_by_its_own_method() -> None:
    def taught(clip: float) -> Stage:
        stage = make.ppo(make.outcome())
        method = stage.method.model_copy(update={"teacher": make.end(make.base()), "clip_high": clip})
        return stage.model_copy(update={"method": method})

    clips = [0.2 + n / 100 for n in range(8)]
    arms = [make.arm(f"a{n}", make.trained(f"e{n}", taught(clip))) for n, clip in enumerate(clips)]
    graph = lower(make.spec(*arms))
    trained = [graph[f"e{n}.train.s1"].payload["stage"]["method"] for n in range(len(clips))]
    assert [each["clip_high"] for each in trained] == clips
    assert not any("teacher" in each for each in trained)


def test_names_leave_no_trace_in_what_is_computed() -> None:
    def payloads(experiment: str, reward: str, stage: str) -> list[str]:
        arm = make.trained(experiment, make.ppo(make.outcome(reward), stage))
        graph = lower(make.spec(make.arm("a", arm)))
        return [canonical_json(task.payload) for task in graph.tasks if task.kind != "report"]

    assert payloads("x", "r", "s") == payloads("renamed", "rewarded", "staged")


def test_weights_that_come_as_they_are_depend_on_no_seed() -> None:
    spec = make.spec(
        make.arm("base", make.downloaded()),
        make.arm("run", make.trained("run", make.ppo(make.outcome()), start=make.downloaded())),
        seeds=(1, 2),
        of=("base",),
    )
    graph = lower(spec)
    assert kinds(graph)["model"] == 1
    assert graph["base.eval"].seed is None
    assert graph["edge.frontier"].seed is None
    assert graph["run.train.s2"].payload["seed"] == 2
    roles = graph["report"].inputs
    assert {"evaluate:base", "evaluate:run@1", "evaluate:run@2", "frontier:edge", "score"} <= roles.keys()
    assert set(graph["score"].inputs) == {"frontier", "relative_to", "arm:base", "arm:run@1", "arm:run@2"}


def test_the_report_reads_the_roles_that_are_documented() -> None:
    roles = set(lower(make.four()).__getitem__("report").inputs)
    assert {
        "evaluate:base@1",
        "train:base:0@1",
        "train:shrink:0@1",
        "train:shrink:1@1",
        "train:shrink_long:0@1",
        "frontier:edge@1",
        "score@1",
    } <= roles
    assert "train:shrink_long:1@1" not in roles


def test_oracle_budgets_wait_for_their_frontier() -> None:
    spec = make.spec(
        make.arm("base", make.base()),
        make.arm("oracle", make.trained("oracle", make.ppo(make.oracle()))),
        of=("base",),
    )
    graph = lower(spec)
    assert graph["oracle.train.s1"].inputs["budgets"] == "oracle.budgets.s1"
    assert graph["oracle.budgets.s1"].inputs == {"frontier": "edge.frontier.s1"}
    assert "budgets:oracle@1" in graph["report"].inputs


def test_budgets_a_question_come_from_the_training_of_the_arms() -> None:
    """Of each arm's own stages of RL up to its checkpoint; nothing is sampled for them."""
    vanilla = make.trained("vanilla", make.ppo(make.outcome()))
    shrink = make.trained(
        "shrink", make.sft("warm"), make.ppo(make.outcome(), "long"), make.ppo(make.outcome())
    )
    after = make.trained("after", make.sft("taught"), make.ppo(make.outcome(), "rl"), start=make.end(vanilla))
    arms = (
        make.arm("vanilla", vanilla),
        make.arm("shrink", shrink),
        make.arm("shrink_long", make.end(shrink, 1)),
        make.arm("after", after),
    )
    split = make.question_wise(*(arm.name for arm in arms))
    graph = lower(make.spec(*arms, make.arm("qspec", make.trained("qspec", make.ppo(split)))))
    assert graph["qspec.budgets.s1"].inputs == {
        "data": graph["qspec.train.s1"].inputs["data"],
        "arm:vanilla": "vanilla.train.s1",
        "arm:shrink:1": "shrink.train.long.s1",
        "arm:shrink:2": "shrink.train.2.s1",
        "arm:shrink_long": "shrink.train.long.s1",
        "arm:after": "after.train.rl.s1",
    }
    assert "sample" not in {task.kind for task in graph.tasks}
    assert reads("budgets", "arm:shrink:1") == ("rollouts.parquet",)


@pytest.mark.parametrize("checkpoint", [make.base(), make.downloaded()], ids=["SFT", "as it comes"])
def test_an_arm_without_rollouts_tells_no_budgets(checkpoint: Any) -> None:
    own = make.arm("qspec", make.trained("qspec", make.ppo(make.question_wise("base"))))
    with pytest.raises(Problem) as caught:
        lower(make.spec(make.arm("base", checkpoint), own))
    assert caught.value.diagnostics[0].code == "E0405"


@pytest.mark.parametrize(
    ("theirs", "own", "refused"), [(None, None, False), ("id", "id", True), (None, "id", True)]
)
def test_questions_with_ids_of_their_own_are_told_by_their_data(
    theirs: str | None, own: str | None, refused: bool
) -> None:
    """An id that a column gives may be another question in another file; one made from the question may not."""

    def trained(name: str, reward: Any, path: str, column: str | None) -> Any:
        data = Data(name=path, sources=(File(path=path, columns=Columns(id=column)),))
        return make.arm(name, make.trained(name, make.ppo(reward).model_copy(update={"data": data})))

    qspec = make.question_wise("vanilla")
    alike = (trained("vanilla", make.outcome(), "own", own), trained("qspec", qspec, "own", own))
    assert "qspec.budgets.s1" in lower(make.spec(*alike))
    unlike = (trained("vanilla", make.outcome(), "theirs", theirs), trained("qspec", qspec, "own", own))
    if not refused:
        assert "qspec.budgets.s1" in lower(make.spec(*unlike))
        return
    with pytest.raises(Problem) as caught:
        lower(make.spec(*unlike))
    assert caught.value.diagnostics[0].code == "E0405"


def test_references_are_of_the_questions_that_training_meets() -> None:
    """Two steps of two questions each meet four; as many steps as meet all share the samples of all."""
    stages = {
        "few": make.ppo(make.outcome(), references=4),
        "again": make.ppo(make.outcome(), references=4, optim=Optimizer(algorithm="adam", lr=1e-3)),
        "all": make.ppo(make.outcome(), steps=10_000, references=4),
    }
    graph = lower(make.spec(*(make.arm(name, make.trained(name, each)) for name, each in stages.items())))
    reference = {name: graph[graph[f"{name}.train.s1"].inputs["reference"]] for name in stages}
    assert reference["few"].payload["met"] == {
        "seed": 1,
        "index": 0,
        "prompts": 2,
        "draws": 2,
        "max_prompt": 8,
    }
    assert reference["again"] is reference["few"]
    assert "met" not in reference["all"].payload


def test_a_reward_with_references_samples_the_start_once() -> None:
    spec = make.spec(
        make.arm("base", make.base()),
        make.arm("one", make.trained("one", make.ppo(make.outcome(), steps=9_000, references=4))),
        make.arm("two", make.trained("two", make.ppo(make.outcome(), steps=9_005, references=4))),
    )
    graph = lower(spec)
    assert kinds(graph)["sample"] == 1
    assert graph["two.train.s1"].inputs["reference"] == "one.reference.s1"
    assert graph["one.reference.s1"].inputs["start"] == "overthinker.train.s1"


def test_arms_of_a_suite_have_one_reference_a_benchmark_and_seed() -> None:
    """A model that no seed changes is asked in words that another one decides, and so is evaluated once a seed."""
    start = make.base()
    suite = make.suite(reference=make.end(start), reference_samples=3)
    more = Benchmark(name="hard", data=make.questions("hard_ones", seed=2))
    suite = suite.model_copy(update={"benchmarks": (*suite.benchmarks, more), "seed": 5})
    vanilla = make.trained("vanilla", make.ppo(make.outcome()), start=make.end(start))
    arms = [
        make.arm(name, each, suite)
        for name, each in (("given", make.downloaded()), ("base", start), ("vanilla", vanilla))
    ]
    graph = lower(make.spec(*arms, seeds=(1, 2)))
    sampled = [task for task in graph.tasks if task.kind == "sample"]
    assert [task.id for task in sampled] == [
        f"suite.reference.{name}.s{seed}" for seed in (1, 2) for name in ("held_out", "hard_ones")
    ]
    assert len({task.payload["seed"] for task in sampled}) == 2
    for task in sampled:
        assert task.payload["samples"] == 3
        assert task.inputs["start"] == f"overthinker.train.s{task.seed}"
    for arm in ("given", "base", "vanilla"):
        for seed in (1, 2):
            inputs = graph[f"{arm}.eval.s{seed}"].inputs
            assert inputs["reference:easy"] == f"suite.reference.held_out.s{seed}"
            assert inputs["reference:hard"] == f"suite.reference.hard_ones.s{seed}"
    assert "reference" not in graph["given.eval.s1"].payload["suite"]


@pytest.mark.parametrize("over", ["ref", "group"])
def test_thinking_of_a_reference_is_counted_where_it_is_read(over: Literal["ref", "group"]) -> None:
    value = Attribute(of="z", field="thinking")
    read = Aggregate(fn="mean", var="z", over=over, value=value)
    method = make.ppo(Reward(name="r", outcome=read), references=2)
    suite = make.suite(reference=make.end(make.base()), reference_samples=3)
    when = Infix(fn="<", left=read, right=Constant(value=9.0))
    suite = suite.model_copy(update={"wordings": (Wording(when=when), Wording())})
    graph = lower(make.spec(make.arm("one", make.trained("one", method), suite)))
    payloads = [task.payload for task in graph.tasks if task.kind == "sample"]
    assert [each.get("thinking") for each in payloads] == [True if over == "ref" else None] * 2


def test_references_of_several_stages_have_the_stages_names() -> None:
    stages = [make.ppo(make.outcome(), each, references=4) for each in ("early", "late")]
    graph = lower(make.spec(make.arm("base", make.base()), make.arm("one", make.trained("one", *stages))))
    names = [task.id for task in graph.tasks if task.kind == "sample"]
    assert names == ["one.reference.early.s1", "one.reference.late.s1"]


def test_an_arm_that_needs_its_own_frontier_is_refused(refusal: Callable[..., None]) -> None:
    spec = make.spec(
        make.arm("base", make.base()),
        make.arm("oracle", make.trained("oracle", make.ppo(make.oracle()))),
        of=("base", "oracle"),
    )
    with pytest.raises(Problem) as caught:
        lower(spec)
    refusal("commands/E0209-arm.txt", caught.value)


def test_every_payload_reads_back_as_the_values_it_was_made_of() -> None:
    graph = lower(make.four())
    for task in graph.tasks:
        payload = task.payload
        match task.kind:
            case "model":
                Model.model_validate(payload["model"])
            case "data":
                Data.model_validate(payload["data"])
            case "train":
                assert Stage.model_validate(payload["stage"]).data.verifier == "math"
                Model.model_validate(payload["model"])
            case "evaluate":
                assert Suite.model_validate(payload["suite"]).grid == (0, 4, 8, 16)
            case "report":
                assert Spec.model_validate(payload["spec"]) == make.four()


def test_what_scoring_reads_does_not_evaluate_anything_anew() -> None:
    def evaluation(reg_to: int) -> str:
        arm = make.arm("base", make.base(), make.suite(reg_to=reg_to))
        return canonical_json(lower(make.spec(arm))["base.eval.s1"].payload)

    assert evaluation(8) == evaluation(16)


def test_another_engine_makes_other_samples_and_nothing_else() -> None:
    """Present results are the embedded engine's: a task that does not sample, or says nothing of an engine, stays."""
    embedded = make.four()
    study = embedded.study.model_copy(update={"engine": "sglang"})
    before, after = lower(embedded), lower(embedded.model_copy(update={"study": study}))
    assert not any("engine" in task.payload for task in before.tasks)
    for task in after.tasks:
        old = before[task.id]
        sampled = (
            task.kind in ("sample", "evaluate")
            or task.payload.get("stage", {}).get("method", {}).get("kind") == "ppo"
        )
        if sampled:
            assert task.payload == old.payload | {"engine": "sglang"}
        elif task.kind != "report":
            assert task.payload == old.payload
    assert {task.kind for task in after.tasks if "engine" in task.payload} >= {"train", "evaluate"}


def test_wordings_of_pools_draw_from_streams_that_no_other_replicate_has() -> None:
    found = compile_file(str(ROOT / "specs" / "miniature" / "paper.reo"), sets={"seeds": "[1,2,3]"}).spec
    assert found is not None
    pools: dict[str, list[int]] = {}
    for task in lower(found).tasks:
        if task.kind == "sample" and ".pool" in task.id:
            pools.setdefault(task.id.partition(".pool")[0], []).append(task.payload["seed"])
    assert any(len(seeds) > 3 for seeds in pools.values())
    for experiment, seeds in pools.items():
        assert len(set(seeds)) == len(seeds), experiment


def test_evaluations_of_other_seeds_draw_from_other_streams_and_arms_of_one_seed_from_the_same() -> None:
    arms = (
        make.arm("base", make.downloaded()),
        make.arm("run", make.trained("run", make.ppo(make.outcome()))),
        make.arm("other", make.trained("other", make.ppo(make.outcome(), steps=3))),
    )
    tasks = lower(make.spec(*arms, seeds=(1, 2), of=("base",))).tasks
    streams = {
        task.id: (task.payload["seed"], task.payload.get("replicate"))
        for task in tasks
        if task.kind == "evaluate"
    }
    assert streams == {
        "base.eval": (0, None),
        "run.eval.s1": (0, 1),
        "other.eval.s1": (0, 1),
        "run.eval.s2": (0, 2),
        "other.eval.s2": (0, 2),
    }


def test_a_checkpoint_that_no_seed_changes_is_evaluated_once_for_all_studies() -> None:
    def evaluation(*seeds: int) -> str:
        graph = lower(make.spec(make.arm("base", make.downloaded()), seeds=seeds))
        return canonical_json(graph["base.eval"].payload)

    assert evaluation(1) == evaluation(7) == evaluation(1, 2, 3)
