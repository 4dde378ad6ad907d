"""The final answer of a response, or of the words that follow a forcing prompt, in time linear in their length."""

from __future__ import annotations

import re

LONGEST_RESPONSE = 1_000_000
"""Characters of a response, counted from its end, that are searched for an answer."""

# An escaped character never opens or closes a group; `\boxed` and `\fbox` open one that holds an answer.
# A backslash before one of these escapes nothing: `\\boxed{7}` is a box wherever it stands.
_TOKEN = re.compile(r"\\(?:boxed|fbox)[ \t\r\n]*\{|\\(?=\\(?:boxed|fbox)[ \t\r\n]*\{)|\\.|[{}]", re.DOTALL)
_BOX = re.compile(r"\\(?:boxed|fbox)[ \t\r\n]{0,64}\{")


def final_answer(response: str) -> str:
    r"""The content of the last `\boxed{…}` with balanced braces, stripped; empty where there is none.

    A box after `</think>` comes after those inside the reasoning and so wins over them; a response cut off within
    its last box answers with the one before it. Of nested boxes the innermost is taken.
    """
    text = response[-LONGEST_RESPONSE:]
    start = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    if start < 0:
        return ""
    box = _BOX.match(text, start)
    if box is not None:
        end = _closing(text, box.end())
        if end is not None:
            return text[box.end() : end].strip()
    return _last_balanced(text)


def forced_answer(continuation: str) -> str:
    r"""The answer of a text generated after an open `\boxed{`: all up to the first unmatched `}`, stripped.

    A continuation that never closes the box (it ran out of tokens) is the answer as a whole.
    """
    text = continuation[:LONGEST_RESPONSE]
    end = _closing(text, 0)
    return (text if end is None else text[:end]).strip()


def _closing(text: str, position: int) -> int | None:
    """Where the first `}` stands that closes a group opened before `position`."""
    depth = 0
    for token in _TOKEN.finditer(text, position):
        last = token[0][-1]
        if token[0] == "}":
            if depth == 0:
                return token.start()
            depth -= 1
        elif last == "{" and token[0] != "\\{":
            depth += 1
    return None


def _last_balanced(text: str) -> str:
    """The content of the balanced box that starts last, found in one pass with a stack of open groups."""
    stack: list[int] = []
    best = (-1, -1)
    for token in _TOKEN.finditer(text):
        if token[0] == "{":
            stack.append(-1)
        elif token[0] == "}":
            if stack:
                start = stack.pop()
                if start > best[0]:
                    best = (start, token.start())
        elif len(token[0]) > 2:
            stack.append(token.end())
    return text[best[0] : best[1]].strip() if best[0] >= 0 else ""
