"""Where answers stand: each way against a slow reading, prefixes against the whole, hostile text and patterns in moments."""

from __future__ import annotations

import math
import re
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reodsl.ir.data import After, AnswerReader, Code, LastBox, LastNumber, Regex
from reodsl.ir.expression import Infix, TextNumber
from reodsl.ir.model import Forcing
from reodsl.ir.names import pattern_fault
from runners.grade import Thinking, answer_changes, final_answer, read_answer, read_texts
from runners.grade.readers import opens_box
from runners.rollout.answers import answer_after_forcing, bare_answers

MARKED, ENDED = After(marker="####"), Regex(pattern="answer is ([0-9]+)")
READERS: dict[str, tuple[AnswerReader, ...]] = {
    "boxed": (LastBox(),),
    "after": (MARKED,),
    "number": (LastNumber(),),
    "regex": (ENDED,),
    "code": (Code(),),
    "several": (LastBox(), MARKED, LastNumber()),
}
PIECES = [
    "#### ",
    "\n```",
    "14",
    " 3",
    ",500",
    ".",
    "\n",
    " answer is ",
    "\\boxed{",
    "}",
    "x",
    "-",
    "$",
    " 1/2 ",
    "%",
    "e5",
    "####",
]


@pytest.mark.parametrize(
    ("readers", "text", "answer"),
    [
        ("boxed", "so \\boxed{7} and 8", "7"),
        ("boxed", "#### 14", ""),
        ("after", "3 + 11 = 14\n#### 14", "14"),
        ("after", "#### 13\nno:\n#### 1,400 apples\nthat is it", "1,400 apples"),
        ("after", "####\n  \n 14 \nmore", "14"),
        ("after", "#### 13 #### 14", "14"),
        ("after", "14", ""),
        ("after", "#### ", ""),
        ("code", "so\n```python\nx = 1\n\nx\n```\nand that", "x = 1\n\nx"),
        ("code", "```\n1\n```\nor\n```py\n2\n```", "2"),
        ("code", "```\n1\n```\nor\n```py\n2", "1"),
        ("code", "````md\n```\n1\n```\n````\n", "```\n1\n```"),
        ("code", "```\n\n```\n `x` ``` y", ""),
        ("code", "x = 1", ""),
        ("number", "from 3 to 14.", "14"),
        ("number", "it is $1,234.50.", "$1,234.50"),
        ("number", "so x = -7", "-7"),
        ("number", "10-3", "3"),
        ("number", "about 4.5e33 erg", "4.5e33"),
        ("number", "half: 1/2", "1/2"),
        ("number", "x2 and y3", ""),
        ("number", "so 12\\ldots.", "12\\ldots"),
        ("number", "\\boxed{11{:}30 \\text{ AM}}", "11{:}30 \\text{ AM}"),
        ("number", "the ratio is $2:3$", "2:3"),
        ("number", "so .75", ".75"),
        ("number", "\\boxed{3\\sqrt{2}}", "3\\sqrt{2}"),
        ("number", "2516_7 and 5\\pi, or 7x", "7x"),
        ("number", "2516_{7}", "2516_{7}"),
        ("number", "5\\pi", "5\\pi"),
        ("number", "it is 12... or so", "12"),
        ("number", "1, 2, 3, \\ldots", "3"),
        ("number", "none", ""),
        ("regex", "the answer is 12, no, the answer is 14.", "14"),
        ("regex", "it is 14", ""),
        ("several", "5 #### 6 \\boxed{7} 8", "7"),
        ("several", "5 #### 6\n8", "6"),
        ("several", "5 and 8", "8"),
        ("several", "", ""),
    ],
)
def test_an_answer_stands_where_the_setting_says(readers: str, text: str, answer: str) -> None:
    assert read_answer(READERS[readers], text) == answer


def test_a_pattern_without_a_group_gives_the_whole_match() -> None:
    assert read_answer((Regex(pattern="[A-E]\\b"),), "A, then C.") == "C"
    assert read_answer((Regex(pattern="(?i)option (?P<letter>[a-e])"),), "Option b or option C") == "C"
    assert read_answer((Regex(pattern="\\(([A-E])\\)|never"),), "(A) (D)") == "D"


@settings(max_examples=150)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_matches_are_those_of_python(text: str) -> None:
    """A pattern that both engines read alike."""
    found = re.findall("answer is ([0-9]+)", text)
    assert read_answer((ENDED,), text) == (found[-1] if found else "")


CUT = "<think> maybe \\boxed{42}? wait"


