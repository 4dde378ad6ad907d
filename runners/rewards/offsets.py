"""Map characters to tokens: how many tokens reach a character, and the texts of prefixes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cached_property

Decode = Callable[[Sequence[int]], str]

BLOCK = 256
"""Tokens between two places from which the text goes on by itself: decoded at once, and again where one is asked for."""
_TRIES = 16
_BROKEN = "\ufffd"


class Offsets:
    """The text of tokens, and the number of characters of each prefix.

    Decoding every prefix that a search looks at costs a whole response each time. A byte-level or word-level decoder
    goes on from a token as from the beginning, given the token before it, wherever no character is spread over the two.
    So the text is cut at such places into blocks, and a search decodes within one. Where their lengths do not add up to
    the whole, as with a decoder that looks further back, prefixes are decoded after all.
    """

    def __init__(self, tokens: Sequence[int], decode: Decode, text: str | None = None) -> None:
        """Keep the tokens; `text` is the text of all tokens if it is known already."""
        self._tokens, self._decode = tokens, decode
        self.text = decode(tokens) if text is None else text

    def prefix(self, count: int) -> str:
        """Return the text of the first `count` tokens."""
        if self._blocks is None:
            return self._decode(self._tokens[:count])
        firsts, reaches = self._blocks
        block = max(0, bisect_left(firsts, count) - 1)
        return self.text[: reaches[block]] + self._after(firsts[block], count)

    def reaching(self, characters: int) -> int:
        """Return the fewest tokens whose text has at least `characters` characters, or the number of all tokens."""
        low, high = 0, len(self._tokens)
        if self._blocks is not None:
            firsts, reaches = self._blocks
            block = max(0, bisect_left(reaches, characters) - 1)
            low = firsts[block]
            high = firsts[block + 1] if block + 1 < len(firsts) else high
        return low + bisect_left(range(low, high), characters, key=lambda count: len(self.prefix(count)))

    def holding(self, characters: int) -> int:
        """Return the fewest tokens whose text completes `characters` characters, the last of which several may share."""
        last, counts = slice(characters - 1, characters), range(self.reaching(characters), len(self._tokens))
        parts = {"", _BROKEN} - {self.text[last]}
        return next((n for n in counts if self.prefix(n)[last] not in parts), len(self._tokens))

    @cached_property
    def _blocks(self) -> tuple[list[int], list[int]] | None:
        """Return each block's first token and the characters before it; None if the decoder does not go on from a token."""
        firsts, reaches = [0], [0]
        while firsts[-1] + BLOCK < len(self._tokens):
            first = self._clean(firsts[-1] + BLOCK)
            reaches.append(reaches[-1] + len(self._after(firsts[-1], first)))
            firsts.append(first)
        total = reaches[-1] + len(self._after(firsts[-1], len(self._tokens)))
        return (firsts, reaches) if total == len(self.text) else None

    def _clean(self, first: int) -> int:
        """Return the next boundary between two tokens that share no character."""
        for index in range(first, min(first + _TRIES, len(self._tokens))):
            if not any(_BROKEN in self._decode(self._tokens[i : i + 1]) for i in (index - 1, index)):
                return index
        return first

    def _after(self, first: int, last: int) -> str:
        """Return the text that tokens `first` up to `last` add to the text before them."""
        if not first:
            return self._decode(self._tokens[:last])
        before = self._decode(self._tokens[first - 1 : first])
        return self._decode(self._tokens[first - 1 : last])[len(before) :]
