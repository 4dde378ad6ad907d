"""Whole stages through the runner: files, exact resume, carried-over optimizers, plateaus, and what is refused."""

import filecmp
import json
import shutil
import statistics
import threading
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
import torch
from safetensors.torch import load_file

from reodsl.diagnostics import Problem
from reodsl.graph.job import Resources
from reodsl.ir.data import Data, TaskData
from reodsl.ir.expression import Attribute, Constant, Correct, Infix, Length
from reodsl.ir.reward import Budgets, OracleBudgets, QuestionBudgets, Reward
from reodsl.ir.training import Optimizer, Plateau, Sft, Simpo, Stage
from reodsl.language import compile_file
from runners.data.load import data as prepare_data
from runners.engine.embedded import EmbeddedEngine
from runners.engine.open import open_engine
from runners.grade import Claim, ExactVerifier, final_answer, make_verifier
from runners.models.folder import load
from runners.train import run as module
from runners.train.rollouts import RolloutSampler
from tests.methods import dense, plain_ppo
from tests.train.conftest import FORCING, TASK, Stopped, dump

SPECS = Path(__file__).resolve().parents[2] / "specs" / "miniature"
PAGE = SPECS.parents[1] / "docs" / "STORE.md"
NO_DATA = Data(name="", sources=(), verifier="exact")

REO = dense(Budgets(budgets=(4, 8), l_max=32), "")
OUTCOME = Reward(name="", outcome=Correct(of="y"))


def ppo(reward=REO, steps=5, forcing=FORCING, **changes):
    method = plain_ppo(
        reward, tokens=32, max_prompt=20, prompts=4, rollouts=3, minibatches=2, forcing=forcing
    )
    optim = Optimizer(algorithm="adamw", lr=1e-3, warmup_steps=2)
    return Stage(name="rl", method=method, data=NO_DATA, optim=optim, steps=steps, **changes)


def sft(steps=6, algorithm="muon", **changes):
    optim = Optimizer(algorithm=algorithm, lr=1e-2, decay="linear")
    method = Sft(batch=8, max_tokens=60)
    return Stage(name="sft", method=method, data=NO_DATA, optim=optim, steps=steps, **changes)


def same(one: Path, other: Path) -> None:
    """Every file equal to the byte, timings apart."""
    files = sorted(p.relative_to(one) for p in one.rglob("*") if p.is_file())
    assert files == sorted(p.relative_to(other) for p in other.rglob("*") if p.is_file())
    differing = [f for f in files if not filecmp.cmp(one / f, other / f, shallow=False)]
    assert [str(f) for f in differing if f.name != "timings.parquet"] == []


@pytest.mark.slow
@pytest.mark.parametrize(("stop_at", "save_every"), [(1, 1), (3, 2), (4, 1), (4, 3)])
@pytest.mark.parametrize("kind", ["ppo", "sft"])
def test_an_interrupted_stage_ends_with_the_same_bytes(bench, kind, stop_at, save_every):
    stage, data = (ppo(), "questions") if kind == "ppo" else (sft(), "traces")
    name = f"{kind}_{stop_at}_{save_every}"
    whole = bench.train(stage, f"{name}_whole", start="base", data=data)
    saved = stage.model_copy(update={"save_every": save_every})
    with pytest.raises(Stopped):
        bench.train(saved, name, start="base", data=data, stop_at=stop_at)
    assert not list((bench.root / name).iterdir())
    same(whole, bench.train(saved, name, start="base", data=data))


@pytest.mark.slow
def test_a_stage_that_resamples_ends_with_the_same_bytes(bench):
    plain = ppo(OUTCOME, steps=3)
    stage = plain.model_copy(update={"method": plain.method.model_copy(update={"resample": 2})})
    whole = bench.train(stage, "resampled_whole", start="base", data="questions")
    metrics = pl.read_parquet(whole / "metrics.parquet")
    assert metrics["rounds"].is_between(1, 3).all()
    rollouts = pl.read_parquet(whole / "rollouts.parquet")
    assert rollouts.group_by("step").len().sort("step")["len"].to_list() == [
        12 * n for n in metrics["rounds"]
    ]
    saved = stage.model_copy(update={"save_every": 1})
    with pytest.raises(Stopped):
        bench.train(saved, "resampled", start="base", data="questions", stop_at=2)
    same(whole, bench.train(saved, "resampled", start="base", data="questions"))


