"""Stand-ins for weights and questions in a rehearsal: small doubles, and sums where data are missing."""

from __future__ import annotations

from pathlib import Path

from reodsl.ir import Spec
from reodsl.ir.base import digest, values_of
from reodsl.ir.data import Data, DataSource, File, Generated, HubData
from reodsl.ir.model import Architecture, Folder, Hub, Model, Served
from reodsl.ir.task import FoldTask, FoldTraces, TraceStyle
from reodsl.rehearse.shrink import StandIn, StandIns, name_data
from reodsl.store.external import hub_snapshot
from runners.data.load import source_problems

QUESTIONS = 64
_DIGITS = tuple("0123456789")


def stand_ins(spec: Spec, folder: Path, place: Path) -> StandIns:
    """Doubles of the models of a spec, written below `place`, and made-up questions for data that are not here.

    `folder` is where the spec's relative paths start. A model that is drawn from a configuration needs no double. Raises a
    Problem for a model or data set that is here and cannot be read.
    """
    models: dict[str, StandIn] = {}
    for model in values_of(spec.study, Model):
        known = digest(model.source)
        if known not in models and not isinstance(model.source, Architecture):
            models[known] = _double(model, folder, place / known[:16])
    data: dict[str, tuple[DataSource, ...]] = {}
    for each in values_of(spec.study, Data):
        if _is_absent(each, folder):
            data.setdefault(name_data(each), (_sums(each, len(data)),))
    return StandIns(models, data)


def _double(model: Model, folder: Path, place: Path) -> StandIn:
    from runners.models.double import double_of, draw_double, make_up_model

    stored = _folder_of(model, folder)
    seed = int(digest(model.source)[:8], 16)
    words = "a double was run, of the same architecture with two layers of width 64 and drawn weights"
    if stored is not None:
        double_of(stored, place, seed)
        words += ", with its own tokenizer and chat template"
    else:
        marks = tuple(mark for mark in (model.think_open, model.think_close) if mark)
        draw_double(*make_up_model(marks, model.context), place, seed)
        words = (
            "no config and tokenizer are on this machine; a Qwen3 with two layers of width 64, a token for each byte"
            " and a made-up chat template was run"
        )
    return StandIn(Folder(path=str(place.resolve())), words, byte_level=stored is None)


def _folder_of(model: Model, folder: Path) -> Path | None:
    """Return where a model's config and tokenizer are on this machine, weights or not."""
    source = model.source
    match source.tokenizer if isinstance(source, Served) else source:
        case Folder(path=path):
            stored: Path | None = folder / path
        case Hub(repo=repo, revision=revision):
            stored = hub_snapshot("models", repo, revision)
        case _:
            return None
    whole = stored is not None and all(
        (stored / name).is_file() for name in ("config.json", "tokenizer.json")
    )
    return stored if whole else None


def _is_absent(data: Data, folder: Path) -> bool:
    """Return whether a source of the data is not on this machine; one that is here and wrong is the run's to tell of."""
    files = [folder / source.path for source in data.sources if isinstance(source, File)]
    if any(not path.exists() for path in files):
        return True
    # What is here passes for no problem; of files that are here, faults are told by the run.
    return any(each.code != "E0706" for each in source_problems(data, folder))


def _sums(data: Data, number: int) -> Generated:
    """Questions in the place of absent ones, with worked solutions where the data have a column for them."""
    task = FoldTask(
        modulus=10,
        values=_DIGITS,
        operations=tuple(f"{sign}{digit}" for sign in "+-" for digit in _DIGITS[1:]),
        labels=tuple("abcd"),
        question="Start at {start} and go on modulo 10. {steps} Where do you end?",
        step="{label}: {op}.",
        length=(2, 4),
    )
    traced = any(isinstance(each, (File, HubData)) and each.columns.trace for each in data.sources)
    return Generated(task=task, count=QUESTIONS, seed=number + 1, traces=_solutions() if traced else None)


def _solutions() -> FoldTraces:
    style = TraceStyle(name="plain", template="{label}: {value} {op} is {next}.")
    return FoldTraces(open="", close="It is {value}.", again="", answer="\\boxed{ {value} }", styles=(style,))
