"""Answers taken apart: decided as math-verify decides numbers, several numbers are none, and hostile text costs one pass."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from math_verify import parse, verify

from runners.grade.compare import FORMS, CasQuery, Plan, all_of, any_of, judge, notation, outcome, questions

NUMBERS = [
    "0", "-0", "+0", "1", "+1", "-1", "01", "10", "7", "-7", "+7", "1000000", "12345678901234567890",
    "12345678901234567891", "0.5", "00.5", "-0.5", "0.50", "1.0", "7.000", "0.3333333", "0.333333", "0.33", "0.1",
    "999999999.999999999", "1/2", "2/4", "3/6", "-1/2", "1/3", "7/1", "0/5", "\\frac{1}{2}", "\\dfrac{2}{4}",
    "\\tfrac{1}{3}", "-\\frac{1}{2}", "\\frac{-1}{2}", "\\frac{0}{3}", "\\frac{7}{1}", "1/10", "1/0", "333333/1000000",
]  # fmt: skip


def decide(gold: str, answer: str) -> bool | None:
    """What is decided without computer algebra; None where that has to be asked."""
    plan = judge(gold, answer, 1e-4)
    return plan if isinstance(plan, bool) else None


def by_math_verify(gold: str, answer: str) -> bool:
    read = [parse(f"\\boxed{{{text}}}", parsing_timeout=None) for text in (gold, answer)]
    return bool(verify(read[0], read[1], timeout_seconds=None))


def value(text: str) -> Fraction | None:
    """The number that a text of `NUMBERS` is."""
    for command in ("\\dfrac", "\\tfrac", "\\frac"):
        if command in text:
            sign, _, rest = text.partition(command)
            top, bottom = rest.strip("{}").split("}{")
            return Fraction(f"{sign}1") * Fraction(int(top), int(bottom))
    return None if text == "1/0" else Fraction(text)


@pytest.mark.slow
@pytest.mark.parametrize("gold", NUMBERS)
def test_numbers_are_decided_as_math_verify_decides_them(gold: str) -> None:
    """But for those that lie close together: there a share of the reference decides, and six decimals in math-verify."""
    for answer in NUMBERS:
        one, other = value(gold), value(answer)
        near = None not in (one, other) and one != other and abs(one - other) < Fraction(1, 10**3)  # type: ignore[operator, arg-type]
        decided = decide(gold, answer)
        assert near or decided is None or decided == by_math_verify(gold, answer), (gold, answer)


plain = st.one_of(
    st.integers(-(10**25), 10**25).map(str),
    st.integers(-20, 20).map(str),
    st.decimals(-1000, 1000, places=3, allow_nan=False).map(str),
    st.tuples(st.integers(-9, 9), st.integers(1, 9)).map(lambda r: f"\\frac{{{r[0]}}}{{{r[1]}}}"),
    st.tuples(st.integers(0, 9), st.integers(1, 9)).map(lambda r: f"{r[0]}/{r[1]}"),
)


@settings(max_examples=100)
@given(plain, plain)
def test_two_plain_numbers_are_decided_by_their_values(gold: str, answer: str) -> None:
    """Against the rule in one line: equal, or one of them has decimals, the reference is not whole, and they are close."""
    one, other = value(gold), value(answer)
    assert one is not None
    assert other is not None
    rounded = any("." in text and text.split(".")[1].strip("0") for text in (gold, answer))
    close = rounded and one.denominator != 1 and abs(one - other) <= abs(one) / 10_000
    assert decide(gold, answer) is (one == other or close)


@pytest.mark.parametrize(
    ("gold", "answer", "tolerance", "right"),
    [
        ("4.49e33", r"4.491 \times 10^{33}", 1e-4, False),
        ("4.49e33", r"4.491 \times 10^{33}", 1e-3, True),
        ("4.49e33", r"4.4901 \times 10^{33}", 1e-4, True),
        ("4.49e33", r"4.4901 \times 10^{33}", 0.0, False),
        ("42", "42.3", 0.01, False),
        ("42", "42.0000001", 0.5, False),
        ("42.0", "42.001", 0.5, False),
        ("0", "0.0000001", 0.5, False),
        ("2.0e-7", "0", 0.5, False),
        ("1/3", "0.3333", 1e-4, True),
        ("1/3", "0.333", 1e-4, False),
        ("1/3", "333/1000", 0.5, False),
    ],
)
def test_how_close_numbers_have_to_be(gold: str, answer: str, tolerance: float, right: bool) -> None:
    assert judge(gold, answer, tolerance) is right


def test_expressions_are_asked_and_whole_references_asked_exactly() -> None:
    assert judge("5", r"\sqrt{25.001}", 1e-4) == CasQuery("5", r"\sqrt{25.001}", 0.0)
    assert judge(r"\sqrt{2}", "1.4142", 1e-4) == CasQuery(
        r"\sqrt{2}", r"1.414200000000000 \cdot 10^{0}", 1e-4
    )
    assert judge(r"\sqrt{2}", r"\frac{\sqrt{8}}{2}", 1e-4) == CasQuery(r"\sqrt{2}", r"\frac{\sqrt{8}}{2}")
    assert judge(r"(1, \sqrt{8})", r"(1, 2\sqrt{2})", 1e-4) == CasQuery(r"\sqrt{8}", r"2\sqrt{2}", 0.0)


def test_a_plan_comes_to_what_its_questions_come_to() -> None:
    one, two, three = (CasQuery("a", text) for text in "bcd")
    plan: Plan = all_of([True, one, any_of([False, two, three])])
    assert questions(plan) == [one, two, three]
    assert questions(True) == []
    assert (all_of([one, False]), any_of([one, True]), all_of([]), any_of([])) == (False, True, True, False)
    for right in range(8):
        truth = {ask: bool(right >> place & 1) for place, ask in enumerate((one, two, three))}
        assert outcome(plan, truth.__getitem__) is (truth[one] and (truth[two] or truth[three]))


def test_members_of_a_set_may_come_in_any_order_and_each_has_to_be_there() -> None:
    plan = judge(r"\{\sqrt{2}, \sqrt{3}\}", r"\{\sqrt{12}/2, 2/\sqrt{2}\}", 0.0)
    assert {(ask.gold, ask.answer) for ask in questions(plan)} == {
        (gold, answer) for gold in (r"\sqrt{2}", r"\sqrt{3}") for answer in (r"\sqrt{12}/2", r"2/\sqrt{2}")
    }
    first = CasQuery(r"\sqrt{2}", r"2/\sqrt{2}"), CasQuery(r"\sqrt{3}", r"\sqrt{12}/2")
    assert outcome(plan, lambda ask: ask in first)
    # Both references met by one answer are not enough.
    assert not outcome(plan, lambda ask: ask.answer == r"2/\sqrt{2}")


def test_sets_within_sets_are_opened_to_a_depth_and_asked_about_below_it() -> None:
    gold, answer = r"\sqrt{2}", r"2/\sqrt{2}"
    for depth, opened in ((5, True), (9, False)):
        plan = judge(r"\{" * depth + gold + r"\}" * depth, r"\{" * depth + answer + r"\}" * depth, 0.0)
        assert (questions(plan) == [CasQuery(gold, answer)]) == opened


def test_what_is_plain_is_decided_at_once() -> None:
    assert decide("6", " 6 ") is True
    assert decide("6", "5") is False
    assert decide("\\frac{1}{2}", "0.5") is True
    assert decide("1/2", "0.7") is False
    # Of a reference both digits count.
    assert decide("0", "00") is True
    assert decide("00", "0") is False
    assert decide("9^{9^{9^9}}", "9^{9^{9^9}}") is True
    assert decide("\\text{Monday}", "\\text{Monday}") is True
    assert decide("", "") is False
    assert decide("1", "  ") is False
    assert decide("\\ldots", "\\ldots") is None


@pytest.mark.parametrize(
    "gap", [" ", "\n", "\u00a0", "\u2009", "~", "\\ ", "\\,", "\\;", "\\quad ", " \\qquad "]
)
def test_several_numbers_are_no_answer(gap: str) -> None:
    """math-verify adds numbers up that only space parts, and of some spaces reads what is before the first."""
    for parts in (
        ["1", "1", "1"],
        ["-1", "1"],
        ["1.5", "2"],
        ["2", "3/2"],
        ["\\frac{1}{2}", "1"],
        ["1", "0000"],
    ):
        for gold in ("1", "2", "3", "111", "3.5", "3/2"):
            assert decide(gold, gap.join(parts)) is False, (gold, parts)
    assert decide("1 1 1", "3") is False
    assert decide("1 1 1", " 1  1 1 ") is True


@pytest.mark.parametrize(
    ("text", "readings"),
    [
        ("(1)(1)", ("1", "2", "11")),
        ("2(3)", ("6", "5", "23")),
        ("(2) 3", ("6", "5", "23")),
        ("\\left(2\\right)\\left(3\\right)", ("6", "5")),
        ("[1][2][-3]", ("-6", "0")),
        ("(\\frac{1}{2}) (4)", ("2", "9/2")),
        ("-(2)(3)", ("-6", "-5", "1")),
    ],
)
def test_numbers_in_brackets_side_by_side_are_no_answer(text: str, readings: tuple[str, ...]) -> None:
    """A product to some, a list to others, and a sum to math-verify."""
    assert [decide(gold, text) for gold in readings] == [False] * len(readings)
    assert decide(text, f" {text} ") is True


def test_a_long_row_of_brackets_is_looked_at_in_moments() -> None:
    for text in ("(1)" * 30_000 + "x", "(" * 90_000, "(1 " * 30_000, "[1)" * 30_000):
        assert decide("6", text) in (None, False)


@pytest.mark.parametrize("gap", [" ", "\u202f", "\\,", "~"])
def test_one_number_may_have_spaces_in_it(gap: str) -> None:
    assert decide("1234567", gap.join(["1", "234", "567"])) is True
    assert decide("1234568", gap.join(["1", "234", "567"])) is False
    assert decide("-12000", gap.join(["-12", "000"])) is True
    assert decide("5/2", gap.join(["2", "1/2"])) is True
    assert decide("-2.5", gap.join(["-2", "\\frac{1}{2}"])) is True
    assert decide("3/2", gap.join(["2", "1/2"])) is False


@pytest.mark.parametrize("text", ["\\log_2 8", "5 -3", "(1)(x)", "(1)+(2)", "1 x", "2\\sqrt 3 5"])
def test_spaces_within_expressions_are_left_to_math_verify(text: str) -> None:
    assert decide("7", text) is None


@pytest.mark.parametrize("text", ["1, 2", "(1), (2)", "[1, 2)", "\\{7, 8\\}", "7 \\text{ or } 8"])
def test_a_list_is_no_number(text: str) -> None:
    assert decide("7", text) is False


HOSTILE = {
    "gaps": " ", "brackets": "(", "pairs": "()", "commas": ",", "list": "1,", "fractions": "\\frac", "open": "\\frac{",
    "texts": "\\text{a}", "open texts": "\\text{a", "equations": "x=", "orders": "\\le ", "signs": "\\pm 3,",
    "matrices": "\\begin{pmatrix}", "unions": "(1,2)\\cup", "sets": "\\{", "digits": "9", "numbers": "9 ",
    "thousands": "1,000", "words": "abc ", "joined": "1 and ", "dollars": "$", "percent": "%", "backslashes": "\\",
    "indices": "_{", "over": "{1\\over ", "claims": "\\text{is ", "quotes": "'", "slashes": "1/", "dots": ".",
    "repeating": "0.\\overline{", "units": "cm ", "colons": "{:",
    "residues": "1\\equiv ", "moduli": "1 mod ", "formulas": "\\ce{", "units in a row": "1 hour ",
    "letters": "A,", "both cases": "Aa",
    "memberships": ", k \\in \\mathbb{Z}", "names": "x = y = ",
    "systems": "\\begin{cases}", "atoms": "(H2", "times": "1:00 ", "builders": "\\{x \\mid ", "roots": "\\sqrt",
    "transposed": "(1)^T", "minus": "minus ", "dozens": "dozen ", "articles": "a ", "sides": "north of ", "chains": "1-",
    "versions": "1.", "dates": "12/", "statements": "I and ", "numerals": "one hundred ", "primes": "f'", "unions of": "A-",
    "bounds": "5 or ", "hosts": "a.b@", "shares": "1 out of ", "arcs": "1^\\circ 2' ", "commas of decimals": "1,23 ",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("gold", ["1", "\\{1,2,3\\}", "(0,1]", "\\text{Evelyn}", "4.5e33", "x=3", "C"])
def test_hostile_answers_are_taken_apart_in_moments(gold: str) -> None:
    """A bound with a huge margin: most take a tenth of a second, and a quadratic pass over one takes ten and more."""
    for name, piece in HOSTILE.items():
        long = piece * (19_000 // len(piece))
        began = time.process_time()
        judge(gold, f"5 {long}!", 1e-4)
        if gold == "1":
            judge(gold, long, 1e-4)
        assert time.process_time() - began < 6, name


@pytest.mark.parametrize(
    ("gold", "right", "wrong"),
    [
        (
            r"\langle 3,-1,2\rangle",
            r"3\mathbf{i}-\mathbf{j}+2\mathbf{k}",
            r"3\mathbf{i}+\mathbf{j}+2\mathbf{k}",
        ),
        ("(2, 5)", r"2\hat{i} + 5\hat{j}", r"5\hat{i} + 2\hat{j}"),
        ("(3,2),(-3,2)", r"(\pm 3, 2)", r"(3, \pm 2)"),
        ("[[1, 0], [0, -1]]", r"\begin{bmatrix}1 & 0\\ 0 & -1\end{bmatrix}", "[[1, 0], [0, 1]]"),
        ("J", r"\text{J. } 1.2 \times 10^{5} \text{ Pa}", r"\text{I. } 1.2 \times 10^{5} \text{ Pa}"),
        ("E", r"\mathrm{(E)}\ 17", r"\mathrm{(D)}\ 17"),
        ("True", r"\text{Yes, True}", r"\text{No}"),
        ("023", r"\ 23\ ", r"\ 32\ "),
        ("60千米/时", "60", "66"),
        ("y^{\\prime} = 3", r"\frac{dy}{dx} = 3", r"\frac{dy}{dx} = 4"),
        (r"50 \Omega", "50", r"50 \text{ W}"),
    ],
)
def test_forms_that_a_table_brought_and_their_wrong_twins(gold: str, right: str, wrong: str) -> None:
    assert decide(gold, right) is True
    assert decide(gold, wrong) is False


def test_a_factor_before_a_matrix_goes_to_each_cell() -> None:
    plan = judge(
        r"\begin{pmatrix} x & 2\end{pmatrix}", r"\frac{1}{2}\begin{pmatrix} 2x & 4\end{pmatrix}", 0.0
    )
    assert [(ask.gold, ask.answer) for ask in questions(plan)] == [
        ("x", r"\frac{1}{2} \cdot (2x)"),
        ("2", r"\frac{1}{2} \cdot (4)"),
    ]


def test_a_derivative_by_another_variable_is_another_one() -> None:
    assert notation.plain(r"\frac{dy}{dx}") == "y'"
    assert notation.plain(r"\frac{dy}{dt}") == r"\frac{dy}{dt}"


def test_a_letter_for_an_added_constant_is_free_and_a_factor_is_not() -> None:
    assert [(ask.gold, ask.answer) for ask in questions(judge("x^2 + c", "x^2 + C", 0.0))] == [
        ("x^2 + c", "x^2 + c")
    ]
    assert decide("c x^2", "C x^2") is False


def test_an_equation_that_names_a_number_is_met_by_it_alone() -> None:
    assert decide("a+b=12", "12") is True
    assert decide("a+b=12", "b+a=12") is None
    assert decide("a+b=12", "21") is False
    assert decide("a+b=12", "a-b=12") is None


EXAMPLES = (
    ("figure", r"\angle ABC", r"\angle CBA", r"\angle ACB"),
    ("residue", r"n \equiv 4 \pmod 3", "n = 3k + 1", r"n \equiv 2 \pmod 3"),
    ("choices", "A and C", "C, A", "A and B"),
    ("choice", "(B)", r"\text{(B) } 12", r"\text{(C) } 12"),
    ("words", r"\text{the blue car}", "blue car", "red car"),
    ("wrapping", "(7/2)", "3.5", "2.5"),
    ("relation", "a < b", "b > a", "b < a"),
    ("approximation", r"\frac{1}{2} \approx 0.5", "1/2", "1/3"),
    ("equation", "x = 5", "5", "6"),
    ("several numbers", "1 2 3", "1  2 3", "123"),
    ("group", "0 < x < 1", "(0, 1)", "[0, 1)"),
)


@pytest.mark.parametrize(("name", "gold", "right", "wrong"), EXAMPLES)
def test_a_reference_is_read_in_its_form(name: str, gold: str, right: str, wrong: str) -> None:
    read = [form.name for form in FORMS if form.read(notation.plain(gold))]
    assert read[0] == name
    assert decide(gold, right) is True
    assert decide(gold, wrong) is False


def test_every_form_has_an_example() -> None:
    assert [form.name for form in FORMS] == [name for name, *_ in EXAMPLES]
