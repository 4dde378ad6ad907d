"""Rewrite LaTeX so that the same mathematics is spelled in fewer ways."""

from __future__ import annotations

import re
import unicodedata

TEXT = re.compile(r"\\(?:text|mathrm)\{([^{}]*+)\}")
COMMANDS = re.compile(r"\\[A-Za-z]+")

_SIGNS: dict[int, str] = str.maketrans(
    {
        # Digits and letters of other widths and fonts, and fractions of one character.
        **{chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},
        **{chr(code): unicodedata.normalize("NFKC", chr(code)) for code in range(0x1D400, 0x1D800)},
        **{
            chr(code): r"\frac{{{}}}{{{}}}".format(*unicodedata.normalize("NFKC", chr(code)).split("\u2044"))
            for code in (0xBC, 0xBD, 0xBE, *range(0x2150, 0x215F))
        },
        **dict.fromkeys("\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u200a\u205f\u3000", " "),
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\ufe0f\u2713\u2714\u2705\u25a0\u25a1\u220e", ""),
        **dict.fromkeys("\u2010\u2011\u2012", "-"),
        "\u2212": "-", "\u2013": "-", "\ufe63": "-", "\uff0d": "-", "\u00d7": r"\times ", "\u00b7": r"\cdot ",
        "\u22c5": r"\cdot ", "\u2217": "*", "\u00f7": "/", "\u2215": "/", "\u2044": "/", "\u00b0": r"^\circ ",
        "\u03c0": r"\pi ", "\u221e": r"\infty ", "\u2264": r"\le ", "\u2265": r"\ge ", "\u2260": r"\ne ",
        "\u00b1": r"\pm ", "\u222a": r"\cup ", "\u2229": r"\cap ", "\u2208": r"\in ", "\u2205": r"\emptyset ",
        "\u221a": r"\sqrt", "\u03b8": r"\theta ", "\u2032": "'", "\u00a0": " ", "\u2009": " ", "\u202f": " ",
        "\u2248": r"\approx ", "\u2223": r"\mid ", "~": " ", "\u2200": r"\forall ", "\u2203": r"\exists ",
        "\u2227": r"\land ", "\u2228": r"\lor ", "\u2192": r"\to ", "\u2033": "''",
        "\u211d": r"\mathbb{R}", "\u2124": r"\mathbb{Z}",
        "\u2103": r"^\circ C", "\u2109": r"^\circ F", "\u3001": ", ", "\u3002": ".",
        "\u201c": '"', "\u201d": '"', "\u2019": "'", "\u27e8": r"\langle ", "\u27e9": r"\rangle ",
    }
)  # fmt: skip
_SUPERSCRIPTS = str.maketrans(
    "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207a\u207b\u207f\u2071", "0123456789+-ni"
)
_ROOT = re.compile(r"(?:\u221a|(?<![\\A-Za-z])sqrt(?=\()) ?(?:\(([^()]*)\)|([0-9]+(?:\.[0-9]+)?|[A-Za-z]))")
_PI = re.compile(r"(?<![A-Za-z\\])pi(?![A-Za-z])")
_SUPERSCRIPT_RUN = re.compile("[\u2070\u00b9\u00b2\u00b3\u2074-\u2079\u207a\u207b\u207f\u2071]+")
_SUBSCRIPT_RUN = re.compile("[\u2080-\u2089]+")

_SPACES = ("quad", "qquad", "enspace", "thinspace", "space", "nobreakspace", "medspace", "thickspace")
_NOTHING = (
    "displaystyle", "textstyle", "scriptstyle", "limits", "nolimits", "big", "Big", "bigg", "Bigg", "bigl",
    "bigr", "Bigl", "Bigr", "biggl", "biggr", "Biggl", "Biggr", "negthinspace", "mathbf", "boldsymbol", "bm",
    "mathit", "mathsf", "mathtt", "mathnormal", "underline", "uline", "underbar",
    "bf", "rm", "it", "boldmath", "ensuremath", "therefore",
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
    "lvert": "|", "rvert": "|", "vert": "|", "vee": r"\lor", "wedge": r"\land", "textdollar": r"\$",
    "euro": "\u20ac", "texteuro": "\u20ac", "pounds": "\u00a3", "textsterling": "\u00a3", "yen": "\u00a5",
    "textyen": "\u00a5", "textcent": "\u00a2", "cent": "\u00a2", "cr": r"\\", "R": r"\mathbb{R}", "tg": r"\tan",
    "varepsilon": r"\epsilon", "varphi": r"\phi", "vartheta": r"\theta", "varrho": r"\rho",
    "ctg": r"\cot", "arctg": r"\arctan", **dict.fromkeys(("dots", "cdots", "dotsc", "dotsb", "dotso"), r"\ldots"),
}  # fmt: skip
_MARKS = {**dict.fromkeys(",;: >", " "), **dict.fromkeys("!-/()[]", "")}

