"""A plausible finished study, drawn at random: a spec in, artifact folders by role out, hostile texts on demand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from reodsl.ir import Change, Spec
from reodsl.ir.data import Data, File
from reodsl.ir.expression import Correct
from reodsl.ir.model import Folder, Forcing, Model
from reodsl.ir.reward import Budgets, OracleBudgets, Reward
from reodsl.ir.study import Arm, Benchmark, Chart, Frontier, Score, Study, Suite, Table
from reodsl.ir.training import Experiment, FromModel, FromTraining, Optimizer, Sampling, Sft, Stage
from reodsl.numbers.arm_scores import arm_scores
from reodsl.numbers.curves import Curve, envelope
from reodsl.numbers.intervals import compare_arms
from reodsl.numbers.reg import reg_table
from reodsl.numbers.verdict import VERDICT, common_of, judge, to_json
from tests.methods import dense, plain_ppo

GRID = (0, 2, 4, 6, 8, 10, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128)
L_MAX = 128

# How fast an arm gets to its answer, how right it is in the end, and how long it goes on.
ARMS = {
    "base": (46.0, 0.50, 78.0),
    "vanilla": (30.0, 0.955, 55.0),
    "reo_exp": (11.0, 0.95, 30.0),
    "reo_oracle": (12.0, 0.945, 31.0),
    "group_norm": (14.0, 0.935, 34.0),
    "shrink": (13.0, 0.90, 29.0),
}
COUNTS = {"questions": 128, "samples": 2, "unfinished": 0.01, "verifier_timeouts": 0, "verifier_failures": 0}
EXISTING = ("base", "vanilla", "group_norm", "shrink")


@dataclass(frozen=True)
class World:
    """A finished study: its spec and the folders of its artifacts by role."""

    spec: Spec
    inputs: dict[str, Path]


def study(seeds: tuple[int, ...], benchmarks: tuple[str, ...], rename: dict[str, str], doc: str) -> Study:
    """The IR of the synthetic study; `rename` maps the arms' plain names to those used."""
    data = Data(name="chains", sources=(File(path="chains.parquet"),), verifier="exact")
    model = Model(name="tiny", source=Folder(path="tiny"), context=256)
    optim = Optimizer(algorithm="adamw", lr=5e-4)
    sft = Experiment(
        name="overthinker",
        start=FromModel(model=model),
        stages=(Stage(name="sft", method=Sft(batch=32, max_tokens=256), data=data, optim=optim, steps=60),),
    )
    begin = FromTraining(experiment=sft, stage=0)
    suite = Suite(
        name="chains",
        benchmarks=tuple(Benchmark(name=name, data=data) for name in benchmarks),
        rollout=Sampling(max_tokens=L_MAX),
        samples=2,
        grid=GRID,
        reg_to=L_MAX,
        forcing=Forcing(text="</think> answer \\boxed{", answer_tokens=1),
    )

    def trained(name: str, reward: Reward) -> FromTraining:
        method = plain_ppo(reward, tokens=L_MAX, max_prompt=32, prompts=32, rollouts=8, minibatches=2)
        stage = Stage(name="rl", method=method, data=data, optim=optim, steps=24)
        return FromTraining(experiment=Experiment(name=name, start=begin, stages=(stage,)), stage=0)

    rewards = {
        "reo_exp": dense(Budgets(budgets=(4, 8, 16, 32, 64), l_max=L_MAX)),
        "reo_oracle": dense(OracleBudgets(frontier="edge", n=5, l_max=L_MAX, step=4)),
    }
    arms = []
    for plain in ARMS:
        outcome = Reward(name="outcome", outcome=Correct(of="y"))
        checkpoint = begin if plain == "base" else trained(plain, rewards.get(plain, outcome))
        arms.append(Arm(name=rename.get(plain, plain), checkpoint=checkpoint, suite=suite))
    names = tuple(arm.name for arm in arms)
    lines = tuple(rename.get(name, name) for name in ("base", "vanilla", "reo_exp", "group_norm", "shrink"))
    return Study(
        name=rename.get("study", "quickstart"),
        doc=doc,
        seeds=seeds,
        arms=tuple(arms),
        frontiers=(Frontier(name="edge", of=tuple(rename.get(n, n) for n in EXISTING), to=L_MAX),),
        score=Score(frontier="edge", to=L_MAX, relative_to=rename.get("vanilla", "vanilla")),
        tables=(Table(name="main", rows=names, columns=("accuracy", "length", "reg")),),
        charts=(Chart(name="curves", x="budget", y="accuracy", lines=(*lines, "edge")),),
    )


