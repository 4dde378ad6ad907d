"""Meaning, not text: comments, order, names, layout and the spelling of units change no task's identity."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reodsl.graph.lower import lower
from reodsl.ir.base import canonical_json
from reodsl.language import compile_file
from reodsl.syntax.formatter import format_source
from reodsl.syntax.source import Source

ROOT = Path(__file__).resolve().parents[2]
QUICKSTART = (ROOT / "specs" / "quickstart.reo").read_text()
REWARDED = """
reward short(alpha: number in 0..1) {
  let mu = mean(len(z) for z in group if correct(z), empty: 8 tokens)
  dense L in linear(to: 128 tokens, n: 3): uniform(L) * correct(answer(y[:L])) - alpha * (len(y) / mu)
}
experiment shorter = small { reward = short(alpha: 0.1) }
"""
TEXT = QUICKSTART + REWARDED


def identity(text: str, folder: Path) -> list[tuple[str, str]]:
    path = folder / "spec.reo"
    path.write_text(text)
    found = []
    for target in ("quickstart", "shorter"):
        result = compile_file(path, target=target)
        assert result.spec is not None, result.diagnostics
        found.extend(
            (task.kind, canonical_json(task.payload))
            for task in lower(result.spec).tasks
            if task.kind != "report"
        )
    return sorted(found)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("identity")


@pytest.fixture(scope="module")
def same(folder: Path) -> list[tuple[str, str]]:
    return identity(TEXT, folder)


@settings(max_examples=8)
@given(st.integers(0, 2**32))
def test_order_and_comments(folder: Path, same: list[tuple[str, str]], seed: int) -> None:
    draw = random.Random(seed)
    lines = TEXT.split("\n")
    head = [line for line in lines if line.startswith(("from ", '"""'))]
    rest = "\n".join(line for line in lines if line not in head)
    # A declaration begins at the margin and goes on to the next that does.
    items = [item for item in re.split(r"\n(?=[a-z])", rest) if item.strip()]
    draw.shuffle(items)
    text = "\n".join([*head, *(f"# {draw.random()}\n{item}   # {draw.random()}" for item in items)])
    assert identity(text, folder) == same


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("128 tokens", "0.125K tokens"),
        ("128 tokens", "128"),
        ("40 steps", "40"),
        ("5e-4", "0.0005"),
        ("alpha: 0.2", "alpha: 20%"),
        (r"\bfive\b", "spaced"),
        (r"\bsmall\b", "shared"),
        (r"\bmu\b", "average_length"),
        (r"\bz\b", "other"),
        (r"\bL\b", "cut"),
        (r"\bcap\b", "longest"),
        (r"reward short\b", "reward brief"),
        ("decay = linear", "decay = linear, betas = [90%, 0.95]"),
    ],
)
def test_spelling_and_names(folder: Path, same: list[tuple[str, str]], old: str, new: str) -> None:
    text = re.sub(old, new, TEXT)
    if "brief" in new:
        text = text.replace("short(alpha", "brief(alpha")
    assert text != TEXT
    assert identity(text, folder) == same


def test_renamed_experiments(folder: Path, same: list[tuple[str, str]]) -> None:
    text = re.sub(r"\bexperiment (vanilla|reo_exp|group_norm|shrink)\b", r"experiment my_\1", TEXT)
    text = re.sub(r"= (vanilla|reo_exp|group_norm|shrink)$", r"= my_\1", text, flags=re.MULTILINE)
    text = text.replace("checkpoint(shrink.", "checkpoint(my_shrink.")
    assert identity(text, folder) == same


def test_formatted(folder: Path, same: list[tuple[str, str]]) -> None:
    formatted = format_source(Source("spec.reo", TEXT)).text
    assert formatted is not None
    assert identity(formatted, folder) == same


@pytest.mark.parametrize(
    ("old", "new"), [("5e-4", "4e-4"), ("40 steps", "41 steps"), ("alpha: 0.2", "alpha: 0.3")]
)
def test_what_matters_changes_it(folder: Path, same: list[tuple[str, str]], old: str, new: str) -> None:
    assert identity(TEXT.replace(old, new), folder) != same


def test_two_compilations_are_equal(folder: Path) -> None:
    path = folder / "spec.reo"
    path.write_text(QUICKSTART)
    one, two = compile_file(path).spec, compile_file(path).spec
    assert one == two
