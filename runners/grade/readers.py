r"""Find a text's answer by the ways to read it, and the places at which that answer changes.

`boxed` is the content of the last closed box, `after` the line after the last marker, `last_number` the number that stands
last, `regex` the first group of the last match. Each takes time linear in the text: regular expressions run in Rust's
engine (that of polars), which does not go back, on patterns that are not too large (`reodsl.ir.names.pattern_fault`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import polars as pl

from reodsl.ir.data import After, AnswerReader, Boxed, Code, LastNumber, Regex, Whole
from reodsl.ir.model import THINK_CLOSE, THINK_OPEN
from runners.grade.compare.final import BOX, LONGEST_RESPONSE, final_answer

Place = tuple[int, str]
"""The number of characters of a text that it takes to have an answer, and that answer."""

LONGEST_ANSWER = 2_000
"""Characters of an answer after a marker or of a match; what is longer is none."""
LONGEST_MATCHED = 100_000
"""Characters at the end of a text in which a regular expression is looked for."""
MOST_BOXES = 64
"""Boxes of one text after which the answers of its prefixes are no longer followed."""

_BOX = re.compile(r"\\(?:boxed|fbox)\s{0,64}\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_DIGIT, _MINUS = "[0-9\uff10-\uff19]", "[-+\u2212\u2013\uff0d\ufe63]"
# Of spaces between thousands an ordinary one is one too, as in `10 000`.
_APART = r"(?:,\\! ?|[,\uff0c]|\{,\} ?|\\[ ,;]|[ \u00a0\u2009\u202f])"
_RAISED = (
    r"(?:\^(?:\{ ?[-+\u2212]?[0-9]{1,9} ?\}|[-+\u2212]?[0-9]{1,9})"
    r"|[\u207b\u207a]?[\u2070\u00b9\u00b2\u00b3\u2074-\u2079]{1,9})"
)
_FRACTION = r"\\[dtc]?frac ?(?:\{ ?[-+\u2212]?[0-9]{1,30} ?\}\{ ?[0-9]{1,30} ?\}|[0-9]{2})"
_ROOT = r"\\sqrt ?(?:\{ ?[0-9]{1,30} ?\}|[0-9])"
_NUMBER = re.compile(
    rf"(?<![0-9A-Za-z.^_\uff10-\uff19])(?<!\^\{{)(?:(?<![)\]}}]){_MINUS})?(?:\\?\$(?![0-9]{{1,12}}\{{?:)|[\u20ac\u00a3\u00a5\u20b9])?"
    rf"(?:{_FRACTION}|{_ROOT}|\.{_DIGIT}{{1,60}}"
    rf"|(?:{_DIGIT}{{1,3}}(?:{_APART}{_DIGIT}{{3}}){{1,30}}(?!{_DIGIT})|{_DIGIT}{{1,60}}(?!{_DIGIT}))"
    rf"(?:[.\uff0e]{_DIGIT}{{1,60}})?(?:[eE][+-]?[0-9]{{1,4}}(?![0-9A-Za-z]))?"
    rf"(?: ?{_ROOT}| ?(?:\\times|\\cdot|[\u00d7\u00b7*xX]) ?10{_RAISED}|{_RAISED}| ?{_FRACTION}"
    rf"| [0-9]{{1,30}}/[0-9]{{1,30}}(?![0-9])|/[0-9]{{1,30}}(?![0-9])"
    rf"|(?:\{{?:\}}?[0-9]{{1,12}}(?![0-9.]))+(?: ?(?:\\(?:text|mathrm)\{{ ?)?[apAP]\.? ?[mM](?![A-Za-z])\.?\}}?)?"
    rf"|[\u00bc-\u00be\u2150-\u215e])?"
    rf"|[\u00bc-\u00be\u2150-\u215e])(?:\\?[%\uff05])?(?: ?\\[lc]?dots(?![A-Za-z]))?"
    r"(?:_(?:\{ ?[0-9]{1,2} ?\}|[0-9]{1,2})| ?\\pi(?![A-Za-z])|\u03c0|[inxyz](?![A-Za-z]))?"
)
_FENCE = re.compile(r"^ {0,3}(`{3,})([^`\n]*)$", re.MULTILINE)
_START, _MIDDLE, _END = "\ue000", "\ue001", "\ue002"


@dataclass(frozen=True, slots=True)
class Thinking:
    """The marks around a model's thinking, in which no answer is read. `over`: it ended before a text begins.

    A text whose thinking is not over is thinking up to the first closing mark, whether it opens it or its prompt did.
    """

    open: str = THINK_OPEN
    close: str = THINK_CLOSE
    over: bool = False

    def outside(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where each part between marks begins and ends, the last one too. One in which the model thinks is empty."""
        begin, over = 0, self.over
        for mark in re.finditer(f"({re.escape(self.close)})|{re.escape(self.open)}", text):
            yield begin, mark.start() if over else begin
            begin, over = mark.end(), mark[1] is not None
        yield begin, len(text) if over else begin


def read_answer(
    readers: Sequence[AnswerReader], text: str, since: int = 0, thinking: Thinking | None = None
) -> str:
    """Return the answer of a text by the first way that finds one, empty where none does. It ends after `since` characters.

    With `thinking` it is read after the last mark, if that closes the thinking.
    """
    if thinking is not None:
        *_, (begin, end) = thinking.outside(text)
        text = text[begin:end]
    for reader in readers:
        if isinstance(reader, Boxed):
            answer = final_answer(text[since:])
        else:
            answer = next((inside for end, inside in reversed(_places(reader, text)) if end > since), "")
        if answer:
            return answer
    return ""


