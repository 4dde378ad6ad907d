"""Rows in the forms in which sets are published, read by what the documents write for them. The rows are our own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from reodsl.diagnostics import Problem
from reodsl.ir.data import After, Columns, Data, File, LastBox
from reodsl.language import compile_file
from runners.data.load import doubts, file_problems, load_data, read_sources
from runners.data.references import solutions_read
from runners.grade import SEPARATOR

PAGE = Path(__file__).resolve().parents[2] / "docs" / "DATA.md"
GSM8K = [
    {"question": "6 rows of 7 jars?", "answer": "There are 6 * 7 = <<6*7=42>>42 jars.\n#### 42"},
    {"question": "What does it bring?", "answer": "12500 - 2500 = $<<12500-2500=10000>>10,000.\n#### 10,000"},
]
MATH = [
    {
        "problem": "Half of 3?",
        "level": "Level 1",
        "solution": "It is $\\frac{3}{2}$, so $\\boxed{\\frac{3}{2}}$.",
    },
    {"problem": "Roots?", "level": "Level 2", "solution": "First \\boxed{1}, and then \\boxed{x=2}."},
]
NUMINA = [
    row | {"messages": [{"role": "user", "content": row["problem"]}, {"role": "assistant", "content": "…"}]}
    for row in MATH
]


def asked(text: str, *before: str) -> list[dict[str, str]]:
    return [*({"role": "system", "content": each} for each in before), {"role": "user", "content": text}]


VERL = [
    {
        "data_source": "own",
        "prompt": asked("6 times 7?"),
        "reward_model": {"style": "rule", "ground_truth": "42"},
    },
    {
        "data_source": "own",
        "prompt": asked("6 and 7?", "Be brief."),
        "reward_model": {"style": "rule", "ground_truth": "13"},
    },
]
TRL = [{"prompt": asked("6 times 7?"), "solution": "42"}, {"prompt": asked("6 and 7?"), "solution": "13"}]
FORMS: dict[str, tuple[list[dict[str, Any]], list[tuple[str, str]]]] = {
    "gsm8k": (GSM8K, [("6 rows of 7 jars?", "42"), ("What does it bring?", "10,000")]),
    "algebra": (MATH, [("Half of 3?", "\\frac{3}{2}"), ("Roots?", "x=2")]),
    "numina": (NUMINA, [("Half of 3?", "\\frac{3}{2}"), ("Roots?", "x=2")]),
    "minerva": (MATH, [("Half of 3?", "\\frac{3}{2}"), ("Roots?", "x=2")]),
    "as_verl": (VERL, [("6 times 7?", "42"), ("Be brief.\n\n6 and 7?", "13")]),
    "as_trl": (TRL, [("6 times 7?", "42"), ("6 and 7?", "13")]),
}


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pl.DataFrame(rows).write_parquet(path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def recipe(name: str, folder: Path) -> Data:
    """Return what the cookbook declares under this name."""
    declared = re.search(rf"^data {name} +\{{.*?(?:\}}\n|^\}})", PAGE.read_text(), re.M | re.S)
    assert declared is not None
    return compiled_data(name, declared[0], folder)


def compiled_data(name: str, declaration: str, folder: Path) -> Data:
    study = (
        "from std.models import qwen3_4b\nfrom std.suites import math_reg\n"
        + declaration
        + f"\nbenchmark b {{ data = {name} }}\nsuite s = math_reg {{ benchmarks = [b] }}\n"
        + "study one { eval = s\n arm base = checkpoint(qwen3_4b) }\n"
    )
    (folder / "cookbook.reo").write_text(study)
    compiled = compile_file(folder / "cookbook.reo")
    assert compiled.spec is not None, compiled.diagnostics
    (benchmark,) = compiled.spec.study.arms[0].suite.benchmarks
    return benchmark.data


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_recipe_reads_the_form_that_it_is_for(tmp_path: Path, name: str, suffix: str) -> None:
    rows, table = FORMS[name]
    declared = recipe(name, tmp_path)
    columns = declared.sources[0].columns  # type: ignore[union-attr]
    write(tmp_path / f"own{suffix}", rows)
    data = declared.model_copy(update={"sources": (File(path=f"own{suffix}", columns=columns),)})
    assert load_data(data, tmp_path).select("question", "answer").rows() == table
    assert file_problems(data, tmp_path) == []
    assert doubts(data, read_sources(data, tmp_path)) is None


def data_of(path: str, **changes: Any) -> Data:
    return Data(name="own", sources=(File(path=path, columns=Columns()),), **changes)


def answers(texts: list[str], **changes: Any) -> list[str]:
    table = pl.DataFrame({"question": texts, "answer": texts})
    return solutions_read(table, data_of("own.jsonl", **changes))["answer"].to_list()


@pytest.mark.parametrize("verifier", ["math", "exact"])
def test_plain_references_stay_as_they_are(verifier: str) -> None:
    plain = ["42", "\\frac{1}{2}", "\\boxed{14}", " 7 cm", "Alina and Boris", "x = 5", "# 3"]
    assert answers(plain, verifier=verifier) == plain


def test_a_marker_of_the_data_goes_before_those_of_published_sets() -> None:
    text = "\\boxed{1}\nAnswer: 2\n#### 3"
    assert answers([text]) == ["3"]
    assert answers([text], answer=(After(marker="Answer:"),)) == ["2"]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_several_right_answers_may_be_numbers(tmp_path: Path, suffix: str) -> None:
    write(
        tmp_path / f"own{suffix}",
        [{"question": "Even?", "answer": [2, 4]}, {"question": "Odd?", "answer": [1]}],
    )
    two, one = load_data(data_of(f"own{suffix}"), tmp_path)["answer"]
    assert (two.split(SEPARATOR), one) == (["2", "4"], "1")


# math-verify takes a moment of each.
PROSE = [
    {"question": f"{n} and 7?", "answer": f"The sum of {n} and 7 is counted on: {n} + 7."} for n in range(6)
]


def test_a_table_that_nothing_reads_is_an_error(tmp_path: Path, refusal: Callable[..., None]) -> None:
    write(tmp_path / "own.jsonl", PROSE)
    data = data_of("own.jsonl")
    (found,) = file_problems(data, tmp_path)
    assert found.code == "E0716"
    with pytest.raises(Problem) as caught:
        doubts(data, read_sources(data, tmp_path))
    refusal("data/E0716.txt", caught.value)
    assert file_problems(data.model_copy(update={"verifier": "exact"}), tmp_path) == []
    # One that can be read anywhere makes it a warning (W0716), which says of how many.
    write(tmp_path / "own.jsonl", [*PROSE, {"question": "1 and 1?", "answer": "2"}])
    assert file_problems(data, tmp_path) == []
    doubt = doubts(data, read_sources(data, tmp_path))
    assert doubt is not None
    assert (doubt["unread"]["count"], doubt["rows"]) == (6, 7)


def test_the_advice_of_an_unreadable_table_works(tmp_path: Path) -> None:
    """A marker that `answer` names, and a column with answers, each make the error go."""
    rows = [
        row | {"answer": row["answer"] + f" Answer: {at}", "final_answer": str(at)}
        for at, row in enumerate(PROSE)
    ]
    write(tmp_path / "own.jsonl", rows)
    assert [each.code for each in file_problems(data_of("own.jsonl"), tmp_path)] == ["E0716"]
    assert file_problems(data_of("own.jsonl", answer=(After(marker="Answer:"),)), tmp_path) == []
    named = Data(name="own", sources=(File(path="own.jsonl", columns=Columns(answer="final_answer")),))
    assert file_problems(named, tmp_path) == []


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet", ".csv"])
@pytest.mark.parametrize(
    ("more", "column"),
    [
        (lambda at: {"index": at, "final_answer": f"{at + 7}"}, "final_answer"),
        (lambda at: {"index": at, "reward_model": {"style": "rule", "ground_truth": at + 7}}, None),
        (lambda at: {"remarks": "A long remark on this row is here.", "x": [f"{at + 7}"]}, "x"),
    ],
)
def test_an_unreadable_table_is_led_to_a_column_that_can_be_read(
    tmp_path: Path, suffix: str, more: Callable[[int], dict[str, Any]], column: str | None
) -> None:
    """The help, written into the spec, leaves no finding; a field of a record has its path as its name."""
    rows = [
        {"problem": row["question"], "solution": row["answer"]} | more(at) for at, row in enumerate(PROSE)
    ]
    if suffix == ".csv":
        pl.DataFrame([{name: f"{value}" for name, value in row.items()} for row in rows]).write_csv(
            tmp_path / "own.csv"
        )
        if column != "final_answer":
            return
    elif suffix == ".json":
        (tmp_path / "own.json").write_text(json.dumps(rows))
    else:
        write(tmp_path / f"own{suffix}", rows)
    columns = 'columns: columns(question: "problem", answer: "solution")'
    declaration = f'data own {{ source = file("own{suffix}", WHAT) }}\n'
    (refused,) = file_problems(compiled_data("own", declaration.replace("WHAT", columns), tmp_path), tmp_path)
    assert refused.code == "E0716"
    assert (
        f"if `{column or 'reward_model.ground_truth'}` has the answers, write `columns: columns("
        in f"{refused.help}"
    )
    written = f"{refused.help}".split("`")[3]
    followed = compiled_data("own", declaration.replace("WHAT", written), tmp_path)
    assert file_problems(followed, tmp_path) == []
    assert load_data(followed, tmp_path)["answer"].to_list() == [f"{at + 7}" for at in range(6)]


@pytest.mark.parametrize(
    ("text", "useless"),
    [
        ("Adding 7 to {n} gives {m}.", True),
        ("because the sky scatters short waves of light more than long ones {n}", True),
        ("\u628a{n}\u548c7\u76f8\u52a0\u5f97\u5230\u7b54\u6848\u3002", True),
        ("\\frac{{{n}}}{{7}} \\text{{ of the whole cake and no more}}", False),
        ("Alina and Boris", False),
        ("The second player wins", False),
        ("x_1 + 2 x_2 + 3 x_3 + 4 x_4 + 5 x_5 = {n}", False),
        ("\\begin{{pmatrix}} {n} & 2 & 3 \\\\ 4 & 5 & 6 \\\\ 7 & 8 & 9 \\end{{pmatrix}}", False),
        ("a + b + c + d + e + f + g + h + i + j + k + l + m + n + o = {n}", False),
        ("{n}, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14", False),
    ],
)
def test_a_table_of_sentences_is_an_error(tmp_path: Path, text: str, useless: bool) -> None:
    """A parser takes a sentence for words, and no response would be in just these words."""
    rows = [{"question": f"{n} and 7?", "answer": text.format(n=n, m=n + 7)} for n in range(3)]
    write(tmp_path / "own.jsonl", rows)
    assert [each.code for each in file_problems(data_of("own.jsonl"), tmp_path)] == ["E0716"] * useless
    assert file_problems(data_of("own.jsonl", verifier="exact"), tmp_path) == []


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (Columns(question="prompt", answer="ground_truth"), "did you mean `reward_model.ground_truth`?"),
        (
            Columns(question="prompt", answer="reward_model"),
            "name a field of the record, such as `reward_model.",
        ),
        (Columns(question="prompt", answer="reward_model.truth"), "it has `data_source`"),
    ],
)
def test_advice_leads_to_a_field_that_can_be_read(
    tmp_path: Path, suffix: str, columns: Columns, words: str
) -> None:
    write(tmp_path / f"own{suffix}", VERL)
    data = Data(name="own", sources=(File(path=f"own{suffix}", columns=columns),))
    (found,) = file_problems(data, tmp_path)
    assert words in f"{found.help} {found.notes}"


def test_a_conversation_of_several_turns_is_refused(tmp_path: Path) -> None:
    turns = [*asked("1 and 1?"), {"role": "assistant", "content": "2"}, *asked("And 1 more?")]
    write(tmp_path / "own.jsonl", [{"question": turns, "answer": "3"}])
    (found,) = file_problems(data_of("own.jsonl"), tmp_path)
    assert found.code == "E0706"
    assert "user, assistant, user" in found.message


def test_an_unreadable_table_is_led_to_a_marker_that_reads_it(tmp_path: Path) -> None:
    """The marker is tried before it is named, so the advice, followed, leaves no finding."""
    rows = [
        {"question": f"{n} and 7?", "answer": f"We add {n} to 7. The answer is {n + 7}."} for n in range(6)
    ]
    write(tmp_path / "own.jsonl", rows)
    (refused,) = file_problems(data_of("own.jsonl"), tmp_path)
    assert 'answer = [boxed, after("The answer is")]' in f"{refused.help}"
    followed = data_of("own.jsonl", answer=(LastBox(), After(marker="The answer is")))
    assert file_problems(followed, tmp_path) == []
    assert doubts(followed, read_sources(followed, tmp_path)) is None
    # No marker reads these, so none is named, nor a verifier that would train on reward 0.
    write(tmp_path / "own.jsonl", PROSE)
    (refused,) = file_problems(data_of("own.jsonl"), tmp_path)
    assert "after(" not in f"{refused.help}"
    assert "exact" not in f"{refused.help}"


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_messages_in_parts_are_joined_as_text(tmp_path: Path, suffix: str) -> None:
    parts = [{"type": "text", "text": "6 times"}, {"type": "text", "text": " 7?"}]
    write(tmp_path / f"own{suffix}", [{"question": [{"role": "user", "content": parts}], "answer": "42"}])
    assert load_data(data_of(f"own{suffix}"), tmp_path)["question"].to_list() == ["6 times 7?"]
    pictures = [{"type": "image", "url": "a.png"}]
    write(tmp_path / f"own{suffix}", [{"question": [{"role": "user", "content": pictures}], "answer": "42"}])
    (refused,) = file_problems(data_of(f"own{suffix}"), tmp_path)
    assert refused.code == "E0706"


def test_a_record_is_never_what_was_meant(tmp_path: Path) -> None:
    write(tmp_path / "own.jsonl", VERL)
    columns = Columns(question="prompt", answer="reward_mode")
    data = Data(name="own", sources=(File(path="own.jsonl", columns=columns),))
    (refused,) = file_problems(data, tmp_path)
    assert (
        "did you mean `reward_model.style`" in f"{refused.notes}"
        or "did you mean `reward_model.ground_truth`" in f"{refused.notes}"
    )
