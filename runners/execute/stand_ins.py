"""Replacements of models and missing data in a rehearsal: small models with random weights, and generated sums."""

from __future__ import annotations

from pathlib import Path

from reodsl.ir import Spec
from reodsl.ir.base import digest, values_of
from reodsl.ir.data import Data, DataSource, File, HubData, TaskData
from reodsl.ir.model import Architecture, Folder, Hub, Model, ServedModel
from reodsl.ir.task import FoldTask, FoldTraces, TraceStyle
from reodsl.rehearse.shrink import StandIn, StandIns, name_data
from reodsl.store.external import hub_snapshot
from runners.data.load import source_problems

QUESTIONS = 64
"""Number of questions that replace a data set."""
_DIGITS = tuple("0123456789")


def stand_ins(spec: Spec, folder: Path, target: Path) -> StandIns:
    """Write small models that replace a spec's models in a rehearsal, and return the replacements.

    A model that the spec itself initialises at random is not replaced. A data set that is not on this machine is replaced
    by generated questions.

    Args:
        spec: The spec.
        folder: The spec's folder, where relative paths start.
        target: Folder for the small models.

    Raises:
        Problem: a model or data set on this machine cannot be read.
    """
    models: dict[str, StandIn] = {}
    for model in values_of(spec.study, Model):
        source_digest = digest(model.source)
        if source_digest not in models and not isinstance(model.source, Architecture):
            models[source_digest] = _make_double(model, folder, target / source_digest[:16])
    data: dict[str, tuple[DataSource, ...]] = {}
    for data_set in values_of(spec.study, Data):
        if _is_absent(data_set, folder):
            data.setdefault(name_data(data_set), (_make_sums(data_set, len(data)),))
    return StandIns(models, data)


def _make_double(model: Model, folder: Path, target: Path) -> StandIn:
    """Write a small model that replaces a model, and return it with a description.

    It has the model's architecture, tokenizer and chat template. If the model's config or tokenizer is not on this machine,
    it is a small Qwen3 with a byte-level tokenizer (a token for each byte) and a made-up chat template.

    Args:
        model: The model to replace.
        folder: The spec's folder, where relative paths start.
        target: Folder for the small model.
    """
    from runners.models.double import double_of, draw_double, make_up_model

    stored = _find_folder(model, folder)
    seed = int(digest(model.source)[:8], 16)
    description = "a small model ran, of the same architecture with two layers of width 64 and random weights"
    if stored is not None:
        double_of(stored, target, seed)
        description += ", with the model's tokenizer and chat template"
    else:
        marks = tuple(mark for mark in (model.think_open, model.think_close) if mark)
        draw_double(*make_up_model(marks, model.context), target, seed)
        description = (
            "config and tokenizer are not on this machine; a Qwen3 with two layers of width 64, a token for each byte"
            " and a made-up chat template ran"
        )
    return StandIn(Folder(path=str(target.resolve())), description, byte_level=stored is None)


def _find_folder(model: Model, folder: Path) -> Path | None:
    """Return the folder with a model's config and tokenizer on this machine; None if either file is missing.

    For a model behind a server it is the folder of the tokenizer that the spec names. Weights are not needed.
    """
    source = model.source
    match source.tokenizer if isinstance(source, ServedModel) else source:
        case Folder(path=path):
            stored: Path | None = folder / path
        case Hub(repo=repo, revision=revision):
            stored = hub_snapshot("models", repo, revision)
        case _:
            return None
    is_complete = stored is not None and all(
        (stored / name).is_file() for name in ("config.json", "tokenizer.json")
    )
    return stored if is_complete else None


def _is_absent(data: Data, folder: Path) -> bool:
    """Return whether any source of a data set is missing on this machine.

    A mistake in a present file does not count.
    """
    files = [folder / source.path for source in data.sources if isinstance(source, File)]
    if any(not path.exists() for path in files):
        return True
    # E0706 is a mistake in a present file, which the run itself reports; other problems are missing sources.
    return any(problem.code != "E0706" for problem in source_problems(data, folder))


def _make_sums(data: Data, index: int) -> TaskData:
    """Return a source of `QUESTIONS` generated sums, which replaces a missing data set.

    The questions have worked solutions (traces) if the data set names a column of solutions.

    Args:
        data: The data set.
        index: Number of the replaced data set, which makes its questions differ from those of other data sets.
    """
    task = FoldTask(
        modulus=10,
        values=_DIGITS,
        operations=tuple(f"{sign}{digit}" for sign in "+-" for digit in _DIGITS[1:]),
        labels=tuple("abcd"),
        question="Start at {start} and go on modulo 10. {steps} Where do you end?",
        step="{label}: {op}.",
        length=(2, 4),
    )
    has_traces = any(isinstance(source, (File, HubData)) and source.columns.trace for source in data.sources)
    return TaskData(task=task, count=QUESTIONS, seed=index + 1, traces=_solutions() if has_traces else None)


def _solutions() -> FoldTraces:
    style = TraceStyle(name="plain", template="{label}: {value} {op} is {next}.")
    return FoldTraces(open="", close="It is {value}.", again="", answer="\\boxed{ {value} }", styles=(style,))