def answer_changes(
    readers: Sequence[AnswerReader], text: str, thinking: Thinking | None = None
) -> list[Place]:
    """Every place at which the answer that a text has given until then becomes another one, rising.

    What a text has answered is told by what stands in it whole: a number or a line that a prefix breaks off is not an
    answer of that prefix. With `thinking`, an answer is gone where the text begins to think again.
    """
    if thinking is None:
        return _changes(readers, text)
    changes: list[Place] = []
    for begin, end in thinking.outside(text):
        if changes and changes[-1][1]:
            changes.append((begin, ""))
        if end > begin:
            changes += [(begin + at, answer) for at, answer in _changes(readers, text[begin:end])]
    return changes


def _changes(readers: Sequence[AnswerReader], text: str) -> list[Place]:
    events = sorted(
        ((end, rank, answer) for rank, reader in enumerate(readers) for end, answer in _places(reader, text)),
        key=lambda event: event[:2],
    )
    answers = [""] * len(readers)
    changes: list[Place] = []
    last = ""
    for end, rank, answer in events:
        answers[rank] = answer
        now = next(filter(None, answers), "")
        if now != last:
            if changes and changes[-1][0] == end:
                changes.pop()
            changes.append((end, now))
            last = now
    return changes


def box_ends(text: str) -> list[int]:
    """Characters up to and with the closing of each boxed answer, rising: where the answer of a prefix can change."""
    openings, ends = set[int](), list[int]()
    for box in islice(BOX.finditer(text), MOST_BOXES):
        if box["bare"]:
            ends.append(box.end())
        else:
            openings.add(box.end())
    if not openings:
        return ends
    # What is open, and whether it is a box: one pass, whatever a response repeats.
    stack: list[bool] = []
    for mark in _BRACE.finditer(text, min(openings) - 1):
        if mark[0] == "{":
            stack.append(mark.end() in openings)
        elif mark[0] == "}" and stack and stack.pop():
            ends.append(mark.end())
    return sorted(ends)


def opens_box(text: str) -> bool:
    r"""Return whether a text ends inside a `\boxed{`, so that the answer is what comes up to its closing."""
    boxes = list(_BOX.finditer(text))
    return bool(boxes) and "}" not in text[boxes[-1].end() :]


def _places(reader: AnswerReader, text: str) -> list[Place]:
    """Every answer that a text holds by one way of reading, where it ends."""
    match reader:
        case Boxed():
            return [(end, final_answer(text[:end])) for end in box_ends(text)]
        case LastNumber():
            first = max(0, len(text) - LONGEST_RESPONSE)
            return [(number.end(), number[0]) for number in _NUMBER.finditer(text, first)]
        case Code():
            return _blocks(text)
        case Whole():
            return [(len(text), text)] if text.strip() else []
        case After(marker=marker):
            return _after(text, marker)
        case Regex(pattern=pattern):
            return _matches(text, pattern)


def _blocks(text: str) -> list[Place]:
    """Return the content of each block of code that is closed, up to and with its closing fence."""
    places: list[Place] = []
    first = max(0, len(text) - LONGEST_RESPONSE)
    begin, length = -1, 0
    for fence in _FENCE.finditer(text, first):
        ticks = len(fence[1])
        if begin < 0:
            begin, length = fence.end(), ticks
        elif ticks >= length and not fence[2].strip():
            inside = text[begin + 1 : fence.start()]
            if inside.strip():
                places.append((fence.start(2), inside.strip("\n")))
            begin = -1
    return places


def _after(text: str, marker: str) -> list[Place]:
    """Return the text after each marker up to the end of its line, or of the next if that is empty."""
    places: list[Place] = []
    place = text.find(marker, max(0, len(text) - LONGEST_RESPONSE))
    while place >= 0:
        begin = place + len(marker)
        ahead = text[begin : begin + LONGEST_ANSWER + 1]
        blank = len(ahead) - len(ahead.lstrip())
        line = ahead[blank:].split("\n", 1)[0]
        # A second marker on the line has its own answer.
        whole = blank + len(line) <= LONGEST_ANSWER
        answer = line.split(marker, 1)[0].strip()
        if answer and whole:
            places.append((begin + blank + line.index(answer) + len(answer), answer))
        place = text.find(marker, begin)
    return places


def _matches(text: str, pattern: str) -> list[Place]:
    """Every match, by marks that Rust's engine puts around it: their places are read off the marked text."""
    before = max(0, len(text) - LONGEST_MATCHED)
    part = text[before:].translate({0xE000: " ", 0xE001: " ", 0xE002: " "})
    series = pl.Series([part])
    groups = re.search(r"(?<!\\)\((?!\?)|\(\?P?<", pattern) is not None
    marked = series.str.replace_all(pattern, f"{_START}${{{1 if groups else 0}}}{_MIDDLE}${{0}}{_END}").item()
    places: list[Place] = []
    length = before
    for piece in str(marked).split(_START):
        answer, middle, rest = piece.partition(_MIDDLE)
        if not middle:
            length += len(piece)
            continue
        whole, _, after = rest.partition(_END)
        length += len(whole)
        if answer.strip() and len(answer) <= LONGEST_ANSWER:
            places.append((length, answer.strip()))
        length += len(after)
    return places
