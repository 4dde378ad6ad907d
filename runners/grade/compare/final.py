"""Find the final answer of a response in its last box."""

from __future__ import annotations

import re

LONGEST_RESPONSE = 1_000_000
"""Characters of a response, counted from its end, that are searched for an answer."""

# An escaped character never opens or closes a group; `\boxed` and `\fbox` open one that holds an answer, or stand before a
# number or a letter without one. A backslash before one of these escapes nothing: `\\boxed{7}` is a box wherever it stands.
_BARE = (
    r"[ \t\r\n]{0,64}(?P<bare>[+-]?(?:\\?\$)?[0-9][0-9,]{0,60}(?:\.[0-9]{1,60})?(?:/[0-9]{1,60})?"
    r"|(?<![a-z])[A-Za-z](?![A-Za-z]))"
)
_TOKEN = re.compile(
    rf"\\(?:boxed|fbox)(?:[ \t\r\n]*\{{|{_BARE})|\\(?=\\(?:boxed|fbox)(?![A-Za-z]))|\\.|[{{}}]", re.DOTALL
)
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
"""Boxes that are read as one list, if only a comma, `and` or `or` comes between each and the next."""


def final_answer(response: str) -> str:
    r"""Return the content of the last `\boxed{…}` with balanced braces, stripped; empty if there is no box.

    A box after `</think>` comes after those inside the reasoning and so wins over them; a response cut off within
    its last box answers with the one before it, and so does one whose last box is empty. Of nested boxes the innermost is
    taken. A box without braces holds the number or the letter after it. Boxes with a comma, `and` or `or` between them are
    one list.
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
    """Return the answer of the box that opens at `start`, after the answers of the boxes that it is joined to."""
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
    r"""Return the answer of a text generated after an open `\boxed{`: all up to the first unmatched `}`, stripped.

    A continuation that never closes the box (it ran out of tokens) is the answer as a whole.
    """
    text = continuation[:LONGEST_RESPONSE]
    end = _closing(text, 0)
    return (text if end is None else text[:end]).strip()


def _closing(text: str, position: int) -> int | None:
    """Return where the first `}` stands that closes a group opened before `position`."""
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
    """Return the content of the balanced box that starts last, found in a single pass with a stack of open groups."""
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