@pytest.mark.parametrize(
    ("text", "over", "answer"),
    [
        (CUT, False, ""),
        ("maybe \\boxed{42}? wait", False, ""),
        (f"{CUT}</think>", False, ""),
        (f"{CUT}</think> so \\boxed{{7}}", False, "7"),
        ("maybe \\boxed{42}</think> so \\boxed{7} then \\boxed{8}", False, "8"),
        ("a</think> \\boxed{1} b</think> \\boxed{2}", False, "2"),
        ("a</think> \\boxed{1} b</think> none", False, ""),
        ("a</think> \\boxed{1} <think> \\boxed{2}", False, ""),
        ("a</think> \\boxed{1} <think> \\boxed{2}</think> \\boxed{3}", False, "3"),
        ("\\boxed{4</think>2}", False, ""),
        ("so \\boxed{7}", True, "7"),
        ("so \\boxed{7} <think> \\boxed{8}", True, ""),
        ("", False, ""),
    ],
)
def test_no_answer_is_read_in_thinking_where_it_is_skipped(text: str, over: bool, answer: str) -> None:
    thinking = Thinking(over=over)
    assert read_answer((LastBox(),), text, thinking=thinking) == answer
    changes = answer_changes((LastBox(),), text, thinking)
    assert (changes[-1][1] if changes else "") == answer
    # Unless it is skipped, thinking is text as any other.
    assert read_answer((LastBox(),), text) == final_answer(text)


def test_each_model_has_its_own_marks_of_thinking() -> None:
    own = Thinking("[THINK]", "[/THINK]")
    text = "[THINK] 5 </think> 6 [/THINK] 7"
    assert read_answer((LastNumber(),), text, thinking=own) == "7"
    assert read_answer((LastNumber(),), "[THINK] 5 </think> 6", thinking=own) == ""
    # A mark that both opens and closes closes.
    assert read_answer((LastNumber(),), "|| 5 || 6", thinking=Thinking("||", "||")) == "6"


def thoughtful(text: str) -> str:
    """What follows the last mark of a text if that closes; marks looked for at one character after another."""
    after = ""
    for place in range(len(text)):
        if text.startswith("</think>", place):
            after = text[place + 8 :]
        if text.startswith("<think>", place):
            after = ""
    return after


@settings(max_examples=150)
@given(
    st.lists(
        st.sampled_from(["\\boxed{7} ", "\\boxed{", "8}", "<think>", "</think>", " 5 ", "x"]), max_size=14
    ).map("".join)
)
def test_every_prefix_answers_after_its_thinking(text: str) -> None:
    changes = answer_changes((LastBox(),), text, Thinking())
    assert [end for end, _ in changes] == sorted({end for end, _ in changes})
    for length in range(len(text) + 1):
        answer = next((answer for end, answer in reversed(changes) if end <= length), "")
        assert answer == final_answer(thoughtful(text[:length]))


def slow_changes(readers: tuple[AnswerReader, ...], text: str) -> list[str]:
    """The answer given by each number of characters: the last one of each way that the whole text holds until there."""
    whole = [answer_places(reader, text) for reader in readers]
    found = []
    for length in range(len(text) + 1):
        own = [[answer for end, answer in places if end <= length] for places in whole]
        found.append(next((answers[-1] for answers in own if answers and answers[-1]), ""))
    return found


def answer_places(reader: AnswerReader, text: str) -> list[tuple[int, str]]:
    """Every answer of a text by one way, found one character after another."""
    match reader:
        case LastBox():
            return [(end, final_answer(text[:end])) for end in range(len(text) + 1)]
        case After(marker=marker):
            found = []
            for place in range(len(text)):
                if text.startswith(marker, place) and marker not in text[max(0, place - 3) : place + 3]:
                    begin = place + len(marker)
                    while begin < len(text) and text[begin].isspace():
                        begin += 1
                    end = begin
                    while end < len(text) and text[end] != "\n" and not text.startswith(marker, end):
                        end += 1
                    answer = text[begin:end].strip()
                    if answer:
                        found.append((begin + len(answer), answer))
            return found
        case Regex(pattern=pattern):
            return [(found.end(), found[1]) for found in re.finditer(pattern, text)]
        case LastNumber():
            numbers = "[0-9]+(?:/[0-9]+)?"
            return [(found.end(), found[0]) for found in re.finditer(numbers, text)]


@pytest.mark.parametrize("name", ["boxed", "regex", "number", "several"])
@settings(max_examples=150)
@given(
    pieces=st.lists(
        st.sampled_from(["14 ", "\n", " answer is ", "\\boxed{", "}", "x ", " 1/2 ", "7 ", " #### "]),
        max_size=14,
    )
)
def test_prefixes_answer_what_has_been_said_by_then(name: str, pieces: list[str]) -> None:
    text = "".join(pieces).replace("####", "" if name != "several" else "####")
    if text.count("####") > 1:
        return
    changes = answer_changes(READERS[name], text)
    told = [
        next((answer for end, answer in reversed(changes) if end <= at), "") for at in range(len(text) + 1)
    ]
    if "#" not in text:
        assert told == slow_changes(READERS[name], text)
    # All of it has answered what the whole text answers.
    assert told[-1] == read_answer(READERS[name], text)


@settings(max_examples=150)
@given(st.lists(st.sampled_from(["14", " 3", "\n#### ", "x", " \\boxed{5", "}", " "]), max_size=12))
def test_bare_answers_of_tokens_are_those_of_their_characters(pieces: list[str]) -> None:
    """Tokens are pieces here: the answer of a prefix is the last that ends within it."""

    def decode(tokens: object) -> str:
        return "".join(pieces[at] for at in tokens)  # type: ignore[attr-defined]

    tokens = list(range(len(pieces)))
    for readers in READERS.values():
        changes = answer_changes(readers, "".join(pieces))
        found = bare_answers(tokens, decode, None, readers)
        for count in range(len(tokens) + 1):
            length = len(decode(tokens[:count]))
            expected = next((answer for end, answer in reversed(changes) if end <= length), "")
            assert next((answer for at, answer in reversed(found) if at <= count), "") == expected


