"""Samples, and bare prefixes: what every prefix answers by itself, against grading each prefix in turn."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.data.draws import batch_indices, derive_seed
from runners.evaluate import run
from runners.grade import final_answer
from runners.rollout.answers import bare_answers
from runners.rollout.questions import read_references
from tests.evaluate.conftest import MakeJob, payload

WORDS = ["a", "1", "2", "\\boxed{", "}", "{", "\\boxed{3}", "\\boxed{4} \\boxed{5}", "\\frac{1}{2}"]


def spaced(tokens: object) -> str:
    return " ".join(WORDS[t] for t in tokens)  # type: ignore[attr-defined]


@settings(max_examples=100)
@given(st.lists(st.integers(0, len(WORDS) - 1), max_size=14))
def test_bare_answers_are_those_of_every_prefix(tokens: list[int]) -> None:
    changes = bare_answers(tokens, spaced)
    assert [at for at, _ in changes] == sorted({at for at, _ in changes})
    for length in range(len(tokens) + 1):
        held = [answer for at, answer in changes if at <= length]
        assert (held[-1] if held else "") == final_answer(spaced(tokens[:length]))


def test_samples_are_graded_responses_to_every_question(
    job: MakeJob, checkpoint: Path, questions: Path
) -> None:
    told = payload()
    wanted = {"model": told["model"], "rollout": told["suite"]["rollout"], "samples": 4, "seed": 1}
    made = job(
        "sample", wanted | {"grading": {"verifier": "exact"}}, {"start": checkpoint, "data": questions}
    )
    run.sample(made)
    samples = pl.read_parquet(made.out / "samples.parquet")
    assert samples.height == 7 * 4
    assert "benchmark" not in samples.columns
    assert samples.select("question", "sample").n_unique() == samples.height
    golds = dict(pl.read_parquet(questions / "questions.parquet").select("id", "answer").iter_rows())
    for row in samples.iter_rows(named=True):
        assert (row["answer"] or "") == final_answer(row["response"])
        assert row["correct"] == (row["answer"] == golds[row["question"]])


def test_thinking_is_counted_where_it_is_read(job: MakeJob, checkpoint: Path, questions: Path) -> None:
    """The same responses, of each of which it is the tokens up to its first mark; all without one."""
    told = payload()
    model = told["model"] | {"think_open": "(", "think_close": "\\boxed{"}
    wanted = {"model": model, "rollout": told["suite"]["rollout"], "samples": 4, "seed": 1}
    wanted |= {"grading": {"verifier": "exact"}}
    inputs = {"start": checkpoint, "data": questions}
    counted, plain = (
        job("sample", wanted | {"thinking": True}, inputs, "counted"),
        job("sample", wanted, inputs),
    )
    run.sample(counted)
    run.sample(plain)
    samples = pl.read_parquet(counted.out / "samples.parquet")
    assert samples.drop("thinking").equals(pl.read_parquet(plain.out / "samples.parquet"), null_equal=True)
    for row in samples.iter_rows(named=True):
        words = row["response"].split()
        assert row["thinking"] == (words.index("\\boxed{") + 1 if "\\boxed{" in words else row["tokens"])
    assert (samples["thinking"] < samples["tokens"]).any()
    found = read_references(counted.out, 2)
    assert {name: each.thinking for name, each in found.items()} == {
        name: tuple(rows["thinking"][:2]) for (name,), rows in samples.group_by("question")
    }
    assert not any(each.thinking for each in read_references(plain.out, 2).values())


@pytest.mark.parametrize(("prompts", "draws", "count"), [(2, 2, 4), (3, 1, 3), (3, 3, 7)])
def test_questions_that_training_meets_are_sampled_alone(
    job: MakeJob, checkpoint: Path, questions: Path, prompts: int, draws: int, count: int
) -> None:
    """Those that `drawn` gives its steps, with the same responses as among all questions."""
    told = payload()
    wanted = {"model": told["model"], "rollout": told["suite"]["rollout"], "samples": 2, "seed": 1}
    wanted |= {"grading": {"verifier": "exact"}}
    inputs = {"start": checkpoint, "data": questions}
    met = {"seed": 4, "index": 0, "prompts": prompts, "draws": draws, "max_prompt": 4}
    some, whole = job("sample", wanted | {"met": met}, inputs, "some"), job("sample", wanted, inputs, "all")
    run.sample(some)
    run.sample(whole)
    ids = pl.read_parquet(questions / "questions.parquet")["id"]
    steps = [batch_indices(derive_seed(4, "stage", 0), step, prompts, len(ids)) for step in range(draws)]
    names = {ids[at] for step in steps for at in step}
    found, every = (pl.read_parquet(each.out / "samples.parquet") for each in (some, whole))
    assert set(found["question"]) == names
    assert len(names) == count
    key = ["question", "sample", "response"]
    assert found.select(key).equals(every.filter(pl.col("question").is_in(names)).select(key))


def test_other_seeds_draw_other_samples(job: MakeJob, checkpoint: Path, questions: Path) -> None:
    told = payload()
    texts = []
    for seed in (1, 2):
        wanted = {"model": told["model"], "rollout": told["suite"]["rollout"], "samples": 1, "seed": seed}
        made = job(
            "sample",
            wanted | {"grading": {"verifier": "exact"}},
            {"start": checkpoint, "data": questions},
            str(seed),
        )
        run.sample(made)
        texts.append(pl.read_parquet(made.out / "samples.parquet")["response"].to_list())
    assert texts[0] != texts[1]


def test_a_question_with_several_worked_solutions_is_asked_once(
    job: MakeJob, checkpoint: Path, questions: Path, tmp_path: Path
) -> None:
    rows = pl.read_parquet(questions / "questions.parquet")
    pl.concat([rows, rows.head(2)]).write_parquet(tmp_path / "questions.parquet")
    told = payload()
    wanted = {"model": told["model"], "rollout": told["suite"]["rollout"], "samples": 2, "seed": 1}
    found = []
    for name, data in (("several", tmp_path), ("one", questions)):
        made = job(
            "sample", wanted | {"grading": {"verifier": "exact"}}, {"start": checkpoint, "data": data}, name
        )
        run.sample(made)
        found.append(pl.read_parquet(made.out / "samples.parquet"))
    assert found[0].equals(found[1])


@pytest.mark.parametrize("tokens", [[], [0, 1]])
def test_a_response_without_a_box_answers_nothing(tokens: list[int]) -> None:
    assert bare_answers(tokens, spaced) == []
