"""Models, data and suites: from their records to the intermediate representation."""

from __future__ import annotations

from typing import Any, Literal

from reodsl.ir.cluster import Cluster, Hardware
from reodsl.ir.data import (
    After,
    AnswerReader,
    Boxed,
    Columns,
    Data,
    DataSource,
    File,
    Generated,
    HubData,
    LastNumber,
    Marks,
    PackageData,
    Regex,
)
from reodsl.ir.model import (
    Architecture,
    Dimensions,
    Folder,
    Forcing,
    Hub,
    Model,
    ModelSource,
    Package,
    Prompt,
    Wording,
    WordTokenizer,
)
from reodsl.ir.study import Benchmark, Engine, Suite
from reodsl.ir.task import FoldTask, FoldTraces, TraceStyle
from reodsl.ir.training import Sampling
from reodsl.language.resolve import grid_of
from reodsl.language.values import Compound, Items, Record, plain, records_of


def model(record: Record) -> Model:
    """Where its weights come from, how it is asked, and the sizes that are known without them."""
    source, prompt, think = record.part("source"), record.sub("prompt"), record.sub("think")
    dimensions = record.sub("dimensions")
    return Model(
        name=record.name,
        source=_model_source(source),
        context=record.data("context"),
        prompt=Prompt()
        if prompt is None
        else Prompt(**_given(prompt, "kind", "template", "system", "prefix")),
        think_open=think.data("open") if think is not None else None,
        think_close=think.data("close") if think is not None else None,
        dimensions=Dimensions(**_given(dimensions, *dimensions.fields)) if dimensions is not None else None,
        **_given(record, "precision"),
    )


def _given(record: Record, *names: str) -> dict[str, Any]:
    """The settings of these names that a record has, as bare data."""
    return {name: record.data(name) for name in names if record.get(name) is not None}


def _model_source(record: Record) -> ModelSource:
    if record.kind == "hub":
        return Hub(**_given(record, "repo", "revision"))
    if record.kind == "folder":
        return Folder(path=record.data("path"))
    if record.kind == "package":
        return Package(**_given(record, "package", "file"))
    tokenizer = record.part("tokenizer")
    names = [name for name in record.fields if name != "tokenizer"]
    words = WordTokenizer(words=tokenizer.data("words"), eos=tokenizer.data("eos"), pad=tokenizer.data("pad"))
    return Architecture(**_given(record, *names), tokenizer=words)


def forcing(record: Record) -> Forcing:
    """A way to force answers."""
    return Forcing(
        name=record.name, **_given(record, "text", "answer_tokens", "close", "temperature", "top_p")
    )


def wording(record: Record) -> Wording:
    """A way to ask."""
    budget = record.get("budget")
    found = _given(record, "question", "system", "prefix")
    if budget is not None and isinstance(budget.data, Items):
        found["budgets"] = record.data("budget")
    elif budget is not None:
        found["low"], found["high"] = record.data("budget")
    return Wording(name=record.name, **found)


def wordings(record: Record) -> tuple[Wording, ...]:
    """The ways to ask that a record names."""
    return tuple(wording(each) for each in records_of(record, "wordings"))


def data(record: Record) -> Data:
    """A questions table."""
    return Data(
        name=record.name,
        sources=tuple(_data_source(each) for each in records_of(record, "source")),
        verifier=record.data("verifier"),
        answer=_readers(record),
        tolerance=record.data("tolerance"),
        duplicates=record.data("duplicates"),
        strip=_marks(record),
        questions=record.data("questions"),
    )


def _marks(record: Record) -> tuple[Marks, ...]:
    """What is taken off questions."""
    return tuple(Marks(**_given(each, "before", "after")) for each in records_of(record, "strip"))


def _readers(record: Record) -> tuple[AnswerReader, ...]:
    """Where answers are read, in order of preference."""
    value = record.get("answer")
    if value is None or not isinstance(value.data, Items):
        return (Boxed(),)
    readers: list[AnswerReader] = []
    for each in value.data.values:
        if not isinstance(each.data, Record):
            readers.append(Boxed() if plain(each) == "boxed" else LastNumber())
        elif each.data.kind == "after":
            readers.append(After(marker=each.data.data("marker")))
        else:
            readers.append(Regex(pattern=each.data.data("pattern")))
    return tuple(readers)


def _columns(record: Record) -> Columns:
    columns = record.sub("columns")
    return Columns() if columns is None else Columns(**_given(columns, "question", "answer", "trace", "id"))


def _data_source(record: Record) -> DataSource:
    if record.kind == "generated":
        task, written = record.part("task"), record.sub("traces")
        return Generated(
            task=fold_task(task),
            traces=fold_traces(written) if isinstance(written, Compound) else None,
            **_given(record, "count", "seed", "split"),
        )
    if record.kind == "file":
        return File(path=record.data("path"), columns=_columns(record))
    if record.kind == "hub":
        return HubData(columns=_columns(record), **_given(record, "repo", "revision", "name", "split"))
    written = record.sub("traces")
    return PackageData(
        traces=fold_traces(written) if isinstance(written, Compound) else None,
        **_given(record, "package", "task", "count", "seed", "options", "split"),
    )


def fold_task(record: Record) -> FoldTask:
    """A generated task."""
    return FoldTask(
        **_given(record, "modulus", "values", "operations", "labels", "question", "step", "length")
    )


def fold_traces(record: Compound) -> FoldTraces:
    """How worked solutions of a task are written."""
    return FoldTraces(
        styles=tuple(
            TraceStyle(name=s.name, template=s.data("template"), weight=s.data("weight"))
            for s in record.parts
        ),
        **_given(record, *record.fields),
    )


def suite(record: Record) -> Suite:
    """An evaluation suite."""
    asked = record.sub("wording")
    rollout = Sampling(**_given(record, "max_tokens", "temperature", "top_p", "top_k"))
    return Suite(
        name=record.name,
        benchmarks=tuple(benchmark(each) for each in records_of(record, "benchmarks")),
        rollout=rollout,
        forcing=forcing(record.part("forcing")),
        grid=grid_of(record),
        wording=wording(asked) if asked is not None else None,
        **_given(record, "samples", "reg_to", "seed", "expected_length"),
    )


def benchmark(record: Record) -> Benchmark:
    """Named evaluation questions."""
    return Benchmark(name=record.name, data=data(record.part("data")))


def engine(record: Record) -> Engine:
    """What generates a study's responses; where it is left out, the engine for GPUs on a cluster."""
    named: Engine | None = record.data("engine")
    return named or ("sglang" if record.sub("cluster") is not None else "embedded")


def cluster(record: Record) -> Cluster:
    """Where a study or an experiment runs."""
    placement: Literal["colocated", "apart"] = record.data("placement")
    hardware = record.sub("hardware")
    return Cluster(
        name=record.name,
        memory_gib=record.data("memory"),
        placement=placement,
        hardware=Hardware(**_given(hardware, *hardware.fields)) if hardware is not None else None,
        **_given(record, "nodes", "gpus_per_node", "gpu", "tensor_parallel", "rollout_share"),
    )
