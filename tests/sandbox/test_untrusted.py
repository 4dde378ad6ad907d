"""Bytes that somebody else wrote: a value within bounds, or the one refusal, whatever they are."""

from __future__ import annotations

import json
import sys
from random import Random
from typing import Any

import pytest

from runners.programs.judge import same_value
from runners.sandbox.untrusted import DEEPEST, MOST_DIGITS, Undecodable, decoded, encoded

PIECES = [
    b"[", b"]", b"{", b"}", b",", b":", b'"', b"\\", b'"a"', b'"int"', b'"set"', b'"dict"', b'"fraction"', b'"value"', b"1",
    b"-", b"0x", b"1e999", b"NaN", b"-Infinity", b"null", b"true", b"9" * 400, b"9" * 5000, b"1e100000000", b"[" * 1000,
    b'{"a":' * 1000, b"\\ud800", b"\\u0000", b"\xff", b"\xed\xa0\x80", b"\x00", b"\n", b" ", b'"1/0"', b'"1e100000000"',
]  # fmt: skip
MALFORMED = [
    "[" * 100_000,
    "[" * 988 + "]" * 988,
    '{"a":' * 990 + "1" + "}" * 990,
    "1" * (MOST_DIGITS + 1),
    "-1." + "0" * MOST_DIGITS,
    '"open',
    "",
    "[1] [2]",
    b"\xff",
]


@pytest.mark.parametrize("data", MALFORMED, ids=range(len(MALFORMED)))
def test_what_is_beyond_the_bounds_is_refused(data: bytes | str) -> None:
    with pytest.raises(Undecodable):
        decoded(data, 2**20)


def test_what_is_within_them_is_the_value_and_can_be_sent_on() -> None:
    number = int("9" * MOST_DIGITS)
    for value in (number, -number, [number, "[" * 999, '\\"[{'], 1.5, {"a": [None, True]}, "\ud800"):
        assert decoded(json.dumps(value), 2**20) == value
    text = "[" * DEEPEST + "]" * DEEPEST
    assert encoded(decoded(text, len(text))) == text.encode() + b"\n"
    with pytest.raises(Undecodable, match="may have"):
        decoded(text, len(text) - 1)


def test_values_are_counted_before_they_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts may have any characters. 64 MB of `[],` took 1.7 GB of memory."""
    monkeypatch.setattr("runners.sandbox.untrusted.MOST_VALUES", 1_000)
    for value in ([[]] * 1_001, [{}] * 1_001, [1] * 1_002, {str(n): 1 for n in range(1_001)}):
        with pytest.raises(Undecodable, match="more than 1,000 values"):
            decoded(json.dumps(value), 2**20)
    for value in ([1] * 1_000, ["[],{" * 9_000, '\\",' * 9_000], [[]] * 499):
        assert decoded(json.dumps(value), 2**20) == value


def test_a_name_is_no_field_twice() -> None:
    with pytest.raises(Undecodable, match="in a record, `b` is listed twice"):
        decoded('[{"a": {"a": 1, "b": 2, "c": 3, "b": 2}}]', 2**20)
    with pytest.raises(Undecodable, match="twice"):
        decoded("{" + ",".join(f'"{n}":1' for n in range(100_000)) + ',"99999":1}', 2**24)


NAMES = ["a", "tuple", "dict", "set"]
LEAVES = [
    None,
    True,
    1,
    -2.5,
    10**4000,
    1e999,
    "",
    "0xff",
    "1e100000000",
    "1/0",
    "sNaN",
    "\ud800",
    "ff",
    [],
    {},
]


def drawn(random: Random, depth: int = 0) -> Any:
    """What the other side might send: tags with what belongs to them, and with what does not."""
    if depth > 4 or random.random() < 0.3:
        return random.choice(LEAVES)
    if random.random() < 0.5:
        return {random.choice(NAMES): drawn(random, depth + 1)}
    return [drawn(random, depth + 1) for _ in range(random.randrange(5))]


def fuzzed(random: Random) -> bytes:
    """Pieces of JSON in any order, or values of which some bytes are changed or none."""
    if random.random() < 0.3:
        return b"".join(random.choices(PIECES, k=random.randrange(1, 40)))
    data = bytearray(json.dumps({"value": drawn(random)}).encode())
    for _ in range(random.randrange(3)):
        at = random.randrange(len(data))
        data[at : at + random.randrange(3)] = random.choice(PIECES)
    return bytes(data)


@pytest.mark.parametrize("cases", [300, pytest.param(10_000, marks=pytest.mark.heavy)])
def test_any_bytes_are_a_value_or_the_one_refusal(cases: int) -> None:
    random = Random(1)
    values = 0
    for _ in range(cases):
        try:
            said = decoded(fuzzed(random), 2**16)
        except Undecodable:
            continue
        values += 1
        assert encoded(said).endswith(b"\n")
        packed = said.get("value") if isinstance(said, dict) else said
        for wanted in (0.5, [{"a": 255}, [], "text", None], {"a": 1}):
            assert same_value(wanted, packed, 1e-4) in (True, False)
    assert cases / 5 < values < cases


class Number(int):
    """A number that counts how often it is hashed."""

    hashed = 0

    def __hash__(self) -> int:
        Number.hashed += 1
        return int.__hash__(self)


def test_no_number_that_is_said_is_hashed() -> None:
    numbers: list[Any] = [Number(k * sys.hash_info.modulus) for k in range(45_000)]
    for said in ({"set": numbers}, {"dict": [[each, 1] for each in numbers]}, numbers):
        for wanted in ({"a": 1}, [1], 1, {str(k): 1 for k in range(45_000)}):
            assert not same_value(wanted, said, 1e-4)
    assert Number.hashed == 0
