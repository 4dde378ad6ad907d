"""Find the final answer of a response: in its last box, or stated in prose.

In prose it follows "the answer is", or else is what the last sentence says. A sentence is a statement here; mathematics in
it is hidden behind one character, so that no mark inside ends it. `sentence.py` reads a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from runners.verify.sentence import FIRST_MASK, LEADS, MASK, read_sentence

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
    r"""Return the content of the last `\boxed{…}` with balanced braces, stripped; empty where there is none.

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
            return _joined(text, start, text[box.end() : end].strip())
    return _last_balanced(text)


def _joined(text: str, start: int, answer: str) -> str:
    """Return the answer in the box that opens at `start`, after those of the boxes that it is joined to."""
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
            return "; ".join(f"({label}) {part}" for label, part in parts)
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
    """Return the content of the balanced box that starts last, found in one pass with a stack of open groups."""
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


LONGEST_READ = 30_000
"""Characters at the end of a text in which statements are looked for."""
LONGEST_SENTENCE = 600
"""Characters of a sentence beyond which it states nothing."""

_MATHEMATICS = re.compile(
    r"\$\$(?:\\.|[^$\\]){1,2000}+\$\$|\\\[(?:(?!\\[\]\[]).){1,2000}+\\\]|\\\((?:(?!\\[()]).){1,1000}+\\\)"
    r"|(?<![\\$])\$(?=[^\s$])(?:\\.|[^$\\\n]|\n(?!\n)){1,1000}+(?<=[^\s])\$(?!\d)"
    r"|\\begin\{(\w{1,12}\*?)\}(?:(?!\\(?:begin|end)).){1,2000}+\\end\{\1\}",
    re.DOTALL,
)
_SPARE = re.compile(f"[{MASK}]")
_MARKED = re.compile(
    r"<(?=answer>)|(?<=<answer)>|</answer>|\$\\(?:black)?square\$|\\(?:blacksquare|qed|checkmark)(?![A-Za-z])",
    re.IGNORECASE,
)
_SPELT = {"<": "\n", ">": ":"}
_END = re.compile(
    r"(?<!\b[ap]\.m)(?<!\bi\.e)(?<!\be\.g)(?<!\bapprox)(?<!\bvs)(?<!\bAns)(?<!^\d)(?<!\n\d)(?<!^[A-J])(?<!\n[A-J])"
    r"[.!?]+(?:\*\*|[\"')\u201d])*(?=\s|\Z)|\u3002|\n|\Z"
)
_MARKS = re.compile(r"(?:\s|#{1,6}(?=\s|\d)|>|[-*\u2022](?=\s)|\d{1,2}[.)](?=\s+[^\s\d]))*+")
_GOES_ON = re.compile(
    r"(?::|\b(?:is|are|be|as|have|has|get|gives?|obtain|equals?|to|by|of|find|yields?)|,|=)(?:\*\*)?\s*\Z",
    re.IGNORECASE,
)
_SAYS_NOTHING = re.compile(
    rf"[^\w{MASK}]*(?:\Z"
    r"|(?:i hope|hope this|let me know|feel free|if you (?:have|would|need)|(?:notes?|explanation|remark|tip):"
    r"|\(?(?:if|without|had|otherwise|counting|ignoring)\b.*\bwould\b|confidence"
    r"|(?:options? |choices? )?\(?[a-j]\)? (?:is|are) (?:incorrect|wrong)\b(?!.*\b(?:correct|right)\b)"
    r"|(?<=\()[A-Z]?[a-z]+\b[, ].*\)[\s.*_]*\Z"
    r"|(?:with )?equality (?:holds|occurs|is|when|iff|if)|(?:would|do|shall|should|can) (?:you|we|i) [^\n]*\?\W*\Z)"
    r"|(?!.*\b(?:so|answer|therefore|thus|hence|option|choice)\b)"
    rf"(?:(?:this (?:completes|concludes|is what)|done\b|q\.?e\.?d\b|as (?:required|desired|claimed|wanted)|thank|great\b"
    r"|good luck|happy to|correct\b|perfect\b|verified\b|confirmed\b"
    r"|(?:that|this)(?:'s| is)\b(?! (?:option|choice|why|because))(?: (?:the|a|an|one|what)\b)"
    rf"|(?:it|this|that|these|both|all|everything|which|the)\b[^\d{MASK}]*"
    r"\b(?:match|check|work|hold|agree|consisten|satisf|confirm|verif)\w*)"
    rf"[^\d{MASK}]*\Z"
    r"|(?:(?:now|let me|let's|let us|as|a|to|we|you|i'll|i|can|quick|quickly|final|sanity|double)[ -])*"
    r"(?:check|verif|confirm|see )|indeed\b))",
    re.IGNORECASE | re.DOTALL,
)
# A sentence without these words, numbers and marks leaves the answer before it as it is.
_TAKES_BACK = re.compile(
    rf"[\d{MASK}*?]|n't\b|\b(?:not|no|cannot|unable|however|but|if|so|hence|thus|therefore|next|now|let|need)\b|[^.!]\Z",
    re.I,
)
_TURNS_BACK = re.compile(
    r"\W*(?:wait|hmm+|hold on|actually|oops|scratch that|no(?=,)|but wait|let me (?:re|double)|that(?:'s"
    r"| is) (?:not right|wrong)|I (?:made|think I made) a)\b",
    re.IGNORECASE,
)
_CUT = re.compile(
    r"\b(?:we|which|that|the|and|or|so|of|to|is|are|then|with|by|for|from|as|because|since|where|it|this|giving|adding)\s*\Z"
)
"""A text that was cut in its last sentence."""
_LABEL = re.compile(r"\W{0,8}(?:[Pp]art ?)?\(?([a-h]|[1-9]|i{1,3}|iv|v)\)\W{0,8}")
_NAME = re.compile(r"(?:\$|\\\()([A-Za-z]{1,3})(?:\$|\\\))")


