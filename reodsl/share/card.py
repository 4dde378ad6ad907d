"""A model card in Markdown: a model's results, its use and its spec."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import PurePosixPath

import polars as pl
from huggingface_hub import EvalResult, ModelCardData

from reodsl.ir import Spec
from reodsl.ir.model import Hub, Model
from reodsl.ir.training import Experiment
from reodsl.report import formats
from reodsl.report.copies import markdown
from reodsl.report.material import MEAN, Material, title
from reodsl.report.notes import approximate, misfits, nearly
from reodsl.report.provenance import rerun
from reodsl.share import evaluated
from reodsl.share.evaluated import FinishedEvaluation

FOLDER = "reodsl"
"""The folder in a model's repository for everything but the model and the card."""
CURVES = f"{FOLDER}/curves.png"


def card(
    material: Material, one: FinishedEvaluation, experiment: Experiment, name: str, license: str | None
) -> str:
    """Return the text of `README.md`, with metadata that the hub reads. `name` is the model's, without its owner."""
    spec = material.spec
    study = material.study
    seed = "" if one.seed is None else f", seed {one.seed}"
    parts = [
        f"---\n{_metadata(material, one, experiment, name, license)}\n---",
        f"# {name}",
        f"{_code(one.arm.name)} of the study {_code(study.name)}{seed}: trained with "
        "reodsl to reason with fewer tokens, after [the paper on reasoning efficiency](https://arxiv.org/abs/2506.07104).",
        study.doc.strip(),
        "## Results",
        markdown(*_table(material, one)),
        _what_numbers_are(material),
        f"![Accuracy at every token budget]({CURVES})",
        "## Use",
        _use(experiment.model, one),
        "## Training",
        f"The spec below says everything that was done. `{FOLDER}/` has it as a file, compiled as JSON, and the curves as "
        "CSV. The same results come from:",
        _fence_text("bash", rerun(spec.model_copy(update={"path": PurePosixPath(spec.path).name}))),
        f"Made with {', '.join(f'{package} {version}' for package, version in sorted(one.versions.items()))}.",
    ]
    parts += [_fence_text("", text) for text in sources(spec).values()]
    return "\n\n".join(part for part in parts if part) + "\n"


def sources(spec: Spec) -> dict[str, str]:
    """Return the spec's source files by their names below its folder, without those of the standard library."""
    folder = os.path.dirname(spec.path)
    files: dict[str, str] = {}
    for path, text in spec.sources.items():
        if path.startswith("std/"):
            continue
        name = PurePosixPath(os.path.relpath(path, folder or "."))
        inside = not name.is_absolute() and ".." not in name.parts
        files[str(name) if inside else name.name] = text
    return files


def _metadata(
    material: Material, one: FinishedEvaluation, experiment: Experiment, name: str, license: str | None
) -> str:
    source = experiment.model.source
    data = ModelCardData(
        base_model=source.repo if isinstance(source, Hub) else None,
        datasets=_data_sets(experiment) or None,
        license=license,
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["reodsl", "reasoning", "reasoning-efficiency"],
        model_name=name,
        eval_results=[
            EvalResult(
                task_type="text-generation",
                dataset_type=benchmark,
                dataset_name=benchmark,
                metric_type=metric,
                metric_name=called,
                metric_value=round(value, 4),
            )
            for benchmark in evaluated.benchmarks(material, one)
            for metric, called, value in _list_measures(material, one, benchmark)
        ],
    )
    return data.to_yaml().strip()


def _data_sets(experiment: Experiment) -> list[str]:
    """Return the hub's data sets that any stage before this model trained on."""
    repos = (
        source.repo
        for each in (*reversed(experiment.start.experiments), experiment)
        for stage in each.stages
        for source in stage.data.sources
        if source.kind == "hub"
    )
    return list(dict.fromkeys(repos))


def _list_measures(
    material: Material, one: FinishedEvaluation, benchmark: str
) -> list[tuple[str, str, float]]:
    summary = _summary(material, one, benchmark)
    scored = evaluated.score(material, one, benchmark)
    metrics = [
        ("accuracy", "Accuracy", summary["accuracy"]),
        ("length", "Mean tokens of a response", summary["length"]),
    ]
    if "reg" in scored:
        near = ", approximate" * bool(misfits(material.study))
        metrics.append(("reg", f"Reasoning Efficiency Gap, tokens{near}", scored["reg"]))
    return metrics


