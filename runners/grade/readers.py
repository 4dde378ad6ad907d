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

from reodsl.ir.data import After, AnswerReader, Code, FullText, LastBox, LastNumber, Regex
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
_GROUPING = r"(?:,\\! ?|[,\uff0c]|\{,\} ?|\\[ ,;]|[ \u00a0\u2009\u202f])"
_SUPERSCRIPT = (
    r"(?:\^(?:\{ ?[-+\u2212]?[0-9]{1,9} ?\}|[-+\u2212]?[0-9]{1,9})"
    r"|[\u207b\u207a]?[\u2070\u00b9\u00b2\u00b3\u2074-\u2079]{1,9})"
)
_FRACTION = r"\\[dtc]?frac ?(?:\{ ?[-+\u2212]?[0-9]{1,30} ?\}\{ ?[0-9]{1,30} ?\}|[0-9]{2})"
_ROOT = r"\\sqrt ?(?:\{ ?[0-9]{1,30} ?\}|[0-9])"
_NUMBER = re.compile(
    rf"(?<![0-9A-Za-z.^_\uff10-\uff19])(?<!\^\{{)(?:(?<![)\]}}]){_MINUS})?(?:\\?\$(?![0-9]{{1,12}}\{{?:)|[\u20ac\u00a3\u00a5\u20b9])?"
    rf"(?:{_FRACTION}|{_ROOT}|\.{_DIGIT}{{1,60}}"
    rf"|(?:{_DIGIT}{{1,3}}(?:{_GROUPING}{_DIGIT}{{3}}){{1,30}}(?!{_DIGIT})|{_DIGIT}{{1,60}}(?!{_DIGIT}))"
    rf"(?:[.\uff0e]{_DIGIT}{{1,60}})?(?:[eE][+-]?[0-9]{{1,4}}(?![0-9A-Za-z]))?"
    rf"(?: ?{_ROOT}| ?(?:\\times|\\cdot|[\u00d7\u00b7*xX]) ?10{_SUPERSCRIPT}|{_SUPERSCRIPT}| ?{_FRACTION}"
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
    """The marks around a model's thinking, in which no answer is read. With `over` it ended before the text begins.

    A text whose thinking is not over is thinking up to the first closing mark, whether it opens it or its prompt did.
    """

    open: str = THINK_OPEN
    close: str = THINK_CLOSE
    over: bool = False

    def outside(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the span between each two marks, the last span too; a span in which the model thinks is empty."""
        begin, over = 0, self.over
        for mark in re.finditer(f"({re.escape(self.close)})|{re.escape(self.open)}", text):
            yield begin, mark.start() if over else begin
            begin, over = mark.end(), mark[1] is not None
        yield begin, len(text) if over else begin


def read_answer(
    readers: Sequence[AnswerReader], text: str, since: int = 0, thinking: Thinking | None = None
) -> str:
    """Return the answer of a text by the first reader that finds an answer, or an empty text.

    With `thinking` the answer is read after the last mark, if that mark closes the thinking.

    Args:
        readers: ways to read an answer, in order.
        text: a response, or its part after a cut.
        since: characters of the text before which an answer may not end.
        thinking: the marks of thinking; None reads the text as it is.
    """
    if thinking is not None:
        *_, (begin, end) = thinking.outside(text)
        text = text[begin:end]
    for reader in readers:
        if isinstance(reader, LastBox):
            answer = final_answer(text[since:])
        else:
            answer = next((inside for end, inside in reversed(_places(reader, text)) if end > since), "")
        if answer:
            return answer
    return ""


def answer_changes(
    readers: Sequence[AnswerReader], text: str, thinking: Thinking | None = None
) -> list[Place]:
    """Return each position at which the answer of the text so far changes, rising.

    Only complete answers count: a number or a line that a prefix breaks off is not an answer of that prefix. With
    `thinking`, a text that begins to think again has no answer any more.
    """
    if thinking is None:
        return _changes(readers, text)
    changes: list[Place] = []
    for begin, end in thinking.outside(text):
        if changes and changes[-1][1]:
            changes.append((begin, ""))
        if end > begin:
            changes += [(begin + position, answer) for position, answer in _changes(readers, text[begin:end])]
    return changes


def _changes(readers: Sequence[AnswerReader], text: str) -> list[Place]:
    """Return the positions at which the first answer over all readers changes, in a text without marks of thinking."""
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
    """Return the rising numbers of characters up to the end of each boxed answer, at which a prefix's answer can change."""
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
    """Return each answer of a text that a reader finds, with its end."""
    match reader:
        case LastBox():
            return [(end, final_answer(text[:end])) for end in box_ends(text)]
        case LastNumber():
            first = max(0, len(text) - LONGEST_RESPONSE)
            return [(number.end(), number[0]) for number in _NUMBER.finditer(text, first)]
        case Code():
            return _blocks(text)
        case FullText():
            return [(len(text), text)] if text.strip() else []
        case After(marker=marker):
            return _after(text, marker)
        case Regex(pattern=pattern):
            return _matches(text, pattern)


def _blocks(text: str) -> list[Place]:
    """Return the content of each closed block of code, with the end of its closing fence."""
    answers: list[Place] = []
    first = max(0, len(text) - LONGEST_RESPONSE)
    begin, length = -1, 0
    for fence in _FENCE.finditer(text, first):
        ticks = len(fence[1])
        if begin < 0:
            begin, length = fence.end(), ticks
        elif ticks >= length and not fence[2].strip():
            inside = text[begin + 1 : fence.start()]
            if inside.strip():
                answers.append((fence.start(2), inside.strip("\n")))
            begin = -1
    return answers


def _after(text: str, marker: str) -> list[Place]:
    """Return the text after each marker up to the end of its line, or of the next line if that is empty."""
    answers: list[Place] = []
    position = text.find(marker, max(0, len(text) - LONGEST_RESPONSE))
    while position >= 0:
        begin = position + len(marker)
        following = text[begin : begin + LONGEST_ANSWER + 1]
        blank = len(following) - len(following.lstrip())
        line = following[blank:].split("\n", 1)[0]
        # A second marker on the line has its own answer.
        complete = blank + len(line) <= LONGEST_ANSWER
        answer = line.split(marker, 1)[0].strip()
        if answer and complete:
            answers.append((begin + blank + line.index(answer) + len(answer), answer))
        position = text.find(marker, begin)
    return answers


def _matches(text: str, pattern: str) -> list[Place]:
    """Return every match with its end, read off a text in which Rust's engine has put marks around each match."""
    before = max(0, len(text) - LONGEST_MATCHED)
    tail = text[before:].translate({0xE000: " ", 0xE001: " ", 0xE002: " "})
    series = pl.Series([tail])
    groups = re.search(r"(?<!\\)\((?!\?)|\(\?P?<", pattern) is not None
    marked = series.str.replace_all(pattern, f"{_START}${{{1 if groups else 0}}}{_MIDDLE}${{0}}{_END}").item()
    answers: list[Place] = []
    length = before
    for piece in str(marked).split(_START):
        answer, middle, rest = piece.partition(_MIDDLE)
        if not middle:
            length += len(piece)
            continue
        match, _, after = rest.partition(_END)
        length += len(match)
        if answer.strip() and len(answer) <= LONGEST_ANSWER:
            answers.append((length, answer.strip()))
        length += len(after)
    return answers
