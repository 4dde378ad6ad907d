"""Score tokens of responses, or of reference answers in their place, with the policy or the reference model.

A model's numbers are those of its own distributions, at temperature 1. The policy's probabilities of what it sampled
are the engine's, of the weights that sampled each token. All other numbers are a pass of the trainers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from torch import Tensor

from reodsl.diagnostics import problem
from reodsl.ir.expression import UNDER, AnswerRun, TokenRun
from reodsl.ir.training import Ppo
from reodsl.ir.wording import ANSWER
from runners.grade import SEPARATOR
from runners.models.marks import encode_prompts, veil
from runners.rewards.inputs import CutVerdicts, Floats, RewardInputs
from runners.rewards.vectorise import measure_tokens
from runners.rollout.answers import find_answer
from runners.rollout.grader import GradedRollout, Grader
from runners.rollout.prompts import continuation_tokens
from runners.rollout.questions import PromptedQuestion
from runners.train.batch import TrainBatch

Ask = Callable[[bool, bool, TrainBatch], Tensor]
"""A call that scores rows with the teacher or the policy, with entropies or without: [1 or 2, trained tokens]."""
ResponseCut = tuple[int, int]
"""The index of a response, and how many of its tokens are read."""


def ask_models(
    cuts_of: Mapping[TokenRun, Sequence[Sequence[int]]],
    graded: Sequence[GradedRollout],
    inputs: RewardInputs,
    grader: Grader,
    ask: Ask,
) -> dict[TokenRun, Callable[..., Floats]]:
    """Return the values of statistics over tokens at the cuts of each response.

    Args:
        cuts_of: The cuts of each response, by statistic.
        graded: The responses, row by row.
        inputs: What a reward reads of the responses.
        grader: The grader, with its tokenizer and forcing text.
        ask: The call that scores rows.

    Returns:
        For each statistic a function that looks up values.
    """
    numbers: dict[tuple[bool, str], dict[ResponseCut, Floats]] = {}
    for truth in (False, True):
        for teacher in (False, True):
            names, places = set[str](), set[ResponseCut]()
            for node, cuts in cuts_of.items():
                mine = {name for name in node.names if name.endswith(UNDER) == teacher}
                if mine and node.truth == truth:
                    names |= mine
                    # A response is read whole: what follows a token does not change what a model says of it.
                    places |= {
                        (n, cut if truth else len(graded[n].rollout.response.tokens))
                        for n, row in enumerate(cuts)
                        for cut in row
                    }
            if names:
                scores = _score_cuts(truth, teacher, names, sorted(places), graded, grader, ask)
                numbers |= {(truth, name): row for name, row in scores.items()}
    values: dict[TokenRun, Callable[..., Floats]] = {}
    width = 1 + int(inputs.length.max())
    for node, cuts in cuts_of.items():
        triples = []
        for n, row in enumerate(cuts):
            length = len(graded[n].rollout.response.tokens)
            for cut in row:
                key, first, end = ((n, cut), 0, None) if node.truth else ((n, length), 0, cut)
                if isinstance(node, AnswerRun):
                    first, end, _ = find_own_answer(graded[n], grader) or (0, 0, "")
                read = {name: numbers[node.truth, name][key][first:end] for name in sorted(node.names)}
                triples.append((n, cut, measure_tokens(node, read, inputs)))
        values[node] = CutVerdicts.of(triples, width, np.float64).look_up
    return values


def _score_cuts(
    truth: bool,
    teacher: bool,
    names: Iterable[str],
    places: Sequence[ResponseCut],
    graded: Sequence[GradedRollout],
    grader: Grader,
    ask: Ask,
) -> dict[str, dict[ResponseCut, Floats]]:
    """Return the numbers of the tokens of each response and cut, by name."""
    entropies = any(name.startswith("entropy") for name in names)
    by_engine = not (truth or teacher)
    columns: list[list[Floats]] = []
    if entropies or not by_engine:
        batch = _make_batch(truth, places, graded, grader)
        rows = ask(teacher, entropies, batch).double().numpy()
        ends = np.cumsum(batch.num_trained.numpy())[:-1]
        columns = [np.split(row, ends) for row in rows]
    logprobs = [np.array(graded[n].rollout.response.logprobs) for n, _ in places] if by_engine else columns[0]
    scores: dict[str, dict[ResponseCut, Floats]] = {}
    for name in names:
        word = name.partition("(")[0]
        parts = columns[1] if word == "entropy" else logprobs
        scores[name] = {
            cut: np.exp(row) if word == "prob" else row for cut, row in zip(places, parts, strict=True)
        }
    return scores


def _make_batch(
    truth: bool, places: Sequence[ResponseCut], graded: Sequence[GradedRollout], grader: Grader
) -> TrainBatch:
    """Return rows whose trained tokens are scored; a teacher may have another wording of the question."""
    rollouts = [graded[n].rollout for n, _ in places]
    befores = [find_context(graded[n], cut, grader) if truth else () for n, cut in places]
    tokens = [
        truth_tokens(r.question, grader.tokenizer) if truth else r.response.sequence() for r in rollouts
    ]
    own = bool(rollouts) and bool(rollouts[0].question.teacher_prompt)
    return TrainBatch.of(
        [(*r.request.prompt, *before) for r, before in zip(rollouts, befores, strict=True)],
        tokens,
        None if truth else [r.response.gaps() for r in rollouts],
        [(*r.question.teacher_prompt, *before) for r, before in zip(rollouts, befores, strict=True)]
        if own
        else (),
    )


def truth_tokens(question: PromptedQuestion, tokenizer: object) -> tuple[int, ...]:
    """Return the tokens of a question's reference answer, the first of several."""
    return encode_prompts(tokenizer, [veil(tokenizer, question.gold.split(SEPARATOR)[0])])[0]


