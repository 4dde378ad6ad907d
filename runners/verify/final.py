r"""Find the answers that a text states in prose: what follows "the answer is", or else what its last sentence says.

A sentence is a statement here; mathematics in it is hidden behind one character, so that no mark inside ends it. What is
read of a sentence is the matter of `sentence.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from runners.verify.extract import LABELS
from runners.verify.sentence import FIRST_MASK, LEADS, MASK, read_sentence

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