def test_a_forced_answer_is_read_where_the_setting_says_or_in_the_box_that_was_opened() -> None:
    marked = Forcing(text="\nFinal.\n#### ", answer_tokens=8)
    assert answer_after_forcing(marked, "14\nbecause", (MARKED,)) == "14"
    assert answer_after_forcing(marked, "so 14", (LastNumber(),)) == "14"
    # What the forcing text itself says is not an answer.
    counted = Forcing(text="Only 4096 tokens. ", answer_tokens=8, close="")
    assert answer_after_forcing(counted, "hm", (LastNumber(),)) == ""
    assert answer_after_forcing(counted, "12", (LastNumber(),)) == "12"
    opened = Forcing(text="The answer is \\boxed{", answer_tokens=8)
    assert answer_after_forcing(opened, "7} and 8", (LastNumber(),)) == "7"
    closed = Forcing(text="so ", close=".", answer_tokens=8)
    assert answer_after_forcing(closed, "seven. Or", (LastBox(),)) == "seven"


HOSTILE = [
    "9",
    "1,000",
    "#### ",
    "####",
    "\\boxed{",
    "answer is ",
    "a",
    "$",
    "-",
    "1/",
    "\n",
    "\ue000",
    "\ue001\ue002",
]


@pytest.mark.slow
@pytest.mark.parametrize("piece", HOSTILE)
def test_a_million_hostile_characters_are_read_in_moments(piece: str) -> None:
    """A bound with a huge margin: what is quadratic takes hours."""
    began = time.process_time()
    for readers in READERS.values():
        read_answer(readers, piece * (200_000 // len(piece)))
        answer_changes(readers, f"{piece}</think>" * 4_000, Thinking())
    assert time.process_time() - began < 60


@pytest.mark.parametrize(
    "pattern", ["(a*)*b", "(a|aa)+$", "(.*)(.*)(.*)=(.*)!", "(?:a?){10}a{10}", "(x+x+)+y"]
)
def test_no_pattern_goes_on_for_ever(pattern: str) -> None:
    """Those on which engines that go back take longer than the universe has."""
    assert pattern_fault(pattern) is None
    began = time.process_time()
    read_texts(TextNumber(of="y", field="matches", pattern=pattern), lambda part: ["a" * 1_000_000], (1,))
    assert read_answer((Regex(pattern=pattern),), "a" * 1_000_000 + "x" * 50) in ("", "a", "a" * 20, "a" * 10)
    assert time.process_time() - began < 60


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(unclosed", "unclosed group"),
        ("(?<=x)y", "look-around"),
        ("(a)\\1", "backreferences"),
        ("(?:(?:(?:a?){30}){30}){30}", "too large"),
        ("a{99999999999999999999}", "too large"),
        ("a" * 3000, "too large"),
    ],
)
def test_what_is_wrong_with_a_pattern_is_said(pattern: str, why: str) -> None:
    fault = pattern_fault(pattern)
    assert fault is not None
    assert why in fault


def test_numbers_of_texts_are_bounded() -> None:
    """The first match counts; what is no number of at most a billion is none, whatever a response says."""
    number = TextNumber(of="y", field="number", pattern="=([^;]*)", empty=-2)
    names = TextNumber(of="y", field="matches", pattern="(?i)WAIT|Ö")
    texts = [
        *["a=7; =8", "= 0.5 ;", "=-3e2", "=1e9", "=1e10", "=inf", "=nan", "=", "=1,5", "7", "", "Wait ö=٤"],
        None,
    ]
    found = read_texts(Infix(fn="+", left=number, right=names), lambda part: texts, (13,))
    told = [7, 0.5, -300, 1e9, *[-2] * 8, math.nan]
    assert found[number.key].tolist() == pytest.approx(told, nan_ok=True)
    assert found[names.key].tolist() == pytest.approx([*[0] * 11, 1, math.nan], nan_ok=True)
    answers = replace(names, source="answer", pattern="^$")
    assert read_texts(answers, lambda part: [None, "7"], (1, 2))[answers.key].tolist() == [[1, 0]]


def test_only_what_ends_after_a_place_is_read_after_it() -> None:
    last = (LastNumber(),)
    assert read_answer(last, "7 and more", since=0) == "7"
    assert read_answer(last, "7 and more", since=1) == ""
    assert read_answer(last, "7 and 8", since=1) == "8"
    assert read_answer((ENDED,), "answer is 7", since=11) == ""


def test_the_last_box_decides_whether_a_text_ends_in_one() -> None:
    assert opens_box(r"not \boxed{1} but \boxed{2")
    assert opens_box(r"\boxed{\frac{1}{2")
    assert not opens_box(r"\boxed{1 and \boxed{2}")
    assert not opens_box("no box")
