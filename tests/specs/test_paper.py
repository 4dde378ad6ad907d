"""The paper's rows as specs: each is sound, lowers to tasks, and says what the paper's text and tables say."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import polars as pl
import pytest

from reodsl.graph.lower import lower
from reodsl.graph.task import Graph
from reodsl.ir.reward import OracleBudgets, QuestionBudgets, Steps
from reodsl.ir.study import Spec
from reodsl.ir.training import Experiment, FromTraining, Ppo, Sft, Simpo
from reodsl.language import compile_file
from reodsl.numbers.curves import Curve, average
from reodsl.report.figures import Gallery
from reodsl.report.markup import render
from reodsl.report.material import MEAN, read
from reodsl.report.page import page
from reodsl.report.schedules import draw_lines, rule_rows
from reodsl.syntax import parse, read_source, tree

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "specs" / "paper").glob("*.reo"))
MAIN = ("qwen3_4b", "qwen3_8b", "deepseek_7b", "deepseek_1_5b")
ROWS = {
    "base", "vanilla", "reo_exp", "reo_oracle", "reo_qspec", "budget_1k", "budget_2k", "budget_4k", "budget_8k",
    "group_norm", "harmonizing", "mrt", "hgpo", "sft_shortest", "sft_tops", "simpo_dast", "simpo_shortest", "simpo_tops",
}  # fmt: skip


@lru_cache
def spec(name: str) -> Spec:
    found = compile_file(ROOT / "specs" / "paper" / f"{name}.reo")
    errors = [each for each in found.diagnostics if each.severity == "error"]
    assert found.spec is not None, [(each.code, each.message) for each in errors]
    return found.spec


def slow(curve: Curve, budget: float) -> float:
    """Return the accuracy between the two points about a budget."""
    points = list(zip(curve.budgets, curve.accuracy, strict=True))
    (x, a), (y, b) = next(pair for pair in itertools.pairwise(points) if pair[1][0] >= budget)
    return a + (b - a) * (budget - x) / (y - x)


@lru_cache
def graph(name: str) -> Graph:
    return lower(spec(name))


def experiment(name: str, arm: str) -> Experiment:
    start = spec(name).study.arm(arm).checkpoint
    assert isinstance(start, FromTraining)
    return start.experiment


def ppo(name: str, arm: str) -> Ppo:
    method = experiment(name, arm).stages[-1].method
    assert isinstance(method, Ppo)
    return method


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_spec_lowers_to_tasks(path: Path) -> None:
    kinds = {task.kind for task in graph(path.stem).tasks}
    expected = {"frontier", "report"} if path.stem == "figures" else {"model", "data", "evaluate", "report"}
    assert expected <= kinds


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_spec_warns_and_notes_are_of_other_works(path: Path) -> None:
    """Where a setting leaves the paper's tables, it is DAPO's clip or BRPO's length, in a file of their own."""
    found = compile_file(path).diagnostics
    assert {each.severity for each in found} <= {"note"}
    assert not found or path.stem == "more_baselines"


@pytest.mark.parametrize("name", [*MAIN, "l1", "z1", "frontier_models"])
def test_published_numbers_stand_beside_each_table(name: str) -> None:
    """Every row in print is an arm, but for two frontier models whose weights no node holds."""
    study = spec(name).study
    tables = [table.published for table in study.tables if table.published is not None]
    assert len(tables) == (2 if name == "deepseek_7b" else 1)
    missing = {row.name for table in tables for row in table.rows} - {arm.name for arm in study.arms}
    assert missing == ({"claude_sonnet_3_7", "deepseek_r1"} if name == "frontier_models" else set())
    for table in tables:
        assert table.benchmarks == ("mean",) or set(table.benchmarks) <= {
            *(each.name for each in study.arms[0].suite.benchmarks),
            "mean",
        }


