"""Worked solutions of chains of operations, in several styles, with mistakes and re-checks."""

from __future__ import annotations

import json

import polars as pl

from reodsl.diagnostics import problem
from reodsl.ir.task import FoldTask, FoldTraces, TraceStyle
from runners.data.draws import Split, Stream, split_of
from runners.data.fold import (
    Chain,
    bare_question,
    chain_of,
    check_task,
    draw,
    fill,
    question_text,
    result,
    too_few,
)
from runners.data.table import question_id

_DRAWS_PER_ROW = 200


def generate_traces(
    task: FoldTask, traces: FoldTraces, count: int, seed: int, *, split: Split = "train"
) -> pl.DataFrame:
    """Return random questions of a dataset split with worked solutions, which may contain mistakes.

    The worked solution of row n is generated from the random stream (seed, n). Questions may repeat.

    Args:
        task: The task.
        traces: The styles and probabilities of worked solutions.
        count: The number of questions.
        seed: The seed of the random numbers.
        split: The split.

    Returns:
        A table with the text columns id, question, answer (always right), bare (the question as numbers), trace, and meta:
        JSON with the number of `passes`, the `styles` of all steps, and the answer `given` by the trace.

    Raises:
        Problem: E0720 for settings that do not fit together, E0711 if the split has no questions.
    """
    check_task(task)
    check_traces(traces)
    rows: list[tuple[str, ...]] = []
    draws = 0
    while len(rows) < count:
        fold = draw(task, Stream(seed, "question", draws))
        draws += 1
        bare = bare_question(task, fold)
        if split_of(bare) != split:
            if draws > _DRAWS_PER_ROW * (len(rows) + 1):
                raise too_few(task, split, len(rows), count)
            continue
        text, meta = write_trace(chain_of(task, fold), traces, Stream(seed, "trace", len(rows)))
        question, answer = question_text(task, fold), task.values[result(task, fold)]
        rows.append((question_id(question), question, answer, bare, text, json.dumps(meta)))
    names = ["id", "question", "answer", "bare", "trace", "meta"]
    return pl.DataFrame(rows, schema=names, orient="row").cast(pl.String)


def check_traces(traces: FoldTraces) -> None:
    """Check that the styles, probabilities and templates of worked solutions fit together.

    Raises:
        Problem: E0720 for the first fault.
    """
    chances = (traces.filler_probability, traces.error, traces.restyle, traces.another_pass)
    wrong, remedy = "", ""
    if (
        not traces.styles
        or min(s.weight for s in traces.styles) < 0
        or sum(s.weight for s in traces.styles) <= 0
    ):
        wrong = "the weights of `styles` must be 0 or more, and at least one above 0"
        remedy = "give each of `styles` a weight, as in `weight: 1`"
    elif not all(0 <= chance <= 1 for chance in chances):
        outside = next(chance for chance in chances if not 0 <= chance <= 1)
        wrong = f"the probability {outside:g} is not between 0 and 1"
        remedy = "write a probability from 0 to 1, as in `0.05` or `5%`"
    elif traces.max_passes < 1:
        wrong, remedy = f"`max_passes` is {traces.max_passes}", "write `max_passes = 1` or more"
    elif traces.filler_probability > 0 and not traces.filler:
        wrong = f"`filler_probability` is {traces.filler_probability:g}, but there are no fillers"
        remedy = "write some in `filler`, or `filler_probability = 0`"
    elif "{value}" not in traces.answer:
        wrong = f"the answer `{traces.answer}` has no `{{value}}`"
        remedy = "add it, as in `\\boxed{ {value} }`"
    if wrong:
        raise problem("E0720", f"the traces do not fit together: {wrong}", where="fold traces", help=remedy)


def write_trace(chain: Chain, traces: FoldTraces, stream: Stream) -> tuple[str, dict[str, object]]:
    """Return a worked solution of a chain of operations.

    A solution may have several passes through the chain, and the last pass gives the answer. Another pass follows with
    the probability `another_pass`, or with `until_agree` if the last two results differ, up to `max_passes`.

    Args:
        chain: The operations.
        traces: The styles and probabilities.
        stream: The random numbers.

    Returns:
        The text, and its metadata: the number of `passes`, the `styles` of all steps, and the answer `given`.
    """
    main_style = _pick(traces.styles, stream)
    words: list[str] = []
    values: list[int] = []
    styles: list[str] = []
    while True:
        text, value, step_styles = _write_pass(chain, traces, main_style, stream)
        words.append(text)
        values.append(value)
        styles.extend(step_styles)
        disagrees = traces.until_agree and len(values) > 1 and values[-1] != values[-2]
        if len(values) >= traces.max_passes or not (stream.chance(traces.another_pass) or disagrees):
            break
        words.append(traces.again)
    words.append(fill(traces.answer, value=chain.word(values[-1])))
    meta = {"passes": len(values), "styles": styles, "given": chain.word(values[-1])}
    return " ".join(word for word in words if word), meta


def _write_pass(
    chain: Chain, traces: FoldTraces, main_style: TraceStyle, stream: Stream
) -> tuple[str, int, list[str]]:
    """Return the text of a pass through a chain, its final value, and the name of each step's style.

    A step gets a new random style instead of `main_style` with the probability `restyle`. With the probability `error`
    its result is 1 too large or too small, and later steps continue from the wrong value.

    Args:
        chain: The operations.
        traces: The styles and probabilities.
        main_style: The style of most steps.
        stream: The random numbers.
    """
    words = [traces.open]
    step_styles = []
    value = chain.start
    for step in chain.steps:
        is_restyled = stream.chance(traces.restyle)
        style = _pick(traces.styles, stream) if is_restyled else main_style
        if stream.chance(traces.filler_probability):
            words.append(traces.filler[stream.below(len(traces.filler))])
        following = chain.after(value, step.amount)
        if stream.chance(traces.error):
            following = chain.after(following, 1 if stream.below(2) else -1)
        words.append(
            fill(
                style.template,
                label=step.label,
                value=chain.word(value),
                op=step.words,
                next=chain.word(following),
            )
        )
        step_styles.append(style.name)
        value = following
    words.append(fill(traces.close, value=chain.word(value)))
    return " ".join(word for word in words if word), value, step_styles


def _pick(styles: tuple[TraceStyle, ...], stream: Stream) -> TraceStyle:
    """Return a random style, with a probability in proportion to its weight."""
    remaining = stream.uniform() * sum(style.weight for style in styles)
    for style in styles:
        remaining -= style.weight
        if remaining < 0:
            return style
    return next(style for style in reversed(styles) if style.weight > 0)
