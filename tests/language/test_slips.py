"""Slips in specs that are right otherwise: each is told once, where it is, with what leads on, as in its golden file."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from reodsl.diagnostics.render import render
from reodsl.language import CheckResult, check_file
from tests.language.test_pages import in_spec

SECTION = re.compile(r"^## (.*?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(reo|diff)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def read_sections() -> dict[str, list[tuple[str, str]]]:
    """For each section of slips.md, its changes with the specs that they make; the spec itself has an empty change."""
    sections: dict[str, list[tuple[str, str]]] = {}
    spec = ""
    for name, content in SECTION.findall((Path(__file__).with_name("slips.md")).read_text()):
        sections[name] = []
        for kind, text in BLOCK.findall(content):
            if kind == "reo":
                sections[name].append(("", spec := text))
                continue
            old, new = ("".join(re.findall(f"^[ {sign}](.*\n)", text, re.MULTILINE)) for sign in "-+")
            assert not old or spec.count(old) == 1, text
            sections[name].append((text, spec.replace(old, new) if old else spec + new))
    return sections


def check(text: str) -> CheckResult:
    Path("spec.reo").write_text(text)
    return check_file("spec.reo")


@pytest.mark.parametrize("section", SECTIONS := read_sections())
def test_slips(
    section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Callable[[str, str], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    told = []
    for change, text in SECTIONS[section]:
        found = check(text)
        errors = [each for each in found.diagnostics if each.severity == "error"]
        assert len(errors) == (0 if not change else 2 if section.startswith("two") else 1), change
        told.append(f"{change}\n{render(map(in_spec, found.diagnostics), found.sources)}" if change else "")
    golden(f"language/slips-{section.replace(' ', '-')}.txt", "\n".join(filter(None, told)))