def test_a_strangers_checkpoint_ends_with_reg_against_the_frontier_of_its_base_alone() -> None:
    """On each of the four benchmarks; for another base both it and its frontier are named, or nothing is scored."""
    path = ROOT / "specs" / "paper" / "evaluate.reo"
    curves = [each.benchmark for each in spec("evaluate").study.frontiers[0].published]
    assert (
        curves
        == ["aime24", "aime25", "amc23", "minerva"]
        == [each.name for each in spec("evaluate").study.arms[0].suite.benchmarks]
    )
    assert "score" in graph("evaluate")
    assert graph("evaluate")["mine.model"].payload["model"]["source"]["path"] == "checkpoint"
    named = {"base": "deepseek_7b", "published": "edge_deepseek_7b", "machine": "a100_1x8"}
    assert compile_file(path, sets=named).diagnostics == ()
    (fault,) = compile_file(path, sets={"base": "deepseek_7b"}).diagnostics
    assert fault.code == "E0616"
    assert "goes back to deepseek-ai/DeepSeek-R1-Distill-Qwen-7B" in fault.message


@pytest.mark.slow
def test_figures_3_and_5_follow_from_the_published_frontiers() -> None:
    """Figure 3: "the approximation error could be lower than 1% with N >= 5"; figure 5: its caption."""
    study = spec("figures").study
    assert not study.arms
    assert {task.kind for task in graph("figures").tasks} == {"frontier", "report"}
    curves = {
        each.name: average({c.benchmark: Curve(c.budgets, c.accuracy) for c in each.published})
        for each in study.frontiers
    }
    rows = [
        (name, None, MEAN, budget, accuracy)
        for name, curve in curves.items()
        for budget, accuracy in zip(curve.budgets, curve.accuracy, strict=True)
    ]
    material = read(spec("figures"), {})
    columns = ["name", "seed", "benchmark", "budget", "accuracy"]
    material = replace(material, frontiers=pl.DataFrame(rows, schema=columns, orient="row"))
    selected, errors, _ = study.charts
    by_rule = rule_rows(material, errors)
    last = by_rule.filter(count=10)
    assert by_rule.height == 30
    assert set(by_rule["arm"]) == {"greedily", "exponentially", "linearly"}
    error = {(row["arm"], row["count"]): row["error"] for row in by_rule.to_dicts()}
    edge = curves["qwen3_4b"]
    for n in (1, 2, 5, 10):
        splits = [0, *(32768 * i / (n + 1) for i in range(1, n + 2))]
        at = [slow(edge, budget) for budget in map(round, splits)]
        area = sum((b - a) * (x + y) / 2 for a, b, x, y in zip(splits, splits[1:], at, at[1:], strict=False))
        whole = sum(slow(edge, budget) for budget in range(1, 32769))
        assert error["linearly", n] == pytest.approx(abs(area - whole) / whole, rel=0.02)
    assert max(error["greedily", n] for n in range(5, 11)) < 0.01 < error["greedily", 4]
    assert all(error["exponentially", n] < error["linearly", n] for n in range(2, 11))
    assert max(last["error"]) == error["linearly", 10]
    chosen = rule_rows(material, selected).filter(arm="exponentially")["budget"].to_list()
    assert chosen[:2] == [1024, 1448]
    assert len(chosen) == 10
    assert all(curves["deepseek_7b"].at(2048) > curves[name].at(2048) for name in ("qwen3_4b", "qwen3_8b"))
    assert all(curves["deepseek_7b"].at(16384) < curves[name].at(16384) for name in ("qwen3_4b", "qwen3_8b"))
    gallery = Gallery()
    shown = render(draw_lines(gallery, material))
    assert list(gallery.specs) == [each.name for each in study.charts]
    assert shown.count("<figure") == 3
    assert '<section id="results"' not in page(material, Gallery(), {})


@pytest.mark.parametrize("name", MAIN)
def test_a_study_holds_every_row_of_the_main_table(name: str) -> None:
    study = spec(name).study
    assert {arm.name for arm in study.arms} >= ROWS
    assert len({arm.suite for arm in study.arms}) == 1
    (edge,) = study.frontiers
    assert not any("reo" in arm for arm in edge.of)
    assert {arm.name for arm in study.arms} - set(edge.of) == {
        arm.name for arm in study.arms if "reo" in arm.name
    }