def world(
    folder: Path,
    seeds: tuple[int, ...] = (1,),
    benchmarks: tuple[str, ...] = ("easy", "medium", "hard"),
    rename: dict[str, str] | None = None,
    doc: str = "The paper's story in miniature: one small model that overthinks, trained five ways.",
    text: str = "",
    steps: int = 24,
    draw: int = 0,
) -> World:
    """Writes the artifacts of a finished study under `folder`. `text` is put into every question, answer and response.

    Another `draw` gives other responses to the same questions.
    """
    rename = rename or {}
    names = {plain: rename.get(plain, plain) for plain in ARMS}
    inputs: dict[str, Path] = {}
    regs: list[pl.DataFrame] = []
    for seed in seeds:
        rng = np.random.default_rng([seed, draw] if draw else seed)
        models: dict[str, dict[str, Curve]] = {}
        numbers: dict[tuple[str, str], tuple[float, float]] = {}
        for plain, name in names.items():
            path = _new(folder, f"evaluate-{plain}-{seed}")
            inputs[f"evaluate:{name}@{seed}"] = path
            models[name], summary = _evaluation(path, plain, benchmarks, rng, text)
            numbers |= {(name, b): (s["accuracy"], s["length"]) for b, s in summary.items()}
            if plain != "base":
                path = _new(folder, f"train-{plain}-{seed}")
                inputs[f"train:{name}:0@{seed}"] = path
                _metrics(path, plain, rng, steps)
        path = _new(folder, f"train-sft-{seed}")
        inputs[f"train:{names['base']}:0@{seed}"] = path
        at = np.arange(1, 61)
        loss = 3.5 * np.exp(-at / 18) + 0.4 + rng.normal(0, 0.03, 60)
        pl.DataFrame({"step": at, "loss": loss, "lr": np.full(60, 1e-3)}).write_parquet(
            path / "metrics.parquet"
        )
        found = envelope({names[n]: models[names[n]] for n in EXISTING})
        path = _new(folder, f"frontier-{seed}")
        inputs[f"frontier:edge@{seed}"] = path
        (path / "frontier.json").write_text(json.dumps(_json(found.curves)))
        pl.DataFrame(
            [
                {
                    "benchmark": w.benchmark,
                    "budget": w.budget,
                    "arm": name,
                    "accuracy": models[name][w.benchmark].at(w.budget),
                    "frontier": w.accuracy,
                    "winner": name in w.models,
                }
                for w in found.winners
                for name in (names[n] for n in EXISTING)
            ]
        ).write_parquet(path / "winners.parquet")
        regs.append(_regs(found.curves, models, numbers, names["vanilla"], seed))
        path = _new(folder, f"budgets-{seed}")
        inputs[f"budgets:{names['reo_oracle']}@{seed}"] = path
        (path / "budgets.json").write_text(
            json.dumps(
                {"l_max": L_MAX, "budgets": [12, 20, 28, 40, 68], "weights": [], "approximation_error": 0.001}
            )
        )
    path = _new(folder, "score")
    inputs["score" if len(seeds) > 1 else f"score@{seeds[0]}"] = path
    _score(path, pl.concat(regs))
    _verdict(path, inputs, names, seeds)
    spec = Spec(
        study=study(seeds, benchmarks, rename, doc),
        path="specs/quickstart.reo",
        params={"seeds": str(list(seeds)), "n": "5"},
        changes=(Change(option="--set", target="n", value=text or "5"),),
        sources={
            "specs/quickstart.reo": f'"""{doc}"""\nfrom std.recipes import ppo\n# {text}\nstudy quickstart {{ }}\n'
        },
    )
    return World(spec, inputs)


