"""Past runs as pricing uses them: the lengths, seconds and memory of each task's last result."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from reodsl.graph.task import Graph, Kind, Task
from reodsl.price.value import Term
from reodsl.store.files import LARGEST_RECORD, read_object, read_plain, write_atomic
from reodsl.store.manifest import Manifest
from reodsl.store.runs import RunRecord
from reodsl.store.store import Store, acceptances

PROMPT = 150.0
"""Assumed tokens of a prompt if the question is not from a template: typical for competition mathematics."""
SHARE_OF_LONGEST = 1 / 3
"""Assumed mean length of a response as a share of the longest: Qwen3-4B's 11.9K of 32K, in the paper's main table."""
SHARE_OF_TRACE = 1 / 2
"""Assumed mean length of a trace as a share of the longest sequence."""
CHARACTERS_PER_TOKEN = 3
"""Assumed characters of a forcing text per token of a subword vocabulary: mathematical notation has short tokens."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The lengths and counts of a task, measured or assumed; None for an unknown size."""

    length: float | None = None
    """Mean tokens of a response."""
    prompt: float | None = None
    """Mean tokens of a prompt."""
    questions: int | None = None
    """Questions of the task's data, over all benchmarks."""
    trained_share: float = 1.0
    """Share of a batch's tokens that get a gradient."""
    steps: int | None = None
    """Training steps."""
    equal: float | None = None
    """Share of drawn questions that give no gradient."""
    draws: float | None = None
    """Mean draws of a step for its batch."""


def questions_in(data: Mapping[str, Any]) -> int | None:
    """Return the number of questions in a data set as its settings declare it; None if it is not declared.

    The setting `questions` comes first. Without it, the numbers of all sources are added, if each declares one.

    Args:
        data: payload of a data set.
    """
    declared = data.get("questions")
    if declared is not None:
        return int(declared)
    counts = [source.get("count") for source in data["sources"]]
    return sum(counts) if counts and None not in counts else None


def prompt_tokens(data: Mapping[str, Any], longest: float) -> float:
    """Return the mean number of tokens of a prompt, at most `longest`.

    It counts words: those of a generated question without its steps, and those of a step times the mean number of steps,
    averaged over the generated sources. It is `PROMPT` for a data set without a source of questions made of steps.

    Args:
        data: payload of a data set.
        longest: most tokens of a prompt.
    """
    tasks = [source["task"] for source in data["sources"] if source["kind"] == "generated"]
    tasks = [task for task in tasks if "length" in task]
    if not tasks:
        return min(PROMPT, longest)
    means = []
    for task in tasks:
        low, high = task["length"]
        step = len(task["step"].split())
        means.append(len(task["question"].split()) - 1 + step * (low + high) / 2)
    return float(min(sum(means) / len(means), longest))


