"""Numbers as they are printed, the paper's table among them."""

from __future__ import annotations

import pytest

from reodsl.diagnostics import plural
from reodsl.report import formats
from reodsl.report.markup import Markup, escape, json_block, render, tag


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (12875.94, 1, "12,875.9"),
        (-1.63, 1, "−1.6"),
        (-0.04, 1, "0.0"),
        (0.0, 0, "0"),
        (None, 1, "–"),
        (float("nan"), 1, "–"),
    ],
)
def test_numbers(value: float | None, digits: int, text: str) -> None:
    assert formats.number(value, digits) == text


def test_changes_have_signs() -> None:
    assert formats.format_change(-57.6, unit="%") == "−57.6%"
    assert formats.format_change(0.7) == "+0.7"
    assert formats.format_change(0.04) == "0.0"
    assert formats.format_change(None) == ""
    assert formats.format_signed(0.66) == "+0.7"
    assert formats.format_signed(-94.3, 0) == "−94%"[:-1]
    assert formats.format_signed(0.01) == "0.0"


def test_shares_print_as_the_papers_percentages() -> None:
    assert formats.percent(0.4205) == "42.0"
    assert formats.interval(0.9, 1.44) == "[0.9, 1.4]"
    assert formats.interval(None, 1.0) == ""
    assert plural(1, "seed") == "1 seed"
    assert plural(3000, "draw") == "3,000 draws"


def test_only_markup_is_not_escaped() -> None:
    bad = '<b title="x">&'
    assert render(bad) == "&lt;b title=&quot;x&quot;&gt;&amp;"
    assert tag("p", bad, [1, None, Markup("<i>")], title=bad) == (
        '<p title="&lt;b title=&quot;x&quot;&gt;&amp;">&lt;b title=&quot;x&quot;&gt;&amp;1<i></p>'
    )
    assert tag("meta", charset="utf-8") == '<meta charset="utf-8">'
    assert tag("details", open=True, hidden=False) == "<details open></details>"


def test_characters_that_html_forbids_are_replaced() -> None:
    assert escape("a\x00b\x1bc\x85d\ud800") == "a�b�c�d�"
    assert escape("a\n\tb") == "a\n\tb"


def test_data_cannot_leave_its_script() -> None:
    block = json_block('a"b', {"</script><!--": "\u2028&"})
    assert block.count("<") == 2
    assert (
        '<script type="application/json" id="a&quot;b">{"\\u003c/script\\u003e\\u003c!--":"\\u2028\\u0026"}'
        in block
    )