def final_answers(text: str) -> list[tuple[int, str]]:
    """Return the answer that a text has stated by the end of each sentence; empty where that sentence leaves none.

    What follows "the answer is" counts until the text turns back ("wait"), or says so again.
    """
    answers, parts, stated = list[tuple[int, str]](), list[tuple[str, str]](), False
    for end, sentence, hidden in _sentences(text):
        stated = stated and _TURNS_BACK.match(sentence) is None
        if _SAYS_NOTHING.match(sentence) or _CUT.search(sentence):
            continue
        label = _LABEL.match(sentence)
        answer, explicit = read_sentence(sentence[label.end() :] if label else sentence, hidden)
        parts = _next_part(parts, label[1].lower() if label else "", answer)
        if len(parts) > 1:
            answer = "; ".join(f"({name}) {part}" for name, part in parts)
        if (not stated and (answer or _TAKES_BACK.search(sentence))) or (explicit and answer):
            answers.append((end, answer))
        stated = stated or (explicit and bool(answer))
    return answers


def _next_part(parts: list[tuple[str, str]], label: str, answer: str) -> list[tuple[str, str]]:
    """Return the labelled parts up to here: one more, or none where the labels do not go on."""
    series = next((each for each in LABELS if label in each), ())
    if not label or not answer or len(parts) >= len(series) or series[len(parts)] != label:
        return [(label, answer)] if answer and label in ("a", "1", "i") else []
    return [*parts, (label, answer)]


def _sentences(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """Yield where each sentence that may state something ends, its text, and the mathematics that is hidden in it."""
    begin = max(0, len(text) - LONGEST_READ)
    # Tags are spelt as a heading of as many characters.
    text = _MARKED.sub(lambda mark: _SPELT.get(mark[0], f"{' ' * len(mark[0])}"), text)
    spans = [span.span() for span in _MATHEMATICS.finditer(text, begin)]
    place = 0
    for start, end in _bounds(text, begin, spans):
        hidden, pieces, at = list[str](), list[str](), start
        while place < len(spans) and spans[place][0] < end:
            low, high = spans[place]
            # A name alone is no value.
            name = _NAME.fullmatch(text, low, high)
            pieces += [_SPARE.sub(" ", text[at:low]), name[1] if name else chr(FIRST_MASK + len(hidden))]
            hidden += [] if name else [text[low:high]]
            place, at = place + 1, high
        sentence = "".join([*pieces, _SPARE.sub(" ", text[at:end])])
        if len(sentence) > LONGEST_SENTENCE:
            yield end, "", []
            continue
        marks = _MARKS.match(sentence)
        yield end, sentence[marks.end() if marks else 0 :], hidden


def _bounds(text: str, begin: int, spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield where each sentence begins and ends. A line that leads to the next, with a colon or a verb, goes on there."""
    start, place = begin, 0
    for mark in _END.finditer(text, begin):
        while place < len(spans) and spans[place][1] <= mark.start():
            place += 1
        if place < len(spans) and spans[place][0] < mark.start():
            continue
        so_far = text[max(start, mark.start() - 200) : mark.start()]
        if not so_far.strip():
            continue
        if mark[0] == "\n" and _leads_on(
            text[start : mark.start()][:200], so_far, text[mark.end() : mark.end() + 300]
        ):
            continue
        yield start, mark.start() if mark[0] == "\n" else mark.end()
        start = mark.end()


def _leads_on(first: str, so_far: str, rest: str) -> bool:
    """Return whether a line goes on in the next: by its last word, as a heading, or as the head of a list of equations."""
    if not rest.strip():
        return False
    if _GOES_ON.search(so_far) or rest.lstrip()[:2] in ("$$", r"\["):
        return True
    line = f"\n{so_far}\n"
    if LEADS.search(line) and not LEADS.sub("", line).strip(" *#\n"):
        return True
    header = first.split("\n", 1)[0]
    return header.rstrip(" *").endswith(":") and rest[:1].strip() != "" and "=" in rest.split("\n", 1)[0]
