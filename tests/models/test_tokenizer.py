"""Word-level tokenizers: round trips, ids, saving, and words that are wrong or unknown."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reodsl.diagnostics import Problem
from runners.models.folder import load_tokenizer
from runners.models.tokenizer import decode, encode, word_tokenizer

WORDS = ["answer", "\\boxed{", "}", "+7", "-7", "5", "6", ".", "so", "</think>"]
TEXT = "<think> 5 +7 . so </think> answer \\boxed{ 6 } <eos>"


def test_a_text_comes_back() -> None:
    tokenizer = word_tokenizer(WORDS)
    ids = encode(tokenizer, TEXT)
    assert len(ids) == len(TEXT.split())
    assert decode(tokenizer, ids) == TEXT


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from([*WORDS, "<eos>", "<pad>", "<think>"]), max_size=30))
def test_any_words_come_back(words: list[str]) -> None:
    tokenizer = word_tokenizer(WORDS)
    text = " ".join(words)
    assert decode(tokenizer, encode(tokenizer, text)) == text


def test_ids_are_the_special_tokens_then_the_words() -> None:
    tokenizer = word_tokenizer(WORDS)
    order = ["<pad>", "<eos>", "<unk>", "<think>", "</think>", *WORDS[:-1]]
    assert tokenizer.convert_ids_to_tokens(range(len(tokenizer))) == order
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (0, 1)


def test_it_loads_from_its_folder(tmp_path: Path) -> None:
    tokenizer = word_tokenizer(WORDS)
    tokenizer.save_pretrained(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert encode(loaded, TEXT) == encode(tokenizer, TEXT)
    assert decode(loaded, encode(loaded, TEXT)) == TEXT
    assert (loaded.pad_token_id, loaded.eos_token_id) == (0, 1)


@pytest.mark.parametrize("words", [["a", "b", "a"], [""], ["a b"], [" a"], ["a\n"]])
def test_a_wrong_word_list_is_refused(words: list[str]) -> None:
    with pytest.raises(Problem) as caught:
        word_tokenizer(words)
    assert caught.value.diagnostics[0].code == "E0809"


def test_an_unknown_word_is_named() -> None:
    with pytest.raises(Problem, match="`times`") as caught:
        encode(word_tokenizer(WORDS), "5 times 6")
    assert caught.value.diagnostics[0].code == "E0810"
