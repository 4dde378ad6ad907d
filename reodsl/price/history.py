"""Past runs as prices see them: the lengths, seconds and memory of each task's last result."""

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
"""Tokens of a question in its prompt, where it is not generated: about what competition mathematics has."""
SHARE_OF_LONGEST = 1 / 3
"""A mean response's length as a share of the longest, where nobody says: Qwen3-4B's 11.9K of 32K, in the main table."""
SHARE_OF_TRACE = 1 / 2
"""The length of a mean trace as a share of the longest sequence, where nobody says."""
CHARACTERS_PER_TOKEN = 3
"""The characters of a forcing text for each token of a subword vocabulary: mathematical notation has short tokens."""


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
    """Return the number of questions in a data payload's sources; None if any source leaves its number open."""
    declared = data.get("questions")
    if declared is not None:
        return int(declared)
    counts = [source.get("count") for source in data["sources"]]
    return sum(counts) if counts and None not in counts else None


def prompt_tokens(data: Mapping[str, Any], longest: float) -> float:
    """Return the mean tokens of a prompt: those of a generated task's template, or `PROMPT`.

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
    """Seconds from start to end: of processors if the result records these, which other work does not stretch, else of
    the clock."""
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
    """Seconds of tasks that compute on no device."""
    rehearsed: Mapping[str, MeasuredTask] = field(default_factory=dict)
    """Results of rehearsals with the spec's own models: their times and memory count, their responses do not."""


def read_history(store: Store, records: tuple[RunRecord, ...], tasks: Collection[str]) -> History:
    """Read the last result of each of `tasks`; results that cannot be read are skipped.

    Without the extra `report` no table can be read, and only rehearsals count.
    """
    if importlib.util.find_spec("polars") is None:
        return History(rehearsed=read_rehearsals(store.root))
    results: dict[str, MeasuredTask] = {}
    light: dict[str, float] = {}
    questions: dict[str, int] = {}
    last = {task: key for record in records for task, key in record.tasks.items() if task in tasks}
    for task, key in last.items():
        material, manifest = store.material(key), store.get(key)
        # What was accepted for other settings tells nothing of their price.
        if material is None or manifest is None or acceptances(manifest):
            continue
        if material.get("kind") == "data" and questions_in(material["payload"]["data"]) is None:
            with suppress(OSError, ValueError):
                questions[task] = _table(store.path(key) / "questions.parquet", ["id"]).height
        if material.get("kind") not in COMPUTES:
            light[task] = _seconds(manifest.provenance)
        elif (past := _past(store, task, manifest, material)) is not None:
            results[task] = past
    return History(results, questions, light, read_rehearsals(store.root))


