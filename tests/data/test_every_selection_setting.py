"""Every setting of a selection changes the task's key and what is selected of a pool, or `check` says why it does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from reodsl.graph.job import Job
from reodsl.graph.lower import lower
from reodsl.graph.task import Task, identity
from reodsl.ir import digest
from reodsl.ir.reward import Choice, Pick, Selection
from reodsl.language import compile_file
from runners.data.select import select
from tests.language.test_selections import HEAD, POOL, rewarded, sequences

RIGHT = "argmin(len(z) for z in group if correct(z))"
LONG = "argmax(len(z) for z in group)"
TRACE = "selection best { trace = " + RIGHT + " }"
PAIR = f"selection best {{ preferred = {RIGHT}, rejected = {LONG} }}"
DROPPED = "selection best { trace = " + RIGHT + ", margin = -len(trace), drop = 30% }"
LET = "selection best { let usual = 8 tokens\n trace = argmax(len(z) for z in group if len(z) < usual) }"
KEEP = "selection best { where = mean(correct(z) for z in group) < 1 }"
EACH = "selection best { trace = each(z for z in group if correct(z)) }"
CHANGED: dict[str, tuple[str, str, str]] = {
    "selection.lets": (LET, "8 tokens", "9 tokens"),
    "selection.picks": (TRACE, "trace = ", f"pick long {{ trace = {LONG} }}\n pick right {{ trace = "),
    "selection.drop": (DROPPED, "drop = 30%", "drop = 60%"),
    "selection.keep": (KEEP, "< 1", "== 0"),
    "pick.trace": (TRACE, "argmin", "argmax"),
    "pick.preferred": (PAIR, "argmin", "argmax"),
    "pick.rejected": (PAIR, "in group) }", "in group if not correct(z)) }"),
    "pick.where": (TRACE, " }", ", where = len(trace) > 4 tokens }"),
    "pick.margin": (DROPPED, "-len(trace)", "len(trace)"),
    "choice.fn": (EACH, "each(z for", "argmin(len(z) for"),
    "choice.key": (TRACE, "len(z) for", "-len(z) for"),
    "choice.where": (TRACE, " if correct(z)", ""),
}
"""Of each setting a selection and its text in another form."""
UNSEEN = {"presentation": ("selection.name",), "always `z`, whatever the response is called": ("choice.var",)}
"""Settings that no result depends on, with the reason."""
NOT_READ = {
    "margin": (TRACE.replace(" }", ", margin = -len(trace) }"), "E0521 `margin` says which picks `drop` leaves out"),
    "drop": (TRACE.replace(" }", ", drop = 30% }"), "E0304 the selection `best` drops"),
    "drop of questions": (KEEP.replace(" }", ", drop = 30% }"), "E0304 a pick is a `trace`"),
    "margin of questions": (KEEP.replace(" }", ", margin = 1 }"), "E0304 a pick is a `trace`"),
    "where": (TRACE.replace(" }", ", where = len(trace) >= 0 tokens }"), "W0520 the condition always holds"),
    "if": (TRACE.replace("correct(z)", "len(z) >= 0 tokens"), "W0520 the condition always holds"),
    "where of questions": (KEEP.replace("< 1", "<= 1"), "W0520 the condition always holds"),
    "key of each": (EACH.replace("each(z", "each(len(z)"), "E0310 `each` takes responses unchanged"),
    "let": (TRACE.replace("{", "{ let usual = mean(len(z) for z in group)\n"), "W0201 the let `usual` is never used"),
    "parameter": (TRACE.replace("best", "best(most: number = 1 in 0..1)"), "W0201 the parameter `most` is never used"),
}  # fmt: skip
"""Settings that have no effect beside the others, and what `check` says of them."""


def spec_of(rule: str, pool: str = POOL) -> str:
    """A training on what a selection gives."""
    method = "simpo" if "preferred" in rule else "sft"
    if "trace" not in rule and method == "sft":
        return HEAD + rule + rewarded("outcome").replace("= chain_train", f"= best({pool})")
    return HEAD + rule + sequences(method, f"best({pool})")


@pytest.fixture
def selected(tmp_path: Path) -> Callable[..., tuple[str, list[dict[str, object]]]]:
    """The key of a selection's task, and the rows that it gives of a pool of six questions."""
    pool, data = tmp_path / "pool", tmp_path / "data"
    pool.mkdir()
    data.mkdir()
    lengths = [(3, 9, 6, 12), (7, 2, 8, 5), (10, 4, 9, 3), (6, 11, 2, 7), (8, 5, 12, 4), (5, 6, 7, 9)]
    right = [(1, 1, 0, 0), (1, 0, 1, 1), (1, 1, 1, 1), (0, 0, 0, 0), (0, 1, 1, 0), (1, 1, 1, 1)]
    rows = [
        {"question": f"q{number}", "text": f"text {number}", "gold": "1", "sample": sample}
        | {
            "response": f"{number}.{sample}",
            "tokens": tokens,
            "finish": "stop",
            "answer": "1",
            "correct": bool(right[number][sample]),
        }
        for number, each in enumerate(lengths)
        for sample, tokens in enumerate(each)
    ]
    pl.DataFrame(rows).write_parquet(pool / "samples.parquet")
    names = [f"q{number}" for number in range(len(lengths))]
    pl.DataFrame({"id": names, "question": names}).write_parquet(data / "questions.parquet")
    numbers = iter(range(9))

    def run(rule: str, pools: str = POOL) -> tuple[str, list[dict[str, object]]]:
        (tmp_path / "it.reo").write_text(spec_of(rule, pools))
        spec = compile_file(tmp_path / "it.reo", target="it").spec
        assert spec is not None
        (task,) = (task for task in lower(spec).tasks if task.kind == "select")
        out = tmp_path / f"out{next(numbers)}"
        out.mkdir()
        task = Task("select", "select", task.work, {})
        inputs = {"pool:0": pool, "data": data}
        select(Job(task, inputs, out, tmp_path, tmp_path, lambda progress: None))
        return digest(identity(task)), pl.read_parquet(out / "questions.parquet").to_dicts()

    return run


