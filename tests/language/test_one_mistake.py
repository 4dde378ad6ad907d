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


MUTATIONS = {"declaration": without_declarations, "name": with_misspelt_names, "sign": with_broken_signs}


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


THREE = (
    SPEC.replace("ppo\n", "ppo\nfrom std.rewards import outcome\n", 1)
    .replace("experiment cheaper", "experiment plain = small { reward = outcome }\nexperiment cheaper")
    .replace("  unequal", "  arm plain = plain\n  arm near = plain { kl = 0.1 }\n  unequal")
)
"""The spec with a reward that needs no forcing, and two more arms."""
NAMED = ("  arm plain = plain\n", "  arm first = plain\n")
OF, ROWS = "of: [start, cheaper]", "rows = [start, cheaper, earlier, longer]"
SUITE = (
    "study all {\n  eval = chain_suite",
    "suite mine = chain_suite { samples = 3 }\nstudy all {\n  eval = chain_suite",
)
ALL = (OF, "of: [start, cheaper, plain, near]")
ONE_ERROR = {
    "an experiment where arms stand": (
        "E0301",
        [NAMED, (OF, "of: [start, plain]"), (ROWS, "rows = [plain]")],
    ),
    "a recipe where arms stand": ("E0301", [(OF, "of: [start, small]"), (ROWS, "rows = [start, small]")]),
    "a param of a wrong unit": (
        "E0302",
        [
            ("param cost", "param rate: tokens = 3 tokens\nparam cost"),
            ("lr = 5e-4", "lr = rate"),
            ("kl = 1e-3", "kl = rate"),
        ],
    ),
    "an import that is gone": (
        "E0201",
        [("from std.miniature import chain_forcing, chain_suite, chain_train, overthinker\n", "")],
    ),
    "an argument of a wrong type": ("E0301", [("[8 tokens, 32 tokens], to: 128 tokens", "8 tokens")]),
    "a call without arguments": ("E0310", [("[8 tokens, 32 tokens], to: 128 tokens", "")]),
    "a call without two arguments": ("E0310", [("explicit([8 tokens, 32 tokens], to", "exp(to")]),
    "an argument that is misspelt": (
        "E0310",
        [("[8 tokens, 32 tokens], to:", "[8 tokens, 32 tokens], too:")],
    ),
    "a suite of most arms": ("E0601", [SUITE, ("  eval       = chain_suite", "  eval = mine")]),
    "a suite of two arms": (
        "E0601",
        [SUITE, ("{ reward = outcome }", "{ reward = outcome, eval = mine }"), ALL],
    ),
    "a suite of what is scored": (
        "E0601",
        [SUITE, ("{ reward = outcome }", "{ reward = outcome, eval = mine }")],
    ),
    "a suite in two frontiers": (
        "E0601",
        [
            SUITE,
            ("overthinker)\n  arm", "overthinker) { eval = mine }\n  arm"),
            ("  score", "  frontier other = envelope(of: [start, earlier], to: 128 tokens)\n  score"),
        ],
    ),
    "a suite in a balanced table": (
        "E0601",
        [
            SUITE,
            ("overthinker)\n  arm", "overthinker) { eval = mine }\n  arm"),
            ("columns", "subset = balanced, columns"),
        ],
    ),
    "a score past the frontier and the grid": (
        "E0607",
        [("to: 128 tokens, relative_to", "to: 512 tokens, relative_to")],
    ),
    "a grid that is short": (
        "E0404",
        [
            ("study all", "suite mine = chain_suite { grid = [0 tokens, 64 tokens] }\nstudy all"),
            ("  eval       = chain_suite", "  eval = mine"),
            ("checkpoint(overthinker)\n  arm", "checkpoint(overthinker) { eval = mine }\n  arm"),
        ],
    ),
    "responses past the context, with and without a forcing": (
        "E0501",
        [("max_tokens = 128 tokens", "max_tokens = 4K tokens")],
    ),
    "one response a question": ("E0309", [("rollouts = 8", "rollouts = 1")]),
    "a metric that is no metric": (
        "E0314",
        [
            (
                "  steps      = 40 steps",
                "  until = plateau(accuracy, window: 9 steps, within: 1%) or steps(40)",
            )
        ],
    ),
    "arms in a frontier of no study": (
        "E0201",
        [("study all", "frontier apart = envelope(of: [start], to: 64 tokens)\nstudy all")],
    ),
}
"""Mistakes that several declarations read or repeat, by the code of the one error and what is written otherwise."""