def test_rollouts_tell_apart_a_question_that_a_step_draws_twice(bench):
    """A step draws four of three questions: `group` has the responses of one draw, and advantages are among those."""
    declared = Data(name="three", sources=(TaskData(task=TASK, count=3, seed=2),), verifier="exact")
    bench.run("data", prepare_data, {"data": dump(declared)}, {}, "three")
    out = bench.train(ppo(OUTCOME, steps=4), "drawn_twice", start="base", data="three")
    rows = pl.read_parquet(out / "rollouts.parquet")
    assert rows.select("step", "group", "rollout").rows() == [
        (step, group, rollout) for step in (1, 2, 3, 4) for group in range(4) for rollout in range(3)
    ]
    apart = 0
    for (_,), those in rows.group_by("step"):
        draws = [each for _, each in those.group_by("group", maintain_order=True)]
        assert [each["question"].n_unique() for each in draws] == [1] * 4
        twice = Counter(each["question"][0] for each in draws)
        assert max(twice.values()) > 1
        for each in draws:
            rewards, first = each["reward"].to_list(), [more[0] for more in each["advantages"]]
            middle, spread = statistics.fmean(rewards), statistics.pstdev(rewards)
            wanted = [(reward - middle) / spread if spread else 0.0 for reward in rewards]
            assert first == pytest.approx(wanted, abs=1e-4)
        by_question = those.group_by("question", "group").agg(pl.col("reward").mean())
        apart += by_question.group_by("question").agg(pl.col("reward").n_unique() > 1)["reward"].any()
    assert apart, "no question was answered unlike in its two draws, and a mean over both would be the same"


def test_a_stage_held_to_where_it_began(bench):
    """With a divergence its first step has none, later ones do, and an interruption changes nothing."""
    plain = ppo(OUTCOME, steps=3)
    stage = plain.model_copy(update={"method": plain.method.model_copy(update={"kl": 0.5})})
    whole = bench.train(stage, "held_whole", start="base", data="questions")
    found = pl.read_parquet(whole / "metrics.parquet")["kl"]
    assert found[0] < found[2]
    saved = stage.model_copy(update={"save_every": 1})
    with pytest.raises(Stopped):
        bench.train(saved, "held", start="base", data="questions", stop_at=2)
    same(whole, bench.train(saved, "held", start="base", data="questions"))


@pytest.mark.parametrize("name", ["gspo", "cispo"])
def test_objectives_of_specs_train_and_go_on_to_the_same_bytes(bench, name):
    """The loss that a spec says, on the smallest model, with as many passes as make ratios differ from 1."""
    spec = compile_file(SPECS / f"{name}.reo").spec
    assert spec is not None
    said = spec.study.arm(name).checkpoint.experiment.stages[0].method
    fields = ("loss", "clip_low", "clip_high", "loss_mean")
    plain = ppo(OUTCOME, steps=3)
    method = plain.method.model_copy(update={field: getattr(said, field) for field in fields} | {"epochs": 2})
    stage = plain.model_copy(update={"method": method, "save_every": 1})
    whole = bench.train(stage, f"{name}_whole", start="base", data="questions")
    found = pl.read_parquet(whole / "metrics.parquet")
    assert found["loss"].is_finite().all()
    assert found["grad_norm"].max() > 0
    with pytest.raises(Stopped):
        bench.train(stage, name, start="base", data="questions", stop_at=2)
    same(whole, bench.train(stage, name, start="base", data="questions"))


