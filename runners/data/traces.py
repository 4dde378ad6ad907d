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
    """Return `count` questions, each with a worked solution: columns id, question, answer, bare, trace, meta.

    Questions may repeat. `answer` is the right one, whatever the trace says; `meta` is JSON with the number of
    passes, the style of each step, and the answer the trace gives.
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
    """Raise E0720 if no style can be drawn or a probability is out of range."""
    chances = (traces.filler_probability, traces.error, traces.restyle, traces.another_pass)
    wrong, remedy = "", ""
    if (
        not traces.styles
        or min(s.weight for s in traces.styles) < 0
        or sum(s.weight for s in traces.styles) <= 0
    ):
        wrong = "the styles need weights, none negative and one above 0"
        remedy = "give each of `styles` a weight, as in `weight: 1`"
    elif not all(0 <= chance <= 1 for chance in chances):
        outside = next(chance for chance in chances if not 0 <= chance <= 1)
        wrong = f"the probability {outside:g} lies outside 0..1"
        remedy = "write it as a share of 1, as in `0.05` or `5%`"
    elif traces.max_passes < 1:
        wrong, remedy = f"{traces.max_passes} passes solve nothing", "write `max_passes = 1` or more"
    elif traces.filler_probability > 0 and not traces.filler:
        wrong = f"fillers come with probability {traces.filler_probability:g}, and there are none"
        remedy = "give some in `filler`, or write `filler_probability = 0`"
    elif "{value}" not in traces.answer:
        wrong = f"the answer `{traces.answer}` lacks the place `{{value}}`"
        remedy = "write it where the answer goes, as in `\\boxed{ {value} }`"
    if wrong:
        raise problem("E0720", f"the traces do not fit together: {wrong}", where="fold traces", help=remedy)


def write_trace(chain: Chain, traces: FoldTraces, stream: Stream) -> tuple[str, dict[str, object]]:
    """Return a worked solution, and its number of passes, its styles and its answer."""
    base = _pick(traces.styles, stream)
    words: list[str] = []
    values: list[int] = []
    styles: list[str] = []
    while True:
        text, value, used = _write_pass(chain, traces, base, stream)
        words.append(text)
        values.append(value)
        styles.extend(used)
        disagree = traces.until_agree and len(values) > 1 and values[-1] != values[-2]
        if len(values) >= traces.max_passes or not (stream.chance(traces.another_pass) or disagree):
            break
        words.append(traces.again)
    words.append(fill(traces.answer, value=chain.word(values[-1])))
    meta = {"passes": len(values), "styles": styles, "given": chain.word(values[-1])}
    return " ".join(word for word in words if word), meta


def _write_pass(
    chain: Chain, traces: FoldTraces, base: TraceStyle, stream: Stream
) -> tuple[str, int, list[str]]:
    """Return a walk along the chain with its mistakes carried on: words, final value, style names."""
    words = [traces.open]
    used = []
    value = chain.start
    for step in chain.steps:
        restyled = stream.chance(traces.restyle)
        style = _pick(traces.styles, stream) if restyled else base
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
        used.append(style.name)
        value = following
    words.append(fill(traces.close, value=chain.word(value)))
    return " ".join(word for word in words if word), value, used


def _pick(styles: tuple[TraceStyle, ...], stream: Stream) -> TraceStyle:
    """Pick a style by weight."""
    point = stream.uniform() * sum(style.weight for style in styles)
    for style in styles:
        point -= style.weight
        if point < 0:
            return style
    return next(style for style in reversed(styles) if style.weight > 0)
