"""Map characters of a text to tokens: how many tokens reach a character, and the texts of prefixes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cached_property

Decode = Callable[[Sequence[int]], str]
"""A function from token ids to their text."""

BLOCK = 256
"""The number of tokens of a block, which is decoded separately."""
_TRIES = 16
"""The number of positions that are tried as the start of a block."""
_BROKEN = "\ufffd"
"""The replacement character, with which decoders show an incomplete character."""


class Offsets:
    """The text of some tokens, and the number of characters of each prefix.

    Decoding every prefix of a long response would take too long. The tokens are therefore divided into blocks, and a
    search decodes tokens of one block only. This is right for a byte-level or word-level decoder: it can start at any
    token, given the token before, if no character is spread over the two tokens. A decoder that needs more context gives
    blocks whose lengths do not add up to the full text. Then prefixes are decoded in full.
    """

    def __init__(self, tokens: Sequence[int], decode: Decode, text: str | None = None) -> None:
        """Decode the tokens, or use `text` if the text of all tokens is known."""
        self._tokens, self._decode = tokens, decode
        self.text = decode(tokens) if text is None else text

    def prefix(self, count: int) -> str:
        """Return the text of the first `count` tokens."""
        if self._blocks is None:
            return self._decode(self._tokens[:count])
        first_tokens, chars_before = self._blocks
        block = max(0, bisect_left(first_tokens, count) - 1)
        return self.text[: chars_before[block]] + self._added_text(first_tokens[block], count)

    def reaching(self, characters: int) -> int:
        """Return the smallest number of first tokens whose text has at least `characters` characters.

        The result is the number of all tokens if the full text is shorter.
        """
        low, high = 0, len(self._tokens)
        if self._blocks is not None:
            first_tokens, chars_before = self._blocks
            block = max(0, bisect_left(chars_before, characters) - 1)
            low = first_tokens[block]
            high = first_tokens[block + 1] if block + 1 < len(first_tokens) else high
        return low + bisect_left(range(low, high), characters, key=lambda count: len(self.prefix(count)))

    def holding(self, characters: int) -> int:
        """Return the smallest number of first tokens whose text has the first `characters` characters, all complete.

        The bytes of a character may be spread over several tokens. Until the last of these tokens, decoders show a
        replacement character instead. The result is the number of all tokens if no smaller number suffices.
        """
        last, counts = slice(characters - 1, characters), range(self.reaching(characters), len(self._tokens))
        incomplete = {"", _BROKEN} - {self.text[last]}
        return next((n for n in counts if self.prefix(n)[last] not in incomplete), len(self._tokens))

    @cached_property
    def _blocks(self) -> tuple[list[int], list[int]] | None:
        """Return the index of each block's first token, and the number of characters before each block.

        The result is None if the lengths of the blocks' texts do not add up to the length of the full text, because the
        decoder cannot start inside the tokens.
        """
        first_tokens, chars_before = [0], [0]
        while first_tokens[-1] + BLOCK < len(self._tokens):
            first = self._next_boundary(first_tokens[-1] + BLOCK)
            chars_before.append(chars_before[-1] + len(self._added_text(first_tokens[-1], first)))
            first_tokens.append(first)
        total = chars_before[-1] + len(self._added_text(first_tokens[-1], len(self._tokens)))
        return (first_tokens, chars_before) if total == len(self.text) else None

    def _next_boundary(self, first: int) -> int:
        """Return the smallest token index, from `first` on, at which a block can start.

        The token at the index and the token before it must each decode to complete characters. `_TRIES` indices are
        tried; if none qualifies, return `first`.
        """
        for index in range(first, min(first + _TRIES, len(self._tokens))):
            if not any(_BROKEN in self._decode(self._tokens[i : i + 1]) for i in (index - 1, index)):
                return index
        return first

    def _added_text(self, first: int, last: int) -> str:
        """Return the text that the tokens from `first` up to but without `last` add to the text before them."""
        if not first:
            return self._decode(self._tokens[:last])
        before = self._decode(self._tokens[first - 1 : first])
        return self._decode(self._tokens[first - 1 : last])[len(before) :]
