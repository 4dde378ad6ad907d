"""What the compiler's messages say to write is tried, each place of the code that prints a remedy by itself.

`wrong_specs.txt` has short wrong specs whose help can be obeyed by rule, and `obeyed.txt` such specs with what a person
writes who obeys. Between them they meet every place. Numbers of the quickstart in every unit are a third source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

import pytest

from tests.language.test_one_mistake import SPEC
from tests.language.test_pages import NAMES, examples
from tests.lsp.obeyed import read_obeyed
from tests.lsp.remedies import Tried, list_rows, list_sites, noting_sites, try_remedies
from tests.sampled import slow_but

RULE = "\n=====\n"
SPECS = (Path(__file__).parent / "wrong_specs.txt").read_text().split(RULE)
NUMBER = re.compile(r"\b\d[\w.-]*( (?:tokens|steps))?")
VALUES = (
    "3", "-1", "0.25", "250%", "5 tokens", "2.5 steps", "3 gpu_hours", "80 GiB", "4 seconds", "2 hours",
    "1 / 0",
)  # fmt: skip


def wrong_pages() -> Iterator[str]:
    for name in NAMES:
        yield examples(name)[0]


def with_numbers_of_every_unit() -> Iterator[str]:
    """The spec with each of its numbers in another unit, of another sign or size."""
    for number in NUMBER.finditer(SPEC):
        for value in VALUES:
            yield SPEC[: number.start()] + value + SPEC[number.end() :]


def tried_on(texts: Iterator[str]) -> Tried:
    tried = Tried()
    for text in texts:
        try_remedies(text, tried)
    return tried


@pytest.mark.parametrize("quarter", range(4))
def test_each_edit_of_a_page_mends_it(quarter: int) -> None:
    tried = tried_on(islice(wrong_pages(), quarter, None, 4))
    assert tried.reached
    assert tried.wrong == []


@pytest.mark.parametrize("every", slow_but([40], [40, 1]))
def test_numbers_of_every_unit_have_remedies_that_mend(every: int) -> None:
    tried = tried_on(chain(islice(with_numbers_of_every_unit(), 0, None, every), SPECS[::5]))
    assert len(tried.reached) >= 5
    assert tried.wrong == []


@pytest.mark.parametrize("part", range(6))
def test_what_is_obeyed_mends(part: int, tmp_path: Path) -> None:
    for case in islice(read_obeyed(), part, None, 6):
        before = case.check(tmp_path / "spec.reo", obeyed=False)
        after = case.check(tmp_path / "spec.reo", obeyed=True)
        met = [each for each in before if each.code == case.code and each.help]
        assert met, case
        assert sum(each.severity == "error" for each in before) <= 1, (case, before)
        # A file with nothing to run is no mistake of these short ones.
        wrong = [each for each in after if each.severity == "error" and each.code != "E0215"]
        assert wrong == [], case
        assert not {(each.code, each.message) for each in met} & {(each.code, each.message) for each in after}
        assert case.how == case.expect_how([each.help or "" for each in met]), (
            case,
            [each.help for each in met],
        )


@pytest.mark.slow
def test_each_place_that_prints_a_remedy_is_tried(tmp_path: Path) -> None:
    tried = tried_on(iter([*wrong_pages(), *SPECS]))
    assert tried.wrong == []
    for case in read_obeyed():
        with noting_sites() as made:
            found = case.check(tmp_path / "spec.reo", obeyed=False)
        for each in found:
            if each.code == case.code:
                tried.reached |= made.get(each.help or "", set())
                tried.mended |= made.get(each.help or "", set())
    places = {site for sites in list_sites().values() for site, has_code in sites if has_code} | {
        *list_rows()
    }
    assert len(places) > 370
    # A new place needs a case in `obeyed.txt`: a short spec that meets it, and what is written when it is obeyed.
    assert sorted(places - tried.reached) == []
    assert sorted(places - tried.mended) == [], tried.failed


def test_a_remedy_that_does_not_mend_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from reodsl.language.reward import names

    text = "reward r {\n  correct(y) + sqrt(len(y))\n}\n"
    assert tried_on(iter([text])).wrong == []
    right = names.Edit
    monkeypatch.setattr(names, "Edit", lambda span, text: right(span, f"{text} / 1 step"))
    assert [code for code, *_ in tried_on(iter([text])).wrong] == ["E0302"]
