"""What is known of a task before it runs: lengths, prompts and numbers of questions, from past results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from reodsl.graph.task import Graph, Task
from reodsl.price.facts import SHARE_OF_LONGEST, Facts, prompt_tokens, questions_in
from reodsl.price.history import History
from reodsl.price.past import Past


class Known:
    """Facts of the tasks of one graph."""

    def __init__(self, graph: Graph, history: History) -> None:
        """`history` is newest first."""
        self.graph, self.history = graph, history
        self.last: dict[str, Past] = {}
        for past in history.results:
            self.last.setdefault(past.task, past)

    def facts(self, task: Task) -> Facts:
        """Measured on this very task before declared before measured on others like it."""
        questions, prompt = self._questions(task)
        past = self.last.get(task.id)
        like = past if past is not None and _like(past, task) else None
        if like is None and _expected(task) is None:
            like = next((each for each in self.history.results if _like(each, task)), None)
        if questions is None and past is not None:
            questions = past.facts.questions
        if like is None:
            return Facts(self._chosen_length(task), prompt, questions)
        facts = Facts(like.facts.length, prompt, questions, like.facts.trained_share)
        return _gradients(facts, like, task) if task.kind == "train" else facts

    def _questions(self, task: Task) -> tuple[int | None, float | None]:
        """How many questions a task reads, and the mean tokens of their prompts; traces and pairs count each."""
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
        """Where traces are chosen from responses, and nobody says more, they are as long as responses are."""
        source = self.graph[task.inputs["data"]] if "data" in task.inputs else None
        if source is None or source.kind != "select" or _expected(task) is not None:
            return None
        if not source.payload["selection"]["picks"]:
            return None
        pool = self.graph[source.inputs["pool:0"]]
        return float(pool.payload["rollout"]["max_tokens"] * SHARE_OF_LONGEST)


def _most(select: Mapping[str, Any]) -> int:
    """The most traces or pairs that a question gives, 1 where questions are kept."""
    responses = int(select["samples"]) * len(select["prefixes"])
    traces = [pick["trace"] or {} for pick in select["selection"]["picks"]]
    return sum(responses if trace.get("fn") == "each" else 1 for trace in traces) or 1


def _gradients(facts: Facts, past: Past, task: Task) -> Facts:
    """Which questions give a gradient, as far as a past training tells of this one.

    The share that does not is another one under another reward or with more or fewer rollouts. Draws that replaced them were
    counted for one batch, and what was trained of a batch depends on whether they are replaced.
    """
    before, now = past.payload["stage"]["method"], task.payload["stage"]["method"]
    if now["kind"] != "ppo":
        return facts
    if bool(before.get("resample")) != bool(now.get("resample")):
        facts = replace(facts, trained_share=1.0)
    decisive = ("reward", "advantage")
    if (
        any(before[name] != now[name] for name in decisive)
        or before["batch"]["rollouts"] != now["batch"]["rollouts"]
    ):
        return facts
    whole = before["batch"] == now["batch"] and before.get("resample") == now.get("resample")
    return replace(facts, equal=past.facts.equal, draws=past.facts.draws if whole else None)


def _like(past: Past, task: Task) -> bool:
    """Whether a past result's responses tell of the task's: one kind, one method, one longest response."""
    if past.kind != task.kind:
        return False
    return bool(_shape(past.kind, past.payload) == _shape(task.kind, task.payload))


def _shape(kind: str, payload: Mapping[str, Any]) -> Any:
    if kind == "train":
        method = payload["stage"]["method"]
        return method["kind"], method.get("max_tokens"), (method.get("rollout") or {}).get("max_tokens")
    if kind == "evaluate":
        return payload["suite"]["rollout"], payload["suite"]["grid"]
    return payload["rollout"]


def _expected(task: Task) -> int | None:
    part = task.payload.get("stage") or task.payload.get("suite") or {}
    expected = part.get("expected_length")
    return int(expected) if expected is not None else None
