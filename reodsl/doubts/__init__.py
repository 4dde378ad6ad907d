"""Doubts about results: warnings of finished tasks and runs whose numbers mislead.

They are about questions with the markup of a chat, doubtful reference answers, and questions that are both trained and
evaluated on; about data that a setting leaves out; about responses without an answer or an end; and about trainings that
learned nothing.

The compiler refuses equal sources; this module finds equal questions in different files, whatever their spelling, chat
markup, wording in the study, or template.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from reodsl.diagnostics import Diagnostic, group, in_percent, listed, note, warning
from reodsl.diagnostics.model import quote, shorten_text
from reodsl.graph.task import Graph, Task
from reodsl.ir.chat import find_turn, question_key
from reodsl.ir.data import Grading, normal_question
from reodsl.numbers.unsettled import (
    count_kinds,
    count_reasons,
    list_tables,
    say_counted,
    say_failed,
    say_reasons,
)

Findings = dict[str, list[Diagnostic]]
"""Diagnostics by the id of the task that they are about."""


MOST = 0.1
"""The share of left-out data above which it is a warning rather than a note."""
FACTS = {"train": "train.json", "data": "left_out.json"}
"""The file of a result that counts left-out rows, by kind of task; a data set that leaves nothing out has no file."""
_PREFIX = "left_out_"
DROPS = "duplicates = drop"
_HELP = {
    "question_min(…)": "take more rollouts, or a checkpoint that solves more of them",
    DROPS: "remove these rows from the data; `duplicates = error` lists them",
}


@dataclass(frozen=True, slots=True)
class LeftOutRows:
    """The rows that one setting leaves out of a task's data."""

    count: int
    """Rows left out."""
    total: int
    """All rows."""
    unit: str
    """Name of the rows: `questions`, `traces`, `pairs`, or `rows` of a data set."""
    reason: str
    """Reason as a relative clause."""
    setting: str
    """Setting that leaves the rows out."""

    @property
    def share(self) -> float:
        """Return the share that is left out.

        Returns:
            Number from 0 to 1.
        """
        return self.count / self.total


def left_out_counts(method: Mapping[str, Any], facts: Mapping[str, Any]) -> list[LeftOutRows]:
    """Return the rows that each setting leaves out of a stage's or a data set's data.

    A setting that leaves out no row is not listed, so the list may be empty.

    Args:
        method: settings of the stage's method; empty for a data set.
        facts: content of `train.json` or `left_out.json`, or the same counts from a task's progress.
    """
    unit = next((name for name in ("questions", "traces", "pairs", "rows") if name in facts), None)
    counts = {name: int(facts.get(_PREFIX + name, 0)) for name in ("too_long", "without_budget", "repeated")}
    if unit is None or not any(counts.values()):
        return []
    name, subject = ("max_prompt", "prompt is") if "max_prompt" in method else ("max_tokens", "tokens are")
    reasons = {
        "too_long": (f"whose {subject} longer than `{name}`", f"{name} = {method.get(name)} tokens"),
        "without_budget": ("for which no checkpoint gives a budget", "question_min(…)"),
        "repeated": ("that ask an earlier question again", DROPS),
    }
    total = int(facts[unit]) + sum(counts.values())
    return [LeftOutRows(count, total, unit, *reasons[why]) for why, count in counts.items() if count]


def report_left_out(task: Task, facts: Mapping[str, Any]) -> list[Diagnostic]:
    """Return a diagnostic for each setting that leaves out rows of a task's data.

    It is the warning W0807 if the setting leaves out more than a tenth of the rows (`MOST`), else the note N0807.
    Rows dropped as duplicates are reported for the data set alone. A training on this data set does not report them.

    Args:
        task: The task of a training or of a data set.
        facts: The numbers of kept and left-out rows, by name, that the finished task wrote.
    """
    trained = task.kind == "train"
    method, verb = (task.payload["stage"]["method"], "not trained on") if trained else ({}, "dropped")
    diagnostics = []
    for count in left_out_counts(method, facts):
        if trained and count.setting == DROPS:
            continue
        make, code = (warning, "W0807") if count.share > MOST else (note, "N0807")
        diagnostics.append(
            make(
                code,
                f"{count.count:,} of {count.total:,} {count.unit} are {verb}: those {count.reason}",
                where=task.id,
                notes=[f"excluded by `{count.setting}`"],
                help=_HELP.get(count.setting, "raise it, or remove these rows from the data"),
            )
        )
    return diagnostics