def find_context(graded: GradedRollout, cut: int, grader: Grader) -> tuple[int, ...]:
    """Return the tokens of a response before the reference answer at a cut.

    At the response's end the reference answer replaces the response's own answer, the last that was read. At other cuts
    the forcing text leads to it, as it leads to a forced answer.
    """
    response, tokenizer = graded.rollout.response, grader.tokenizer
    if cut >= len(response.tokens):
        span = find_own_answer(graded, grader)
        if span is not None:
            count, _, gap = span
            # The beginning of a token, which the model wrote.
            lead = encode_prompts(tokenizer, [veil(tokenizer, gap)])[0] if gap.strip() else ()
            return (*response.sequence(count), *lead)
        cut = len(response.tokens) - (response.finish == "stop")
    assert grader.forcing is not None
    return (*response.sequence(cut), *continuation_tokens(tokenizer, grader.forcing.text))


def find_own_answer(graded: GradedRollout, grader: Grader) -> tuple[int, int, str] | None:
    """Return the position of the answer that was read in a response, as `find_answer` does."""
    text = graded.answer[0].text
    ends = [end for end, prefix in graded.prefixes if prefix is not None and prefix[0].text == text]
    return (
        find_answer(graded.rollout.response.tokens[: ends[-1]], grader.text, text) if text and ends else None
    )


def require_truths(
    questions: Sequence[PromptedQuestion], method: Ppo, tokenizer: object, longest: int, context: int
) -> None:
    """Raise E0941 if a question has no answer that is read or told to a teacher, or an answer does not fit.

    A prompt and a response have `longest` tokens at most.
    """
    reads = any(node.truth for node in method.reward.tokens)
    if not reads and (method.teacher_wording is None or not ANSWER.search(method.teacher_wording.question)):
        return
    truths = [question.gold.split(SEPARATOR)[0] for question in questions]
    missing = [question.id for question, truth in zip(questions, truths, strict=True) if not truth.strip()]
    if missing:
        raise problem(
            "E0941",
            f"the {'reward reads' if reads else 'teacher is told'} the reference answers of questions, and {len(missing)} of"
            f" {len(questions)} have none",
            where=f"question {missing[0]}",
            help='name the column that has them, as in `columns: columns(answer: "answer")`, or '
            + ("ask about tokens of `y`" if reads else "take `{answer}` out of the wording"),
        )
    if not reads:
        return
    assert method.forcing is not None
    counts = [len(ids) for ids in encode_prompts(tokenizer, [veil(tokenizer, truth) for truth in truths])]
    most = max(counts)
    total = longest + len(continuation_tokens(tokenizer, method.forcing.text)) + most
    if total > context:
        raise problem(
            "E0941",
            f"a prompt, a response and a reference answer may have {total} tokens, past the context of {context}",
            where=f"question {questions[counts.index(most)].id}",
            notes=[f"its reference answer has {most} token{'s' * (most > 1)}"],
            help=f"lower `max_tokens` or `max_prompt` by {total - context} tokens",
        )