_DOTS = re.compile(r"(?<![A-Za-z]{2})(?<![A-Za-z]{2} )(?:\.{3,}|\u2026)")
_DOUBLED = re.compile(r"\\\\(?=[A-Za-z]{2}|[%$#&{},;!()\[\]])")
"""A backslash that was escaped once too often; before a letter alone it may be a new line."""
_COMMAND = re.compile(r"\\(?:(?:left|right)(?![A-Za-z])[ \t\n]?\.?|([A-Za-z]++)|(.))", re.DOTALL)
_COMMA = re.compile(r" ?(?:\{,\}|\\text\{, ?\}) ?(?=[0-9])|\{,\}")
_TIGHT = re.compile(r",\s*\\!\s*")
_ROW_GAP = re.compile(r"(?<=\\\\) ?\[ ?-?[0-9.]{1,6} ?(?:pt|ex|em|mm|cm|in)\]")
_SYSTEM = re.compile(
    r"(?:\\\{ ?\\begin\{array\}\{[lcr ]*\}|\\begin\{(?:cases|aligned|gathered)\})([^&]*?)\\end\{[a-z]+\}"
)
_COLON_ALONE = re.compile(r"\\(?:text|mathrm)\{ ?: ?\}")
_FOR = r"(?:[,;( ] ?)?(?:\\text\{)?[ ,]{0,3}(?:for|where|with)(?: (?:all|any|every|each|some))?"
_PARAMETER = re.compile(
    rf"(?:(?:, ?| ?\( ?|{_FOR} ?\}}? ?)([a-z]) ?\\in ?\\mathbb ?\{{?Z\}}? ?\)?"
    rf"|{_FOR} ?\}}? ?([a-z]) ?(?:\\text\{{ ?)?(?:is|being)? ?(?:an|any)? ?integers? ?\}}?\)?"
    rf"|{_FOR}(?: an| any)? integers? ?\}}? ?([a-z]) ?\}}?\)?)$"
)
"""Ways to say that a letter is any integer."""
_DOLLAR = re.compile(r"(?<!\\)\$")
_COLOUR = re.compile(r"\\(?:text)?color ?\{(?!white)[A-Za-z]{1,20}\}")
_UPRIGHT = re.compile(
    r"(?<=([A-Za-z]))?\\(?:mathrm|text|rm|operatorname) ?\*?\{ ?(?:([ei])|(ln|log|sin|cos|tan|cot|sec|csc|exp|arcsin|arccos"
    r"|arctan"
    r"|sinh|cosh|tanh|lcm|gcd))\}"
)
_BRACED_NUMBER = re.compile(r"([+-]?)\{([0-9][0-9.,]*)\}(?= |$)")
_OUTWARD = re.compile(r"([\[\]])([^\[\]]{1,80},[^\[\]]{1,80})([\[\]])")
_AXIS = re.compile(
    r"\\(?:hat|vec|overrightarrow|mathbf|boldsymbol|bm) ?\{? ?\\?([ijk])(?:math)?(?![A-Za-z]) ?\}?"
)
_PRIME = re.compile(r"\^ ?(?:\{ ?\\prime ?\}|\\prime(?![A-Za-z]))")
_WORD_BELOW = re.compile(r"_(\\text\{[a-z]{3,5}\})")
_DERIVATIVE = re.compile(r"\\frac\{ ?d(?P<order>\^\{?2\}?)? ?([a-z]) ?\}\{ ?d ?x ?(?(order)\^\{?2\}?) ?\}")
_DECIMAL_COMMA = re.compile(
    r"(?<![0-9,.}])(?:([0-9]+)\{,\}(?=(?:[0-9]{1,2}|[0-9]{4,})(?![0-9]|\{,\}))|0\{,\}(?=[0-9]))"
)
_JOINT = re.compile(r"\\text\{ ?([\u6216\u548c]) ?\}")
_NEGATIVE = re.compile(r"\A(?:negative|minus) (?=[0-9\\.])", re.IGNORECASE)
_CORRECT = re.compile(r"\A(\(?[A-J]\)?) is (?:the )?(?:correct|right)(?: (?:one|answer|option|choice))?\.?\Z")
_ANGLES = re.compile(r"\\langle(?![A-Za-z])((?:(?!\\[lr]angle)[^<>|]){1,200}+)\\rangle(?![A-Za-z])")
_SPACED_I = re.compile(r"(?<=[0-9}]) i(?![A-Za-z])")
_STRONG = re.compile(
    r"(?<![\w)}\]*])\*\*(?=[^\s*])([^*]+)\*\*(?![\w({\[*])|(?<!\w)__(?=[^\s_])([^_]+)__(?!\w)"
)
_FOR_ALL = re.compile(
    r",? ?\\text\{,? ?for (?:all|every|any)(?: real)?(?: numbers)? ?\} ?\$?[a-z](?: ?\\in ?\\mathbb\{?R\}?)?$"
)
_COLON = re.compile(r" ?\{?:\}? ?(?=[0-9])")
_FIRST = re.compile(r"\\(frac|sqrt|binom|vec|bar|mathbb) ?([0-9A-Za-z])")
_SECOND = re.compile(r"\\(frac|binom)(\{[^{}]*+\}) ?([0-9A-Za-z])")
_OVER = re.compile(r"\{([^{}\\]*+)\\(over|choose)(?![A-Za-z])([^{}]*+)\}")
_BRACE = re.compile(r"[{}]")
_BRACKET = re.compile(r"\\.|[()\[\]{}]", re.DOTALL)
_CHANGES = {"(": 1, "[": 1, "{": 1, r"\{": 1, ")": -1, "]": -1, "}": -1, r"\}": -1}
"""Changes of depth; another escaped character changes nothing."""
_BOXED = re.compile(r"\\boxed ?\{(.*)\}", re.DOTALL)
_POWER = re.compile(r"\^ ?\{ ?\\circ ?\}|\^ ?\\circ")
_SPACE = re.compile(r"[ \t\r\n]++")
_LEAD = re.compile(
    r"(?:#{4} ?|\\approx|\\simeq|\\sim|=|\\text\{(?! ?[A-H][:=])[^{}]*?(?:\b(?:is|are|answer)|[:=])[: ]*\}|"
    r"(?i:(?:the )?(?:final |correct )?(?:answer|option|choice)(?: is)?(?: (?:option|choice))?)[: ]|"
    r"(?i:(?!(?:[a-z']+ ){0,6}(?:no|not|than|half|twice)\b)(?:[a-z']+ ){1,6}"
    r"(?:is|are|was|were|equals|has|have|had|costs?|needs?|takes?|gets?|pays?|earns?|makes?|spends?|weighs?|contains?)"
    r"|an? total of)[: ](?=[^A-Za-z]))"
    r"[ :]*+(?=.)"
)
_RATIO = re.compile(r"\A([0-9]{1,12}) ?(?:to|\\text\{ ?to ?\}) ?([0-9]{1,12})\Z")
_TEXT = re.compile(r"\A\\text\{ ?([^{}]*?) ?\}\Z")
_NONE = re.compile(
    r"(?:there (?:is|are|exists?) |has |have )?no (?:real )?(?:solutions?|roots?)(?: exists?)?\.?"
)
WORDS_TO_TWENTY = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)  # fmt: skip
_NAMED_VALUES = {
    **dict.fromkeys(("dne", "does not exist", "the limit does not exist"), r"\text{does not exist}"),
    **{word: str(number) for number, word in enumerate(WORDS_TO_TWENTY)},
    **dict.fromkeys(("negative infinity", "minus infinity"), r"-\infty"),
    "infinity": r"\infty",
    **dict.fromkeys(("all real numbers", "all reals", "the set of all real numbers"), r"\mathbb{R}"),
}
HIDDEN = re.compile(
    r"\\(?:[hv]?phantom|[bx]?cancel|cancelto|sout|strike|smash|rlap|llap|clap|mathrlap|mathllap|hspace|vspace|"
    r"kern|mkern|hskip|mskip|label|tag|ref|eqref|href|url|def|let|newcommand|renewcommand|"
    r"(?:text)?color(?! ?\{(?!white)[A-Za-z]{1,20}\})|"
    r"transparent|iffalse|if|verb|write|input|include|footnote|marginpar|require|style|class|cssId|not)(?![A-Za-z])"
)
r"""Commands with which a text shows something else than it says: to a reader `43\phantom{=42}` is 43."""


