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
from runners.models.tokenizer import THINK, Watched, encode_all, require_known

WRITTEN = (*THINK, "<tool_call>", "</tool_call>")
"""The marks that models themselves write, which stay control tokens in traces."""
_SECRET = str(10**23 + secrets.randbelow(9 * 10**23))
"""No text of data has this. It is digits alone, so that no filter of a template changes it."""
_VEIL = re.compile(f"{_SECRET}([0-9]{{6}})")


@dataclass(frozen=True, slots=True)
class Mark:
    """A control token of a tokenizer: its text, its id, and the text that stands for it while other texts are encoded."""

    text: str
    id: int
    stand_in: str


class Marks:
    """The control tokens of a tokenizer, and its text encoder without them.

    They are its special tokens and all other added tokens that its chat template writes, such as `<think>`. Added words and
    runs of spaces are none.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        templates = tokenizer.chat_template or ""
        written = "".join(templates.values() if isinstance(templates, dict) else [templates])
        # A tokenizer of words writes a mark in one way alone, and the spec lists its words.
        listed = type(tokenizer._tokenizer.model).__name__ == "WordLevel"
        added = [] if listed else sorted(tokenizer.added_tokens_decoder.items())
        marks = {
            each.content: at
            for at, each in added
            if each.special or each.content in WRITTEN or (each.content.strip() and each.content in written)
        }
        self.marks = [
            Mark(text, at, f"<{_SECRET}:{place}>") for place, (text, at) in enumerate(marks.items())
        ]
        self.places = {mark.text: place for place, mark in enumerate(self.marks)}
        longest_first = sorted(map(re.escape, self.places), key=len, reverse=True)
        self.pattern = re.compile("|".join(longest_first) or "(?!)")

    def veil(self, text: str, kept: Sequence[str] = ()) -> str:
        """Return a text of data with each mark in it veiled, except those that are `kept`."""
        return self.pattern.sub(
            lambda found: found[0] if found[0] in kept else f"{_SECRET}{self.places[found[0]]:06}", text
        )

    def keep(self, text: str) -> str:
        """Return a text of a spec whose marks stay control tokens when it is put into a text of data."""
        return self.pattern.sub(lambda found: self.marks[self.places[found[0]]].stand_in, text)

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the ids of a text in which marks of data are veiled: those are encoded as text, others as themselves.

        Raises E0815 where the tokenizer can write a mark as its control token alone.
        """
        masked = _VEIL.sub(lambda found: self.marks[int(found[1])].text, self.keep(text))
        ids = [int(each) for each in self._bare.encode_batch([masked], add_special_tokens=False)[0].ids]
        require_known(self._tokenizer, _VEIL.sub("", text), ids)
        controls = {self._bare.token_to_id(mark.stand_in): mark.id for mark in self.marks}
        for mark in self.marks:
            if self._bare.token_to_id(mark.text) in ids:
                raise problem(
                    "E0815",
                    f"the tokenizer can write `{mark.text}` as a control token alone, and a text of the data has it",
                    help="take it out of the text",
                )
        return tuple(controls.get(each, each) for each in ids)

    @cached_property
    def _bare(self) -> Any:
        """The tokenizer with the stand-ins for its control tokens, so that their own texts are text."""
        inner = self._tokenizer._tokenizer
        settings = json.loads(inner.to_str())
        texts = {mark.text: mark.stand_in for mark in self.marks}
        for token in settings["added_tokens"]:
            token["content"] = texts.get(token["content"], token["content"])
        bare = Tokenizer.from_str(json.dumps(settings))
        return Watched(bare, inner._folder) if isinstance(inner, Watched) else bare


@lru_cache(maxsize=8)
def marks_of(tokenizer: Any) -> Marks:
    """Return the control tokens of a tokenizer."""
    return Marks(tokenizer)


def reads_alike(tokenizer: Any, ids: Sequence[int]) -> bool:
    """Return whether who is given the text of some tokens finds the control tokens in it that these have."""
    marks = marks_of(tokenizer)
    found = marks.pattern.findall(tokenizer.decode(ids, skip_special_tokens=False))
    return [marks.marks[marks.places[each]].id for each in found] == [
        each for each in ids if each in {mark.id for mark in marks.marks}
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

    The marks of `WRITTEN` stay control tokens, and so does an end of text at the end.
    """
    marks, end = marks_of(tokenizer), tokenizer.eos_token or ""
    veiled = []
    for text in texts:
        body = text.removesuffix(end) if end else text
        veiled.append(marks.veil(body, WRITTEN) + text[len(body) :])
    return encode_prompts(tokenizer, veiled)