@pytest.mark.parametrize(("code", "changes"), ONE_ERROR.values(), ids=ONE_ERROR.keys())
def test_a_mistake_that_many_read_is_one_error(
    code: str, changes: list[tuple[str, str]], tmp_path: Path
) -> None:
    text = THREE
    for old, new in changes:
        assert text.count(old) == 1, (old, text.count(old))
        text = text.replace(old, new)
    path = tmp_path / "spec.reo"
    path.write_text(text)
    found = [each for each in compile_file(path).diagnostics if each.severity == "error"]
    assert [each.code for each in found] == [code], [(each.code, each.message) for each in found]


def test_the_spec_with_more_arms_has_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "spec.reo"
    path.write_text(THREE)
    assert [each for each in compile_file(path).diagnostics if each.severity == "error"] == []


@pytest.mark.parametrize(
    ("declared", "body", "given", "codes"),
    [
        ("number in 1..1000", "correct(y) - len(y) / a", "100 tokens", ["E0302"]),
        ("tokens in 1..1000", "correct(y) - 0.01 * a", "3 steps", ["E0302", "E0302"]),
        ("number", "dense L in a: trapezoid(L) * correct(answer(y[:L]))", "few", ["E0301"]),
        ("tokens", "dense L in a: trapezoid(L) * correct(answer(y[:L]))", "few", ["E0301"]),
        ("number", "correct(y) - len(y)", "3 tokens", ["E0302", "E0302"]),
        ("number in 1..1000", "correct(y) - len(y) / a", "most", ["E0302"]),
        ("budgets", "correct(y) * (1 - a)", "0.5", ["E0301"]),
        ("budgets", "correct(y) - len(y) / max(a, 1 token)", "50 tokens", ["E0301"]),
        ("budgets", "correct(y) - len(y) / max(a, 1 token)", "most", ["E0301"]),
        ("budgets", "dense L in a: trapezoid(L) * correct(answer(y[:L]))", "0.5", ["E0301"]),
    ],
)
def test_a_parameter_of_a_wrong_type_is_one_error_unless_the_body_has_its_own(
    declared: str, body: str, given: str, codes: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "spec.reo"
    text = SPEC.replace(
        "earlier = small { reward = early(at: few)", f"earlier = small {{ reward = own(a: {given})"
    )
    path.write_text(f"{text}param most: tokens = 9 tokens\nreward own(a: {declared}) {{ {body} }}\n")
    found = [each for each in compile_file(path).diagnostics if each.severity == "error"]
    assert [each.code for each in found] == codes, [(each.code, each.message) for each in found]
    (label,) = {each.labels[0].span.line for each in found if "`a` is" in each.message}
    assert f"own(a: {given})" in path.read_text().splitlines()[label - 1]


@pytest.mark.parametrize(
    "statement",
    [
        "if {} {{ 1 }} else {{ 0 }}",
        "if {} {{\n1\n}} else {{\n0\n}}",
        "if {}:\n1\nelse:\n0",
        "if {}\n1\nelse\n0",
    ],
)
def test_an_if_with_its_else_is_one_error_and_the_next_reward_has_its_own(
    statement: str, tmp_path: Path
) -> None:
    path = tmp_path / "spec.reo"
    written = f"reward r {{\n{statement.format('correct(y)')}\n}}\n"
    for text, lines in ((written, [2]), (f"{written}reward s {{ for }}\nreward t {{ correct(y] }}\n", None)):
        path.write_text(text)
        found = [each for each in compile_file(path).diagnostics if each.severity == "error"]
        at = [each.labels[0].span.line for each in found]
        assert at == lines or (lines is None and len(at) == 3 and at[0] == 2), found
