"""Mutations of a spec: from a text and a seed to a text that is most likely wrong, by characters, words or lines."""

from __future__ import annotations

import random
import re

WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9][0-9A-Za-z.]*|\"[^\"\n]*\"|\S")
SIGNS = "{ } ( ) [ ] = += , : .. . - * / ^ 0 1 -1 1e18 16K 0.5% 1e-300"
WORDS = "tokens steps if else for in and not let dense true y group ref arms std checkpoint exp reo ppo study arm stage"
PARTS = [
    "stages",
    "reward",
    "correct(y)",
    "len(y)",
    '"x"',
    '""',
    '"""',
    "[ ]",
    "{ }",
    "999999999999999999999",
    "\x00",
    "é",
    "mean(len(z) for z in group)",
    "exp(from: 1K tokens, to: 32K tokens, n: 5)",
]
SPICE = [*SIGNS.split(), *WORDS.split(), *PARTS]


def mutated(text: str, seed: int, others: list[str]) -> str:
    """One to three mutations of `text`; `others` are texts whose words may be put in."""
    draw = random.Random(seed)
    for _ in range(draw.randint(1, 3)):
        text = _once(text, draw, others)
    return text


def _once(text: str, draw: random.Random, others: list[str]) -> str:
    words = list(WORD.finditer(text))
    if not words:
        return draw.choice(SPICE)
    one, two = draw.choice(words), draw.choice(words)
    match draw.randrange(9):
        case 0:
            return text[: one.start()] + text[one.end() :]
        case 1:
            return text[: one.start()] + draw.choice(SPICE) + text[one.end() :]
        case 2:
            return text[: one.start()] + draw.choice(SPICE) + " " + text[one.start() :]
        case 3:
            return text[: one.start()] + two[0] + text[one.end() :]
        case 4:
            donor = WORD.findall(draw.choice(others))
            return text[: one.start()] + draw.choice(donor) + text[one.end() :]
        case 5:
            lines = text.split("\n")
            del lines[draw.randrange(len(lines))]
            return "\n".join(lines)
        case 6:
            lines = text.split("\n")
            lines.insert(draw.randrange(len(lines)), draw.choice(lines))
            return "\n".join(lines)
        case 7:
            at = draw.randrange(len(text))
            return (
                text[:at]
                + chr(draw.choice([draw.randrange(32, 127), draw.randrange(0x250), 10]))
                + text[at + 1 :]
            )
        case _:
            return text[: draw.randrange(len(text))]