def plain(text: str) -> str:
    r"""Return a text in the normal spelling that all comparisons expect, in time linear in its length.

    Commands of layout and fonts are removed, every sign gets a single spelling, and arguments get braces: `\left(
    \dfrac12 , 3 \right)` becomes `( \frac{1}{2} , 3 )`. Phrases such as "the answer is" before the answer are removed,
    as are marks and braces around it. Words inside `\text{…}` stay there. Texts such as `seven` or `no solution` become
    their value.
    """
    if "{,}" in text:
        text = _DECIMAL_COMMA.sub(lambda number: f"{number[1] or 0}.", text)
    text = _DOTS.sub(r"\\ldots ", spelt(text))
    if r"\\begin" in text:
        text = text.replace(r"\\", "\\")
    elif r"\begin" not in text:
        text = _DOUBLED.sub(r"\\", text)
    if "\\" in text:
        text = _COLOUR.sub("", _ROW_GAP.sub("", _TIGHT.sub(",", text)))
        text = _UPRIGHT.sub(_upright, _AXIS.sub(r"\1", text))
        text = _COMMAND.sub(_one_spelling, text)
        text = _COLON_ALONE.sub(":", _COMMA.sub(",", text))
        text = _OVER.sub(_over, text)
        text = _SECOND.sub(r"\\\1\2{\3}", _FIRST.sub(r"\\\1{\2}", text))
        text = _POWER.sub(r"^\\circ", text)
        text = _JOINT.sub(
            r" \1 ",
            _DERIVATIVE.sub(lambda rate: rate[2] + "'" * (2 if rate[1] else 1), _PRIME.sub("'", text)),
        )
        text = _WORD_BELOW.sub(r"_{\1}", text)
        text = _SYSTEM.sub(lambda system: system[1].replace(r"\\", ","), text)
    elif "{," in text:
        text = _COMMA.sub(",", text)
    if ":" in text:
        text = _COLON.sub(":", text)
    if text[:1] == "]" or text[-1:] == "[":
        text = _OUTWARD.sub(lambda ends: "[("[ends[1] == "]"] + ends[2] + "])"[ends[3] == "["], text)
    if r"\rangle" in text:
        text = _ANGLES.sub(lambda angles: f"({angles[1]})" if "," in angles[1] else angles[0], text)
    text = _SPACED_I.sub("i", _SPACE.sub(" ", text)).strip(" ")
    # `strip` has left the backslash of a last `\ `.
    text = text.rstrip("\\ ")
    if r"\equiv" in text and "mod" not in text:
        text = text.replace(r"\equiv", "=")
    if "integer" in text or r"\mathbb" in text:
        text = _PARAMETER.sub(
            lambda match: rf", {match[1] or match[2] or match[3]} \in \mathbb{{Z}}", text.rstrip(".")
        )
    text = text.replace("<=", r"\le ").replace(">=", r"\ge ").replace("!=", r"\ne ")
    # Phrases, marks and braces around an answer may be nested.
    for _ in range(4):
        former = text
        lead = _LEAD.match(text)
        if lead is not None:
            text = text[lead.end() :]
        if len(text) > 1 and text[-1] in ".,;" and text[-2] not in ".\\":
            text = text[:-1]
        text = unwrapped(_without_emphasis(_FOR_ALL.sub("", text)))
        if text == former:
            break
    text = _BRACED_NUMBER.sub(r"\1\2", text, count=1) if text[:2].lstrip("+-")[:1] == "{" else text
    text = _CORRECT.sub(r"\1", _NEGATIVE.sub("-", _RATIO.sub(r"\1:\2", text)))
    words = _TEXT.sub(r"\1", text).lower() if len(text) < 60 else ""
    return r"\emptyset" if _NONE.fullmatch(words) else _NAMED_VALUES.get(words, text)


