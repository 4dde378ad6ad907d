"""One mistake is one error: a spec with a declaration less, a misspelt name or a broken sign has one, or few."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from reodsl.language import compile_file

SPEC = """from std.miniature import chain_forcing, chain_suite, chain_train, overthinker
from std.recipes import ppo

param cost: number = 0.2 in 0..1
budgets few = explicit([8 tokens, 32 tokens], to: 128 tokens)

reward cheap(cost: number in 0..1) {
  let longest = max(len(z) for z in group)
  let share(a) = len(a) / longest
  track done = min(1, step / 40 steps)
  correct(y) - cost * done * share(y)
}

reward early(at: budgets) {
  dense L in at: trapezoid(L) * correct(answer(y[:L]))
}

recipe small = ppo {
  base       = checkpoint(overthinker)
  data       = chain_train
  forcing    = chain_forcing
  batch      { prompts = 32, rollouts = 8 }
  rollout    { max_tokens = 128 tokens }
  max_prompt = 32 tokens
  optim      { lr = 5e-4 }
  eval       = chain_suite
  steps      = 40 steps
}

experiment cheaper = small { reward = cheap(cost: cost) }
experiment earlier = small { reward = early(at: few), kl = 1e-3 }

study all {
  eval = chain_suite
  arm start   = checkpoint(overthinker)
  arm cheaper = cheaper
  arm earlier = earlier
  arm longer  = cheaper { steps = 80 steps }
  unequal = "longer trains for twice the steps"
  frontier edge = envelope(of: [start, cheaper], to: 128 tokens)
  score  = reg(against: edge, to: 128 tokens, relative_to: start)
  report { table main { rows = [start, cheaper, earlier, longer], columns = [accuracy, length] } }
}
"""
WORD = re.compile(r'"[^"]*"|[A-Za-z_]\w*')
SIGN = re.compile(r'"[^"]*"|[{}()\[\]=,*/:]')


def without_declarations() -> Iterator[tuple[str, str]]:
    """The spec without each of its declarations, settings and lines."""
    lines = SPEC.split("\n")
    for at, line in enumerate(lines):
        inside = line.startswith(" ")
        last = at
        if line.endswith("{"):
            last = next(end for end in range(at, len(lines)) if lines[end].startswith("}"))
        if line.strip() and line != "}" and (inside or line[0].isalpha()):
            yield line.strip(), "\n".join(lines[:at] + lines[last + 1 :])


def with_misspelt_names() -> Iterator[tuple[str, str]]:
    """The spec with two letters of each word changed in turn."""
    for word in WORD.finditer(SPEC):
        name = word[0]
        if name.startswith('"') or len(name) < 3:
            continue
        wrong = f"{name[:-2]}{name[-1]}{name[-2]}" if name[-1] != name[-2] else f"{name}x"
        yield f"{word.start()} {wrong}", SPEC[: word.start()] + wrong + SPEC[word.end() :]


def with_broken_signs() -> Iterator[tuple[str, str]]:
    """The spec without each of its signs in turn."""
    for sign in SIGN.finditer(SPEC):
        if not sign[0].startswith('"'):
            yield f"{sign.start()} {sign[0]}", SPEC[: sign.start()] + SPEC[sign.end() :]


MUTATIONS = {
    "declaration": without_declarations,
    "name": with_misspelt_names,
    "sign": with_broken_signs,
}


def count_errors(mutation: str, third: int, path: Path) -> dict[str, list[str]]:
    """The codes of the errors of each third mutation."""
    found = {}
    for name, text in islice(MUTATIONS[mutation](), third, None, 3):
        path.write_text(text)
        found[name] = [each.code for each in compile_file(path).diagnostics if each.severity == "error"]
    return found


def test_the_spec_has_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "spec.reo"
    path.write_text(SPEC)
    assert compile_file(path).diagnostics == ()


@pytest.mark.parametrize(
    ("mutation", "several"),
    # A line of imports has several names, two experiments come from one recipe, and a study begins in a line with its name.
    [("declaration", 4), ("name", 5), ("sign", 1)],
)
@pytest.mark.parametrize(
    "third", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]
)
def test_one_mistake_is_one_error(mutation: str, several: int, third: int, tmp_path: Path) -> None:
    found = count_errors(mutation, third, tmp_path / "spec.reo")
    more = {name: codes for name, codes in found.items() if len(codes) > 1}
    assert len(found) > 10
    assert len(more) <= several, more
    assert max(map(len, found.values())) <= 4, more
