"""Stand-ins for weights and questions in a rehearsal: small doubles, and sums where data are missing."""

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
_DIGITS = tuple("0123456789")


def stand_ins(spec: Spec, folder: Path, target: Path) -> StandIns:
    """Return doubles of a spec's models, written below `target`, and made-up questions for data that are not here.

    `folder` is where the spec's relative paths start. A model that is drawn from a configuration needs no double. Raises a
    Problem for a model or data set that is here and cannot be read.
    """
    models: dict[str, StandIn] = {}
    for model in values_of(spec.study, Model):
        source_digest = digest(model.source)
        if source_digest not in models and not isinstance(model.source, Architecture):
            models[source_digest] = _double(model, folder, target / source_digest[:16])
    data: dict[str, tuple[DataSource, ...]] = {}
    for data_set in values_of(spec.study, Data):
        if _is_absent(data_set, folder):
            data.setdefault(name_data(data_set), (_sums(data_set, len(data)),))
    return StandIns(models, data)


def _double(model: Model, folder: Path, target: Path) -> StandIn:
    """Write a small model with the tokenizer and architecture of `model`, or a made-up one if its files are not here."""
    from runners.models.double import double_of, draw_double, make_up_model

    stored = _folder_of(model, folder)
    seed = int(digest(model.source)[:8], 16)
    words = "a double was run, of the same architecture with two layers of width 64 and drawn weights"
    if stored is not None:
        double_of(stored, target, seed)
        words += ", with its own tokenizer and chat template"
    else:
        marks = tuple(mark for mark in (model.think_open, model.think_close) if mark)
        draw_double(*make_up_model(marks, model.context), target, seed)
        words = (
            "no config and tokenizer are on this machine; a Qwen3 with two layers of width 64, a token for each byte"
            " and a made-up chat template was run"
        )
    return StandIn(Folder(path=str(target.resolve())), words, byte_level=stored is None)


def _folder_of(model: Model, folder: Path) -> Path | None:
    """Return where a model's config and tokenizer are on this machine, weights or not."""
    source = model.source
    match source.tokenizer if isinstance(source, ServedModel) else source:
        case Folder(path=path):
            stored: Path | None = folder / path
        case Hub(repo=repo, revision=revision):
            stored = hub_snapshot("models", repo, revision)
        case _:
            return None
    complete = stored is not None and all(
        (stored / name).is_file() for name in ("config.json", "tokenizer.json")
    )
    return stored if complete else None


def _is_absent(data: Data, folder: Path) -> bool:
    """Return whether a source of the data is missing on this machine; the run itself reports a faulty source."""
    files = [folder / source.path for source in data.sources if isinstance(source, File)]
    if any(not path.exists() for path in files):
        return True
    # What is here passes for no problem; of files that are here, faults are told by the run.
    return any(problem.code != "E0706" for problem in source_problems(data, folder))


def _sums(data: Data, number: int) -> TaskData:
    """Return generated questions for absent data, with worked solutions if the data have a column for solutions."""
    task = FoldTask(
        modulus=10,
        values=_DIGITS,
        operations=tuple(f"{sign}{digit}" for sign in "+-" for digit in _DIGITS[1:]),
        labels=tuple("abcd"),
        question="Start at {start} and go on modulo 10. {steps} Where do you end?",
        step="{label}: {op}.",
        length=(2, 4),
    )
    traced = any(isinstance(source, (File, HubData)) and source.columns.trace for source in data.sources)
    return TaskData(task=task, count=QUESTIONS, seed=number + 1, traces=_solutions() if traced else None)


def _solutions() -> FoldTraces:
    style = TraceStyle(name="plain", template="{label}: {value} {op} is {next}.")
    return FoldTraces(open="", close="It is {value}.", again="", answer="\\boxed{ {value} }", styles=(style,))