def in_line(text: str) -> str:
    r"""Return a text without `\text{}` around words, with single spaces."""
    return " ".join(TEXT.sub(r" \1 ", text).split()) if "\\" in text else text


def spelt(text: str) -> str:
    """Return a text with a single spelling of each Unicode sign and digit.

    Markdown's emphasis is removed, and dollar signs if their number is even.
    """
    text = _PI.sub(r"\\pi ", _ROOT.sub(r"\\sqrt{\1\2}", text))
    if not text.isascii():
        text = _SUPERSCRIPT_RUN.sub(lambda run: f"^{{{run[0].translate(_SUPERSCRIPTS)}}}", text)
        text = _SUBSCRIPT_RUN.sub(
            lambda run: f"_{{{''.join(chr(ord(digit) - 0x2050) for digit in run[0])}}}", text
        )
        text = text.translate(_SIGNS)
    text = text.replace("~", " ").replace("`", "")
    if "**" in text or "__" in text:
        text = _STRONG.sub(lambda strong: strong[1] or strong[2], text)
    if len(_DOLLAR.findall(text)) % 2 == 0:
        text = _DOLLAR.sub(" ", text)
    return tidy(_without_emphasis(text))


def tidy(text: str) -> str:
    r"""Return a text with single spaces, without a `\boxed{}` or a pair of dollar signs around the full text."""
    stripped = _SPACE.sub(" ", text).strip(" ")
    boxed = _BOXED.fullmatch(stripped)
    if boxed is not None and balanced(boxed[1], _BRACE):
        stripped = boxed[1].strip(" ")
    return _without_dollars(stripped)


