"""Token probabilities and entropies for rewards: of responses or reference answers, under the policy or the reference model.

All values are at temperature 1. The policy's probabilities of its own responses come from the engine, which computed them
with the weights that sampled each token. All other values come from a forward pass of the trainers.
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
"""A function (by_teacher, with_entropies, batch) that returns the log-probabilities, and entropies if requested, of a
batch's trained tokens under the teacher or the policy, [1 or 2, trained tokens]."""
ResponseCut = tuple[int, int]
"""The index of a response, and the number of its first tokens that are read."""


def ask_models(
    cuts_of: Mapping[TokenRun, Sequence[Sequence[int]]],
    graded: Sequence[GradedRollout],
    inputs: RewardInputs,
    grader: Grader,
    ask: Ask,
) -> dict[TokenRun, Callable[..., Floats]]:
    """Compute statistics over the tokens of responses, or of reference answers, at cuts of each response.

    A statistic is an expression of a reward, e.g. the mean of `logp(…)` over the first n tokens of a response. It reads
    named values of each token. A name with the ending `UNDER` means a value under the teacher or reference model; other
    names mean values under the policy. A statistic with `truth` reads the tokens of the reference answer, scored after
    the response's first `cut` tokens. An `AnswerRun` reads the tokens of the response's graded answer; without an answer
    it reads no tokens.

    Args:
        cuts_of: For each statistic, the cuts of each response in tokens.
        graded: The responses.
        inputs: The values of responses that a reward reads, such as lengths and tracks.
        grader: The grader, with its tokenizer and forcing text.
        ask: The function that scores rows with a model.

    Returns:
        For each statistic, a function that looks up its values: from arrays of response indices and cuts of equal
        shape, to values of this shape.
    """
    token_values: dict[tuple[bool, str], dict[ResponseCut, Floats]] = {}
    for of_truth in (False, True):
        for by_teacher in (False, True):
            names, response_cuts = set[str](), set[ResponseCut]()
            for node, cuts in cuts_of.items():
                scored_names = {name for name in node.names if name.endswith(UNDER) == by_teacher}
                if scored_names and node.truth == of_truth:
                    names |= scored_names
                    # Score a full response once: later tokens do not change the probabilities of earlier tokens.
                    response_cuts |= {
                        (index, cut if of_truth else len(graded[index].rollout.response.tokens))
                        for index, row in enumerate(cuts)
                        for cut in row
                    }
            if names:
                scores = _score_cuts(of_truth, by_teacher, names, sorted(response_cuts), graded, grader, ask)
                token_values |= {(of_truth, name): row for name, row in scores.items()}
    values: dict[TokenRun, Callable[..., Floats]] = {}
    width = 1 + int(inputs.length.max())
    for node, cuts in cuts_of.items():
        triples = []
        for index, row in enumerate(cuts):
            length = len(graded[index].rollout.response.tokens)
            for cut in row:
                key, first, end = ((index, cut), 0, None) if node.truth else ((index, length), 0, cut)
                if isinstance(node, AnswerRun):
                    first, end, _ = find_own_answer(graded[index], grader) or (0, 0, "")
                values_read = {
                    name: token_values[node.truth, name][key][first:end] for name in sorted(node.names)
                }
                triples.append((index, cut, measure_tokens(node, values_read, inputs)))
        values[node] = CutVerdicts.of(triples, width, np.float64).look_up
    return values


def _score_cuts(
    of_truth: bool,
    by_teacher: bool,
    names: Iterable[str],
    response_cuts: Sequence[ResponseCut],
    graded: Sequence[GradedRollout],
    grader: Grader,
    ask: Ask,
) -> dict[str, dict[ResponseCut, Floats]]:
    """Return the values of tokens for each response and cut, by name.

    The policy's log-probabilities of its responses come from the engine. All other values come from a forward pass.

    Args:
        of_truth: Whether to score the reference answer after the cut, instead of the response.
        by_teacher: Whether the teacher scores, instead of the policy.
        names: Names of values: `prob(…)`, `logp(…)` or `entropy(…)`.
        response_cuts: The responses and their cuts.
        graded: All responses.
        grader: The grader, with its tokenizer and forcing text.
        ask: The function that scores rows with a model.

    Returns:
        For each name and cut, the values of the scored tokens, [tokens].
    """
    entropies = any(name.startswith("entropy") for name in names)
    by_engine = not (of_truth or by_teacher)
    columns: list[list[Floats]] = []
    if entropies or not by_engine:
        batch = _make_batch(of_truth, response_cuts, graded, grader)
        rows = ask(by_teacher, entropies, batch).double().numpy()
        ends = np.cumsum(batch.num_trained.numpy())[:-1]
        columns = [np.split(row, ends) for row in rows]
    logprobs = (
        [np.array(graded[n].rollout.response.logprobs) for n, _ in response_cuts] if by_engine else columns[0]
    )
    scores: dict[str, dict[ResponseCut, Floats]] = {}
    for name in names:
        quantity = name.partition("(")[0]
        columns_by_cut = columns[1] if quantity == "entropy" else logprobs
        scores[name] = {
            cut: np.exp(row) if quantity == "prob" else row
            for cut, row in zip(response_cuts, columns_by_cut, strict=True)
        }
    return scores


