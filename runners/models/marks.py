"""Encode texts of data so that they contain no control tokens: a question cannot open a turn or end a response.

A mark is the text of a control token, such as `<|im_end|>`. Marks in data are veiled, i.e. replaced by a secret code,
before a template is filled. Marks in the filled template are therefore the template's own, and become control tokens;
veiled marks are encoded as plain text.
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
"""The marks that models write in responses, which stay control tokens in traces."""
_SECRET = str(10**23 + secrets.randbelow(9 * 10**23))
"""A random text that no data contains. It has only digits, so that filters of templates do not change it."""
_VEIL = re.compile(f"{_SECRET}([0-9]{{6}})")
"""A veiled mark: the secret, and the index of the mark in six digits."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A control token of a tokenizer: its text, its id, and the text that replaces it while other texts are encoded."""

    text: str
    id: int
    stand_in: str


class Marks:
    """The marks of a tokenizer, i.e. the texts of its control tokens, and an encoder that treats them as plain text.

    Control tokens are special tokens, `MODEL_MARKS`, and added tokens that the chat template writes, such as `<think>`.
    Other added tokens, such as words and runs of spaces, are not.
    """

    def __init__(self, tokenizer: Any) -> None:
        """Find the control tokens of a transformers tokenizer, and build the pattern that finds their texts.

        A longer mark is found before a shorter mark that it begins with.
        """
        self._tokenizer = tokenizer
        templates = tokenizer.chat_template or ""
        template = "".join(templates.values() if isinstance(templates, dict) else [templates])
        # A word-level tokenizer cannot write a mark as several tokens, so none of its words counts as a mark.
        has_word_list = type(tokenizer._tokenizer.model).__name__ == "WordLevel"
        added_tokens = [] if has_word_list else sorted(tokenizer.added_tokens_decoder.items())
        marks = {
            token.content: id_
            for id_, token in added_tokens
            if token.special
            or token.content in MODEL_MARKS
            or (token.content.strip() and token.content in template)
        }
        self.marks = [
            Mark(text, id_, f"<{_SECRET}:{index}>") for index, (text, id_) in enumerate(marks.items())
        ]
        self.indices = {mark.text: index for index, mark in enumerate(self.marks)}
        longest_first = sorted(map(re.escape, self.indices), key=len, reverse=True)
        self.pattern = re.compile("|".join(longest_first) or "(?!)")

    def veil(self, text: str, keep: Sequence[str] = ()) -> str:
        """Return a text of data with its marks veiled, except the marks in `keep`."""
        return self.pattern.sub(
            lambda match: match[0] if match[0] in keep else f"{_SECRET}{self.indices[match[0]]:06}", text
        )

    def keep(self, text: str) -> str:
        """Return a text of a spec in which each mark is replaced by its stand-in, a secret text.

        `veil` does not change stand-ins, and `encode` turns them into control tokens. A spec's text may therefore be
        joined with a text of data before the whole is veiled: the spec's marks stay control tokens.
        """
        return self.pattern.sub(lambda match: self.marks[self.indices[match[0]]].stand_in, text)

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the token ids of a text: veiled marks as plain text, stand-ins and other marks as control tokens.

        Raises:
            Problem: E0815, if the tokenizer can write a veiled mark only as a control token, or does not know a word.
        """
        masked = _VEIL.sub(lambda match: self.marks[int(match[1])].text, self.keep(text))
        ids = [int(token) for token in self._unmarked.encode_batch([masked], add_special_tokens=False)[0].ids]
        require_known(self._tokenizer, _VEIL.sub("", text), ids)
        controls = {self._unmarked.token_to_id(mark.stand_in): mark.id for mark in self.marks}
        for mark in self.marks:
            if self._unmarked.token_to_id(mark.text) in ids:
                raise problem(
                    "E0815",
                    f"the tokenizer can write `{mark.text}` only as a control token, and a text of the data has it",
                    help=f"remove `{mark.text}` from the text",
                )
        return tuple(controls.get(token, token) for token in ids)

    @cached_property
    def _unmarked(self) -> Any:
        """Return a copy of the tokenizer in which the text of each control token is its stand-in.

        The copy encodes marks as plain text, and stand-ins as control tokens.
        """
        inner = self._tokenizer._tokenizer
        settings = json.loads(inner.to_str())
        texts = {mark.text: mark.stand_in for mark in self.marks}
        for token in settings["added_tokens"]:
            token["content"] = texts.get(token["content"], token["content"])
        tokenizer = Tokenizer.from_str(json.dumps(settings))
        return TimedTokenizer(tokenizer, inner._folder) if isinstance(inner, TimedTokenizer) else tokenizer


@lru_cache(maxsize=8)
def marks_of(tokenizer: Any) -> Marks:
    """Return the marks of a tokenizer; the last results are cached."""
    return Marks(tokenizer)


def reads_alike(tokenizer: Any, ids: Sequence[int]) -> bool:
    """Return whether encoding the text of some tokens again would give the control tokens that the tokens have, in order.

    This is false if ordinary tokens spell a mark: another program that gets the text would read a control token.
    """
    marks = marks_of(tokenizer)
    found = marks.pattern.findall(tokenizer.decode(ids, skip_special_tokens=False))
    return [marks.marks[marks.indices[text]].id for text in found] == [
        text for text in ids if text in {mark.id for mark in marks.marks}
    ]


def veil(tokenizer: Any, text: str) -> str:
    """Return a text of data with its marks veiled, to be inserted into a prompt for `encode_prompts`."""
    return marks_of(tokenizer).veil(text)


def encode_prompts(tokenizer: Any, texts: Sequence[str]) -> list[tuple[int, ...]]:
    """Return the token ids of prompts: veiled marks become plain text, and other marks become control tokens.

    Raises:
        Problem: E0815, as `Marks.encode`.
    """
    marks = marks_of(tokenizer)
    encoded = encode_all(tokenizer, ["" if _SECRET in text else text for text in texts])
    return [marks.encode(text) if _SECRET in text else ids for text, ids in zip(texts, encoded, strict=True)]


def encode_traces(tokenizer: Any, texts: Sequence[str]) -> list[tuple[int, ...]]:
    """Return the token ids of texts that a model is trained to write.

    `MODEL_MARKS` become control tokens, and so does the mark of the end of text at the end of a text. Other marks
    become plain text.

    Raises:
        Problem: E0815, as `Marks.encode`.
    """
    marks, end = marks_of(tokenizer), tokenizer.eos_token or ""
    bodies = [text.removesuffix(end) for text in texts]
    return encode_prompts(
        tokenizer,
        [marks.veil(body, MODEL_MARKS) + text[len(body) :] for body, text in zip(bodies, texts, strict=True)],
    )