@pytest.mark.parametrize("name", MAIN)
def test_one_pool_serves_all_that_is_selected_from_it(name: str) -> None:
    """16 responses of the bare prompt, 16 of each of three efforts, and one of each mode: six pools."""
    found = graph(name)
    pools = {
        source
        for task in found.tasks
        if task.kind == "select"
        for source in task.inputs.values()
    }  # fmt: skip
    assert len(pools) == 6
    assert sorted(found[pool].payload["samples"] for pool in pools) == [1, 1, 16, 16, 16, 16]
    selects = [task for task in found.tasks if task.kind == "select"]
    assert len(selects) == 6


@pytest.mark.parametrize("name", MAIN)
def test_settings_are_those_of_the_papers_tables(name: str) -> None:
    method = ppo(name, "reo_exp")
    longest = 24376 if name == "deepseek_1_5b" else 32768
    assert (method.batch.prompts, method.batch.rollouts) == (128, 16)
    assert (method.rollout.max_tokens, method.minibatches, method.epochs) == (longest, 4, 2)
    sft = experiment(name, "sft_shortest").stages[0]
    assert isinstance(sft.method, Sft)
    assert (sft.method.batch, sft.passes, sft.optim.lr) == (512, 10, 1e-5)
    simpo = experiment(name, "simpo_dast").stages[0]
    assert isinstance(simpo.method, Simpo)
    assert (simpo.method.batch, simpo.passes) == (128, 2)
    assert simpo.optim.lr == (1e-5 if name == "deepseek_1_5b" else 3e-6)
    caps = [stage.method.rollout.max_tokens for stage in experiment(name, "budget_512").stages]  # type: ignore[union-attr]
    assert caps == [16384, 8192, 4096, 2048, 1024, 512]
    assert all(stage.plateau is not None for stage in experiment(name, "budget_512").stages)
    training = {arm.checkpoint.experiment.stages[0].data for arm in spec(name).study.arms if arm.is_trained}  # type: ignore[union-attr]
    assert len(training) == 1
    assert len(training.pop().sources) == (2 if name == "deepseek_1_5b" else 1)


@pytest.mark.parametrize("name", ["deepseek_1_5b", "deepseek_7b", "z1"])
def test_an_experiment_by_itself_has_the_cluster_of_its_table(name: str) -> None:
    """8 x 8 for PPO on the 1.5B model, and 16 x 8 for all else."""
    path = ROOT / "specs" / "paper" / f"{name}.reo"
    for target in ("z1",) if name == "z1" else ("reo_exp", "sft_tops", "two_modes", "simpo_dast"):
        alone = compile_file(path, target=target).spec
        assert alone is not None
        assert alone.study.cluster is not None
        small = name == "deepseek_1_5b" and target == "reo_exp"
        assert (alone.study.cluster.nodes, alone.study.cluster.gpus_per_node) == (8 if small else 16, 8)


@pytest.mark.parametrize("name", [*MAIN, "l1", "more_baselines", "frontier_models", "z1"])
def test_every_training_of_a_study_has_the_cluster_of_its_table(name: str) -> None:
    """As by itself; what is compared is evaluated on one cluster, the study's."""
    whole = spec(name).study.cluster
    assert whole is not None
    seen = {"train": 0, "evaluate": 0}
    for task in lower(spec(name)).tasks:
        if task.kind == "train":
            small = name in ("deepseek_1_5b", "l1") and task.payload["stage"]["method"]["kind"] == "ppo"
            assert task.cluster is not None
            assert (task.cluster.nodes, task.cluster.gpus_per_node) == (8 if small else 16, 8), task.id
        elif task.kind == "evaluate":
            assert task.cluster == whole
        seen[task.kind] = seen.get(task.kind, 0) + 1
    assert seen["evaluate"]
    assert seen["train"] or name == "frontier_models"


def trained_on(start: object) -> Iterator[Experiment]:
    """The experiment of a checkpoint, and those that it starts from."""
    while isinstance(start, FromTraining):
        yield start.experiment
        start = start.experiment.start