def _make_batch(
    of_truth: bool, response_cuts: Sequence[ResponseCut], graded: Sequence[GradedRollout], grader: Grader
) -> TrainBatch:
    """Return the rows to score, one per response and cut: the scored tokens are the trained tokens of the batch.

    Args:
        of_truth: Whether to score the reference answer after the cut, instead of the response.
        response_cuts: The responses and their cuts.
        graded: All responses.
        grader: The grader, with its tokenizer and forcing text.
    """
    rollouts = [graded[n].rollout for n, _ in response_cuts]
    contexts = [find_context(graded[n], cut, grader) if of_truth else () for n, cut in response_cuts]
    tokens = [
        truth_tokens(r.question, grader.tokenizer) if of_truth else r.response.sequence() for r in rollouts
    ]
    has_teacher_prompts = bool(rollouts) and bool(rollouts[0].question.teacher_prompt)
    return TrainBatch.of(
        [(*r.request.prompt, *context) for r, context in zip(rollouts, contexts, strict=True)],
        tokens,
        None if of_truth else [r.response.gaps() for r in rollouts],
        [(*r.question.teacher_prompt, *context) for r, context in zip(rollouts, contexts, strict=True)]
        if has_teacher_prompts
        else (),
    )


def truth_tokens(question: PromptedQuestion, tokenizer: object) -> tuple[int, ...]:
    """Return the token ids of a question's reference answer, the first answer if there are several."""
    return encode_prompts(tokenizer, [veil(tokenizer, question.gold.split(SEPARATOR)[0])])[0]


def find_context(graded: GradedRollout, cut: int, grader: Grader) -> tuple[int, ...]:
    """Return the tokens of a response, and perhaps a forcing text, after which the reference answer is scored.

    If the cut is at the response's end, these are the tokens before the answer in the response: the reference answer
    takes the place of this answer. At an earlier cut, or if the response has no answer, these are the response's first
    `cut` tokens without a final stop token, followed by the forcing text.

    Args:
        graded: The response.
        cut: The number of tokens of the response that count.
        grader: The grader, with its tokenizer and forcing text.

    Returns:
        Token ids of the response, and of the forcing text if it is used; the prompt is left out.
    """
    response, tokenizer = graded.rollout.response, grader.tokenizer
    if cut >= len(response.tokens):
        span = find_own_answer(graded, grader)
        if span is not None:
            count, _, gap = span
            partial_token = encode_prompts(tokenizer, [veil(tokenizer, gap)])[0] if gap.strip() else ()
            return (*response.sequence(count), *partial_token)
        cut = len(response.tokens) - (response.finish == "stop")
    assert grader.forcing is not None
    return (*response.sequence(cut), *continuation_tokens(tokenizer, grader.forcing.text))


def find_own_answer(graded: GradedRollout, grader: Grader) -> tuple[int, int, str] | None:
    """Locate the graded answer in a response: its last occurrence within the last prefix with this answer.

    Returns:
        The number of tokens before the answer, the number of tokens up to its end, and the text before the answer
        within its first token; None if the response has no answer, or its text does not occur.
    """
    text = graded.answer[0].text
    ends = [end for end, prefix in graded.prefixes if prefix is not None and prefix[0].text == text]
    return (
        find_answer(graded.rollout.response.tokens[: ends[-1]], grader.text, text) if text and ends else None
    )


def require_truths(
    questions: Sequence[PromptedQuestion], method: Ppo, tokenizer: object, max_row_tokens: int, context: int
) -> None:
    """Check that questions have reference answers, and that they fit into the context, if the method reads them.

    The reward may score the tokens of reference answers, or a teacher's wording may contain `{answer}`. The lengths are
    checked only for the reward.

    Args:
        questions: The questions of the stage.
        method: The settings.
        tokenizer: The tokenizer of the policy.
        max_row_tokens: The largest number of tokens of a prompt and a response.
        context: The largest number of tokens that the model can read.

    Raises:
        Problem: E0941, if a needed reference answer is missing or does not fit.
    """
    scores = any(node.truth for node in method.reward.tokens)
    if not scores and (method.teacher_wording is None or not ANSWER.search(method.teacher_wording.question)):
        return
    truths = [question.gold.split(SEPARATOR)[0] for question in questions]
    missing = [question.id for question, truth in zip(questions, truths, strict=True) if not truth.strip()]
    if missing:
        raise problem(
            "E0941",
            f"the {'reward reads' if scores else 'prompt of the teacher has'} the reference answers of questions, and"
            f" {len(missing)} of {len(questions)} have none",
            where=f"question {missing[0]}",
            help='name the column of reference answers, as in `columns: columns(answer: "answer")`, or '
            + ("read tokens of `y` instead" if scores else "remove `{answer}` from the wording"),
        )
    if not scores:
        return
    assert method.forcing is not None
    counts = [len(ids) for ids in encode_prompts(tokenizer, [veil(tokenizer, truth) for truth in truths])]
    longest = max(counts)
    needed = max_row_tokens + len(continuation_tokens(tokenizer, method.forcing.text)) + longest
    if needed > context:
        raise problem(
            "E0941",
            f"a prompt, a response and a reference answer may have {needed} tokens, and the context has {context}",
            where=f"question {questions[counts.index(longest)].id}",
            notes=[f"its reference answer has {longest} token{'s' * (longest > 1)}"],
            help=f"lower `max_tokens` or `max_prompt` by {needed - context} tokens",
        )
