"""The forms of result files: for each the fields that it is known by, and where in a row each of ours is.

A path is names with points between them. `|` separates places, of which the first that holds something is taken. A number is
a place in a list, `*` the only entry of a record, `{a.b}` the name that is written at `a.b`, `a - b` a difference, and `#a`
a short checksum of a text. `[]` at the end is a list with a value for each response. `head` is the file without its rows,
and `file` the benchmark in the file's name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ResultForm:
    """A form: the paths that its rows have, our columns by their paths, and the path of the `rows` in a document."""

    name: str
    has: tuple[str, ...]
    columns: Mapping[str, str]
    rows: str = ""


def _columns(text: str) -> dict[str, str]:
    return dict(each.split(": ", 1) for each in " ".join(text.split()).split(", "))


PLAIN = ResultForm(
    "plain",
    ("correct",),
    _columns("""
        model: model, seed: seed, benchmark: benchmark, question: question|id, sample: sample|epoch, text: text|prompt,
        gold: gold, response: response, tokens: tokens, finish: finish, answer: answer, correct: correct, at: at"""),
)
FORMS = (
    ResultForm(
        "inspect",
        ("id", "epoch", "output.choices"),
        _columns("""
            model: head.eval.metadata.arm|head.eval.model, seed: head.eval.metadata.seed,
            benchmark: head.eval.dataset.name|head.eval.task, question: id, sample: epoch, text: input, gold: target,
            response: output.choices.0.message.content, tokens: output.usage.output_tokens,
            finish: output.choices.0.stop_reason, answer: scores.*.answer, correct: scores.*.value,
            at: metadata.at_budgets"""),
        rows="samples",
    ),
    ResultForm(
        "lighteval",
        ("doc", "model_response", "metric"),
        _columns("""
            benchmark: doc.task_name, question: doc.id, text: doc.query, gold: doc.choices.0,
            response: model_response.text[], tokens: model_response.output_tokens[], correct: metric.*"""),
    ),
    # As its older versions wrote them.
    ResultForm(
        "lighteval",
        ("example", "predictions", "metrics"),
        _columns("""
            benchmark: file, question: #full_prompt|example, text: example, gold: gold.0|gold, response: predictions[],
            tokens: cont_tokens[], correct: metrics.*"""),
    ),
    ResultForm(
        "lm-eval",
        ("doc_id", "resps", "filter", "metrics"),
        _columns("""
            benchmark: file, question: doc_id, text: arguments.gen_args_0.arg_0, gold: target, response: resps.0[],
            correct: {metrics.0}"""),
    ),
    ResultForm(
        "Qwen2.5-Math",
        ("idx", "code", "score"),
        _columns(
            "question: idx, text: question, gold: gt, response: code[], answer: pred[], correct: score[]"
        ),
    ),
    ResultForm(
        "verl",
        ("input", "output", "score", "step"),
        _columns("question: #input, text: input, gold: gts, response: output, correct: acc|score"),
    ),
    ResultForm(
        "AReaL",
        ("task_id", "seqlen", "prompt_len", "completion"),
        _columns("""
            question: task_id, sample: sample_idx, text: prompt, response: completion, tokens: seqlen - prompt_len,
            correct: reward"""),
    ),
    ResultForm(
        "evalchemy",
        ("model_outputs", "expected_answer"),
        _columns("""
            benchmark: head.key, question: id, text: problem, gold: expected_answer, response: model_outputs[],
            answer: model_answers[]"""),
        rows="results.*.examples",
    ),
    ResultForm(
        "evalscope",
        ("index", "sample_score.score.value"),
        _columns("""
            benchmark: file, question: sample_score.group_id, sample: sample_score.generation_index, gold: target,
            answer: sample_score.score.extracted_prediction, join: index,
            correct: sample_score.score.value.{sample_score.score.main_score_name}"""),
    ),
    ResultForm(
        "evalscope",
        ("index", "model_output.choices"),
        _columns("""
            benchmark: file, response: model_output.choices.0.message.content, join: index,
            tokens: model_output.usage.output_tokens, finish: model_output.choices.0.stop_reason"""),
    ),
    ResultForm(
        "RL-Wall",
        ("problem", "responses", "corrects_verl_batched_responses"),
        _columns("""
            question: #problem, text: problem, gold: answer, response: responses[],
            correct: corrects_verl_batched_responses[]"""),
    ),
    ResultForm(
        "OckBench",
        ("problem_id", "correct", "tokens.output_tokens"),
        _columns("question: problem_id, tokens: tokens.output_tokens, correct: correct"),
        rows="results",
    ),
    PLAIN,
)
"""A row has the first form all of whose paths it has."""
SPEEDS = ("output_lens", "ttfts")
"""Fields of a benchmark of speeds, whose responses nobody graded."""
_STEM = re.compile(
    r"(?:.*?(?:reviews|predictions)_|samples_|lmeval_samples_|details_)?(.+?)(?:_\d{4}-\d{2}-\d{2}T.*)?$"
)


def form_of(row: Mapping[str, Any]) -> ResultForm | None:
    """Return the form that a row has, or None."""
    return next((form for form in FORMS if all(find(row, path) is not None for path in form.has)), None)


def benchmark_of(stem: str) -> str:
    """Return the benchmark in a file's name, without what tools put around it: `samples_gsm8k_2026-01-01T…`."""
    match = _STEM.match(stem)
    return match[1] if match else stem


def find(row: Any, path: str) -> Any:
    """Return what is at a path, or None. Raises LookupError where `*` is one of several entries."""
    if path.startswith("#"):
        text = find(row, path[1:])
        return None if text is None else hashlib.sha256(str(text).encode()).hexdigest()[:12]
    if " - " in path:
        one, other = (find(row, part) for part in path.split(" - ", 1))
        return one - other if isinstance(one, int) and isinstance(other, int) else None
    for place in path.removesuffix("[]").split("|"):
        found = _walk(row, place)
        if found is not None:
            return found
    return None


def _walk(value: Any, path: str) -> Any:
    row = value
    for part in re.findall(r"\{[^}]*\}|[^.]+", path):
        name = str(find(row, part[1:-1])) if part.startswith("{") else part
        if isinstance(value, Mapping) and name == "*" and value:
            entries = {key: each for key, each in value.items() if each is not None}
            if len(entries) > 1:
                raise LookupError(f"`{path.split('.*')[0]}` has {', '.join(map(str, entries))}")
            value = next(iter(entries.values()), None)
        elif isinstance(value, Mapping):
            value = value.get(name)
        elif isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value