@pytest.mark.parametrize("name", [*MAIN, "z1"])
def test_steps_are_enough_for_the_passes_of_the_tables(name: str) -> None:
    """Ten passes for SFT and two for SimPO, over a trace or pair for every question and pick: `steps` cuts none short."""
    seen = 0
    for arm in spec(name).study.arms:
        for each in trained_on(arm.checkpoint):
            (stage, *more) = each.stages
            if isinstance(stage.method, Ppo):
                continue
            assert not more
            assert stage.passes is not None
            assert stage.data.questions is not None
            picks = len(stage.selected.selection.picks) if stage.selected is not None else 1
            assert stage.steps >= stage.passes * picks * stage.data.questions / stage.method.batch, arm.name
            seen += 1
    assert seen == (1 if name == "z1" else 6)


@pytest.mark.parametrize("name", MAIN)
def test_methods_are_data(name: str) -> None:
    mrt, hgpo = ppo(name, "mrt"), ppo(name, "hgpo")
    assert mrt.advantage.credit == "own"
    assert mrt.reward.dense is not None
    assert isinstance(mrt.reward.dense.split, Steps)
    assert [wording.prefix for wording in hgpo.wordings] == ["\n", "\n\n</think>"]
    assert [(part.weight, part.on) for part in hgpo.reward.parts] == [(1, "response"), (1, "prefix")]
    assert isinstance(experiment(name, "hgpo").start, FromTraining)
    oracle, own = ppo(name, "reo_oracle").reward.dense, ppo(name, "reo_qspec").reward.dense
    assert oracle is not None
    assert own is not None
    assert isinstance(oracle.split, OracleBudgets)
    assert isinstance(own.split, QuestionBudgets)
    assert ppo(name, "harmonizing").reference_samples == 16


@pytest.mark.parametrize("name", MAIN)
def test_question_budgets_are_told_by_the_rl_of_the_papers_frontier(name: str) -> None:
    """Every stage of the token budgets, vanilla RL where it is trained, and both length rewards."""
    given = name.startswith("deepseek")
    arms = ["reo_qspec", "reo_task_hard"] if name == "deepseek_7b" else ["reo_qspec"]
    for arm in arms:
        (trained,) = (each for each in graph(name).tasks if each.kind == "train" and each.arm == arm)
        assert set(graph(name)[trained.inputs["budgets"]].inputs) == {
            "data", "arm:group_norm", "arm:harmonizing",
            *(f"arm:budget_512:{index}" for index in range(6)),
            *([] if given else ["arm:vanilla"]),
        }  # fmt: skip


def test_the_ablations_of_the_7b_model() -> None:
    splits = {arm: ppo("deepseek_7b", arm).reward.dense for arm in ("reo_linear", "reo_k10", "reo_coef1")}
    assert all(each is not None for each in splits.values())
    assert splits["reo_linear"].split.budgets == (5461, 10923, 16384, 21845, 27307)  # type: ignore[union-attr]
    assert len(splits["reo_k10"].split.budgets) == 10  # type: ignore[union-attr]
    assert '"uniform"' in splits["reo_coef1"].model_dump_json()  # type: ignore[union-attr]


def test_dapos_penalty_ends_where_its_responses_do() -> None:
    """min(0, -(n - (L_max - B)) / B) is -1 at L_max = 20480, the longest response there."""
    assert ppo("more_baselines", "overlong").rollout.max_tokens == 20480


def test_l1_draws_budgets_and_is_asked_for_three() -> None:
    method = ppo("l1", "exact_4k")
    assert (method.wordings[0].low, method.wordings[0].high) == (100, 4000)
    study = spec("l1").study
    asked = [arm.suite.wording.question for arm in study.arms[:3] if arm.suite.wording]
    assert [text.rsplit(" ", 2)[1] for text in asked] == ["2048", "4096", "8192"]
    evaluated = [task for task in graph("l1").tasks if task.kind == "evaluate"]
    assert len(evaluated) == 4
    assert "Think for 2048 tokens." in evaluated[0].payload["model"]["prompt"]["template"]
    assert len(ppo("l1", "max_4k").wordings) == 2


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_param_says_where_its_value_is_from(path: Path) -> None:
    module = parse(read_source(path, path.name)).module
    for item in module.items:
        if isinstance(item, tree.Param):
            assert item.doc, f"{path.name}: `{item.name.name}` gives no reason"


