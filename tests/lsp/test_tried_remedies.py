"""What the compiler's messages say to write is tried, each place of the code that prints a remedy by itself.

`wrong_specs.txt` has a short wrong spec for each of these places that has been met. Numbers of the quickstart in every
unit are a second source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from tests.language.test_one_mistake import SPEC
from tests.language.test_pages import CODES, ELSEWHERE, examples
from tests.lsp.remedies import Tried, list_sites, try_remedies

RULE = "\n=====\n"
SPECS = (Path(__file__).parent / "wrong_specs.txt").read_text().split(RULE)
NUMBER = re.compile(r"\b\d[\w.-]*( (?:tokens|steps))?")
VALUES = (
    "3",
    "-1",
    "0.25",
    "250%",
    "5 tokens",
    "2.5 steps",
    "3 gpu_hours",
    "80 GiB",
    "4 seconds",
    "2 hours",
    "1 / 0",
)
REACHED, MENDED = 0.5, 0.28
"""The least shares of the places with code or edits whose help is printed here, and whose help mends a spec."""


def wrong_pages() -> Iterator[str]:
    for code in CODES:
        if code not in ELSEWHERE:
            yield examples(code)[0]


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


@pytest.mark.slow
def test_numbers_of_every_unit_have_remedies_that_mend() -> None:
    tried = tried_on(with_numbers_of_every_unit())
    assert len(tried.reached) >= 5
    assert tried.wrong == []


@pytest.mark.slow
def test_most_places_that_print_a_remedy_are_tried() -> None:
    tried = tried_on(iter([*wrong_pages(), *SPECS]))
    assert tried.wrong == []
    places = {site for sites in list_sites().values() for site, has_code in sites if has_code}
    assert len(places) > 200
    assert len(tried.reached & places) >= REACHED * len(places), sorted(places - tried.reached)
    assert len(tried.mended & places) >= MENDED * len(places), sorted(tried.reached - tried.mended)


def test_a_remedy_that_does_not_mend_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from reodsl.language.reward import names

    text = "reward r {\n  correct(y) + sqrt(len(y))\n}\n"
    assert tried_on(iter([text])).wrong == []
    right = names.Edit
    monkeypatch.setattr(names, "Edit", lambda span, text: right(span, f"{text} / 1 step"))
    assert [code for code, *_ in tried_on(iter([text])).wrong] == ["E0302"]