def _summary(material: Material, one: FinishedEvaluation, benchmark: str) -> dict[str, float]:
    seed = pl.col("seed").is_null() if one.seed is None else pl.col("seed") == one.seed
    mine = (pl.col("arm") == one.arm.name) & seed & (pl.col("benchmark") == benchmark)
    return material.summary.filter(mine).row(0, named=True)


def _table(material: Material, one: FinishedEvaluation) -> tuple[list[str], list[list[str]]]:
    score = material.study.score
    head = ["benchmark", "accuracy %", "tokens"]
    if score is not None:
        head += [
            f"{nearly(material.study)}REG",
            *([f"REG - {score.relative_to}"] if score.relative_to else []),
        ]
    body = []
    for benchmark in (*evaluated.benchmarks(material, one), MEAN):
        summary, scored = _summary(material, one, benchmark), evaluated.score(material, one, benchmark)
        row = [title(benchmark), formats.percent(summary["accuracy"]), formats.number(summary["length"])]
        for name in ("reg", "difference")[: len(head) - 3]:
            span = formats.interval(scored.get(f"{name}_low"), scored.get(f"{name}_high"))
            row.append(f"{formats.number(scored.get(name))} {span}".strip())
        body.append(row)
    return head, body


def _what_numbers_are(material: Material) -> str:
    score = material.study.score
    if score is None:
        return "Tokens are the mean length of a response."
    frontier = next((each for each in material.study.frontiers if each.name == score.frontier), None)
    of = (
        f"the best of {', '.join(map(_code, frontier.of))}"
        if frontier and frontier.of
        else "a published frontier"
    )
    return (
        "Tokens are the mean length of a response. REG, the Reasoning Efficiency Gap, is the area between the frontier and "
        f"this model's curve up to {score.to:,} tokens; the frontier is {of} at each token budget. Lower is better, and a "
        f"model above the frontier has a negative REG. Brackets are 95% intervals. {approximate(material.study)}".rstrip()
    )


def _use(model: Model, one: FinishedEvaluation) -> str:
    prompt = model.prompt
    lines = [
        "Prompt the model as training did. "
        + (
            "A question goes through the tokenizer's chat template"
            + (f", after the system message {_code(prompt.system)}" if prompt.system else "")
            + "."
            if prompt.kind == "chat"
            else "A question is put into the template below, without a chat template."
        )
    ]
    forcing = one.arm.suite.forcing
    shown = {
        "the question": prompt.template,
        "how every response begins": prompt.prefix,
        "reasoning begins": model.think_open,
        "reasoning ends": model.think_close,
        "an answer is forced by": forcing.text if forcing is not None else None,
    }
    lines.append(_fence_text("text", "\n".join(f"{name}: {text!r}" for name, text in shown.items() if text)))
    return "\n\n".join(lines)


def _code(text: str) -> str:
    """Quote a name in the middle of a sentence; it cannot end its own marks."""
    plain = re.sub(r"[`\s]+", " ", text).strip()
    return f"`{plain}`"


def _fence_text(language: str, text: str) -> str:
    """Return a block that nothing in the text ends."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{fence}{language}\n{text.strip()}\n{fence}"


def curve_table(material: Material, one: FinishedEvaluation) -> pl.DataFrame:
    """Return the rows of `curves.csv`: benchmark, budget, accuracy of the model, and the frontier's there."""
    seed = pl.col("seed").is_null() if one.seed is None else pl.col("seed") == one.seed
    mine = material.curves.filter((pl.col("name") == one.arm.name) & seed)
    edge = material.frontier()
    if one.seed is not None and edge["seed"].drop_nulls().len():
        edge = edge.filter(pl.col("seed") == one.seed)
    joined = mine.join(
        edge.select("benchmark", "budget", pl.col("accuracy").alias("frontier")),
        on=["benchmark", "budget"],
        how="left",
    )
    return joined.select("benchmark", "budget", "accuracy", "frontier").sort("benchmark", "budget")


def without_places(spec: Spec) -> Mapping[str, object]:
    """Return the compiled spec as JSON data, without the folders of the machine that it ran on."""
    compiled = spec.model_dump(mode="json")
    return {**compiled, "path": PurePosixPath(spec.path).name, "sources": sources(spec)}