def _evaluation(
    path: Path, plain: str, benchmarks: tuple[str, ...], rng: np.random.Generator, text: str
) -> tuple[dict[str, Curve], dict[str, dict[str, float]]]:
    pace, top, length = ARMS[plain]
    curves, summary, samples, examples = {}, {}, [], []
    for place, benchmark in enumerate(benchmarks):
        harder = 1 + 0.35 * place
        rise = 1 / (1 + np.exp(-(np.array(GRID) - pace * harder) / (3.0 + 2 * harder)))
        start = 0.1
        values = start + (top - 0.05 * place - start) * (rise - rise[0]) / (rise[-1] - rise[0])
        noisy = np.clip(values + rng.normal(0, 0.008, len(GRID)), 0, 1)
        curves[benchmark] = Curve(GRID, tuple(float(v) for v in noisy))
        mean = length * harder * (1 + rng.normal(0, 0.02))
        summary[benchmark] = {"accuracy": float(noisy[-1]), "length": float(mean), **COUNTS}
        for q in range(4):
            count = int(np.clip(rng.normal(mean, 6), 10, L_MAX))
            value = (3 * q + place) % 10
            said = "hmm . so step a : take 2 +4 6 . wait check again ."
            words = said.split()
            spoken = [words[(q + i) % len(words)] for i in range(count)]
            response = " ".join(spoken) + text
            right = bool(rng.random() < noisy[-1])
            keys = {"benchmark": benchmark, "question": f"q{q}", "sample": 0}
            samples.append(
                keys
                | {
                    "text": f"<q> {value} a +4 b +{q} ? {text}",
                    "gold": f"{value}{text}" + "\x1e<b>half</b>" * (q == 1),
                    "response": response,
                    "tokens": count,
                    "finish": "stop",
                    "answer": f"{value if right else (value + 1) % 10}{text}",
                    "correct": right,
                }
            )
            for k, budget in enumerate(GRID):
                correct = bool(rng.random() < noisy[k])
                at = len(" ".join(spoken[: min(budget, count)]))
                answer = f"{value if correct else (value + 3) % 10}{text}"
                examples.append(
                    keys
                    | {"budget": budget, "characters": at, "forced_text": answer + " }"}
                    | {"answer": answer, "correct": correct}
                )
    summary["mean"] = {
        "accuracy": float(np.mean([s["accuracy"] for s in summary.values()])),
        "length": float(np.mean([s["length"] for s in summary.values()])),
        **COUNTS,
        "questions": 128 * len(benchmarks),
    }
    (path / "curves.json").write_text(json.dumps(_json(curves)))
    (path / "summary.json").write_text(json.dumps(summary))
    pl.DataFrame(samples).write_parquet(path / "samples.parquet")
    kept = pl.DataFrame(examples)
    kept.write_parquet(path / "examples.parquet")
    columns = ["benchmark", "question", "sample", "budget", "answer", "correct"]
    whole = pl.DataFrame(samples).select("benchmark", "question", "sample", "tokens")
    cut = kept.select(columns).join(whole, on=columns[:3], how="left", maintain_order="left")
    cut.with_columns(forced=pl.col("budget") < pl.col("tokens")).drop("tokens").write_parquet(
        path / "forced.parquet"
    )
    return curves, summary


def _metrics(path: Path, plain: str, rng: np.random.Generator, steps: int) -> None:
    _, top, length = ARMS[plain]
    at = np.arange(1, steps + 1)
    done = 1 - np.exp(-at / (steps / 4))
    accuracy = np.clip(0.5 + (top - 0.5) * done + rng.normal(0, 0.02, steps), 0, 1)
    pl.DataFrame(
        {
            "step": at,
            "reward": accuracy * (1.0 if not plain.startswith("reo") else 90.0),
            "accuracy": accuracy,
            "length": 78 + (length - 78) * done + rng.normal(0, 1.5, steps),
            "loss": rng.normal(0, 0.02, steps),
            "grad_norm": 0.5 + rng.random(steps),
            "lr": np.full(steps, 5e-4),
            "clip_fraction": 0.02 + 0.02 * rng.random(steps),
            "entropy": 0.5 * np.exp(-at / steps) + 0.01 * rng.random(steps),
            "tokens": (256 * (78 + (length - 78) * done)).astype(np.int64),
        }
    ).write_parquet(path / "metrics.parquet")
    timed = {"step": at, "seconds_update": 0.8 + 0.1 * rng.random(steps), "memory": 1 + at / steps}
    pl.DataFrame(timed | {"processor_update": at}).write_parquet(path / "timings.parquet")


