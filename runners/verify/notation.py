"""Rewrite LaTeX so that the same mathematics is spelled in fewer ways."""

from __future__ import annotations

import re

from runners.verify.fast import tidy

_SIGNS = str.maketrans(
    {
        "\u2212": "-", "\u2013": "-", "\ufe63": "-", "\uff0d": "-", "\u00d7": r"\times ", "\u00b7": r"\cdot ",
        "\u22c5": r"\cdot ", "\u2217": "*", "\u00f7": "/", "\u2215": "/", "\u2044": "/", "\u00b0": r"^\circ ",
        "\u03c0": r"\pi ", "\u221e": r"\infty ", "\u2264": r"\le ", "\u2265": r"\ge ", "\u2260": r"\ne ",
        "\u00b1": r"\pm ", "\u222a": r"\cup ", "\u2229": r"\cap ", "\u2208": r"\in ", "\u2205": r"\emptyset ",
        "\u221a": r"\sqrt", "\u00b2": "^{2}", "\u00b3": "^{3}", "\u00bd": r"\frac{1}{2}", "\u00bc": r"\frac{1}{4}",
        "\u00be": r"\frac{3}{4}", "\u03b8": r"\theta ", "\u2032": "'", "\u00a0": " ", "\u2009": " ", "\u202f": " ",
        "\u2248": r"\approx ", "\u2223": r"\mid ", "~": " ",
    }
)  # fmt: skip

_SPACES = ("quad", "qquad", "enspace", "thinspace", "space", "nobreakspace", "medspace", "thickspace")
_NOTHING = (
    "displaystyle", "textstyle", "scriptstyle", "limits", "nolimits", "big", "Big", "bigg", "Bigg", "bigl",
    "bigr", "Bigl", "Bigr", "biggl", "biggr", "Biggl", "Biggr", "negthinspace", "mathbf", "boldsymbol", "bm",
    "mathit", "mathsf", "mathtt", "mathnormal", "bf", "rm", "it", "boldmath", "ensuremath", "therefore",
)  # fmt: skip
_WORDS = {
    **dict.fromkeys(_SPACES, " "),
    **dict.fromkeys(_NOTHING, ""),
    **dict.fromkeys(("textbf", "textit", "textrm", "textsf", "texttt", "textnormal", "mbox", "hbox"), r"\text"),
    **dict.fromkeys(("dfrac", "tfrac", "cfrac"), r"\frac"),
    **dict.fromkeys(("dbinom", "tbinom"), r"\binom"),
    "leq": r"\le", "leqslant": r"\le", "geq": r"\ge", "geqslant": r"\ge", "neq": r"\ne", "lt": "<", "gt": ">",
    "varnothing": r"\emptyset", "lbrace": r"\{", "rbrace": r"\}", "lbrack": "[", "rbrack": "]", "lparen": "(",
    "rparen": ")", "degree": r"^\circ", "colon": ":", "isin": r"\in", "infin": r"\infty", "ast": "*", "star": "*",
    "lvert": "|", "rvert": "|", "vert": "|", "vee": r"\lor", "textdollar": r"\$",
}  # fmt: skip
_MARKS = {
    ",": " ",
    ";": " ",
    ":": " ",
    " ": " ",
    ">": " ",
    "!": "",
    "-": "",
    "/": "",
    "(": "",
    ")": "",
    "[": "",
    "]": "",
}

_COMMAND = re.compile(r"\\(?:(?:left|right)(?![A-Za-z])[ \t\n]?\.?|([A-Za-z]++)|(.))", re.DOTALL)
_COMMA = re.compile(r" ?(?:\{,\}|\\text\{, ?\})")
_COLON = re.compile(r" ?\{?:\}? ?(?=[0-9])")
_FIRST = re.compile(r"\\(frac|sqrt|binom) ?([0-9A-Za-z])")
_SECOND = re.compile(r"\\(frac|binom)(\{[^{}]*+\}) ?([0-9A-Za-z])")
_OVER = re.compile(r"\{([^{}\\]*+)\\(over|choose)(?![A-Za-z])([^{}]*+)\}")
_POWER = re.compile(r"\^ ?\{ ?\\circ ?\}|\^ ?\\circ")
_SPACE = re.compile(r"[ \t\r\n]++")
_LEAD = re.compile(
    r"(?:\\approx|\\simeq|\\sim|=|\\text\{[^{}]*?(?:\b(?:is|are|answer)|[:=])[: ]*\}|"
    r"(?i:(?:the )?(?:final )?answer(?: is)?)[: ])[ :]*+(?=.)"
)
HIDDEN = re.compile(
    r"\\(?:[hv]?phantom|[bx]?cancel|cancelto|sout|strike|smash|rlap|llap|clap|mathrlap|mathllap|hspace|vspace|"
    r"kern|mkern|hskip|mskip|label|tag|ref|eqref|href|url|def|let|newcommand|renewcommand|color|textcolor|"
    r"transparent|iffalse|if|verb|write|input|include|footnote|marginpar|require|style|class|cssId|not)(?![A-Za-z])"
)
r"""Commands with which a text shows something else than it says: to a reader `43\phantom{=42}` is 43."""


