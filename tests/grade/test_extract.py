"""Answers out of responses: the last balanced box, forced answers, and hostile text in linear time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.grade import final_answer, forced_answer

PIECES = ["\\boxed{", "\\fbox {", "{", "}", "\\{", "\\}", "\\\\", "\\", "a", " ", "5", "</think>", "\\boxed"]


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("so \\boxed{ 6 } <eos>", "6"),
        ("\\boxed{1} wait \\boxed{2}", "2"),
        ("<think> \\boxed{1} </think> answer \\boxed{ 3 }", "3"),
        ("<think> \\boxed{1} </think> I cannot say", "1"),
        ("\\boxed{\\frac{1}{2}}.", "\\frac{1}{2}"),
        ("\\boxed{ {a}{b} }", "{a}{b}"),
        ("\\boxed{\\{1,2\\}}", "\\{1,2\\}"),
        ("\\boxed{\\left\\{ x \\right.}", "\\left\\{ x \\right."),
        ("\\boxed{4} and then \\boxed{5", "4"),
        ("\\boxed{3} \\boxed{4} and then \\boxed{5", "4"),
        ("\\boxed{ outer \\boxed{7} }", "7"),
        ("\\fbox{8}", "8"),
        ("\\boxed {9}", "9"),
        ("} } \\boxed{1}", "1"),
        ("\\boxed{1 \\\\ 2}", "1 \\\\ 2"),
        ("\\\\boxed{7}", "7"),
        ("\\\\boxed{7} and then \\boxed{8", "7"),
        ("\\boxed{}", ""),
        ("\\boxed", ""),
        ("\\boxed 5", "5"),
        ("so $\\boxed5$.", "5"),
        ("\\boxed -3/4, say", "-3/4"),
        ("\\boxed x.", "x"),
        ("\\boxed as asked", ""),
        ("\\boxed{1} and \\boxed 2 and \\boxed{3", "2"),
        ("\\boxed{42}. I put it in \\boxed{} as asked.", "42"),
        ("\\boxed{42} in \\boxed{...}", "42"),
        ("$\\boxed{2}$ and $\\boxed{-5}$.", "2, -5"),
        ("\\boxed{1}, \\boxed{2}, or \\(\\boxed{3}\\)", "1, 2, 3"),
        ("$x=\\boxed{1},\\ x=\\boxed{2}$ and $x=\\boxed{5}$", "x=1, x=2, x=5"),
        ("$x = \\boxed{3}$ and $y = \\boxed{-2}$", "x = 3, y = -2"),
        ("$x = \\boxed{3}$ and $\\boxed{-2}$", "3, -2"),
        ("(a) $\\boxed{12}$\n(b) $\\boxed{\\frac{7}{2}}$", "(a) 12; (b) \\frac{7}{2}"),
        (
            "**Part (a):** The mean is \\boxed{12}.\n\n**Part (b):** The median is \\boxed{7}.",
            "(a) 12; (b) 7",
        ),
        ("1) \\boxed{1}, 2) \\boxed{1}, 3) \\boxed{5}", "(1) 1; (2) 1; (3) 5"),
        ("(a) $\\boxed{12}$\n(c) $\\boxed{7}$", "7"),
        ("(b) $\\boxed{12}$\n(c) $\\boxed{7}$", "7"),
        ("If so, \\boxed{12}.\n(b) $\\boxed{7}$", "7"),
        ("(a) $\\boxed{12}$\nSo $f(b) = \\boxed{7}$", "7"),
        ("\\boxed{x = 2} \\text{ or } \\boxed{x = 3}, \\quad \\boxed{4}", "x = 2, x = 3, 4"),
        ("\\boxed{2} or maybe \\boxed{3}", "3"),
        ("\\boxed{7}, \\boxed{7}", "7"),
        ("\\boxed{6/16} = \\boxed{3/8}", "3/8"),
        ("\\boxed{6} and so \\boxed{8}", "8"),
        ("\\boxed 6 and \\boxed{8}", "8"),
        ("{6} and \\boxed{8}", "8"),
        ("the answer is 5", ""),
        ("", ""),
    ],
)
def test_the_last_balanced_box_is_the_answer(response: str, answer: str) -> None:
    assert final_answer(response) == answer


@pytest.mark.parametrize(
    ("continuation", "answer"),
    [
        (" 6 } <eos>", "6"),
        ("\\frac{1}{2}} and more", "\\frac{1}{2}"),
        ("6", "6"),
        ("\\{1\\}}", "\\{1\\}"),
        ("\\boxed{3}}", "\\boxed{3}"),
        ("}", ""),
        ("", ""),
    ],
)
def test_a_forced_answer_ends_at_the_first_unmatched_brace(continuation: str, answer: str) -> None:
    assert forced_answer(continuation) == answer


def slow_final_answer(text: str) -> str:
    """Try every box from the last to the first, counting braces one character at a time."""
    for start in range(len(text) - 1, -1, -1):
        for command in ("\\boxed", "\\fbox"):
            if not text.startswith(command, start):
                continue
            place = start + len(command)
            while place < len(text) and text[place] in " \t\r\n":
                place += 1
            if place < len(text) and text[place] == "{":
                end = slow_close(text, place + 1)
                if end is not None and text[place + 1 : end].strip():
                    return text[place + 1 : end].strip()
            elif text[place : place + 1] == "5":
                return "5" * (len(text[place:]) - len(text[place:].lstrip("5")))
            elif (
                place > start + len(command)
                and text[place : place + 1] == "a"
                and text[place + 1 : place + 2] != "a"
            ):
                return "a"
    return ""


def slow_close(text: str, place: int) -> int | None:
    depth = 0
    while place < len(text):
        if text[place] == "\\":
            place += 2
            continue
        if text[place] == "{":
            depth += 1
        elif text[place] == "}":
            if depth == 0:
                return place
            depth -= 1
        place += 1
    return None


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_extraction_agrees_with_a_slow_reading(text: str) -> None:
    assert final_answer(text) == slow_final_answer(text)


@pytest.mark.parametrize(
    "text",
    [
        "\\boxed{" * 140_000,
        "{" * 1_000_000,
        "}" * 1_000_000,
        "\\boxed" + " " * 1_000_000,
        ("\\boxed" + " " * 60) * 15_000,
        "\\" * 1_000_000,
        "\\boxed{" + "{" * 400_000 + "}" * 400_000 + "}",
        "\x00\u202e" * 500_000,
    ],
    ids=["boxes", "open", "closed", "spaces", "boxes with spaces", "backslashes", "nested", "marks"],
)
def test_a_million_hostile_characters_cost_one_pass(text: str) -> None:
    # A quadratic scan of these would run for hours; that the test ends is the check.
    assert final_answer(text) in ("", text[7:-1])
    forced_answer(text)


def test_only_the_end_of_an_endless_response_is_searched() -> None:
    assert final_answer("\\boxed{1}" + "x" * 2_000_000) == ""
    assert final_answer("x" * 2_000_000 + "\\boxed{1}") == "1"
