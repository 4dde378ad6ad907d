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
    """Lengths of one task in tokens, measured or assumed, and its numbers of questions and draws.

    `trained_share` is the share of a batch's tokens that get a gradient. `questions` are those of the task's data,
    all benchmarks together. `equal` is the share of drawn questions that give no gradient, `draws` how many draws
    a step took for its batch. None: not known.
    """

    length: float | None = None
    prompt: float | None = None
    questions: int | None = None
    trained_share: float = 1.0
    steps: int | None = None
    equal: float | None = None
    draws: float | None = None


def questions_in(data: Mapping[str, Any]) -> int | None:
    """Return how many questions a data payload's sources hold, None if a source neither generates nor declares them."""
    declared = data.get("questions")
    if declared is not None:
        return int(declared)
    counts = [source.get("count") for source in data["sources"]]
    return sum(counts) if counts and None not in counts else None


def prompt_tokens(data: Mapping[str, Any], longest: float) -> float:
    """Return the mean tokens of a prompt: those of a generated task's template, or `PROMPT`, but at most `longest`."""
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
    """Estimate the tokens of a forcing text: its words in a word-level vocabulary, else a third of its letters."""
    return float(len(text.split()) if words else max(1, len(text) // CHARACTERS_PER_TOKEN))


@dataclass(frozen=True, slots=True)
class Past:
    """The last result of a task: its payload, its counts, and its times.

    `seconds` is from start to end; `terms` the part of it that is known by term, all steps together. They are of
    processors if the result has these, which other work on the machine does not stretch; else of the clock. `device`
    is where it ran (`cpu`, `cuda`) and `model` that device's name, empty if the result does not record it.
    `generating` of these generated and `training` trained; 0 if not recorded. `peak` is in bytes.
    """

    task: str
    kind: Kind
    payload: Mapping[str, Any]
    facts: Facts
    seconds: float
    terms: Mapping[Term, float]
    device: str
    model: str = ""
    peak: float | None = None
    generating: int = 0
    training: int = 0


COMPUTES = frozenset({"train", "sample", "evaluate"})
_PARTS: Mapping[str, Term] = {
    "generate": "generation",
    "force": "forcing",
    "grade": "verification",
    "update": "training",
    "score": "training",
}


@dataclass(frozen=True, slots=True)
class PastResults:
    """The last result of each task by its id, and how many questions a `data` task found.

    `light` are the seconds of tasks that compute on no device. `rehearsed` are results of rehearsals with the specs' own
    models, whose times and memory tell something, and whose responses tell nothing.
    """

    results: Mapping[str, Past] = field(default_factory=dict)
    questions: Mapping[str, int] = field(default_factory=dict)
    light: Mapping[str, float] = field(default_factory=dict)
    rehearsed: Mapping[str, Past] = field(default_factory=dict)


def read_history(store: Store, records: tuple[RunRecord, ...], tasks: Collection[str]) -> PastResults:
    """Read the last result of each of `tasks`; results that cannot be read are skipped.

    Without the extra `report` no table can be read, and only rehearsals count.
    """
    if importlib.util.find_spec("polars") is None:
        return PastResults(rehearsed=read_rehearsals(store.root))
    results: dict[str, Past] = {}
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
    return PastResults(results, questions, light, read_rehearsals(store.root))


def _past(store: Store, task: str, manifest: Manifest, material: Mapping[str, Any]) -> Past | None:
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
    return Past(
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
    return float(
        provenance["processor_seconds"] if _ran_on_processors(provenance) else provenance.get("seconds", 0.0)
    )


def _training(
    folder: Path, manifest: Manifest, payload: Mapping[str, Any], processor: bool
) -> tuple[Facts, dict[Term, float]]:
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
    return Facts(length, None, None, share, metrics.height, equal, draws), terms


def _sampling(folder: Path, kind: Kind) -> Facts:
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


def keep_rehearsal(root: Path, study: str, results: Iterable[Past]) -> None:
    """Store the results of a study's rehearsal under `root`, in place of those of the rehearsal before.

    They lie beside the results of runs and are none of them.
    """
    studies = read_object(root / _FILE) or {}
    studies[study] = [asdict(each) for each in results]
    write_atomic(root / _FILE, (json.dumps(studies, indent=1) + "\n").encode())


def read_rehearsals(root: Path) -> dict[str, Past]:
    """Return what rehearsals measured for all studies of a store, by task; those that cannot be read are skipped."""
    results: dict[str, Past] = {}
    for rows in (read_object(root / _FILE) or {}).values():
        try:
            results |= {row["task"]: Past(**row | {"facts": Facts(**row["facts"])}) for row in rows}
        except (TypeError, ValueError, KeyError):
            continue
    return results


class Known:
    """Facts of the tasks of one graph."""

    def __init__(self, graph: Graph, history: PastResults) -> None:
        """Take the last results of the tasks."""
        self.graph, self.history = graph, history

    def facts(self, task: Task) -> Facts:
        """Return a task's facts: those of its last result, if it had as long responses, else declared ones."""
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
        met = task.payload.get("met") if task.kind == "sample" else None
        if met is not None:
            most = met["prompts"] * met["draws"]
            counts = [count if count is None else min(count, most) for count in counts]
        known = [count for count in counts if count is not None]
        weight = sum(count for _, count in prompts)
        mean = sum(tokens * count for tokens, count in prompts) / weight if weight else None
        return sum(known) if known and len(known) == len(counts) else None, mean

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
    """Keep shares without a gradient, as far as the last training drew and rewarded as this one does.

    The share of questions depends on the reward and the number of rollouts. What was trained of a batch depends on whether
    others replace them, and the draws for that on the batch.
    """
    before, method = (payload["stage"]["method"] for payload in (past, now))
    same = {
        name for name in ("reward", "advantage", "batch", "resample") if before.get(name) == method.get(name)
    }
    rollouts = (
        each.get("batch", {})["rollouts"] if method["kind"] == "ppo" else 0 for each in (before, method)
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
    part = task.payload.get("stage") or task.payload.get("suite") or {}
    expected = part.get("expected_length")
    return int(expected) if expected is not None else None