def _without_emphasis(text: str) -> str:
    """Return a text without spaces, stars and underscores at its ends, and without a pair of quotes around the full text.

    Stars at the end stay if they follow `^`.
    """
    text = text.lstrip("*_ \t\r\n").rstrip(" \t\r\n")
    stripped = text.rstrip("*_ \t\r\n")
    # The star of `z^*` is mathematics.
    text = text if stripped.endswith("^") else stripped
    return text[1:-1] if len(text) > 2 and text[0] == text[-1] == '"' and '"' not in text[1:-1] else text


def _without_dollars(text: str) -> str:
    """Return a text without a pair of dollar signs around the full text."""
    has_pair = len(text) > 2 and text[0] == text[-1] == "$" and "$" not in text[1:-1]
    return text[1:-1].strip(" ") if has_pair else text


def unwrapped(text: str) -> str:
    """Return a text without a pair of braces or dollar signs around the full text."""
    braced = len(text) > 1 and text[0] == "{" and text[-1] == "}" and closing(text, 0) == len(text) - 1
    return text[1:-1].strip(" ") if braced else _without_dollars(text)


def closing(text: str, start: int) -> int | None:
    """Return the position of the bracket that closes the bracket at `start`; None if no bracket closes it.

    The two may be of different kinds, as in the half-open interval `[0, 1)`.
    """
    depth = 0
    for mark in _BRACKET.finditer(text, start):
        change = _CHANGES.get(mark[0], 0)
        depth += change
        if change and depth == 0:
            return mark.end() - 1
    return None


def balanced(text: str, brackets: re.Pattern[str] = _BRACKET) -> bool:
    """Return whether the opening and closing brackets of a text match; the kinds of a pair may differ."""
    depth = 0
    for mark in brackets.findall(text):
        depth += _CHANGES.get(mark, 0)
        if depth < 0:
            return False
    return depth == 0


def split_top(text: str, marks: re.Pattern[str]) -> list[str]:
    """Divide a text at the matches of `marks` that are outside brackets, and return the pieces without spaces around them.

    A text without such a match is its only piece. Marks and brackets are visited in one pass, from left to right, so
    the time is linear in the length of the text.

    Args:
        text: The text.
        marks: The pattern of the separators, such as a comma.
    """
    pieces, depth, position, start = list[str](), 0, 0, 0
    mark, bracket = marks.search(text), _BRACKET.search(text)
    while mark is not None:
        if depth == 0 and (bracket is None or mark.start() <= bracket.start()):
            pieces.append(text[start : mark.start()].strip(" "))
            position = start = mark.end()
        elif bracket is not None:
            depth = max(0, depth + _CHANGES.get(bracket[0], 0))
            position = bracket.end()
        else:
            break
        if depth == 0 and mark.start() < position:
            mark = marks.search(text, position)
        if bracket is not None and bracket.start() < position:
            bracket = _BRACKET.search(text, position)
    return [*pieces, text[start:].strip(" ")]


def _one_spelling(command: re.Match[str]) -> str:
    r"""Return the replacement of a LaTeX command (a match of `_COMMAND`): another command, a character, or ""."""
    word, mark = command[1], command[2]
    if word is not None:
        return _WORDS.get(word, command[0])
    return "" if mark is None else _MARKS.get(mark, command[0])


def _upright(command: re.Match[str]) -> str:
    r"""Return the usual spelling of a function or constant in upright letters (a match of `_UPRIGHT`): `\sin`, `e`."""
    if command[3] is not None:
        return f"\\{command[3]} "
    return f" {command[2]}" if command[1] else command[2]


def _over(group: re.Match[str]) -> str:
    r"""Return `\frac{a}{b}` or `\binom{a}{b}` for the match `{a \over b}` or `{a \choose b}` of `_OVER`."""
    command = r"\frac" if group[2] == "over" else r"\binom"
    return f"{command}{{{group[1].strip()}}}{{{group[3].strip()}}}"