def find_left_out(task: Task, folder: Path) -> list[Diagnostic]:
    """Return the findings on left-out data of a finished training or data set."""
    return report_left_out(task, json.loads((folder / FACTS[task.kind]).read_bytes()))


_CAUSES = 3
"""The most reasons of failures that a warning lists."""


def warn_failing(task: Task, counts: Mapping[str, float], reasons: Sequence[tuple[str, int]]) -> Diagnostic:
    """Return the warning (W0810) of failures of a verifier or of the reward's Python.

    Args:
        task: task with the failures.
        counts: number of failures by kind.
        reasons: causes with their counts; empty before the task ends.
    """
    return warning(
        "W0810",
        f"{say_failed(counts)}{'' if reasons else ' so far'}",
        where=task.id,
        notes=[*say_reasons(reasons, _CAUSES), say_counted(counts)],
        help="fix the function for these responses, which have a reason in the column `unsettled` of the task's table",
    )


def find_failing(task: Task, folder: Path) -> list[Diagnostic]:
    """Return a warning (W0810) if a verifier or the reward's Python failed on responses of a task, else nothing.

    The failures are read from the tables in the folder of the task's result.
    """
    reasons = count_reasons(list_tables(folder))
    return [warn_failing(task, count_kinds(reasons), reasons)] if reasons else []


LEAST_GRADIENT = 1e-3
"""The norm above which a gradient is more than rounding error."""
FEW_ANSWERED = 0.5
"""The share of ended responses with an answer below which there is a warning."""
LEAST = 8
"""The least number of ended responses for a warning."""
_SHOWN = 60
_TRAININGS = 12
_MARK = re.compile(r"####\s*\S")
_NUMBER = re.compile(r"[0-9]")


def find_unanswered(task: Task, folder: Path) -> list[Diagnostic]:
    """Return a warning (W0804) for each benchmark on which most ended responses have no answer.

    Responses that were cut at the longest length are not counted, since they could not finish with an answer. A
    benchmark with fewer than `LEAST` ended responses gets no warning.
    """
    columns = ["benchmark", "response", "finish", "answer"]
    samples = pl.read_parquet(folder / "samples.parquet", columns=columns, glob=False)
    benchmarks = samples.filter(pl.col("finish") == "stop").group_by("benchmark", maintain_order=True)
    warnings = (_warn_benchmark(task, str(name), rows) for (name,), rows in benchmarks)
    return [warning_ for warning_ in warnings if warning_ is not None]


def warn_unanswered_step(task: Task, answered: float) -> Diagnostic:
    """Return the warning (W0804) of a training step with many ended responses without an answer.

    Args:
        task: the training.
        answered: share of ended responses with an answer.
    """
    return _warn_unanswered(
        task.id, f"{in_percent(1 - answered)}% of the responses that ended", task.payload["stage"]["data"], ()
    )


def _warn_benchmark(task: Task, benchmark: str, rows: pl.DataFrame) -> Diagnostic | None:
    """Return the warning (W0804) of a benchmark if most of its ended responses have no answer, else None.

    With fewer than `LEAST` ended responses it is None too.

    Args:
        task: the evaluation.
        benchmark: name of the benchmark.
        rows: ended responses to its questions.
    """
    silent = rows.filter(pl.col("answer").is_null())
    if rows.height < LEAST or silent.height <= (1 - FEW_ANSWERED) * rows.height:
        return None
    data = next(
        benchmark_["data"]
        for benchmark_ in task.payload["suite"]["benchmarks"]
        if benchmark_["name"] == benchmark
    )
    ends = [" ".join(text[-4 * _SHOWN :].split())[-_SHOWN:] for text in silent["response"].head(20)]
    share = f"{silent.height} of {rows.height} responses to `{benchmark}` that ended"
    return _warn_unanswered(task.id, share, data, ends)


