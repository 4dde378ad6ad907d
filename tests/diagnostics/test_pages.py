"""Every code has one page of one shape."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import reodsl
from reodsl.cli.main import main
from reodsl.diagnostics.dropped import MERGED, SINCE
from reodsl.diagnostics.render import codes, page, title, topics
from reodsl.language import check_file
from tests.language.test_pages import examples

ROOT = Path(reodsl.__file__).parents[1]


@pytest.mark.parametrize("code", codes())
def test_a_page_has_a_title_and_examples(code: str) -> None:
    lines = page(code).split("\n")
    assert re.fullmatch(r"# [^\sa-z].*[^.]", lines[0])
    assert lines[1] == ""
    assert title(code) == lines[0][2:]
    if code[0] != "N":  # nothing is wrong where a note is given
        assert re.search("wrong", page(code), re.IGNORECASE)
        assert re.search("right", page(code), re.IGNORECASE)
    assert page(code).count("```") % 2 == 0


# Those that need several files, or a command to tell a file that is sound from one that can run.
NOT_ALONE = {"E0206", "E0207", "E0215"}


@pytest.mark.parametrize(
    "code", [each for each in codes() if "```reo" in page(each) and each not in NOT_ALONE]
)
def test_what_is_right_in_the_language_has_no_error(code: str, tmp_path: Path) -> None:
    """As a whole file: names imported, nothing missing. What is wrong has this error, or none before it runs."""
    wrong, *right = examples(code)
    path = tmp_path / "spec.reo"
    for text in right:
        path.write_text(text)
        found = check_file(path).diagnostics
        assert [(each.code, each.message) for each in found if each.severity == "error"] == []
    path.write_text(wrong)
    found = check_file(path).diagnostics
    assert code in {each.code for each in found} or not any(each.severity == "error" for each in found)


def test_every_code_in_the_code_has_a_page() -> None:
    used = {
        code
        for package in ("reodsl", "runners")
        for path in (ROOT / package).rglob("*.py")
        for code in re.findall(r'"([EWN]\d{4})"', path.read_text(encoding="utf-8"))
    }
    assert used - set(codes()) == set()


def test_no_page_without_a_use() -> None:
    text = "".join(
        path.read_text(encoding="utf-8")
        for package in ("reodsl", "runners")
        for path in (ROOT / package).rglob("*.py")
    )
    assert [code for code in codes() if f'"{code}"' not in text] == []


def test_an_earlier_code_leads_to_the_page_that_has_its_messages(capsys: pytest.CaptureFixture[str]) -> None:
    assert not set(MERGED) & set(codes())
    assert set(MERGED.values()) <= set(codes())
    assert main(["explain", "e0103"]) == 0
    assert capsys.readouterr().out == f"E0101 includes E0103 since version {SINCE}.\n\n{page('E0101')}"


def test_what_is_installed_names_pages_that_are_installed() -> None:
    """Text of the packages and the library sends nobody to a checkout's file, and its topics exist."""
    texts = [path for folder in ("reodsl", "runners", "stdlib") for path in (ROOT / folder).rglob("*.*")]
    for path in (path for path in texts if path.suffix != ".pyc"):
        text = path.read_text()
        assert "docs/" not in text, path
        assert set(re.findall(r"reodsl explain ([a-z_]+)", text)) <= set(topics()), path


@pytest.mark.parametrize("code", ["E9999", "", "../model", "E0101.md", "e0101"])
def test_other_codes_are_unknown(code: str) -> None:
    with pytest.raises(KeyError):
        page(code)
