"""Texts that a model's own words cannot write are told at `check`, at their places, before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from reodsl.diagnostics import Diagnostic
from reodsl.language import compile_file
from runners.models.tokenizer import require_written, word_tokenizer
from tests.lsp.obeyed import SMALL

FORCING = 'forcing ask { text = "so the answer is", answer_tokens = 1 tokens }\n'
REWARD = "reward cut { dense L in [8 tokens, 128 tokens]: correct(answer(y[:L])) }\n"
FIRST = "stage one { steps = 3 steps }, stage two { reward = cut, forcing = ask }"


def errors(text: str, tmp_path: Path) -> list[Diagnostic]:
    path = tmp_path / "spec.reo"
    path.write_text(SMALL + text)
    return [each for each in compile_file(path).diagnostics if each.severity == "error"]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (f"{FORCING}{REWARD}experiment mine = small {{ {FIRST} }}", "the"),
        (
            f"{FORCING}suite own = chain_suite {{ forcing = ask }}\nexperiment mine = small {{ eval = own }}",
            "the",
        ),
        ('experiment mine = small { rollout { ending = "so far </think>", solution = 16 tokens } }', "far"),
        (
            'model own = overthinker.base { think { open = "<ponder>" } }\n'
            "experiment mine = small { base = checkpoint(own) }",
            "<ponder>",
        ),
    ],
    ids=["a later stage", "a suite", "an ending", "a mark"],
)
def test_a_text_without_tokens_is_told_before_a_run(text: str, word: str, tmp_path: Path) -> None:
    (found,) = errors(text, tmp_path)
    assert found.code == "E0815"
    assert found.message.startswith(f"the model's tokenizer cannot write `{word}`")
    assert found.labels[0].text == f"has `{word}`"
    # The runner refuses the same text.
    tokenizer = word_tokenizer(("so", "answer", "is"))
    with pytest.raises(Exception, match="cannot write"):
        require_written(tokenizer, f"so {word}", "a text")


def test_what_nothing_forces_or_what_has_words_is_no_error(tmp_path: Path) -> None:
    unread = f"{FORCING}experiment mine = small {{ forcing = ask }}"
    assert [each for each in errors(unread, tmp_path) if each.code == "E0815"] == []
    known = FORCING.replace("so the answer is", "so answer <think>")
    assert errors(f"{known}{REWARD}experiment mine = small {{ {FIRST} }}", tmp_path) == []
