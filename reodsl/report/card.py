"""Write model cards: for each trained arm a page for a hub, with its numbers, how to prompt its model, and its spec."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from reodsl.ir import Spec
from reodsl.ir.model import Hub, Model
from reodsl.ir.study import Arm
from reodsl.ir.training import FromTraining
from reodsl.report import notes, tables
from reodsl.report.material import Material, title
from reodsl.report.page import spread_note
from reodsl.report.provenance import rerun
from reodsl.report.results import name_columns, results
from reodsl.store.layout import arm_folder


def write_cards(folder: Path, material: Material) -> None:
    """Write `<arm>.md` for each evaluated arm whose model was trained."""
    evaluated = set(material.summary["arm"])
    for arm in material.study.arms:
        if arm.name in evaluated and isinstance(arm.checkpoint, FromTraining):
            folder.mkdir(exist_ok=True)
            path = folder / f"{arm_folder(arm.name, '').name}.md"
            path.write_text(write_card(material, arm, arm.checkpoint.experiment.model), encoding="utf-8")


def write_card(material: Material, arm: Arm, model: Model) -> str:
    """Return the text of an arm's model card, with metadata that a hub reads.

    Args:
        material: results of the run.
        arm: the arm.
        model: model that the arm's training started from.
    """
    spec, study = material.spec, material.study
    facts: dict[str, object] = {"base_model": model.source.repo} if isinstance(model.source, Hub) else {}
    facts |= {"library_name": "transformers", "pipeline_tag": "text-generation"}
    facts["tags"] = ["reodsl", "reasoning", "reasoning-efficiency"]
    # JSON values are valid YAML.
    metadata = "\n".join(f"{name}: {json.dumps(value)}" for name, value in facts.items())
    paragraphs = [
        f"---\n{metadata}\n---",
        f"# {arm.name}",
        f"{_code(arm.name)} of the study {_code(study.name)}: trained with "
        "reodsl to reason with fewer tokens, after [the paper on reasoning efficiency](https://arxiv.org/abs/2506.07104).",
        study.doc.strip(),
        "## Results",
        _table(material, arm.name),
        f"{spread_note(material)} Tokens are the mean length of a response. REG, the Reasoning Efficiency Gap, is the area "
        f"between the frontier and the curve: lower is better. {notes.approximate(study)}".rstrip(),
        "## Use",
        _explain_prompt(model, arm),
        "## Training",
        "The spec below defines the whole run. Repeat it with:",
        _fence_text("bash", rerun(spec.model_copy(update={"path": PurePosixPath(spec.path).name}))),
        *(_fence_text("", text) for text in list_sources(spec).values()),
    ]
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph) + "\n"


def _table(material: Material, arm: str) -> str:
    """Return an arm's numbers as Markdown, a row for each benchmark and for the average."""
    heads = name_columns(material.study, {"accuracy": "accuracy %", "length": "tokens", "reg": "REG"})
    cells = results(tables.main(material), (arm,)).rows[arm]
    texts = {(cell.benchmark, cell.column): f"{cell.text} {cell.interval_text}".strip() for cell in cells}
    columns = [column for column in heads if any(cell.column == column for cell in cells)]
    # With one benchmark, its name replaces that of the average.
    only_name = material.benchmarks[0] if len(material.benchmarks) == 1 else None
    body = [
        [only_name or title(benchmark), *(texts.get((benchmark, column), "") for column in columns)]
        for benchmark in dict.fromkeys(cell.benchmark for cell in cells)
    ]
    return markdown(["benchmark", *(heads[column] for column in columns)], body)


def markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return a table in GitHub's Markdown, with special characters escaped.

    Args:
        head: heads of the columns.
        body: rows of cells, the first aligned to the left.
    """

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(re.sub(r"([|\\`*_<>\[\]])", r"\\\1", cell) for cell in cells) + " |"

    rule = "| --- |" + " ---: |" * (len(head) - 1)
    return "\n".join([line(head), rule, *(line(row) for row in body)])


def list_sources(spec: Spec) -> dict[str, str]:
    """Return the texts of the spec's source files by name, without the standard library.

    A name is the path relative to the spec's folder; a file elsewhere has only its last name.
    """
    folder = os.path.dirname(spec.path)
    files: dict[str, str] = {}
    for path, text in spec.sources.items():
        if path.startswith("std/"):
            continue
        name = PurePosixPath(os.path.relpath(path, folder or "."))
        inside = not name.is_absolute() and ".." not in name.parts
        files[str(name) if inside else name.name] = text
    return files


def _explain_prompt(model: Model, arm: Arm) -> str:
    """Return Markdown that explains how to prompt a model.

    It also has the text that forces an answer, if the arm's suite forces answers.

    Args:
        model: model that the arm's training started from, whose prompt the arm was trained with.
        arm: the arm.
    """
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
    forcing = arm.suite.forcing
    texts = {
        "the question": prompt.template,
        "how every response begins": prompt.prefix,
        "reasoning begins": model.think_open,
        "reasoning ends": model.think_close,
        "an answer is forced by": forcing.text if forcing is not None else None,
    }
    lines.append(_fence_text("text", "\n".join(f"{name}: {text!r}" for name, text in texts.items() if text)))
    return "\n\n".join(lines)


def _code(text: str) -> str:
    """Return a text as inline code in Markdown, without backticks of its own."""
    plain = re.sub(r"[`\s]+", " ", text).strip()
    return f"`{plain}`"


def _fence_text(language: str, text: str) -> str:
    """Return a text as a fenced block of Markdown, with a fence longer than any run of backticks in the text.

    Args:
        language: language of the block; empty for none.
        text: content of the block.
    """
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{fence}{language}\n{text.strip()}\n{fence}"
