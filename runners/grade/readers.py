r"""Find the answer of a text by its readers, and the positions at which the answer changes while the text grows.

`boxed` is the content of the last closed box, `after` the line after the last marker, `last_number` the last number, and
`regex` the first group of the last match. Each reader takes time linear in the text: regular expressions run in Rust's
engine, which polars has and which does not backtrack, and `reodsl.ir.names.pattern_fault` bounds the patterns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import polars as pl
from numpy.typing import NDArray

from reodsl.ir.base import IR, Node, values_of
from reodsl.ir.data import After, AnswerReader, Code, FullText, LastBox, LastNumber, Regex
from reodsl.ir.expression import READINGS, TextNumber
from reodsl.ir.model import THINK_CLOSE, THINK_OPEN
from runners.grade.compare.final import BOX, LONGEST_RESPONSE, final_answer

Place = tuple[int, str]
"""A pair (length, answer): the length in characters of a prefix of a text, and the answer of this prefix."""

LONGEST_ANSWER = 2_000
"""The most characters of an answer after a marker or of a match; a longer text is no answer."""
LONGEST_MATCHED = 100_000
"""The number of characters at the end of a text that a regular expression searches."""
MOST_BOXES = 64
"""The number of boxes of a text at whose ends the answers of prefixes are read; later boxes are ignored."""

_BOX = re.compile(r"\\(?:boxed|fbox)\s{0,64}\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_DIGIT, _MINUS = "[0-9\uff10-\uff19]", "[-+\u2212\u2013\uff0d\ufe63]"
_GROUPING = r"(?:,\\! ?|[,\uff0c]|\{,\} ?|\\[ ,;]|[ \u00a0\u2009\u202f])"
"""A separator of thousands: a comma or a space, as in `10 000`, also in LaTeX."""
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
    """The marks around a model's thinking, in which no answer is read.

    With `over`, the thinking has ended before the text begins. Otherwise the text up to the first closing mark is
    thinking, even without an opening mark, because the prompt may contain the opening mark.
    """

    open: str = THINK_OPEN
    close: str = THINK_CLOSE
    over: bool = False

    def outside(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the span (begin, end), in characters, of each section of the text, between marks, that is not thinking.

        A section in which the model thinks gives an empty span at its beginning: (begin, begin). With `over`, the first
        section is not thinking; otherwise it is.
        """
        begin, over = 0, self.over
        for mark in re.finditer(f"({re.escape(self.close)})|{re.escape(self.open)}", text):
            yield begin, mark.start() if over else begin
            begin, over = mark.end(), mark[1] is not None
        yield begin, len(text) if over else begin


def read_texts(
    formula: IR | Node, texts_of: Callable[[str], Iterable[str | None]], shape: tuple[int, ...]
) -> dict[str, NDArray[np.float64]]:
    """Return the numbers that a formula reads in the texts of responses by regular expressions.

    Args:
        formula: The reward, selection or statistic.
        texts_of: Returns the text of each response by the `source` of a `TextNumber`. An answer of None is no answer; any
            other text of None is unknown, and so is its number.
        shape: The shape of the arrays of the result.

    Returns:
        The numbers of all responses by the `key` of each `TextNumber`; NaN for an unknown text.
    """
    numbers: dict[str, NDArray[np.float64]] = {}
    for node in values_of(formula, TextNumber):
        texts = pl.Series(texts_of(node.source), dtype=pl.String)
        unknown = texts.is_null().to_numpy() & (node.source != "answer")
        texts = texts.fill_null("")
        if node.field == "matches":
            values = texts.str.contains(node.pattern).to_numpy().astype(np.float64)
        else:
            written = texts.str.extract(node.pattern).str.strip_chars()
            found = written.cast(pl.Float64, strict=False).fill_null(np.inf).to_numpy()
            values = np.where(np.abs(found) <= READINGS["number"].high, found, node.empty)
        numbers[node.key] = np.where(unknown, np.nan, values).reshape(shape)
    return numbers


def read_answer(
    readers: Sequence[AnswerReader], text: str, since: int = 0, thinking: Thinking | None = None
) -> str:
    """Return the answer of a text by the first reader that finds an answer, or "" if none does.

    With `thinking`, only the section after the last mark is read. It is empty, and has no answer, if the model still
    thinks at the end of the text.

    Args:
        readers: The ways to read an answer, in order.
        text: A response, or the text after a cut.
        since: An answer must end after the first `since` characters of the text that is read.
        thinking: The marks of thinking; None to read the full text.
    """
    if thinking is not None:
        *_, (begin, end) = thinking.outside(text)
        text = text[begin:end]
    for reader in readers:
        if isinstance(reader, LastBox):
            answer = final_answer(text[since:])
        else:
            answer = next((found for end, found in reversed(_find_answers(reader, text)) if end > since), "")
        if answer:
            return answer
    return ""


