"""Word-level tokenizers: round trips, ids, saving, and words that are wrong or unknown."""

from __future__ import annotations

import base64
import json
import pickle
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, normalizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from reodsl.diagnostics import Problem
from reodsl.tokenizer import open_tokenizer
from runners.models import tokenizer as tokenizer_module
from runners.models.folder import load_tokenizer
from runners.models.tokenizer import (
    decode,
    encode,
    encode_all,
    require_bounded_steps,
    require_written,
    word_tokenizer,
)
from runners.models.worker import measure_growth

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
    assert caught.value.diagnostics[0].code == "E0720"


def test_an_unknown_word_is_named() -> None:
    with pytest.raises(Problem, match="`times`") as caught:
        encode(word_tokenizer(WORDS), "5 times 6")
    assert caught.value.diagnostics[0].code == "E0815"


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
    assert found.notes == ("the tokenizer's marks: </think>, <eos>, <pad>, <think>, <unk>",)


def test_a_tokenizer_that_drops_what_it_does_not_know_is_found_out() -> None:
    letters = Tokenizer(BPE({"a": 0, "b": 1}, []))
    silent = PreTrainedTokenizerFast(tokenizer_object=letters)
    with pytest.raises(Problem) as caught:
        require_written(silent, "a<b>", "a mark")
    assert caught.value.diagnostics[0].code == "E0815"


def _replace(sought: str, written: str, kind: str = "String") -> dict[str, Any]:
    return {"type": "Replace", "pattern": {kind: sought}, "content": written}


def _steps(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"normalizer": {"type": "Sequence", "normalizers": list(steps)}}


def _split(pattern: str) -> dict[str, Any]:
    return {
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": pattern},
            "behavior": "Isolated",
            "invert": False,
        }
    }


