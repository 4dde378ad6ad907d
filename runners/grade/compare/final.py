"""Find the final answer of a response in its last box."""

from __future__ import annotations

import re

LONGEST_RESPONSE = 1_000_000
"""The number of characters at the end of a response that are searched for an answer."""

_BARE = (
    r"[ \t\r\n]{0,64}(?P<bare>[+-]?(?:\\?\$)?[0-9][0-9,]{0,60}(?:\.[0-9]{1,60})?(?:/[0-9]{1,60})?"
    r"|(?<![a-z])[A-Za-z](?![A-Za-z]))"
)
_TOKEN = re.compile(
    rf"\\(?:boxed|fbox)(?:[ \t\r\n]*\{{|{_BARE})|\\(?=\\(?:boxed|fbox)(?![A-Za-z]))|\\.|[{{}}]", re.DOTALL
)
r"""A box, a brace, or an escaped character.

`\boxed` and `\fbox` open a group with an answer, or come before a number or a letter without braces. An escaped brace opens
and closes no group. The first backslash of `\\boxed{7}` escapes nothing: the text is a box.
"""
BOX = re.compile(rf"\\(?:boxed|fbox)(?:[ \t\r\n]{{0,64}}\{{|{_BARE})")
_PLACEHOLDER = re.compile(r"(?:\.{2,}|\u2026|\\[lc]?dots|~|\s)*")
"""The content of a box in an instruction: nothing, or dots."""
_JOINT = re.compile(
    r"\}(?:[\s$~]|\\[()\[\],;: ]|\\q?quad){0,8}(?:(?:,? ?\b|\\text ?\{ ?)(?:and|or)\b ?\}?|[,;])"
    r"(?:[\s$~]|\\[()\[\],;: ]|\\q?quad){0,8}(?:[A-Za-z]\w{0,8} ?= ?)?\Z"
)
_PART_NAME = r"(?:[-*#]+ ?){0,3}(?:[Pp]art ?)?\(?"
_NEXT_PART = re.compile(
    rf"\}}(?:[\s$~.,;*]|\\[)\]]|\band\b){{1,12}}(?<![^\s]){_PART_NAME}([b-h]|[2-9]|i{{2,3}}|iv|v)\)[.:*]*(?:(?!\\(?:boxed|fbox))[^\n]){{0,80}}\Z"
)
_FIRST_PART = re.compile(rf"(?:^|(?<=\s)){_PART_NAME}([a1i])\)[.:*]*[^\n]{{0,80}}\Z")
_ASSIGNED = re.compile(r"(?<![\w\\}])[A-Za-z]\w{0,8} ?= ?\Z")
LABELS = ("abcdefgh", "123456789", ("i", "ii", "iii", "iv", "v"))
"""The labels of the parts of an answer, in order."""
MOST_JOINED = 24
"""The most consecutive boxes, separated by a comma, `and` or `or`, that are read as one list."""


def final_answer(response: str) -> str:
    r"""Return the content of the last box of a response, without white space around it; "" if there is no box.

    A box is `\boxed{…}` or `\fbox{…}` with balanced braces; without braces it contains the number or letter after it.
    If the last box is empty, has only dots, or is not closed, an earlier box counts. Of nested boxes the innermost
    counts. Consecutive boxes with a comma, `and` or `or` between them are joined into one answer (`_join_boxes`).
    """
    text = response[-LONGEST_RESPONSE:]
    start = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    if start < 0:
        return ""
    box = BOX.match(text, start)
    if box is not None:
        if box["bare"]:
            return box["bare"].rstrip(",")
        end = _closing(text, box.end())
        if end is not None and not _PLACEHOLDER.fullmatch(text, box.end(), end):
            return _join_boxes(text, start, text[box.end() : end].strip())
    return _last_balanced(text)


def _join_boxes(text: str, start: int, answer: str) -> str:
    """Return the answer of the last box joined with the answers of the boxes directly before it.

    Boxes are joined if only a comma, `and`, `or`, or the label of the next part, such as `(b)`, is between them. Boxes
    of labelled parts become `(a) 12; (b) 7`. Other boxes become a list with commas, without repeated answers; if each
    box follows a name and an equals sign, the names are kept. If the labels are no series, only the last answer is
    returned.

    Args:
        text: The response.
        start: The position of the last box.
        answer: The content of the last box.
    """
    starts, answers, labels = [start], [answer], list[str]()
    while len(answers) < MOST_JOINED:
        joint = _JOINT.search(text, max(0, start - 40), start) or _NEXT_PART.search(
            text, max(0, start - 120), start
        )
        if joint is None:
            break
        start = max(text.rfind("\\boxed", 0, joint.start()), text.rfind("\\fbox", 0, joint.start()))
        box = BOX.match(text, start) if start >= 0 else None
        if box is None or box["bare"] or _closing(text, box.end()) != joint.start():
            break
        starts.append(start)
        answers.append(text[box.end() : joint.start()].strip())
        labels += joint.groups()
    first = _FIRST_PART.search(text, max(0, start - 120), start) if labels else None
    if first is not None:
        labels = [first[1], *reversed(labels)]
        if labels in [list(series[: len(answers)]) for series in LABELS]:
            parts = zip(labels, reversed(answers), strict=True)
            return "; ".join(f"({label}) {answer_part}" for label, answer_part in parts)
    if labels:
        return answer
    names = [_ASSIGNED.search(text, max(0, start - 12), start) for start in starts]
    if len(answers) > 1 and all(names):
        answers = [f"{name and name[0]}{answer}" for name, answer in zip(names, answers, strict=True)]
    return ", ".join(dict.fromkeys(reversed(answers)))


def forced_answer(continuation: str) -> str:
    r"""Return the answer of a text that was generated after an open `\boxed{`.

    The answer ends at the brace that closes the box, or at the end of the text if no brace does.
    """
    text = continuation[:LONGEST_RESPONSE]
    end = _closing(text, 0)
    return (text if end is None else text[:end]).strip()


def _closing(text: str, position: int) -> int | None:
    """Return the position of the `}` that closes the group in which `position` is; None if no brace closes the group."""
    depth = 0
    for token in _TOKEN.finditer(text, position):
        last = "" if token["bare"] else token[0][-1]
        if token[0] == "}":
            if depth == 0:
                return token.start()
            depth -= 1
        elif last == "{" and token[0] != "\\{":
            depth += 1
    return None


def _last_balanced(text: str) -> str:
    """Return the content of the last complete box, by the position at which it starts; "" if there is none.

    Boxes that are not closed, or that are empty or have only dots, do not count. The text is read once, with a stack of
    the open groups: the position of the content for a box, -1 for another brace.
    """
    stack: list[int] = []
    best = (-1, -1)
    for token in _TOKEN.finditer(text):
        if token[0] == "{":
            stack.append(-1)
        elif token[0] == "}":
            if stack:
                start = stack.pop()
                if start > best[0] and not _PLACEHOLDER.fullmatch(text, start, token.start()):
                    best = (start, token.start())
        elif token["bare"]:
            best = token.span("bare")
        elif len(token[0]) > 2:
            stack.append(token.end())
    return text[best[0] : best[1]].strip().rstrip(",") if best[0] >= 0 else ""