def _past(store: Store, task: str, manifest: Manifest, material: Mapping[str, Any]) -> MeasuredTask | None:
    """Return the last result of a task; None if it cannot be read."""
    folder, provenance = store.path(manifest.key), manifest.provenance
    kind: Kind = material["kind"]
    try:
        facts, terms = (
            _training(folder, manifest, material["payload"], _ran_on_processors(provenance))
            if kind == "train"
            else (_sampling(folder, kind), {})
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
    """Return whether a result ran on processors alone and records the time that they spent."""
    return str(provenance.get("device", "")) == "cpu" and provenance.get("processor_seconds") is not None


def _seconds(provenance: Mapping[str, Any]) -> float:
    """Return the seconds of a result, of processors if it records them."""
    return float(
        provenance["processor_seconds"] if _ran_on_processors(provenance) else provenance.get("seconds", 0.0)
    )


def _training(
    folder: Path, manifest: Manifest, payload: Mapping[str, Any], processor: bool
) -> tuple[Facts, dict[Term, float]]:
    """Return the sizes and the seconds by term of a stored training."""
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
    parts = {f"{of}_{phase}": term for phase, term in _PARTS.items()}
    terms = {term: _number(timed[name].sum()) for name, term in parts.items() if name in timed.columns}
    return Facts(length, None, None, share, metrics.height, equal, draws), terms


def _sampling(folder: Path, kind: Kind) -> Facts:
    """Return the sizes of stored responses."""
    if kind == "evaluate":
        summary = json.loads(read_plain(folder / "summary.json", LARGEST_RECORD))
        rows = {name: row for name, row in summary.items() if name != "mean"}
        count = sum(int(row["questions"]) for row in rows.values())
        total = sum(float(row["length"]) * int(row["questions"]) for row in rows.values())
        return Facts(length=total / max(1, count), questions=count)
    table = _table(folder / "samples.parquet", ["question", "tokens"])
    return Facts(length=_number(table["tokens"].mean()), questions=table["question"].n_unique())


def _table(path: Path, columns: list[str] | None = None) -> Any:
    """Read a Parquet file as a frame; a ValueError if it is none."""
    import polars as pl

    try:
        return pl.read_parquet(path, columns=columns, glob=False)
    except pl.exceptions.PolarsError as error:
        raise ValueError(f"{path.name} cannot be read") from error


def _number(value: Any) -> float:
    return float(value) if value is not None else 0.0


_FILE = "rehearsed.json"


def keep_rehearsal(root: Path, study: str, results: Iterable[MeasuredTask]) -> None:
    """Store the results of a study's rehearsal under `root`, in place of its earlier rehearsal.

    They lie beside the results of runs and are not among them.
    """
    studies = read_object(root / _FILE) or {}
    studies[study] = [asdict(result) for result in results]
    write_atomic(root / _FILE, (json.dumps(studies, indent=1) + "\n").encode())


def read_rehearsals(root: Path) -> dict[str, MeasuredTask]:
    """Return the readable results of all rehearsals in a store, by task."""
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
        """Take the last results of the tasks."""
        self.graph, self.history = graph, history

    def facts(self, task: Task) -> Facts:
        """Return a task's sizes: from its last result if its responses had the same limits, else as declared."""
        questions, prompt = self._questions(task)
        past = self.history.results.get(task.id)
        if questions is None and past is not None:
            questions = past.facts.questions
        if (
            past is None
            or past.kind != task.kind
            or _shape(task.kind, past.payload) != _shape(task.kind, task.payload)
        ):
            return Facts(self._chosen_length(task), prompt, questions)
        facts = replace(past.facts, prompt=prompt, questions=questions, steps=None)
        return facts if task.kind != "train" else _gradients(facts, past.payload, task.payload)

    def _questions(self, task: Task) -> tuple[int | None, float | None]:
        """Count the questions that a task reads, traces and pairs each, and average the tokens of their prompts."""
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
                times = _most(self.graph[source].payload)
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
        """Return the length of traces that are chosen from responses: that of responses, unless it is declared."""
        source = self.graph[task.inputs["data"]] if "data" in task.inputs else None
        if source is None or source.kind != "select" or _count_questions(task) is not None:
            return None
        if not source.payload["selection"]["picks"]:
            return None
        pool = self.graph[source.inputs["pool:0"]]
        return float(pool.payload["rollout"]["max_tokens"] * SHARE_OF_LONGEST)


def _most(select: Mapping[str, Any]) -> int:
    """Return the most traces or pairs that a question gives, 1 if questions are kept."""
    responses = int(select["samples"]) * len(select["prefixes"])
    traces = [pick["trace"] or {} for pick in select["selection"]["picks"]]
    return sum(responses if trace.get("fn") == "each" else 1 for trace in traces) or 1


def _gradients(facts: Facts, past: Mapping[str, Any], now: Mapping[str, Any]) -> Facts:
    """Return the sizes with shares without a gradient as far as the last training sampled and rewarded as this one.

    The share of questions depends on the reward and the number of rollouts. The trained share of a batch depends on
    whether questions without a gradient are replaced, and the draws for that on the batch.
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


def _shape(kind: str, payload: Mapping[str, Any]) -> Any:
    if kind == "train":
        method = payload["stage"]["method"]
        return method["kind"], method.get("max_tokens"), (method.get("rollout") or {}).get("max_tokens")
    if kind == "evaluate":
        return payload["suite"]["rollout"], payload["suite"]["grid"]
    return payload["rollout"]


def _count_questions(task: Task) -> int | None:
    block = task.payload.get("stage") or task.payload.get("suite") or {}
    expected = block.get("expected_length")
    return int(expected) if expected is not None else None