def text_tokens(text: str, words: bool) -> float:
    """Return an estimate of a forcing text's tokens.

    Args:
        text: forcing text.
        words: whether the vocabulary has whole words; otherwise a token has `CHARACTERS_PER_TOKEN` characters.
    """
    return float(len(text.split()) if words else max(1, len(text) // CHARACTERS_PER_TOKEN))


@dataclass(frozen=True, slots=True)
class MeasuredTask:
    """The last result of a task, with its times."""

    task: str
    """Id of the task."""
    kind: Kind
    """Kind of the task."""
    payload: Mapping[str, Any]
    """Payload at that time."""
    facts: Facts
    """Measured sizes."""
    seconds: float
    """Seconds of processor time if the result records it, which other programs do not prolong, else of the clock."""
    terms: Mapping[Term, float]
    """Seconds of all steps by term, as far as they are known."""
    device: str
    """Kind of device, `cpu` or `cuda`."""
    model: str = ""
    """Name of the device; empty if not recorded."""
    peak: float | None = None
    """Peak memory in bytes."""
    generating: int = 0
    """Devices that generated; 0 if not recorded."""
    training: int = 0
    """Devices that trained; 0 if not recorded."""


COMPUTES = frozenset({"train", "sample", "evaluate"})
_PARTS: Mapping[str, Term] = {
    "generate": "generation",
    "force": "forcing",
    "grade": "verification",
    "update": "training",
    "score": "training",
}


@dataclass(frozen=True, slots=True)
class History:
    """The last results of tasks, by id."""

    results: Mapping[str, MeasuredTask] = field(default_factory=dict)
    """Results of runs."""
    questions: Mapping[str, int] = field(default_factory=dict)
    """Number of questions that a `data` task found."""
    light: Mapping[str, float] = field(default_factory=dict)
    """Seconds of tasks that need no device, such as `data`."""
    rehearsed: Mapping[str, MeasuredTask] = field(default_factory=dict)
    """Results of rehearsals with the spec's own models, used for times and memory but not for lengths."""


def read_history(store: Store, records: tuple[RunRecord, ...], tasks: Collection[str]) -> History:
    """Read the last result of each of `tasks`.

    Results are skipped if they cannot be read, or if a person accepted them although their settings had changed.
    Without the package polars no table can be read, so the history has only rehearsals.

    Args:
        store: store of the results.
        records: runs, the oldest first.
        tasks: ids of the tasks.
    """
    if importlib.util.find_spec("polars") is None:
        return History(rehearsed=read_rehearsals(store.root))
    results: dict[str, MeasuredTask] = {}
    light: dict[str, float] = {}
    questions: dict[str, int] = {}
    last = {task: key for record in records for task, key in record.tasks.items() if task in tasks}
    for task, key in last.items():
        material, manifest = store.material(key), store.get(key)
        # A result accepted despite changed settings was computed with other settings.
        if material is None or manifest is None or acceptances(manifest):
            continue
        if material.get("kind") == "data" and questions_in(material["payload"]["data"]) is None:
            with suppress(OSError, ValueError):
                questions[task] = _read_table(store.path(key) / "questions.parquet", ["id"]).height
        if material.get("kind") not in COMPUTES:
            light[task] = _seconds(manifest.provenance)
        elif (past := _load(store, task, manifest, material)) is not None:
            results[task] = past
    return History(results, questions, light, read_rehearsals(store.root))


def _load(store: Store, task: str, manifest: Manifest, material: Mapping[str, Any]) -> MeasuredTask | None:
    """Return the result of a `train`, `sample` or `evaluate` task with its times; None if its files cannot be read.

    Args:
        store: store of the results.
        task: id of the task.
        manifest: the result's manifest.
        material: kind and settings of the task at that time.
    """
    folder, provenance = store.path(manifest.key), manifest.provenance
    kind: Kind = material["kind"]
    try:
        facts, terms = (
            _train_facts(folder, manifest, material["payload"], _ran_on_processors(provenance))
            if kind == "train"
            else (_sampling_facts(folder, kind), {})
        )
    except (OSError, ValueError, KeyError):
        return None
    return MeasuredTask(
        task=task,
        kind=kind,
        payload=material["payload"],
        facts=facts,
        seconds=_seconds(provenance),
        terms=terms,
        device=str(provenance.get("device", "")).split(":")[0],
        model=str(provenance.get("device_model") or ""),
        peak=provenance.get("peak_memory"),
        generating=int(provenance.get("engines", 0)) * int(provenance.get("tensor_parallel", 1)),
        training=int(provenance.get("trainers", 0)),
    )


def _ran_on_processors(provenance: Mapping[str, Any]) -> bool:
    """Return whether a result was computed on the CPU and records its processor time."""
    return str(provenance.get("device", "")) == "cpu" and provenance.get("processor_seconds") is not None


def _seconds(provenance: Mapping[str, Any]) -> float:
    """Return the processor time of a result if recorded, else the time of the clock, in seconds."""
    return float(
        provenance["processor_seconds"] if _ran_on_processors(provenance) else provenance.get("seconds", 0.0)
    )


def _train_facts(
    folder: Path, manifest: Manifest, payload: Mapping[str, Any], processor: bool
) -> tuple[Facts, dict[Term, float]]:
    """Return the sizes of a stored training, and the seconds of all its steps by term of the price.

    A term is left out if the training did not record its seconds. The sizes have no length of prompts and no number
    of questions, which the task's settings give. A step may draw questions several times (`rounds` in the metrics); the
    share of equal groups is then a mean over draws, and trained tokens are a share of one draw's tokens.

    Args:
        folder: folder of the result.
        manifest: the result's manifest.
        payload: the task's settings at that time.
        processor: whether seconds are of processor time; otherwise they are of the clock.
    """
    metrics = _read_table(folder / "metrics.parquet")
    tokens = metrics["tokens"]
    # Trainings of finished responses measure no length of their own.
    length = (
        _number(metrics["length"].mean())
        if "length" in metrics.columns
        else _number(tokens.mean()) / int(payload["stage"]["method"]["batch"])
    )
    share, equal, draws = 1.0, None, None
    if "rounds" in metrics.columns:
        draws, tokens = _number(metrics["rounds"].mean()), tokens / metrics["rounds"]
    if "equal_groups" in metrics.columns:
        rounds = metrics["rounds"] if draws else tokens * 0 + 1
        equal = _number((metrics["equal_groups"] * rounds).sum()) / max(1.0, _number(rounds.sum()))
    if "trained_tokens" in metrics.columns:
        share = _number(metrics["trained_tokens"].sum()) / max(1.0, _number(tokens.sum()))
    timed = metrics
    if "timings.parquet" in manifest.files:
        timed = _read_table(folder / "timings.parquet")
    of = "processor" if processor else "seconds"
    parts = {f"{of}_{phase}": term for phase, term in _PARTS.items()}
    terms = {term: _number(timed[name].sum()) for name, term in parts.items() if name in timed.columns}
    return Facts(length, None, None, share, metrics.height, equal, draws), terms


def _sampling_facts(folder: Path, kind: Kind) -> Facts:
    """Return the mean length and the number of questions of the responses that a task stored.

    Args:
        folder: folder of the result.
        kind: `evaluate` or `sample`.
    """
    if kind == "evaluate":
        summary = json.loads(read_plain(folder / "summary.json", LARGEST_RECORD))
        rows = {name: row for name, row in summary.items() if name != "mean"}
        count = sum(int(row["questions"]) for row in rows.values())
        total = sum(float(row["length"]) * int(row["questions"]) for row in rows.values())
        return Facts(length=total / max(1, count), questions=count)
    table = _read_table(folder / "samples.parquet", ["question", "tokens"])
    return Facts(length=_number(table["tokens"].mean()), questions=table["question"].n_unique())


def _read_table(path: Path, columns: list[str] | None = None) -> Any:
    """Read a Parquet file as a frame; an unreadable file is a ValueError."""
    import polars as pl

    try:
        return pl.read_parquet(path, columns=columns, glob=False)
    except pl.exceptions.PolarsError as error:
        raise ValueError(f"{path.name} cannot be read") from error


def _number(value: Any) -> float:
    """Return a value as a float, 0 for None."""
    return float(value) if value is not None else 0.0


_FILE = "rehearsed.json"


def keep_rehearsal(root: Path, study: str, results: Iterable[MeasuredTask]) -> None:
    """Store the results of a study's rehearsal, in place of the results of its earlier rehearsal.

    A rehearsal runs a few steps of each kind of task to measure times and memory. The results of all studies'
    rehearsals are in one file under `root`, and no run reads them as its own results.

    Args:
        root: folder of the store.
        study: name of the study.
        results: results of the rehearsal.
    """
    studies = read_object(root / _FILE) or {}
    studies[study] = [asdict(result) for result in results]
    write_atomic(root / _FILE, (json.dumps(studies, indent=1) + "\n").encode())


def read_rehearsals(root: Path) -> dict[str, MeasuredTask]:
    """Return the readable results of all rehearsals in a store, by the task's id.

    Args:
        root: folder of the store.
    """
    results: dict[str, MeasuredTask] = {}
    for rows in (read_object(root / _FILE) or {}).values():
        try:
            results |= {row["task"]: MeasuredTask(**row | {"facts": Facts(**row["facts"])}) for row in rows}
        except (TypeError, ValueError, KeyError):
            continue
    return results


class TaskFacts:
    """The sizes of the tasks of a graph."""

    def __init__(self, graph: Graph, history: History) -> None:
        """Take the tasks of a graph and their last results."""
        self.graph, self.history = graph, history

    def facts(self, task: Task) -> Facts:
        """Return a task's sizes: measured if its last result had the same limits of length, else as declared."""
        questions, prompt = self._questions(task)
        past = self.history.results.get(task.id)
        if questions is None and past is not None:
            questions = past.facts.questions
        if (
            past is None
            or past.kind != task.kind
            or _length_limits(task.kind, past.payload) != _length_limits(task.kind, task.payload)
        ):
            return Facts(self._chosen_length(task), prompt, questions)
        facts = replace(past.facts, prompt=prompt, questions=questions, steps=None)
        return facts if task.kind != "train" else _adapt_gradients(facts, past.payload, task.payload)

    def _questions(self, task: Task) -> tuple[int | None, float | None]:
        """Return the number of questions, traces or pairs that a task reads, and the mean tokens of their prompts.

        Data of several benchmarks are added up, and a selection counts its largest possible number of picks.

        Returns:
            The number, None if it is unknown; and the tokens, None if the task reads no data.
        """
        longest = float(task.payload["model"]["context"])
        if task.kind == "train":
            longest = float(task.payload["stage"]["method"].get("max_prompt") or longest)
        counts: list[int | None] = []
        prompts = []
        for role, source in task.inputs.items():
            if role.split(":")[0] != "data":
                continue
            times = 1
            if self.graph[source].kind == "select":
                times = _most_picks(self.graph[source].payload)
                source = self.graph[self.graph[source].inputs["pool:0"]].inputs["data"]
            data = self.graph[source].payload["data"]
            count = questions_in(data)
            count = self.history.questions.get(source) if count is None else count
            counts.append(count if count is None else times * count)
            prompts.append((prompt_tokens(data, longest), count or 1))
        reference_of = task.payload.get("met") if task.kind == "sample" else None
        if reference_of is not None:
            most = reference_of["prompts"] * reference_of["draws"]
            counts = [count if count is None else min(count, most) for count in counts]
        counted = [count for count in counts if count is not None]
        weight = sum(count for _, count in prompts)
        mean = sum(tokens * count for tokens, count in prompts) / weight if weight else None
        return sum(counted) if counted and len(counted) == len(counts) else None, mean

    def _chosen_length(self, task: Task) -> float | None:
        """Return the assumed length in tokens of traces that a selection picks from sampled responses.

        Returns:
            None if the task's stage declares a length, or if the task does not train on picked responses.
        """
        source = self.graph[task.inputs["data"]] if "data" in task.inputs else None
        declared = task.payload.get("stage", {}).get("expected_length")
        if source is None or source.kind != "select" or declared is not None:
            return None
        if not source.payload["selection"]["picks"]:
            return None
        pool = self.graph[source.inputs["pool:0"]]
        return float(pool.payload["rollout"]["max_tokens"] * SHARE_OF_LONGEST)


def _most_picks(select: Mapping[str, Any]) -> int:
    """Return the most traces or pairs that a selection picks for a question; 1 if it keeps questions."""
    responses = int(select["samples"]) * len(select["prefixes"])
    traces = [pick["trace"] or {} for pick in select["selection"]["picks"]]
    return sum(responses if trace.get("fn") == "each" else 1 for trace in traces) or 1


def _adapt_gradients(facts: Facts, past: Mapping[str, Any], now: Mapping[str, Any]) -> Facts:
    """Return the sizes of the last result without those that settings changed since then make invalid.

    `equal` is kept if the reward, the advantage and the number of rollouts are the same. `trained_share` is kept if
    questions without a gradient are replaced (`resample`) in both or in neither. `draws` is kept if all these settings
    and the batch are the same.

    Args:
        facts: sizes of the last result.
        past: the task's settings at that time.
        now: the task's present settings.
    """
    before, method = (payload["stage"]["method"] for payload in (past, now))
    same = {
        name for name in ("reward", "advantage", "batch", "resample") if before.get(name) == method.get(name)
    }
    rollouts = (
        settings.get("batch", {})["rollouts"] if method["kind"] == "ppo" else 0
        for settings in (before, method)
    )
    share = facts.trained_share if bool(before.get("resample")) == bool(method.get("resample")) else 1.0
    equal = facts.equal if same >= {"reward", "advantage"} and len(set(rollouts)) == 1 else None
    return replace(facts, trained_share=share, equal=equal, draws=facts.draws if len(same) == 4 else None)


def _length_limits(kind: str, payload: Mapping[str, Any]) -> Any:
    """Return the settings that limit a task's lengths; measured lengths apply as long as these are equal.

    Args:
        kind: kind of the task.
        payload: settings of the task.
    """
    if kind == "train":
        method = payload["stage"]["method"]
        return method["kind"], method.get("max_tokens"), (method.get("rollout") or {}).get("max_tokens")
    if kind == "evaluate":
        return payload["suite"]["rollout"], payload["suite"]["grid"]
    return payload["rollout"]