FIXED = {"strategy": {"Fixed": 10**12}, "direction": "Right", "pad_to_multiple_of": None}
FIXED |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "<pad>"}
BEYOND: dict[str, tuple[dict[str, Any], str]] = {
    "36 doublings": (_steps(*[_replace("a", "aa")] * 36), "6.87e+10 times as long"),
    "doublings of a letter that no trial has": (_steps(*[_replace("ሴ", "ሴሴ")] * 36), "times as long"),
    "doublings in turns": (_steps(*[_replace("a", "bb"), _replace("b", "aa")] * 18), "times as long"),
    "doublings of all": (_steps(*[_replace(".", "ab", "Regex")] * 13), "times as long"),
    "doublings in the decoder": (
        {"decoder": {"type": "Sequence", "decoders": [_replace("a", "aa")] * 36}},
        "times as long",
    ),
    "a pattern that goes back": (_steps(_replace("(a|aa)+c", "b", "Regex")), "retry-limit"),
    "a split that goes back": (_split("(z+)+$y"), "retry-limit"),
    "a map that is none": (
        _steps({"type": "Precompiled", "precompiled_charsmap": base64.b64encode(b"\xff" * 40).decode()}),
        "the tokenizer cannot be used",
    ),
    "pieces of no length": ({"pre_tokenizer": {"type": "FixedLength", "length": 0}}, "must be non-zero"),
    "a terabyte of padding": ({"padding": FIXED}, "crashes its process with signal 6"),
    "a step of no kind": (_steps({"type": "Sorcery"}), "cannot be used"),
    "a table as long as its last token": (
        {"model": {"type": "WordLevel", "vocab": {"a": 4 * 10**9, "<unk>": 0}, "unk_token": "<unk>"}},
        "a token has the id 4,000,000,000",
    ),
    "an added token far away": (
        {"added_tokens": [{"id": 2**32 - 1, "content": "<x>"}]},
        "a token has the id 4,294,967,295",
    ),
}
BESIDE = {
    "[" * 100_000: "it is nested too deeply",
    "\ufeff{}": "it is not JSON",
    "[1]": "it is not a JSON object",
    '{"model_max_length": ' + "9" * 5000 + "}": "thousands of digits",
    json.dumps({"extra_special_tokens": {str(n): str(n) for n in range(20_000)}}): "more than 16,384",
    json.dumps({"a": "b" * (1 << 24)}): "more than 16,777,216 bytes",
}
PUBLISHED = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+",
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "deepseek": "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
}
MOSES = [
    ("。", "."),
    ("…", "..."),
    ("—", " - "),
    ("．", ". "),
    ("“", '"'),
    ("''", '"'),
    ("ﬁ", "fi"),
    ("％", "%"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    word_tokenizer(("What", "is", "1")).save_pretrained(tmp_path)
    return tmp_path


def changed(folder: Path, changes: dict[str, Any]) -> Path:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


@pytest.mark.parametrize("name", BEYOND)
def test_a_tokenizer_beyond_the_bounds_is_refused(folder: Path, name: str) -> None:
    """None of it reaches this process, whose memory and time are not bounded."""
    changes, words = BEYOND[name]
    with pytest.raises(Problem) as caught:
        require_bounded_steps(changed(folder, changes))
    (refusal,) = caught.value.diagnostics
    assert (refusal.code, refusal.where) == ("E0803", str(folder))
    assert words in refusal.message
    assert "\n" not in refusal.message


@pytest.mark.parametrize("text", BESIDE, ids=range(len(BESIDE)))
def test_a_file_beside_a_tokenizer_is_named_where_it_is_beyond_the_bounds(folder: Path, text: str) -> None:
    for name in ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"):
        before = (folder / name).read_bytes() if (folder / name).exists() else b"{}"
        (folder / name).write_text(text)
        with pytest.raises(Problem) as caught:
            require_bounded_steps(folder)
        (refusal,) = caught.value.diagnostics
        assert refusal.code == "E0803"
        assert f"{name}" in refusal.message
        assert BESIDE[text] in refusal.message
        (folder / name).write_bytes(before)
    require_bounded_steps(folder)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_splits_are_within_the_bounds(folder: Path, name: str) -> None:
    require_bounded_steps(changed(folder, _split(PUBLISHED[name])))


def test_published_steps_are_within_the_bounds(folder: Path) -> None:
    prepended = {"type": "Prepend", "prepend": "▁"}
    spaces = _replace(" {2,}", " ", "Regex")
    moses = [_replace(sought, written) for sought, written in MOSES]
    steps = _steps(*moses * 5, {"type": "NFKC"}, spaces, prepended, _replace(" ", "▁"))
    require_bounded_steps(changed(folder, steps))
    assert measure_growth(steps["normalizer"]) < 100


def test_a_bound_on_lengths_is_one() -> None:
    """The library lengthens no text by more, whichever text it is."""
    steps = [_replace("a", "bcb"), _replace("b", "aa"), _replace("", "x"), _replace("[xa]", "yz", "Regex")]
    random = Random(1)
    for _ in range(200):
        chosen = random.choices(steps, k=random.randint(1, 4))
        normalizer = normalizers.Sequence(
            [
                normalizers.Replace(Regex(p["Regex"]) if "Regex" in p else p["String"], step["content"])
                for step in chosen
                if (p := step["pattern"])
            ]
        )
        text = "".join(random.choices("abcxyz", k=random.randint(1, 30)))
        most = measure_growth(_steps(*chosen)["normalizer"])
        assert len(normalizer.normalize_str(text)) <= most * (len(text) + 1)


def test_a_tokenizer_that_panics_is_refused_where_it_is_used(folder: Path) -> None:
    tokenizer = load_tokenizer(changed(folder, _split("(a|aa)+c")))
    with pytest.raises(Problem, match="retry-limit") as caught:
        encode(tokenizer, "a" * 60)
    assert caught.value.diagnostics[0].code == "E0803"


SLOW = r"(?:a+)(?:a+)$\b\B"
"""A pattern that goes back over a run of letters, for a time that grows with the cube of its length: soon on any trial."""


@pytest.mark.parametrize("part", ["encode", "decode"])
def test_a_tokenizer_that_hangs_at_a_later_text_ends_with_its_name(
    folder: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    word_tokenizer(("What", "is", "1", "a" * 1000)).save_pretrained(folder)
    step = {"decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"}, _replace(SLOW, "", "Regex")]}}
    splits = [{"type": "WhitespaceSplit"}, _split(SLOW)["pre_tokenizer"]]
    if part == "encode":
        step = {"pre_tokenizer": {"type": "Sequence", "pretokenizers": splits}}
    tokenizer = load_tokenizer(changed(folder, step))
    assert encode(tokenizer, "What is 1") == (5, 6, 7)
    assert decode(tokenizer, [5, 6, 7]).split()
    monkeypatch.setattr(tokenizer_module, "TOKENIZER_SECONDS", 0.1)
    with pytest.raises(Problem, match=r"a text of .* took more than 0\.1 s") as caught:
        encode(tokenizer, "a" * 1000) if part == "encode" else decode(tokenizer, [8])
    (refusal,) = caught.value.diagnostics
    assert (refusal.code, refusal.where) == ("E0803", str(folder))


