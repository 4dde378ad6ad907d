"""Word-level tokenizers: round trips, ids, saving, and words that are wrong or unknown."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from reodsl.diagnostics import Problem
from runners.models.folder import load_tokenizer
from runners.models.tokenizer import decode, encode, require_written, word_tokenizer

WORDS = ["answer", "\\boxed{", "}", "+7", "-7", "5", "6", ".", "so", "</think>"]
TEXT = "<think> 5 +7 . so </think> answer \\boxed{ 6 } <eos>"


def test_a_text_comes_back() -> None:
    tokenizer = word_tokenizer(WORDS)
    ids = encode(tokenizer, TEXT)
    assert len(ids) == len(TEXT.split())
    assert decode(tokenizer, ids) == TEXT


@settings(max_examples=50)
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


def test_marks_have_to_come_back_as_they_are() -> None:
    words = word_tokenizer(("so", "answer", "\\boxed{"))
    for text in ("<think>", "</think> answer \\boxed{", "so  answer\n", "<unk>"):
        require_written(words, text, "a mark")
    with pytest.raises(Problem) as caught:
        require_written(words, "<thought> so", "the model's `think.open`")
    (found,) = caught.value.diagnostics
    assert found.code == "E0815"
    assert found.message == (
        "the model's tokenizer cannot write `<thought> so`, which is the model's `think.open`: it reads `<unk> so`"
    )
    assert found.notes == ("marks that it has: </think>, <eos>, <pad>, <think>, <unk>",)


def test_a_tokenizer_that_drops_what_it_does_not_know_is_found_out() -> None:
    letters = Tokenizer(BPE({"a": 0, "b": 1}, []))
    silent = PreTrainedTokenizerFast(tokenizer_object=letters)
    with pytest.raises(Problem) as caught:
        require_written(silent, "a<b>", "a mark")
    assert caught.value.diagnostics[0].code == "E0815"