@pytest.mark.parametrize("setting", CHANGED)
def test_a_setting_changes_the_key_and_what_is_selected(
    selected: Callable[..., tuple[str, list[dict[str, object]]]], setting: str
) -> None:
    rule, old, new = CHANGED[setting]
    other = rule.replace(old, new) + ("}" if new.count("{") > new.count("}") else "")
    (key, rows), (other_key, other_rows) = selected(rule), selected(other)
    assert rows != other_rows
    assert key != other_key


def test_every_setting_of_a_selection_is_tried() -> None:
    classes = {"selection": Selection, "pick": Pick, "choice": Choice}
    fields = {f"{name}.{field}" for name, cls in classes.items() for field in cls.model_fields}
    assert sorted(fields) == sorted([*CHANGED, *(name for names in UNSEEN.values() for name in names)])


def test_names_of_a_selection_and_its_responses_change_nothing(
    selected: Callable[..., tuple[str, list[dict[str, object]]]],
) -> None:
    named = "selection best { trace = argmin(len(w) for w in group if correct(w)) }"
    assert selected(named) == selected(TRACE)


@pytest.mark.parametrize("setting", NOT_READ)
def test_a_setting_without_effect_is_told_once(tmp_path: Path, setting: str) -> None:
    rule, told = NOT_READ[setting]
    (tmp_path / "it.reo").write_text(spec_of(rule))
    found = compile_file(tmp_path / "it.reo", target="it").diagnostics
    idle = [
        each
        for each in found
        if each.code != "W0201" or each.message.startswith(("the let", "the parameter"))
    ]
    said = [f"{each.code} {each.message}" for each in idle]
    assert len(said) == 1, said
    assert said[0].startswith(told)