def test_several_texts_have_the_time_of_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a tokenizer that hangs at one of many short texts ends as soon as at one alone: with 101 times it would be done."""
    word_tokenizer(("What", "a" * 1000)).save_pretrained(folder)
    splits = [{"type": "WhitespaceSplit"}, _split(SLOW)["pre_tokenizer"]]
    step = {"pre_tokenizer": {"type": "Sequence", "pretokenizers": splits}}
    tokenizer = load_tokenizer(changed(folder, step))
    monkeypatch.setattr(tokenizer_module, "TOKENIZER_SECONDS", 0.1)
    with pytest.raises(Problem, match=r"a text of 1,000 characters took more than 0\.1 s") as caught:
        encode_all(tokenizer, [*["What"] * 100, "a" * 1000])
    assert caught.value.diagnostics[0].code == "E0803"


def test_texts_are_encoded_together_as_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_module, "BATCH_TEXTS", 3)
    tokenizer = word_tokenizer(WORDS)
    texts = [TEXT, "", "so", "5 +7 .", "<eos> <pad>", " so  . ", TEXT]
    assert encode_all(tokenizer, texts) == [encode(tokenizer, text) for text in texts]
    assert encode_all(tokenizer, []) == []
    with pytest.raises(Problem, match="does not know `nine`"):
        encode_all(tokenizer, ["so", "so nine", "ten"])


def test_saved_truncation_and_padding_change_no_tokens(folder: Path, tmp_path: Path) -> None:
    text = "What is 1 is 1 is What"
    whole = load_tokenizer(folder)(text)["input_ids"]
    assert len(whole) == 7
    saved = Tokenizer.from_file(str(folder / "tokenizer.json"))
    saved.enable_truncation(3)
    saved.enable_padding(length=12)
    saved.save(str(folder / "tokenizer.json"))
    assert len(Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids) == 12
    loaded = load_tokenizer(folder)
    for tokenizer in (loaded, deepcopy(loaded)):
        assert tokenizer.encode(text) == tokenizer(text)["input_ids"] == whole
        assert encode_all(tokenizer, [text, "1"]) == [tuple(whole), tuple(whole[2:3])]
        assert tokenizer._tokenizer.encode_batch([text])[0].ids == whole
    assert open_tokenizer(folder / "tokenizer.json").encode(text).ids == whole
    loaded.save_pretrained(tmp_path / "again")
    assert Tokenizer.from_file(str(tmp_path / "again/tokenizer.json")).encode(text).ids == whole


def test_a_watched_tokenizer_is_the_same_and_can_be_copied(folder: Path, tmp_path: Path) -> None:
    plain, watched = PreTrainedTokenizerFast.from_pretrained(folder), load_tokenizer(folder)
    for each in (watched, deepcopy(watched), pickle.loads(pickle.dumps(watched))):
        assert each(["What is 1", "1"])["input_ids"] == plain(["What is 1", "1"])["input_ids"]
        assert each.decode([5, 6, 1]) == plain.decode([5, 6, 1])
        assert each.get_vocab() == plain.get_vocab()
    watched.save_pretrained(tmp_path / "again")
    assert (tmp_path / "again/tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()