def _warn_unanswered(where: str, share: str, data: Mapping[str, object], ends: Iterable[str]) -> Diagnostic:
    """Return the warning W0804, with advice on the setting `answer` that might find the answers.

    Args:
        where: id of the task.
        share: subject of the message: how many responses have no answer, in words.
        data: settings of the data, among them how an answer is found in a response.
        ends: last characters of some responses without an answer; empty if no response is at hand.
    """
    last = list(ends)
    settings = {name: data[name] for name in ("verifier", "answer", "tolerance") if name in data}
    read = f"`answer = {Grading.model_validate(settings).words}`"
    advice = f"say how to find it: {_suggest_answer(last)} in the data"
    if data.get("thinking") == "skip":
        read += " found no answer after the thinking"
        advice += "; if the model does not think, or never closes its thinking, remove `thinking = skip`"
    else:
        read += " found no answer"
    return warning(
        "W0804",
        f"{share} have no answer: {read}",
        where=where,
        notes=[f"the first ends in: …{last[0]}"] if last else [],
        help=f"they count as wrong; if they have an answer, {advice}",
    )


def _suggest_answer(ends: list[str]) -> str:
    """Return the setting `answer` that would read what some responses end in."""
    if any(_MARK.search(end) for end in ends):
        return '`answer = after("####")`'
    if sum(_NUMBER.search(end) is not None for end in ends) > len(ends) / 2:
        return "`answer = last_number`"
    return '`answer = after("…")` or `answer = regex("…")`'


def find_inexact(task: Task, folder: Path) -> list[Diagnostic]:
    """Return a warning (W0809) for each reason why an evaluation's answers may differ from its model's answers.

    An evaluation of a served model records these reasons in its curves, as `inexact`.
    """
    curves = json.loads((folder / "curves.json").read_bytes())
    reasons: list[str] = next((curve.get("inexact", []) for curve in curves.values()), [])
    return [
        warning("W0809", _INEXACT[reason][0], where=task.id, help=_INEXACT[reason][1])
        for reason in reasons
        if reason in _INEXACT
    ]


_INEXACT = {
    "retokenised": (
        "responses came as texts, so answers were forced after tokens that may not be the model's own",
        "exact ones come from a server that replies token ids, as vLLM and SGLang do",
    ),
    "asked_as_text": (
        "the server took prompts as texts alone, so it read tokens of its own where a response was cut",
        "exact ones come from a server that takes prompts of token ids, as vLLM and SGLang do",
    ),
    "cut_again": (
        "the server's texts have a few tokens more by the tokenizer here than it counted, and were cut at `max_tokens`",
        "exact ones come from a server that replies token ids, as vLLM and SGLang do",
    ),
    "unrepeatable": (
        "the server gave two answers to the same greedy request",
        "evaluate again to see how far the numbers move; vLLM has `VLLM_BATCH_INVARIANT=1`, and SGLang"
        " `--enable-deterministic-inference`",
    ),
}
"""Reasons why an evaluation is inexact, as its curves name them: the message and the advice for each."""


