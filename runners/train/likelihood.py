"""Ask models about tokens: those of responses, and of reference answers that stand in the place of theirs.

A model's numbers are those of its own distributions, at temperature 1. The policy's probabilities of what it sampled are the
engine's, of the weights that drew each token. All else is a pass of the trainers.
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
from runners.rollout.questions import AskedQuestion
from runners.train.batch import TrainBatch

Ask = Callable[[bool, bool, TrainBatch], Tensor]
"""A call that asks the teacher or the policy, with entropies or without, about rows. It gives [1 or 2, trained tokens]."""
Place = tuple[int, int]
"""A response, numbered row by row, and how many of its tokens are read."""


def ask_models(
    asked: Mapping[TokenRun, Sequence[Sequence[int]]],
    graded: Sequence[GradedRollout],
    inputs: RewardInputs,
    grader: Grader,
    ask: Ask,
) -> dict[TokenRun, Callable[..., Floats]]:
    """Return what statistics over tokens are at the cuts of each response that they are asked at."""
    numbers: dict[tuple[bool, str], dict[Place, Floats]] = {}
    for truth in (False, True):
        for teacher in (False, True):
            names, places = set[str](), set[Place]()
            for node, cuts in asked.items():
                mine = {name for name in node.read if name.endswith(UNDER) == teacher}
                if mine and node.truth == truth:
                    names |= mine
                    # A response is read whole: what follows a token does not change what a model says of it.
                    places |= {
                        (n, cut if truth else len(graded[n].rollout.response.tokens))
                        for n, each in enumerate(cuts)
                        for cut in each
                    }
            if names:
                found = _ask_about(truth, teacher, names, sorted(places), graded, grader, ask)
                numbers |= {(truth, name): each for name, each in found.items()}
    values: dict[TokenRun, Callable[..., Floats]] = {}
    width = 1 + int(inputs.length.max())
    for node, cuts in asked.items():
        triples = []
        for n, each in enumerate(cuts):
            whole = len(graded[n].rollout.response.tokens)
            for cut in each:
                at, first, end = ((n, cut), 0, None) if node.truth else ((n, whole), 0, cut)
                if isinstance(node, AnswerRun):
                    first, end, _ = find_own_answer(graded[n], grader) or (0, 0, "")
                read = {name: numbers[node.truth, name][at][first:end] for name in sorted(node.read)}
                triples.append((n, cut, measure_tokens(node, read, inputs)))
        values[node] = CutVerdicts.of(triples, width, np.float64).look_up
    return values


def _ask_about(
    truth: bool,
    teacher: bool,
    names: Iterable[str],
    places: Sequence[Place],
    graded: Sequence[GradedRollout],
    grader: Grader,
    ask: Ask,
) -> dict[str, dict[Place, Floats]]:
    """Return each of some numbers of the tokens at each place."""
    entropies = any(name.startswith("entropy") for name in names)
    known = not (truth or teacher)
    columns: list[list[Floats]] = []
    if entropies or not known:
        batch = _make_batch(truth, places, graded, grader)
        rows = ask(teacher, entropies, batch).double().numpy()
        ends = np.cumsum(batch.trained.numpy())[:-1]
        columns = [np.split(row, ends) for row in rows]
    logprobs = [np.array(graded[n].rollout.response.logprobs) for n, _ in places] if known else columns[0]
    found: dict[str, dict[Place, Floats]] = {}
    for name in names:
        word = name.partition("(")[0]
        parts = columns[1] if word == "entropy" else logprobs
        found[name] = {
            place: np.exp(part) if word == "prob" else part for place, part in zip(places, parts, strict=True)
        }
    return found


def _make_batch(
    truth: bool, places: Sequence[Place], graded: Sequence[GradedRollout], grader: Grader
) -> TrainBatch:
    """Return rows whose trained tokens are those that are asked about; a teacher has its own words for the question."""
    rollouts = [graded[n].rollout for n, _ in places]
    befores = [find_context(graded[n], cut, grader) if truth else () for n, cut in places]
    tokens = [
        truth_tokens(each.question, grader.tokenizer) if truth else each.response.sequence()
        for each in rollouts
    ]
    own = bool(rollouts) and bool(rollouts[0].question.asked)
    return TrainBatch.of(
        [(*each.request.prompt, *before) for each, before in zip(rollouts, befores, strict=True)],
        tokens,
        None if truth else [each.response.gaps() for each in rollouts],
        [(*each.question.asked, *before) for each, before in zip(rollouts, befores, strict=True)]
        if own
        else (),
    )


def truth_tokens(question: AskedQuestion, tokenizer: object) -> tuple[int, ...]:
    """Return the tokens of a question's reference answer, the first of several."""
    return encode_prompts(tokenizer, [veil(tokenizer, question.gold.split(SEPARATOR)[0])])[0]


def find_context(one: GradedRollout, cut: int, grader: Grader) -> tuple[int, ...]:
    """Return the tokens of a response that the reference answer follows after a cut.

    At the response's end it stands in the place of the response's own answer, the last one that was read. Everywhere else
    the forcing text leads to it, as it leads to a forced answer.
    """
    response, tokenizer = one.rollout.response, grader.tokenizer
    if cut >= len(response.tokens):
        place = find_own_answer(one, grader)
        if place is not None:
            count, _, gap = place
            # The beginning of a token, which the model wrote.
            told = encode_prompts(tokenizer, [veil(tokenizer, gap)])[0] if gap.strip() else ()
            return (*response.sequence(count), *told)
        cut = len(response.tokens) - (response.finish == "stop")
    assert grader.forcing is not None
    return (*response.sequence(cut), *continuation_tokens(tokenizer, grader.forcing.text))


def find_own_answer(one: GradedRollout, grader: Grader) -> tuple[int, int, str] | None:
    """Return where the answer that was read in a response is, as `find_answer` does."""
    text = one.whole[0].text
    ends = [at for at, each in one.prefixes if each is not None and each[0].text == text]
    return find_answer(one.rollout.response.tokens[: ends[-1]], grader.text, text) if text and ends else None


def require_truths(
    questions: Sequence[AskedQuestion], method: Ppo, tokenizer: object, longest: int, context: int
) -> None:
    """Raise E0941 where a question has no answer that a reward reads or a teacher is told, or a read one does not fit.

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
    counts = [len(each) for each in encode_prompts(tokenizer, [veil(tokenizer, truth) for truth in truths])]
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