def _regs(
    frontier: dict[str, Curve],
    models: dict[str, dict[str, Curve]],
    numbers: dict[tuple[str, str], tuple[float, float]],
    baseline: str,
    seed: int,
) -> pl.DataFrame:
    """The rows of one seed, without intervals. The cross-fitted frontier is half a token below the plain one."""
    rows = []
    table = reg_table(frontier, models, L_MAX, GRID, baseline)
    for row in table.rows:
        accuracy, length = numbers[row.model, row.benchmark]
        there = numbers[baseline, row.benchmark]
        rows.append(
            {
                "model": row.model,
                "benchmark": row.benchmark,
                "seed": seed,
                "accuracy": accuracy,
                "length": length,
                "reg": row.reg - 0.5,
                "reg_plain": row.reg,
                "difference": row.reg - table[baseline, row.benchmark].reg,
                "accuracy_change": accuracy - there[0],
                "length_change": length - there[1],
            }
        )
    return pl.DataFrame(rows)


REACH = {"difference": 1.2, "reg": 1.5, "length": 1.3, "length_change": 1.0}
REACH |= {"accuracy": 0.02, "accuracy_change": 0.02}
"""How far intervals reach to both sides."""


def _score(path: Path, by_seed: pl.DataFrame) -> None:
    """`reg.parquet`: means over seeds with intervals, and several seeds one by one."""
    mean = (
        by_seed.group_by("model", "benchmark", maintain_order=True)
        .mean()
        .with_columns(pl.lit(None, pl.Int64).alias("seed"))
        .with_columns(
            (pl.col(name) + sign * reach).alias(f"{name}_{end}")
            for name, reach in REACH.items()
            for end, sign in (("low", -1), ("high", 1))
        )
    )
    mean = mean.with_columns(
        (pl.col(name).abs() > REACH[name]).alias(f"{name}_star") for name in ("difference", "accuracy_change")
    )
    base = mean.filter(pl.col("difference") == 0).group_by("benchmark").agg(pl.col("reg").first().alias("of"))
    mean = mean.join(base, on="benchmark", how="left", maintain_order="left")
    whole = mean.with_columns((100 * pl.col("difference") / pl.col("of")).alias("change_pct")).drop("of")
    several = by_seed["seed"].n_unique() > 1
    pl.concat([whole, by_seed] if several else [whole], how="diagonal").write_parquet(path / "reg.parquet")


def _verdict(path: Path, inputs: dict[str, Path], names: dict[str, str], seeds: tuple[int, ...]) -> None:
    """`verdict.json` of the evaluations' files, whose few questions are not those of the curves."""
    folders = {(name, seed): inputs[f"evaluate:{name}@{seed}"] for name in names.values() for seed in seeds}
    arms = {name: [arm_scores(folders[name, seed], name)[0] for seed in seeds] for name in names.values()}
    comparisons = compare_arms(arms, GRID, seeds=len(seeds), l_max=L_MAX, grid=GRID, against=names["vanilla"])
    verdict = judge(
        comparisons, baseline=names["vanilla"], baseline_reg=(20.0, 15.0), common=common_of(folders)
    )
    (path / VERDICT).write_text(json.dumps(to_json(verdict)))


def _new(folder: Path, name: str) -> Path:
    path = folder / name
    path.mkdir(parents=True)
    return path


def _json(curves: dict[str, Curve]) -> dict[str, dict[str, list[float]]]:
    return {name: {"budgets": list(c.budgets), "accuracy": list(c.accuracy)} for name, c in curves.items()}