def plain(text: str) -> str:
    r"""The text without layout, fonts and kinds of space, with one spelling of each sign, and braces around arguments.

    `\left( \dfrac12 , 3 \right)` becomes `(\frac{1}{2},3)`-like text; words stay inside `\text{…}`. Linear in its length.
    """
    text = tidy(text.translate(_SIGNS))
    if "\\" in text:
        text = _COMMAND.sub(_one_spelling, text)
        text = _COMMA.sub(",", text)
        text = _OVER.sub(_over, text)
        text = _SECOND.sub(r"\\\1\2{\3}", _FIRST.sub(r"\\\1{\2}", text))
        text = _POWER.sub(r"^\\circ", text)
    elif "{," in text:
        text = _COMMA.sub(",", text)
    if ":" in text:
        text = _COLON.sub(":", text)
    text = _SPACE.sub(" ", text).strip(" ")
    text = text.replace("<=", r"\le ").replace(">=", r"\ge ").replace("!=", r"\ne ")
    for _ in range(4):
        before = text
        lead = _LEAD.match(text)
        if lead is not None:
            text = text[lead.end() :]
        if len(text) > 1 and text[-1] in ".,;" and text[-2] not in ".\\":
            text = text[:-1]
        text = unwrapped(text.strip(" "))
        if text == before:
            break
    return text


def unwrapped(text: str) -> str:
    """The text without one pair of braces or dollar signs around all of it."""
    if len(text) > 2 and text[0] == text[-1] == "$" and "$" not in text[1:-1]:
        return text[1:-1].strip(" ")
    if len(text) > 1 and text[0] == "{" and text[-1] == "}" and closing(text, 0) == len(text) - 1:
        return text[1:-1].strip(" ")
    return text


def closing(text: str, start: int) -> int | None:
    """Where the bracket closes that opens at `start`; of all kinds together, as half-open intervals need."""
    depth, place = 0, start
    while place < len(text):
        step, change = _bracket(text, place)
        depth += change
        if change and depth == 0:
            return place + step - 1
        place += step
    return None


def balanced(text: str) -> bool:
    """Whether every bracket that opens closes, of all kinds together, and none closes that is not open."""
    depth, place = 0, 0
    while place < len(text) and depth >= 0:
        step, change = _bracket(text, place)
        depth += change
        place += step
    return depth == 0


def split_top(text: str, marks: re.Pattern[str]) -> list[str]:
    """The pieces between the matches of `marks` that stand in no bracket; each stripped."""
    pieces, depth, place, begun = list[str](), 0, 0, 0
    while place < len(text):
        if depth == 0:
            mark = marks.match(text, place)
            if mark is not None and mark.end() > place:
                pieces.append(text[begun:place].strip(" "))
                place = begun = mark.end()
                continue
        step, change = _bracket(text, place)
        depth = max(0, depth + change)
        place += step
    return [*pieces, text[begun:].strip(" ")]


def _bracket(text: str, place: int) -> tuple[int, int]:
    """How many characters the mark at a place has, and by how much it changes the depth of brackets."""
    mark = text[place]
    if mark == "\\":
        return (2, {"{": 1, "}": -1}.get(text[place + 1 : place + 2], 0))
    return 1, 1 if mark in "([{" else -1 if mark in ")]}" else 0


def _one_spelling(command: re.Match[str]) -> str:
    word, mark = command[1], command[2]
    if word is not None:
        return _WORDS.get(word, command[0])
    return "" if mark is None else _MARKS.get(mark, command[0])


def _over(group: re.Match[str]) -> str:
    command = r"\frac" if group[2] == "over" else r"\binom"
    return f"{command}{{{group[1].strip()}}}{{{group[3].strip()}}}"