@pytest.mark.slow
@pytest.mark.parametrize("every", [0, 9])
def test_a_stage_is_saved_as_time_passes(bench, monkeypatch, every):
    monkeypatch.setattr(module, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(module, "SAVE_SHARE", 0.0)
    with pytest.raises(Stopped):
        bench.train(ppo(save_every=every), f"timed_{every}", start="base", data="questions", stop_at=4)
    (saved,) = (bench.root / f"timed_{every}.work").glob("shards-*/0-of-1.safetensors")
    assert load_file(saved)
    began = len(list((bench.root / f"timed_{every}.work" / "rollouts").iterdir()))
    assert began == 4
    same(
        bench.train(ppo(), f"untimed_{every}", start="base", data="questions"),
        bench.train(ppo(save_every=every), f"timed_{every}", start="base", data="questions"),
    )


def test_what_a_ppo_stage_leaves(bench):
    out = bench.train(ppo(), "reo", start="base", data="questions")
    metrics = pl.read_parquet(out / "metrics.parquet")
    assert metrics["step"].to_list() == [1, 2, 3, 4, 5]
    assert metrics["lr"].to_list() == pytest.approx([5e-4, 1e-3, 1e-3, 1e-3, 1e-3])
    wanted = {
        "reward", "accuracy", "length", "loss", "grad_norm", "clip_fraction", "entropy", "ratio_error",
        "tokens",
    }  # fmt: skip
    assert wanted | {"unfinished", "equal_groups", "forced_accuracy"} <= set(metrics.columns)
    untold = {name for name in metrics.columns if f"`{name}`" not in PAGE.read_text()}
    assert not untold, f"describe {untold} in docs/STORE.md"
    assert metrics["ratio_error"].max() < 1e-4
    timings = pl.read_parquet(out / "timings.parquet")
    assert timings["memory"].is_between(0.01, 1000).all()
    for part in ("generate", "force", "grade", "update"):
        assert timings[f"processor_{part}"].sum() >= 0
        assert timings[f"seconds_{part}"].sum() > 0
    rollouts = pl.read_parquet(out / "rollouts.parquet")
    assert rollouts["text"].null_count() == 0
    assert rollouts.height == 5 * 4 * 3
    for row in rollouts.iter_rows(named=True):
        assert row["weight_versions"] == [row["step"] - 1]
        assert row["cuts"] == [cut for cut in (4, 8) if cut < row["tokens"]]
        right = dict(zip(row["cuts"], row["forced"], strict=True))
        weights = {4: 4.0, 8: 14.0, 32: 12.0}
        assert row["reward"] == sum(c * right.get(L, row["correct"]) for L, c in weights.items())
        assert (row["bare"][-1] if row["bare"] else False) == row["correct"]
    assert json.loads((out / "train.json").read_text()) == {
        "ended": "steps",
        "left_out_too_long": 0,
        "left_out_without_budget": 0,
        "optimizer_carried_over": False,
        "questions": 40,
        "steps": 5,
    }
    loaded = load(out / "checkpoint")
    start = load_file(bench.root / "base" / "checkpoint" / "model.safetensors")
    assert any(
        not torch.equal(value, start[name])
        for name, value in loaded.model.state_dict().items()
        if name in start
    )
    open_engine(out / "checkpoint", Resources()).close()


def test_recorded_prefixes_are_those_of_the_responses(bench, monkeypatch):
    """Every prefix of every response graded by itself, each round of each step; and the whole one as it ended."""
    rounds = []

    sample = RolloutSampler.sample

    def kept(*args):
        rounds.append(sample(*args))
        return rounds[-1]

    monkeypatch.setattr(RolloutSampler, "sample", kept)
    plain = ppo(OUTCOME, steps=3)
    stage = plain.model_copy(update={"method": plain.method.model_copy(update={"resample": 2})})
    out = bench.train(stage, "prefixes", start="base", data="questions")
    rows = pl.read_parquet(out / "rollouts.parquet").iter_rows(named=True)
    tokenizer = load(bench.root / "base" / "checkpoint").tokenizer
    verifier = make_verifier("exact")
    seen = 0
    for found in rounds:
        for number, rollout in enumerate(found.rollouts):
            row, question, response = next(rows), rollout.question, rollout.response
            assert (row["question"], row["rollout"]) == (question.id, number % 3)
            texts = [tokenizer.decode(response.tokens[:n]) for n in range(len(response.tokens) + 1)]
            answers = [Claim(final_answer(text), question.gold, "") for text in texts]
            held = False
            told = dict(zip(row["bare_cuts"], row["bare"], strict=True))
            for n, verdict in enumerate(verifier.grade(answers)):
                held = told.get(n, held)
                assert held == verdict.correct
            assert (row["tokens"], row["correct"]) == (len(response.tokens), held)
            seen += held
    assert next(rows, None) is None
    assert seen > 5
    assert len(rounds) > 3, "some rounds replaced questions of others"


def test_an_engine_that_tells_of_responses_as_they_end_changes_no_byte(bench, monkeypatch):
    stage = ppo(steps=2)
    whole = bench.train(stage, "told_plain", start="base", data="questions")
    generate, grade, threads = EmbeddedEngine.generate, ExactVerifier.grade, set()

    def telling(self, requests, sampling, ahead=None, ended=None):
        responses = generate(self, requests, sampling, ahead)
        # The last one first, and one of them not at all.
        for number in reversed(range(1, len(responses))):
            ended(number, responses[number], {})
        return responses

    def graded(self, answers):
        threads.add(threading.current_thread().name)
        return grade(self, answers)

    monkeypatch.setattr(EmbeddedEngine, "generate", telling)
    monkeypatch.setattr(ExactVerifier, "grade", graded)
    same(whole, bench.train(stage, "told", start="base", data="questions"))
    assert {name.partition("_")[0] for name in threads} == {"grading", "MainThread"}


def test_supervised_training_learns_the_traces(bench):
    losses = pl.read_parquet(bench.root / "base" / "metrics.parquet")["loss"].to_list()
    assert sum(losses[-5:]) / 5 < 0.5 * losses[0]


def test_the_optimizer_is_carried_over_within_an_experiment_and_a_method(bench):
    bench.train(sft(), "first", start="init", data="traces")
    cases = [
        ("second", sft(steps=1), 1, True),
        ("elsewhere", sft(steps=1), 0, False),
        ("other_algorithm", sft(steps=1, algorithm="adamw"), 1, False),
    ]
    for name, stage, index, carried in cases:
        out = bench.train(stage, name, start="first", data="traces", index=index)
        assert json.loads((out / "train.json").read_text())["optimizer_carried_over"] is carried
    out = bench.train(
        ppo(OUTCOME, steps=1, forcing=None), "other_method", start="first", data="questions", index=1
    )
    assert not json.loads((out / "train.json").read_text())["optimizer_carried_over"]


def test_a_plateau_ends_a_stage(bench, refusal):
    level = Plateau(metric="train.loss", window=1, within=10.0)
    out = bench.train(sft(plateau=level), "plateau", start="init", data="traces")
    assert json.loads((out / "train.json").read_text())["ended"] == "plateau"
    assert pl.read_parquet(out / "metrics.parquet").height == 2
    unknown = Plateau(metric="train.regret", window=1, within=0.0)
    with pytest.raises(Problem) as caught:
        bench.train(sft(plateau=unknown), "unknown", start="init", data="traces")
    refusal("train/E0314-plateau.txt", caught.value, task="unknown")


def test_budgets_come_from_an_artifact(bench, refusal):
    for name, found in {
        "oracle": {"budgets": [3, 6], "l_max": 32},
        "nothing": {},
        "own": {"l_max": 32, "questions": dict.fromkeys(_ids(bench)[:9], 5) | dict.fromkeys(_ids(bench)[9:])},
        "dropped": {"l_max": 32, "questions": dict.fromkeys(_ids(bench))},
    }.items():
        (bench.root / name).mkdir()
        (bench.root / name / "budgets.json").write_text(json.dumps(found))
    oracle = ppo(dense(OracleBudgets(frontier="", n=2, l_max=32), ""), steps=1)
    rows = pl.read_parquet(
        bench.train(oracle, "by_oracle", start="base", data="questions", budgets="oracle")
        / "rollouts.parquet"
    )
    assert all(row["cuts"] == [c for c in (3, 6) if c < row["tokens"]] for row in rows.iter_rows(named=True))
    per_question = ppo(dense(QuestionBudgets(rollouts=(), l_max=32, unsolved="drop"), ""), steps=1)
    out = bench.train(per_question, "by_question", start="base", data="questions", budgets="own")
    assert json.loads((out / "train.json").read_text())["left_out_without_budget"] == 31
    assert set(pl.read_parquet(out / "rollouts.parquet")["question"]) <= set(_ids(bench)[:9])
    for budgets, name in (("nothing", "E0925"), ("dropped", "E0405-dropped")):
        with pytest.raises(Problem) as caught:
            bench.train(per_question, "refused", start="base", data="questions", budgets=budgets)
        refusal(f"train/{name}.txt", caught.value, task="dropped")


def _ids(bench):
    return pl.read_parquet(bench.root / "questions" / "questions.parquet")["id"].to_list()


def test_a_reference_is_read_by_question(bench, refusal):
    folder = bench.root / "reference"
    folder.mkdir()
    rows = [{"question": q, "tokens": n, "correct": n < 5} for q in _ids(bench) for n in (4, 8, 12)]
    pl.DataFrame(rows).write_parquet(folder / "samples.parquet")
    from reodsl.ir.expression import Aggregate

    mean = Aggregate(fn="mean", var="z", over="ref", value=Length(of="z"))
    stage = ppo(Reward(name="", outcome=mean), steps=1, forcing=None)
    method = stage.method.model_copy(update={"reference_samples": 2})
    stage = stage.model_copy(update={"method": method})
    out = bench.train(stage, "with_reference", start="base", data="questions", reference="reference")
    rollouts = pl.read_parquet(out / "rollouts.parquet")
    assert set(rollouts["reward"]) == {6.0}
    lost = rollouts["question"][0]
    pl.DataFrame([row for row in rows if row["question"] != lost]).write_parquet(folder / "samples.parquet")
    with pytest.raises(Problem) as caught:
        bench.train(stage, "short_reference", start="base", data="questions", reference="reference")
    refusal("train/E0505-cover.txt", caught.value, task="short_reference")


@pytest.mark.parametrize(
    ("stage", "data", "name"),
    [
        (ppo(Reward(name="", outcome=Attribute(of="y", field="n_gold")), forcing=None), "questions", "E0922"),
        (
            ppo(
                Reward(
                    name="",
                    outcome=Infix(
                        fn="/",
                        left=Constant(value=0),
                        right=Infix(fn="-", left=Length(of="y"), right=Length(of="y")),
                    ),
                ),
                forcing=None,
            ),
            "questions",
            "E0920",
        ),
        (sft(), "questions", "E0510-traces"),
        (
            Stage(
                name="",
                method=Simpo(batch=2, max_tokens=9, beta=1, gamma=1),
                data=NO_DATA,
                optim=Optimizer(algorithm="adam", lr=1),
                steps=1,
            ),
            "questions",
            "E0510-pairs",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused_by_name(bench, stage, data, name, refusal):
    with pytest.raises(Problem) as caught:
        bench.train(stage, "refused", start="base", data=data)
    (found,) = caught.value.diagnostics
    drawn = [(note, "DRAWN") for note in found.notes if note.startswith("there len(y)")]
    refusal(f"train/{name}.txt", caught.value, *drawn, task="refused")
    assert not list((bench.root / "refused").iterdir())


def test_prompts_and_traces_that_are_too_long_are_counted_or_refused(bench, refusal):
    short = ppo(OUTCOME, steps=1, forcing=None)
    some = short.model_copy(update={"method": short.method.model_copy(update={"max_prompt": 8})})
    out = bench.train(some, "some", start="base", data="questions")
    facts = json.loads((out / "train.json").read_text())
    assert facts["questions"] + facts["left_out_too_long"] == 40
    assert facts["left_out_too_long"] > 0
    for stage, data in ((short, "questions"), (sft(), "traces")):
        limit = {"max_prompt": 2} if data == "questions" else {"max_tokens": 3}
        none = stage.model_copy(update={"method": stage.method.model_copy(update=limit)})
        with pytest.raises(Problem) as caught:
            bench.train(none, "none", start="base", data=data)
        refusal(f"train/E0927-{data}.txt", caught.value, task="none")


def test_divergence_leaves_the_last_saved_step(bench):
    stage = ppo(Reward(name="", outcome=Length(of="y")), forcing=None, save_every=1)
    stage = stage.model_copy(update={"optim": Optimizer(algorithm="adamw", lr=1e30, grad_norm=0)})
    with pytest.raises(Problem) as caught:
        bench.train(stage, "diverged", start="base", data="questions")
    assert caught.value.diagnostics[0].code in ("E0926", "E0802")
    assert not list((bench.root / "diverged").iterdir())


def test_what_cannot_be_read_is_told_with_what_to_remove(bench, refusal):
    with pytest.raises(Stopped):
        bench.train(sft(save_every=1), "broken", start="base", data="traces", stop_at=3)
    (saved,) = (bench.root / "broken.work").glob("shards-*/0-of-1.safetensors")
    saved.write_bytes(saved.read_bytes()[:1000])
    with pytest.raises(Problem) as caught:
        bench.train(sft(save_every=1), "broken", start="base", data="traces")
    note = caught.value.diagnostics[0].notes[0]
    assert note
    refusal(
        "train/E0939.txt",
        caught.value,
        (note, "REASON"),
        (str(bench.root / "broken.work"), "WORK"),
        task="broken",
    )
    shutil.rmtree(bench.root / "broken.work")
    assert json.loads((bench.train(sft(), "broken", start="base", data="traces") / "train.json").read_text())
