"""Every diagnostic of the language: its page has a wrong example that gives it, as in its golden file, and a right one."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reodsl.diagnostics import Diagnostic
from reodsl.diagnostics.render import render
from reodsl.language import check_file

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "reodsl" / "diagnostics" / "pages"
SOURCES = [
    *sorted((ROOT / "reodsl" / "language").rglob("*.py")),
    ROOT / "reodsl" / "diagnostics" / "dropped.py",
]
CODES = sorted({code for path in SOURCES for code in re.findall(r'"([EWN]0\d{3})"', path.read_text())})
# Those that need several files, a command line or another command; they have tests of their own.
ELSEWHERE = {"E0101", "E0123", "N0101", "E0206", "E0207", "E0211", "E0214", "E0215", "E0415", "E0433"}
MISTAKES = Path(__file__).with_name("examples")
NAMES = [code for code in CODES if code not in ELSEWHERE] + sorted(each.stem for each in MISTAKES.iterdir())
"""Pages by their codes, and examples of other mistakes that have the same code."""
BLOCK = re.compile(r"^```reo\n(.*?)^```$", re.MULTILINE | re.DOTALL)


USUAL = {
    "base": "qwen3_4b",
    "data": "areal_boba_7b",
    "reward": "outcome",
    "steps": "400 steps",
    "eval": "math_reg",
}
"""The settings that a line `…` stands for in an experiment, each unless it is there."""
LIBRARY = "miniature clusters selections budgets suites rewards recipes data models"
MODULES = {
    name: module
    for module in LIBRARY.split()
    for name in re.findall(
        r"^[a-z]+ (\w+)(?: =|\(| \{)", (ROOT / "stdlib" / f"{module}.reo").read_text(), re.MULTILINE
    )
}
"""Names that an example need not import, and their modules."""


def complete(text: str) -> str:
    """Return an example with the settings and the imports that a page leaves out."""
    if re.search("^from ", text, re.MULTILINE):
        return text
    for item in re.findall(r"^\w.*?^}", text, re.MULTILINE | re.DOTALL):
        there = set(re.findall(r"^  (\w+) +=", item, re.MULTILINE))
        rest = "".join(f"  {name} = {value}\n" for name, value in USUAL.items() if name not in there)
        text = text.replace(item, item.replace("  …\n", rest))
    imports: dict[str, set[str]] = {}
    for name in re.findall(r"(?<![\w.])[a-z]\w*\b(?! *[=:])", re.sub(r"#.*|\"[^\"]*\"", "", text)):
        if name in MODULES and not re.search(rf"^\w+ {name} ", text, re.MULTILINE):
            imports.setdefault(MODULES[name], set()).add(name)
    lines = [f"from std.{module} import {', '.join(sorted(imports[module]))}\n" for module in sorted(imports)]
    return "".join(lines) + "\n" * bool(lines) + text


def examples(name: str) -> list[str]:
    text = ((MISTAKES if "-" in name else PAGES) / f"{name}.md").read_text()
    return [complete(each) for each in BLOCK.findall(text)]


def in_spec(found: Diagnostic) -> Diagnostic:
    """A finding without its places in the library, so that a golden file does not follow the library's lines."""
    first, *rest = found.labels or (None,)
    kept = [label for label in rest if label is not None and not label.span.path.startswith("std/")]
    return replace(found, labels=(first, *kept)) if first is not None else found


def test_codes_are_found() -> None:
    assert {"E0201", "E0402", "W0602"} <= set(CODES)


@pytest.mark.parametrize("code", CODES)
def test_page(code: str) -> None:
    text = (PAGES / f"{code}.md").read_text()
    assert text.startswith("# ")
    assert "Wrong:" in text


@pytest.mark.parametrize("name", NAMES)
def test_example(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Callable[[str, str], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, _ = name.partition("-")
    wrong, *right = examples(name)
    Path("spec.reo").write_text(wrong)
    found = check_file("spec.reo")
    assert code in {each.code for each in found.diagnostics}
    golden(f"language/{name}.txt", render(map(in_spec, found.diagnostics), found.sources))
    # One mistake, one finding: what follows from it is not reported as well.
    errors = [each for each in found.diagnostics if each.severity == "error"]
    assert len(errors) <= 1
    for text in right:
        Path("spec.reo").write_text(text)
        again = check_file("spec.reo")
        assert [each for each in again.diagnostics if each.severity == "error"] == []
        assert code not in {each.code for each in again.diagnostics}


PAST = """from std.models import qwen3_4b
from std.data import areal_boba_7b
from std.recipes import ppo
from std.rewards import reo
from std.suites import math_reg

param n: int = 5 in 1..16
param longest: tokens = 64K tokens
budgets five = exp(from: 1K tokens, to: TO, n: n)

experiment mine = ppo {
  base = qwen3_4b
  data = areal_boba_7b
  reward = reo(at: five)
  steps = 400 steps
  rollout { max_tokens = 32K tokens, temperature = 1.0 }
  eval = math_reg
}
"""


@pytest.mark.parametrize(("to", "labels"), [("64K tokens", 2), ("longest", 3)])
def test_a_budget_past_the_longest_response_shows_the_values_and_all_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Callable[[str, str], None], to: str, labels: int
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spec.reo").write_text(PAST.replace("TO", to))
    found = check_file("spec.reo")
    (first,) = [each for each in found.diagnostics if each.code == "E0402"]
    assert {"65536 tokens", "32768 tokens, set here"} <= {label.text for label in first.labels}
    assert len(first.labels) == labels
    golden(f"language/places-{labels}.txt", render([first], found.sources))
