"""Offsets against the text of every prefix, whatever bytes the tokens are, and how many tokens a search decodes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.rewards import offsets
from runners.rewards.offsets import Decode, Offsets
from runners.rollout.answers import bare_answers

# Characters of one to four bytes, whole, in parts and several at once, as byte-level tokens hold them.
PIECES = [
    b"a", b" so", b"}", b"\xc3", b"\xa9", b"\xe2", b"\x82", b"\xac", b"\xe2\x82", b"\xac!", b"\xf0\x9f", b"\x98\x80",
]  # fmt: skip
LOST = "ab"


def of_bytes(tokens: Sequence[int]) -> str:
    return b"".join(PIECES[token] for token in tokens).decode(errors="replace")


def of_words(tokens: Sequence[int]) -> str:
    return " ".join(f"w{token}" for token in tokens)


def of_context(tokens: Sequence[int]) -> str:
    """A decoder that looks two tokens back: of three equal ones in a row the last is lost."""
    kept = [t for at, t in enumerate(tokens) if at < 2 or not t == tokens[at - 1] == tokens[at - 2]]
    return "".join(LOST[token % 2] for token in kept)


@pytest.mark.parametrize("decode", [of_bytes, of_words, of_context])
@settings(max_examples=100)
@given(st.lists(st.integers(0, len(PIECES) - 1), max_size=30), st.integers(1, 5))
def test_prefixes_and_places_are_those_of_decoding_each(
    decode: Decode, tokens: list[int], block: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offsets, "BLOCK", block)
        found = Offsets(tokens, decode)
        texts = [decode(tokens[:count]) for count in range(len(tokens) + 1)]
        assert found.text == texts[-1]
        for characters in range(len(texts[-1]) + 2):
            place = found.reaching(characters)
            assert found.prefix(place) == texts[place]
            reached = [count for count, text in enumerate(texts) if len(text) >= characters]
            if not reached:
                assert place == len(tokens)
            # A character in parts may be shorter once it is whole: then several places are where it is reached.
            elif len(texts[place]) < characters or (place and len(texts[place - 1]) >= characters):
                raise AssertionError(
                    f"{characters} characters at {place}, and they are reached at {reached[0]}"
                )

    whole = Offsets(tokens, decode)
    for characters in range(len(whole.text) + 1):
        held = [count for count, text in enumerate(texts) if text.startswith(whole.text[:characters])]
        assert whole.holding(characters) == held[0]


def test_many_answers_in_a_long_response_cost_little_more_than_reading_it() -> None:
    """Sixty boxes among 16,000 words; a search over whole prefixes would decode 900 of them."""
    words = ["so", "\\boxed{ 7 }", "\\boxed{ 8 }"]
    tokens = [0] * 16_000
    for number in range(60):
        tokens[250 * (number + 1)] = 1 + number % 2
    decoded = 0

    def decode(some: Sequence[int]) -> str:
        nonlocal decoded
        decoded += len(some)
        return " ".join(words[token] for token in some)

    found = bare_answers(tokens, decode)
    assert found == [(250 * (number + 1) + 1, str(7 + number % 2)) for number in range(60)]
    assert decoded < 12 * len(tokens)
