"""Encode texts of data so that nothing in them is a control token: a question opens no turn, and ends no response.

A mark in data is veiled before prompts are made of it. Marks that are there then are the template's own.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from tokenizers import Tokenizer

from reodsl.diagnostics import problem
from runners.models.tokenizer import THINK, TimedTokenizer, encode_all, require_known

MODEL_MARKS = (*THINK, "<tool_call>", "</tool_call>")
"""The marks that models themselves write, which stay control tokens in traces."""
_SECRET = str(10**23 + secrets.randbelow(9 * 10**23))
"""No text of data has this. It is digits alone, so that no filter of a template changes it."""
_VEIL = re.compile(f"{_SECRET}([0-9]{{6}})")


@dataclass(frozen=True, slots=True)
class Mark:
    """A control token of a tokenizer: its text, its id, and the text that replaces it while other texts are encoded."""

    text: str
    id: int
    stand_in: str


class Marks:
    """The control tokens of a tokenizer, and its text encoder without them.

    They are its special tokens and all added tokens that its chat template writes, such as `<think>`; added words and
    runs of spaces are not.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        templates = tokenizer.chat_template or ""
        template = "".join(templates.values() if isinstance(templates, dict) else [templates])
        # A tokenizer of words writes a mark in one way alone, and the spec lists its words.
        listed = type(tokenizer._tokenizer.model).__name__ == "WordLevel"
        added = [] if listed else sorted(tokenizer.added_tokens_decoder.items())
        marks = {
            token.content: id_
            for id_, token in added
            if token.special
            or token.content in MODEL_MARKS
            or (token.content.strip() and token.content in template)
        }
        self.marks = [
            Mark(text, id_, f"<{_SECRET}:{index}>") for index, (text, id_) in enumerate(marks.items())
        ]
        self.places = {mark.text: index for index, mark in enumerate(self.marks)}
        longest_first = sorted(map(re.escape, self.places), key=len, reverse=True)
        self.pattern = re.compile("|".join(longest_first) or "(?!)")

    def veil(self, text: str, keep: Sequence[str] = ()) -> str:
        """Return a text of data with its marks veiled, except the marks in `keep`."""
        return self.pattern.sub(
            lambda match: match[0] if match[0] in keep else f"{_SECRET}{self.places[match[0]]:06}", text
        )

    def keep(self, text: str) -> str:
        """Return a text of a spec whose marks stay control tokens when it is put into a text of data."""
        return self.pattern.sub(lambda match: self.marks[self.places[match[0]]].stand_in, text)

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the ids of a text whose veiled marks are encoded as text, and other marks as control tokens.

        Raises E0815 if the tokenizer can write a mark only as its control token.
        """
        masked = _VEIL.sub(lambda match: self.marks[int(match[1])].text, self.keep(text))
        ids = [int(token) for token in self._bare.encode_batch([masked], add_special_tokens=False)[0].ids]
        require_known(self._tokenizer, _VEIL.sub("", text), ids)
        controls = {self._bare.token_to_id(mark.stand_in): mark.id for mark in self.marks}
        for mark in self.marks:
            if self._bare.token_to_id(mark.text) in ids:
                raise problem(
                    "E0815",
                    f"the tokenizer can write `{mark.text}` as a control token alone, and a text of the data has it",
                    help="take it out of the text",
                )
        return tuple(controls.get(token, token) for token in ids)

    @cached_property
    def _bare(self) -> Any:
        """The tokenizer with the stand-ins for its control tokens, so that their own texts are text."""
        inner = self._tokenizer._tokenizer
        settings = json.loads(inner.to_str())
        texts = {mark.text: mark.stand_in for mark in self.marks}
        for token in settings["added_tokens"]:
            token["content"] = texts.get(token["content"], token["content"])
        bare = Tokenizer.from_str(json.dumps(settings))
        return TimedTokenizer(bare, inner._folder) if isinstance(inner, TimedTokenizer) else bare


@lru_cache(maxsize=8)
def marks_of(tokenizer: Any) -> Marks:
    """Return the control tokens of a tokenizer."""
    return Marks(tokenizer)


def reads_alike(tokenizer: Any, ids: Sequence[int]) -> bool:
    """Return whether a reader of the text of some tokens finds the same control tokens in it as in the tokens."""
    marks = marks_of(tokenizer)
    texts = marks.pattern.findall(tokenizer.decode(ids, skip_special_tokens=False))
    return [marks.marks[marks.places[text]].id for text in texts] == [
        text for text in ids if text in {mark.id for mark in marks.marks}
    ]


def veil(tokenizer: Any, text: str) -> str:
    """Return a text of data, to be put into a prompt that `encode_prompts` reads, with its marks veiled."""
    return marks_of(tokenizer).veil(text)


def encode_prompts(tokenizer: Any, texts: Sequence[str]) -> list[tuple[int, ...]]:
    """Return the ids of prompts in which marks of data are veiled. Raises E0815."""
    marks = marks_of(tokenizer)
    read = encode_all(tokenizer, ["" if _SECRET in text else text for text in texts])
    return [marks.encode(text) if _SECRET in text else ids for text, ids in zip(texts, read, strict=True)]


def encode_traces(tokenizer: Any, texts: Sequence[str]) -> list[tuple[int, ...]]:
    """Return the ids of texts that a model is to write. Raises E0815.

    The marks of `MODEL_MARKS` stay control tokens, and so does an end of text at the end.
    """
    marks, end = marks_of(tokenizer), tokenizer.eos_token or ""
    veiled = []
    for text in texts:
        body = text.removesuffix(end) if end else text
        veiled.append(marks.veil(body, MODEL_MARKS) + text[len(body) :])
    return encode_prompts(tokenizer, veiled)
