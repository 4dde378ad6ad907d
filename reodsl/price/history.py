"""Past runs in a store: what responses, steps and seconds their results tell, for prices to come."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from reodsl.graph.task import Kind
from reodsl.price.facts import Facts, prompt_tokens, questions_in
from reodsl.price.past import Past
from reodsl.price.rehearsed import read_rehearsals
from reodsl.price.sizes import Sizes, from_config
from reodsl.price.value import Term
from reodsl.store.accept import acceptances
from reodsl.store.manifest import Manifest
from reodsl.store.plain import LARGEST_RECORD, read_plain
from reodsl.store.runs import Record
from reodsl.store.store import Store

COMPUTES = frozenset({"train", "sample", "evaluate"})
NEWEST = 48
"""Results that are read at most, the newest of each task: enough to know a machine, few enough to read at once."""
_PARTS: Mapping[str, Term] = {
    "generate": "generation",
    "force": "forcing",
    "grade": "verification",
    "update": "training",
}


@dataclass(frozen=True, slots=True)
class History:
    """Past results, newest first, and how many questions a `data` task found, by its id.

    `light` are the median seconds of tasks that compute on no device, by kind. `rehearsed` are results of rehearsals with
    the specs' own models, whose times and memory tell something, and whose responses tell nothing.
    """

    results: tuple[Past, ...] = ()
    questions: Mapping[str, int] = field(default_factory=dict)
    light: Mapping[str, float] = field(default_factory=dict)
    rehearsed: tuple[Past, ...] = ()


def read_history(store: Store, records: tuple[Record, ...]) -> History:
    """What the newest results of the store's runs tell. Reads tables; leaves out what it cannot read.

    Without the extra `report` there is nothing that reads tables, and so no past.
    """
    if importlib.util.find_spec("polars") is None:
        return History(rehearsed=read_rehearsals(store.root))
    results: list[Past] = []
    light: dict[str, dict[bool, list[float]]] = {}
    for task, key in _newest(records):
        if len(results) == NEWEST:
            break
        material, manifest = store.material(key), store.get(key)
        # What was accepted for other settings tells nothing of their price.
        if material is None or manifest is None or acceptances(manifest):
            continue
        if material.get("kind") not in COMPUTES:
            seconds = light.setdefault(str(material.get("kind")), {})
            seconds.setdefault(_by_processor(manifest.provenance), []).append(_seconds(manifest.provenance))
            continue
        past = _past(store, task, manifest, material)
        if past is not None:
            results.append(past)
    medians = {kind: median(seconds.get(True) or seconds[False]) for kind, seconds in light.items()}
    return History(tuple(results), _questions(store, records), medians, read_rehearsals(store.root))


def _newest(records: tuple[Record, ...]) -> Iterator[tuple[str, str]]:
    """The last result of every task of every study, as (task, key), newest runs first."""
    seen: set[tuple[str, str]] = set()
    for record in reversed(records):
        for task, key in record.tasks.items():
            if (record.study, task) not in seen:
                seen.add((record.study, task))
                yield task, key


def _questions(store: Store, records: tuple[Record, ...]) -> dict[str, int]:
    """Rows of the data whose payload does not tell them."""
    rows_by_task: dict[str, int] = {}
    for record in reversed(records[-8:]):
        for task, key in record.tasks.items():
            if not task.endswith(".data") or task in rows_by_task or store.get(key) is None:
                continue
            material = store.material(key)
            if material is None or questions_in(material["payload"]["data"]) is not None:
                continue
            import polars as pl

            try:
                rows = (
                    pl.scan_parquet(store.path(key) / "questions.parquet", glob=False)
                    .select(pl.len())
                    .collect()
                    .item()
                )
            except (OSError, pl.exceptions.PolarsError):
                continue
            rows_by_task[task] = int(rows)
    return rows_by_task


def _past(store: Store, task: str, manifest: Manifest, material: Mapping[str, Any]) -> Past | None:
    folder = store.path(manifest.key)
    kind: Kind = material["kind"]
    provenance = manifest.provenance
    sizes = _sizes(store, folder, provenance)
    if sizes is None:
        return None
    try:
        facts, terms, mismatch = (
            _training(folder, manifest, material["payload"], _by_processor(provenance))
            if kind == "train"
            else (_sampling(folder, kind), {}, None)
        )
    except (OSError, ValueError, KeyError):
        return None
    prompt = _prompt(store, provenance, material["payload"])
    return Past(
        task=task,
        kind=kind,
        payload=material["payload"],
        sizes=sizes,
        facts=replace(facts, prompt=prompt),
        seconds=_seconds(provenance),
        terms=terms,
        device=str(provenance.get("device", "")).split(":")[0],
        words=sizes.vocabulary < 1000,
        model=str(provenance.get("device_model") or ""),
        peak=provenance.get("peak_memory"),
        processor=_by_processor(provenance),
        generating=int(provenance.get("engines", 0)) * int(provenance.get("tensor_parallel", 1)),
        training=int(provenance.get("trainers", 0)),
        tensor_parallel=int(provenance.get("tensor_parallel", 1)),
        mismatch=mismatch,
    )


def _by_processor(provenance: Mapping[str, Any]) -> bool:
    """Whether a result tells what it took of processors, and they were all that it needed."""
    return str(provenance.get("device", "")) == "cpu" and provenance.get("processor_seconds") is not None


def _seconds(provenance: Mapping[str, Any]) -> float:
    return float(
        provenance["processor_seconds"] if _by_processor(provenance) else provenance.get("seconds", 0.0)
    )


def _sizes(store: Store, folder: Path, provenance: Mapping[str, Any]) -> Sizes | None:
    """From the checkpoint that the task made or read."""
    places = [folder]
    start = provenance.get("inputs", {}).get("start")
    if start:
        places.append(store.path(start))
    for place in places:
        try:
            config = json.loads(read_plain(place / "checkpoint" / "config.json", LARGEST_RECORD))
        except (OSError, ValueError):
            continue
        return from_config(config) if isinstance(config, dict) else None
    return None


def _training(
    folder: Path, manifest: Manifest, payload: Mapping[str, Any], processor: bool
) -> tuple[Facts, dict[Term, float], float | None]:
    metrics = _table(folder / "metrics.parquet")
    if "length" in metrics.columns:
        length = _number(metrics["length"].mean())
    else:
        length = _number(metrics["tokens"].mean()) / int(payload["stage"]["method"]["batch"])
    share, equal, draws = 1.0, None, None
    tokens = metrics["tokens"]
    if "rounds" in metrics.columns:
        draws, tokens = _number(metrics["rounds"].mean()), tokens / metrics["rounds"]
    if "equal_groups" in metrics.columns:
        rounds = metrics["rounds"] if draws else tokens * 0 + 1
        equal = _number((metrics["equal_groups"] * rounds).sum()) / max(1.0, _number(rounds.sum()))
    if "trained_tokens" in metrics.columns:
        share = _number(metrics["trained_tokens"].sum()) / max(1.0, _number(tokens.sum()))
    timed = metrics
    if "timings.parquet" in manifest.files:
        timed = _table(folder / "timings.parquet")
    of = "processor" if processor else "seconds"
    parts = {f"{of}_{part}": term for part, term in _PARTS.items()}
    terms = {term: _number(timed[name].sum()) for name, term in parts.items() if name in timed.columns}
    mismatch = metrics["mismatch_median"].median() if "mismatch_median" in metrics.columns else None
    facts = Facts(length, None, None, share, metrics.height, equal, draws)
    return facts, terms, None if mismatch is None else float(mismatch)


def _sampling(folder: Path, kind: Kind) -> Facts:
    if kind == "evaluate":
        summary = json.loads(read_plain(folder / "summary.json", LARGEST_RECORD))
        rows = {name: row for name, row in summary.items() if name != "mean"}
        count = sum(int(row["questions"]) for row in rows.values())
        total = sum(float(row["length"]) * int(row["questions"]) for row in rows.values())
        return Facts(length=total / max(1, count), questions=count)
    table = _table(folder / "samples.parquet", ["question", "tokens"])
    return Facts(length=_number(table["tokens"].mean()), questions=table["question"].n_unique())


def _prompt(store: Store, provenance: Mapping[str, Any], payload: Mapping[str, Any]) -> float | None:
    longest = float(payload["model"]["context"])
    if "stage" in payload:
        longest = float(payload["stage"]["method"].get("max_prompt") or longest)
    prompts = []
    for role, key in provenance.get("inputs", {}).items():
        if role.split(":")[0] == "data":
            material = store.material(key)
            data = material["payload"].get("data") if material is not None else None
            if data is not None:
                prompts.append((prompt_tokens(data, longest), questions_in(data) or 1))
    weight = sum(count for _, count in prompts)
    return sum(mean * count for mean, count in prompts) / weight if weight else None


def _table(path: Path, columns: list[str] | None = None) -> Any:
    """A Parquet file as a frame. A ValueError where it is none."""
    import polars as pl

    try:
        return pl.read_parquet(path, columns=columns, glob=False)
    except pl.exceptions.PolarsError as error:
        raise ValueError(f"{path.name} cannot be read") from error


def _number(value: Any) -> float:
    return float(value) if value is not None else 0.0