def find_unended(folder: Path) -> list[Diagnostic]:
    """Return a warning (W0801) on the arms of which every response was cut at the longest length.

    It is one warning for all these arms, and none if there is no such arm. Unreadable summaries are skipped.

    Args:
        folder: folder of the run.
    """
    lengths: dict[str, float] = {}
    for summary in sorted((folder / "arms").glob("*/summary.json")):
        try:
            mean = json.loads(summary.read_bytes())["mean"]
            cut, length = float(mean["unfinished"]), float(mean["length"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if cut >= 1:
            lengths[summary.parent.name] = length
    if not lengths:
        return []
    names = [f"`{name}`" for name in lengths]
    length = sum(lengths.values()) / len(lengths)
    return [
        warning(
            "W0801",
            f"no response of {listed(names, _TRAININGS)} ended: all were cut, at {length:g} tokens on average",
            where=str(folder / "arms" / next(iter(lengths))) if len(lengths) == 1 else str(folder / "arms"),
            help="raise the suite's `max_tokens`, or train longer; what a response answered before it was cut counts, "
            "in its thinking too unless its data say `thinking = skip`",
        )
    ]


def unlearnt(folder: Path) -> list[Diagnostic]:
    """Return a warning (W0803) on the stages of a run that learned nothing; empty if there is no such stage.

    At every step of such a stage, all responses to a question earned the same reward, so no advantage differed from 0.

    Args:
        folder: folder of the run.
    """
    idle = [
        (arm, stage, count, silent)
        for arm in sorted(path for path in (folder / "arms").glob("*") if path.is_dir())
        for stage, count, silent in _idle_stages(arm)
    ]
    if not idle:
        return []
    names = [f"`{arm.name}`" + (f", stage {stage + 1}" if count > 1 else "") for arm, stage, count, _ in idle]
    remedy = (
        "most responses have no answer that the data's setting `answer` finds: say there how to find it"
        if all(silent for *_, silent in idle)
        else "begin from a model that is sometimes right, take easier questions or more `rollouts`, "
        "or let responses be longer"
    )
    return [
        warning(
            "W0803",
            f"nothing was learned in {listed(names, _TRAININGS, '; ')}: "
            "at every step, all responses to a question earned the same",
            where=str(idle[0][0]) if len(idle) == 1 else str(folder / "arms"),
            help=remedy,
        )
    ]


def _idle_stages(arm: Path) -> list[tuple[int, int, bool]]:
    """Return the stages of an arm that never had an advantage or a teacher to learn from.

    A stage is skipped if its table of metrics cannot be read or has no shares of equal groups.

    Args:
        arm: folder of the arm in the run's folder.

    Returns:
        For each of these stages its index, the number of the arm's stages, and whether most ended responses had no
        answer.
    """
    metrics = sorted((arm / "stages").glob("*/metrics.parquet"))
    idle = []
    for path in metrics:
        try:
            table = pl.read_parquet(path, glob=False)
            equal = table["equal_groups"]
        except (OSError, pl.exceptions.PolarsError):
            continue
        if len(equal) and equal.null_count() == 0 and bool((equal >= 1).all()) and not _has_teacher(table):
            answered = float(table["answered"].mean() or 0) if "answered" in table.columns else 1.0  # type: ignore[arg-type]
            idle.append((int(path.parent.name), len(metrics), answered < FEW_ANSWERED))
    return idle


def _has_teacher(table: pl.DataFrame) -> bool:
    """Return whether a training learned from a divergence to a teacher or reference model.

    It did if its metrics have a KL divergence and a gradient norm above `LEAST_GRADIENT` at any step.

    Args:
        table: the training's metrics, a row for each step.
    """
    learns = {"kl", "grad_norm"} <= set(table.columns)
    return learns and float(table["grad_norm"].max() or 0) > LEAST_GRADIENT  # type: ignore[arg-type]


_LONGEST = 300
"""The longest marker, in characters, that a warning quotes."""
_LINES = 5


def find_chats(task: Task, folder: Path) -> list[Diagnostic]:
    """Return a warning (W0714) if questions of a table contain the markup of a known chat format."""
    table = pl.read_parquet(folder / "questions.parquet", columns=["question"], glob=False)
    return marks_left(table["question"].drop_nulls().to_list(), task.id)


def marks_left(questions: Sequence[str], where: str) -> list[Diagnostic]:
    """Return the warning (W0714) of questions with chat markup, with the setting that removes this markup.

    The list is empty if no question has the markup of a known chat format.

    Args:
        questions: texts of the questions.
        where: id of the task.
    """
    turns = [(text, turn) for text in questions if (turn := find_turn(text)) is not None]
    if not turns:
        return []
    text, first = turns[0]
    parts = [
        f"{name}: {quote(mark.strip())}"
        for name, mark in (("before", first.before), ("after", first.after))
        if mark.strip() and len(mark) <= _LONGEST
    ]
    return [
        warning(
            "W0714",
            f"{len(turns)} of {len(questions)} questions contain chat markup ({first.format})",
            where=where,
            notes=(f"the first is: {shorten_text(text)}",),
            help=f"remove it, since a prompt adds the model's own: write `strip = marks({', '.join(parts) or '…'})`",
        )
    ]


def find_doubtful(task: Task, folder: Path) -> list[Diagnostic]:
    """Return a warning (W0716) if a table of questions has reference answers that no parser can read.

    Args:
        task: the `data` task.
        folder: folder of its result, with the file `references.json`.
    """
    references = json.loads((folder / "references.json").read_text("utf-8"))
    facts, rows = references["unread"], references["rows"]
    if not facts["count"]:
        return []
    first = facts["first"]
    answers = [shorten_text(row["answer"].replace("\x1e", " or ")) for row in first[:_LINES]]
    lines = [f"{_locate(row)}: `{answer}`" for row, answer in zip(first, answers, strict=False)]
    rest = facts["count"] - len(lines)
    return [
        warning(
            "W0716",
            f"no parser reads {facts['count']} of {rows} reference answers: only answers with the same text count as right",
            where=_locate(first[0]),
            notes=[*lines, *([f"and {rest} more"] if rest else [])],
            help="correct them in the data, or mark their answers by a box or `#### `",
        )
    ]


def _locate(row: Mapping[str, Any]) -> str:
    """Return the file and row of a reference answer."""
    return f"{row['source']}, row {row['row']}"


FINDERS = {
    "data": (find_chats, find_doubtful, find_left_out),
    "train": (find_left_out, find_failing),
    "sample": (find_failing,),
    "evaluate": (find_unanswered, find_failing, find_inexact),
}
"""Functions that look for doubts in a result, by the kind of its task."""


def find_in_results(graph: Graph, folders: Mapping[str, Path]) -> Findings:
    """Return the doubts about results of tasks; missing or unreadable results are skipped.

    Args:
        graph: tasks of the spec.
        folders: folders of results by the task's id.
    """
    findings: Findings = {}
    for task in graph.tasks:
        for find in FINDERS.get(task.kind, ()) if task.id in folders else ():
            with suppress(OSError, ValueError, pl.exceptions.PolarsError):
                findings.setdefault(task.id, []).extend(find(task, folders[task.id]))
    return findings


def overlaps(graph: Graph, folders: Mapping[str, Path], of: str | None = None) -> list[Diagnostic]:
    """Return a warning (W0802) for each pair of a training and an evaluation table that share questions.

    Only tables that the same arm is trained on and evaluated on are compared. Missing or unreadable results are
    skipped.

    Args:
        graph: tasks of the spec.
        folders: folders of results by the task's id.
        of: id of a `data` task, to compare only pairs with its table; None compares all pairs.
    """
    questions: dict[str, dict[str, frozenset[str]]] = {}
    templates = _templates(graph)
    warnings = []
    for trained, judged, arms in _pair_tables(graph):
        if trained not in folders or judged not in folders or of not in (None, trained, judged):
            continue
        for name in (trained, judged):
            if name not in questions:
                questions[name] = _read_questions(folders[name], templates)
        trained_keys = frozenset().union(*questions[trained].values())
        shared = [text for text, keys in questions[judged].items() if keys & trained_keys]
        if shared:
            warnings.append(
                warning(
                    "W0802",
                    f"{len(shared)} of {len(questions[judged])} questions of `{judged}` are also trained on, in `{trained}`",
                    where=str(folders[judged] / "questions.parquet"),
                    notes=(f"the first is: {shorten_text(shared[0])}", f"arms affected: {', '.join(arms)}"),
                    help="remove them from the training data and run again; until then accuracies may be too high",
                )
            )
    return warnings


def _pair_tables(graph: Graph) -> Iterator[tuple[str, str, list[str]]]:
    """Yield each pair of question tables of which one arm is trained on the first and evaluated on the second.

    Yields:
        The id of the training table's `data` task, the id of the evaluation table's, and the names of these arms.
    """
    pairs = (
        ((trained, table), task.arm)
        for task in graph.tasks
        if task.kind == "evaluate"
        for trained in _find_training_data(graph, task.inputs["start"])
        for role, table in task.inputs.items()
        if role.startswith("data:")
    )
    for (trained, table), arms in group(dict.fromkeys(pairs)).items():
        yield trained, table, [arm for arm in arms if arm is not None]


def _find_training_data(graph: Graph, task_id: str) -> list[str]:
    """Return the ids of the `data` tasks that a checkpoint was trained on, the last stage first, each id once.

    If a stage trains on a selection of sampled responses, they are the tasks that the sampled questions come from.

    Args:
        graph: tasks of the spec.
        task_id: id of the task that gives the checkpoint; the result is empty if it is not a training.
    """
    tables = []
    while graph[task_id].kind == "train":
        inputs = graph[task_id].inputs
        tables += _find_data_tasks(graph, inputs["data"])
        task_id = inputs["start"]
    return list(dict.fromkeys(tables))


def _find_data_tasks(graph: Graph, task_id: str) -> list[str]:
    """Return the ids of the `data` tasks from which a task got its questions.

    They are the task itself, the source of sampled questions, or the sources of all inputs of a selection.
    """
    task = graph[task_id]
    if task.kind == "data":
        return [task_id]
    if task.kind == "sample":
        return _find_data_tasks(graph, task.inputs["data"])
    return [
        question_task for source in task.inputs.values() for question_task in _find_data_tasks(graph, source)
    ]


def _templates(graph: Graph) -> list[re.Pattern[str]]:
    """Return a pattern for each prompt or wording of a graph that puts words around a question.

    Group 1 of a pattern is the question. The place of a budget matches any whole number.
    """
    texts = dict.fromkeys(text for task in graph.tasks for text in _find_wordings(task.payload))
    patterns = []
    for text in texts:
        # A question's key has single spaces, so the words around it are normalised too.
        before, _, after = (normal_question(side) for side in text.partition("{question}"))
        if before or after:
            parts = (re.escape(side).replace(re.escape("{budget}"), r"\d+") for side in (before, after))
            patterns.append(re.compile(" ?(.+) ?".join(parts), re.DOTALL))
    return patterns


def _find_wordings(value: Any) -> Iterator[str]:
    """Yield every text inside a payload that contains `{question}`.

    Args:
        value: a payload, or any value inside it.
    """
    if isinstance(value, str):
        if "{question}" in value:
            yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _find_wordings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _find_wordings(item)


def _read_questions(folder: Path, templates: Sequence[re.Pattern[str]]) -> dict[str, frozenset[str]]:
    """Return each text in a table of questions with the keys that identify equal questions; empty if it is unreadable.

    Args:
        folder: folder of the result of a `data` task.
        templates: patterns of words around a question, from `_templates`.
    """
    try:
        table = pl.read_parquet(folder / "questions.parquet", glob=False)
        columns = [name for name in ("question", "bare") if name in table.columns]
        rows = table.select(columns).unique(maintain_order=True).rows()
    except (OSError, pl.exceptions.PolarsError):
        return {}
    return {row[0]: _question_keys(row, templates) for row in rows if row and row[0] is not None}


def _question_keys(texts: Sequence[str | None], templates: Sequence[re.Pattern[str]]) -> frozenset[str]:
    """Return the keys that identify a question; two questions are equal if they share a key.

    They are the normalised texts, and what remains of each after the words of any template are removed, repeatedly.

    Args:
        texts: the question's text and, if its table has one, the text without the wording of its source.
        templates: patterns of words around a question, from `_templates`.
    """
    keys: set[str] = set()
    more = {question_key(text) for text in texts if text is not None}
    while more:
        keys |= more
        inside = {
            match[1].strip() for key in more for template in templates if (match := template.fullmatch(key))
        }
        more = inside - keys
    return frozenset(keys)