# What the paper leaves open, or says in two ways: the setting that decides it, and a word of the reason that it carries.
OPEN = {
    "reo_exp.optim.algorithm": "what AReaL makes of that name",
    "sft_tops.optim.algorithm": "what AReaL makes of that name",
    "simpo_tops.optim.algorithm": "what AReaL makes of that name",
    "reo_exp.epochs": "does not say of what", "reo_exp.loss_mean": "does not say",
    "reo_exp.credit": "without a signal", "reo_exp.advantage.std": "ddof is not given",
    "reo_exp.advantage.batch": "Advantage normalization True", "reo_exp.forcing": "Prompt for Forcing",
    "harmonizing.reference_samples": "Not given", "progress.reward": "the paper gives neither",
    "reo_qspec.reward": "A question that nobody", "reo_oracle.reward": "names no step",
    "sft_tops.data": "Whether the prompt stays", "sft_shortest.data": "not given",
    "two_modes.passes": "Not given",
}  # fmt: skip


# The same where a param or a declaration of specs/paper/qwen3_4b.reo or of the library decides.
DECIDED = {
    "rl_steps": "a price", "l_min": "Not given", "norm_alpha": "gives no alpha", "gamma": "gives no gamma",
    "dast_ratio": "is not said", "beta": "which model has which", "simpo_gamma": "1.2/1.4", "simpo_lr": "1.5B and 7B only",
    "shrink": "whether prompts name the budget", "hybrid": "In which mode", "progress": "how its rewards are normalised",
    "length_group_norm": "Where nobody is correct", "math_reg": "three benchmarks",
    "forcing": "after the end of thinking", "linear_5_32k": "gives no formula",
    "first_budget_alone": "only names", "reo_as_printed": "its own rule gives",
    "reo_forcing": "lost in typesetting", "sft_shortest": "of which checkpoint",
    "deepseek_7b_main.vanilla": "does not say whether its row",
    "longest": "24576", "areal_boba_7b": "without a model",
}  # fmt: skip


def docs() -> dict[str, str]:
    """The docstrings of the paper's specs and of the library: of declarations, of arms, and of files by their stems."""
    found: dict[str, str] = {}
    for path in (*FILES, *sorted((ROOT / "stdlib").glob("*.reo"))):
        module = parse(read_source(path, path.name)).module
        found[path.stem] = module.doc or ""
        for item in module.items:
            found[item.name.name] = f"{found.get(item.name.name, '')} {item.doc}"
            if isinstance(item, tree.Decl) and item.kind.name == "study" and item.block is not None:
                for arm in item.block.items:
                    if isinstance(arm, tree.Decl):
                        found[f"{item.name.name}.{arm.name.name}"] = arm.doc or ""
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", DECIDED)
def test_what_a_declaration_decides_carries_its_reason(name: str) -> None:
    assert DECIDED[name] in docs()[name]


@pytest.mark.parametrize("setting", OPEN)
def test_what_the_paper_leaves_open_carries_its_reason(setting: str) -> None:
    name, *path = setting.split(".")
    trained = (each for arm in spec("qwen3_4b").study.arms for each in arm.checkpoint.experiments)
    (stage,) = next(each for each in trained if each.name == name).stages
    parts = [stage, stage.method, getattr(stage.method, "advantage", stage)]
    for name in path[:-1]:
        parts = [getattr(each, name) for each in parts if hasattr(each, name)]
    origin = next(each.given_at[path[-1]] for each in parts if path[-1] in each.given_at)
    lines = spec("qwen3_4b").sources[origin.path].split("\n")
    assert OPEN[setting] in "\n".join(lines[origin.line - 15 : origin.line + 8])