def answer_changes(
    readers: Sequence[AnswerReader], text: str, thinking: Thinking | None = None
) -> list[Place]:
    """Return the lengths of prefixes at which the answer of a text changes while the text grows.

    Only complete answers count: a number or a line that continues after a prefix is no answer of this prefix. The
    answer becomes "" if the model begins to think again.

    Args:
        readers: The ways to read an answer, in order.
        text: The text.
        thinking: The marks of thinking, in which no answer is read; None to read the full text.

    Returns:
        For each change, the length of the prefix in characters and the new answer, in rising order of length.
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
    """Return the lengths of prefixes at which the answer of a text without thinking changes.

    The answer of a prefix is the last answer that the first reader with any answer finds in the prefix.

    Args:
        readers: The ways to read an answer, in order.
        text: The text.

    Returns:
        For each change, the length of the prefix in characters and the new answer, in rising order of length.
    """
    events = sorted(
        (
            (end, rank, answer)
            for rank, reader in enumerate(readers)
            for end, answer in _find_answers(reader, text)
        ),
        key=lambda event: event[:2],
    )
    answers = [""] * len(readers)
    changes: list[Place] = []
    last = ""
    for end, rank, answer in events:
        answers[rank] = answer
        current = next(filter(None, answers), "")
        if current != last:
            if changes and changes[-1][0] == end:
                changes.pop()
            changes.append((end, current))
            last = current
    return changes


def box_ends(text: str) -> list[int]:
    r"""Return the position after each boxed answer of a text, in rising order.

    A box is `\boxed{…}` with balanced braces, or `\boxed` before a number or a letter without braces, such as `\boxed
    7`. Only the first `MOST_BOXES` boxes count, and boxes that are not closed have no position.
    """
    openings, ends = set[int](), list[int]()
    for box in islice(BOX.finditer(text), MOST_BOXES):
        if box["bare"]:
            ends.append(box.end())
        else:
            openings.add(box.end())
    if not openings:
        return ends
    # For each open brace, whether it opens a box.
    stack: list[bool] = []
    for mark in _BRACE.finditer(text, min(openings) - 1):
        if mark[0] == "{":
            stack.append(mark.end() in openings)
        elif mark[0] == "}" and stack and stack.pop():
            ends.append(mark.end())
    return sorted(ends)


def opens_box(text: str) -> bool:
    r"""Return whether a text ends inside an open `\boxed{`: a continuation then begins with the answer.

    Only the last box counts. Groups inside it may be complete, as in `\boxed{\frac{1}{2`.
    """
    boxes = list(_BOX.finditer(text))
    return bool(boxes) and boxes[-1].end() > max(box_ends(text), default=0)


def _find_answers(reader: AnswerReader, text: str) -> list[Place]:
    """Return all answers that a reader finds in a text, as pairs (length of the prefix that ends with the answer, answer).

    Boxes, numbers, code, and answers after markers are searched at most in the last `LONGEST_RESPONSE` characters.
    """
    match reader:
        case LastBox():
            return [(end, final_answer(text[:end])) for end in box_ends(text)]
        case LastNumber():
            first = max(0, len(text) - LONGEST_RESPONSE)
            return [(number.end(), number[0]) for number in _NUMBER.finditer(text, first)]
        case Code():
            return _find_code_blocks(text)
        case FullText():
            return [(len(text), text)] if text.strip() else []
        case After(marker=marker):
            return _find_after_marker(text, marker)
        case Regex(pattern=pattern):
            return _find_matches(text, pattern)


def _find_code_blocks(text: str) -> list[Place]:
    """Return the Markdown blocks of code in a text, as pairs (position after the closing backticks, content).

    A fence without text, of at least as many backticks as the opening fence, closes a block. Empty blocks and a block
    that is not closed are left out.
    """
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


def _find_after_marker(text: str, marker: str) -> list[Place]:
    """Return the answers after the occurrences of a marker, as pairs (position after the answer, answer).

    The answer is the rest of the marker's line up to another marker, or the next line with text if the rest is empty. A
    longer answer than `LONGEST_ANSWER` is left out.
    """
    answers: list[Place] = []
    position = text.find(marker, max(0, len(text) - LONGEST_RESPONSE))
    while position >= 0:
        begin = position + len(marker)
        following = text[begin : begin + LONGEST_ANSWER + 1]
        blank = len(following) - len(following.lstrip())
        line = following[blank:].split("\n", 1)[0]
        is_complete = blank + len(line) <= LONGEST_ANSWER
        # The next marker on the line ends the answer.
        answer = line.split(marker, 1)[0].strip()
        if answer and is_complete:
            answers.append((begin + blank + line.index(answer) + len(answer), answer))
        position = text.find(marker, begin)
    return answers


def _find_matches(text: str, pattern: str) -> list[Place]:
    """Return the answers of all matches of a regular expression, as pairs (position after the match, answer).

    The answer is the match's first group, or the full match if the pattern has no group. Empty answers and answers
    longer than `LONGEST_ANSWER` are left out. Only the last `LONGEST_MATCHED` characters are searched.

    polars can replace matches, but does not return their positions. So each match is replaced by its answer and itself,
    with marks of Unicode's private use area around them, and the positions are counted in the result.
    """
    before = max(0, len(text) - LONGEST_MATCHED)
    tail = text[before:].translate({0xE000: " ", 0xE001: " ", 0xE002: " "})
    has_groups = re.search(r"(?<!\\)\((?!\?)|\(\?P?<", pattern) is not None
    replacement = f"{_START}${{{1 if has_groups else 0}}}{_MIDDLE}${{0}}{_END}"
    marked = pl.Series([tail]).str.replace_all(pattern, replacement).item()
    answers: list[Place] = []
    length = before
    for section in str(marked).split(_START):
        answer, middle, rest = section.partition(_MIDDLE)
        if not middle:
            length += len(section)
            continue
        match, _, after = rest.partition(_END)
        length += len(match)
        if answer.strip() and len(answer) <= LONGEST_ANSWER:
            answers.append((length, answer.strip()))
        length += len(after)
    return answers
