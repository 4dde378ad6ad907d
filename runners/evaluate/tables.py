"""Grade a chunk: rows of samples, forced answers and examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from reodsl.ir.data import Comparison, Grading
from reodsl.ir.model import Forcing
from reodsl.ir.reward import cuts_below
from runners.answers import answer_after_forcing
from runners.conversations import Turn, turns_before
from runners.engine.protocol import Forced, Response
from runners.rollout.generator import Question, Reader
from runners.verify import Answer, Verdict, Verifier

SAMPLES = {
    "benchmark": pl.String,
    "question": pl.String,
    "text": pl.String,
    "gold": pl.String,
    "sample": pl.Int64,
    "response": pl.String,
    "tokens": pl.Int64,
    "finish": pl.String,
    "answer": pl.String,
    "correct": pl.Boolean,
    "unsettled": pl.String,
}
FORCED = {
    "benchmark": pl.String,
    "question": pl.String,
    "sample": pl.Int64,
    "budget": pl.Int64,
    "forced": pl.Boolean,
    "answer": pl.String,
    "correct": pl.Boolean,
    "unsettled": pl.String,
}
EXAMPLES = {
    "benchmark": pl.String,
    "question": pl.String,
    "sample": pl.Int64,
    "budget": pl.Int64,
    "characters": pl.Int64,
    "forced_text": pl.String,
    "answer": pl.String,
    "correct": pl.Boolean,
}


Kind = tuple[Comparison, float]
"""What answers are compared by: a verifier and its tolerance."""
Verifiers = Mapping[Kind, Verifier]


def kind_of(grading: Grading) -> Kind:
    """What answers are compared by where they are graded so."""
    return grading.verifier, grading.tolerance


@dataclass(frozen=True, slots=True)
class Sampled:
    """A question's sample number `number`: its response, the answers forced out of it, and the turns before its last."""

    question: Question
    number: int
    response: Response
    forced: Sequence[Forced] = ()
    turns: tuple[Turn, ...] = ()

    def before(self, cut: int | None = None) -> str:
        """The turns that were over at a cut, or before the last one, as answers have them."""
        return turns_before(self.turns, self.response, cut)


@dataclass(slots=True)
class _Grader:
    """Collects answers by how they are compared, so that each kind is graded in one call."""

    verifiers: Verifiers
    gradings: Mapping[str, Grading]
    waiting: dict[Kind, list[Answer]] = field(default_factory=dict)
    verdicts: dict[Kind, list[Verdict]] = field(default_factory=dict)

    def ask(self, item: Sampled, answer: str, cut: int | None = None) -> tuple[Kind, int]:
        question = item.question
        kind = kind_of(self.gradings[question.benchmark])
        answers = self.waiting.setdefault(kind, [])
        which = str(item.number) if cut is None else f"{item.number}/{cut}"
        answers.append(Answer(answer, question.gold, question.meta, question.text, item.before(cut), which))
        return kind, len(answers) - 1

    def settle(self) -> None:
        for kind, answers in self.waiting.items():
            self.verdicts[kind] = self.verifiers[kind].grade(answers)

    def verdict(self, ticket: tuple[Kind, int]) -> Verdict:
        return self.verdicts[ticket[0]][ticket[1]]


def graded_samples(
    sampled: Sequence[Sampled], reader: Reader, verifiers: Verifiers, gradings: Mapping[str, Grading]
) -> pl.DataFrame:
    """Rows of `samples.parquet`. `gradings` maps a benchmark to how it is graded."""
    grader = _Grader(verifiers, gradings)
    texts = [reader.text(item.response.sequence()) for item in sampled]
    answers = [
        reader.answer(item.question, item.response, gradings[item.question.benchmark]) for item in sampled
    ]
    tickets = [grader.ask(item, answer) for item, answer in zip(sampled, answers, strict=True)]
    grader.settle()
    rows = [
        (
            item.question.benchmark,
            item.question.id,
            item.question.text,
            item.question.gold,
            item.number,
            text,
            len(item.response.tokens),
            item.response.finish,
            answer or None,
            grader.verdict(ticket).correct,
            grader.verdict(ticket).unsettled,
        )
        for item, text, answer, ticket in zip(sampled, texts, answers, tickets, strict=True)
    ]
    return pl.DataFrame(rows, schema=SAMPLES, orient="row")


def graded_forced(
    sampled: Sequence[Sampled],
    whole: pl.DataFrame,
    forcing: Forcing | None,
    grid: Sequence[int],
    reader: Reader,
    verifiers: Verifiers,
    gradings: Mapping[str, Grading],
    shown: frozenset[tuple[str, str]],
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rows of `forced.parquet` at every budget of the grid, and of `examples.parquet` for the questions in `shown`.

    `whole` are the rows of `graded_samples`: a response no longer than the budget is graded as it is, and so is every one
    without a forcing, whose grid is the longest response.
    """
    grader = _Grader(verifiers, gradings)
    pending: list[tuple[Sampled, int, str | None, str | None, tuple[Kind, int] | bool]] = []
    for item, answer, correct in zip(sampled, whole["answer"], whole["correct"], strict=True):
        at_cut = {forced.cut: forced for forced in item.forced}
        cuts = cuts_below(grid, len(item.response.tokens))
        for budget in grid:
            if forcing is None or budget not in cuts:
                pending.append((item, budget, None, answer, bool(correct)))
                continue
            text = reader.text(at_cut[budget].tokens)
            forced = answer_after_forcing(forcing, text, gradings[item.question.benchmark].answer)
            pending.append((item, budget, text, forced or None, grader.ask(item, forced, budget)))
    grader.settle()
    rows, examples = [], []
    for item, budget, words, given, ticket in pending:
        verdict = None if isinstance(ticket, bool) else grader.verdict(ticket)
        right = bool(ticket) if verdict is None else verdict.correct
        keys = (item.question.benchmark, item.question.id, item.number, budget)
        rows.append((*keys, words is not None, given, right, verdict.unsettled if verdict else None))
        if item.number == 0 and keys[:2] in shown:
            characters = len(reader.text(item.response.sequence(min(budget, len(item.response.tokens)))))
            examples.append((*keys, characters, words, given, right))
    return (
        pl.DataFrame(rows, schema=FORCED, orient="row"),
        pl.DataFrame(examples, schema=EXAMPLES, orient="row"),
    )
