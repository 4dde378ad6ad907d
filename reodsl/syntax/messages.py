"""A place where the grammar cannot go on to the diagnostic for it: what was found, what fits, what to write."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from reodsl.diagnostics.model import Diagnostic, Span, error
from reodsl.syntax.tokens import Tok

KEYWORDS = frozenset(
    "FROM IMPORT AS PARAM LET DENSE IN FOR IF ELSE AND OR NOT TRUE FALSE".split()  # noqa: SIM905 (a list of words)
)
_SYMBOLS = {
    "EQUAL": "=",
    "PLUS_EQUAL": "+=",
    "EQ": "==",
    "NE": "!=",
    "LE": "<=",
    "GE": ">=",
    "LT": "<",
    "GT": ">",
    "DOTDOT": "..",
    "DOT": ".",
    "COMMA": ",",
    "COLON": ":",
    "PLUS": "+",
    "MINUS": "-",
    "STAR": "*",
    "SLASH": "/",
    "CARET": "^",
    "LPAR": "(",
    "RPAR": ")",
    "LSQB": "[",
    "RSQB": "]",
    "LBRACE": "{",
    "RBRACE": "}",
}
_BINARY = frozenset("PLUS MINUS STAR SLASH CARET EQ NE LE GE LT GT AND OR IN DOTDOT NOT".split())  # noqa: SIM905
_COMPARISONS = frozenset({"EQ", "NE", "LE", "GE", "LT", "GT", "IN"})
_VALUES = KEYWORDS | {"NAME", "NUMBER", "STRING", "TEXT", "LPAR", "LSQB"}
_ENDS = frozenset({"SEP", "$END", "RBRACE"})
_CLOSERS = frozenset({"RPAR", "RSQB", "RBRACE"})
_OPENERS = frozenset({"LPAR", "LSQB", "LBRACE"})


@dataclass(slots=True)
class Place:
    """The tokens of an item up to one behind the unfitting one, which is at `index`; `expected` by the grammar."""

    tokens: list[Tok]
    index: int
    in_block: bool
    expected: set[str]

    @property
    def found(self) -> Tok:
        return self.tokens[self.index]

    @property
    def before(self) -> Tok | None:
        return self.tokens[self.index - 1] if self.index else None

    @property
    def first(self) -> Tok:
        return self.tokens[0]

    def type_at(self, offset: int) -> str:
        """The type of the token `offset` from the unfitting one; empty outside the item."""
        at = self.index + offset
        return self.tokens[at].type if 0 <= at < len(self.tokens) else ""

    def opener(self) -> int | None:
        """The index of the innermost bracket around the place that the item itself opens."""
        depth = 0
        for at in range(self.index - 1, -1, -1):
            kind = self.tokens[at].type
            if kind in _CLOSERS:
                depth += 1
            elif kind in _OPENERS:
                if depth == 0:
                    return at
                depth -= 1
        return None


def explain(place: Place) -> Diagnostic:
    """The first rule that knows the mistake speaks; else what was found and what would fit."""
    for rule in _RULES:
        found = rule(place)
        if found is not None:
            return found
    return _anything(place)


def describe(token: Tok) -> str:
    """A token in the user's words, never the grammar's."""
    if token.type == "$END":
        return "the end of the file"
    if token.type == "SEP":
        return f"`{token.text}`" if token.text in (",", ";") else "the end of the line"
    if token.type == "NUMBER":
        return f"the number `{_clip(token.text)}`"
    if token.type in ("STRING", "TEXT"):
        return "a text"
    if token.type == "NAME":
        return f"the name `{_clip(token.text)}`"
    if token.type in KEYWORDS:
        return f"the word `{token.text}`"
    return f"`{token.text}`"


def _clip(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"


def _spelled(token: Tok) -> str:
    """A token as it may be quoted in a line of advice."""
    if token.type in _ENDS:
        return "…"
    return _clip(token.text) if "\n" not in token.text else "…"


def _at(place: Place) -> Span:
    """Where to point: the token itself, or just behind the last one for the end of a line or of the file."""
    token, before = place.found, place.before
    ends = token.type == "$END" or (token.type == "SEP" and token.text not in (",", ";"))
    return token.span if before is None or not ends else _behind(before)


def _missing_name(place: Place) -> Diagnostic | None:
    """A keyword where a new name is given."""
    token = place.found
    if (
        place.index == 0
        or token.type not in KEYWORDS
        or "NAME" not in place.expected
        or "NUMBER" in place.expected
    ):
        return None
    return error(
        "E0143",
        f"`{token.text}` is a word of the language and cannot be a name here",
        token.span,
        help=f"write another name, such as `{token.text}_`",
    )


def _outside_a_block(place: Place) -> Diagnostic | None:
    """At the top level: a setting, a nested block, a value, or anything else that is no declaration."""
    if place.in_block or place.index > 1:
        return None
    first, token = place.first, place.found
    if place.index == 1 and token.type == "COLON":
        return error(
            "E0141",
            "no declaration is written with `:`",
            token.span,
            help="a declaration is `KIND NAME = VALUE` or `KIND NAME { … }`",
        )
    if place.index == 0:
        if token.type == "TEXT":
            return error(
                "E0139",
                "a text standing alone describes what it stands first in",
                token.span,
                help="put it at the start of the file or of a block, behind a param's or a setting's value, or write `# …`",
            )
        if token.type == "LBRACE":
            return error(
                "E0139",
                "a block belongs to the declaration on its line",
                token.span,
                help="put the `{` at the end of the line above: `experiment NAME = parent {`",
            )
        if token.type == "IMPORT":
            name = _spelled(place.tokens[1])
            return error(
                "E0130", "an import says from where", token.span, help=f"write `from {name} import NAME`"
            )
        if token.type in ("LET", "DENSE"):
            return error(
                "E0139",
                f"`{token.text}` stands in the block of a reward or a selection",
                token.span,
                help="put it between the `{` and `}` of `reward NAME(…) { … }`",
            )
        return error(
            "E0139",
            f"an item of a file cannot begin with {describe(token)}",
            token.span,
            help="a file holds imports, params and declarations: `KIND NAME = VALUE` or `KIND NAME { … }`",
        )
    if first.type != "NAME" or token.type in ("NUMBER", "STRING"):
        return None
    if token.type in ("EQUAL", "PLUS_EQUAL"):
        what, advice = "a setting", f"if `{first.text}` is a kind, it lacks its name: `{first.text} NAME = …`"
    elif token.type == "LBRACE":
        what, advice = (
            "a nested block",
            f"if `{first.text}` is a kind, it lacks its name: `{first.text} NAME {{ … }}`",
        )
    else:
        what, advice = "an expression", "a declaration is `KIND NAME = VALUE` or `KIND NAME { … }`"
    return error("E0139", f"{what} stands in the block of a declaration", first.span, help=advice)


def _inside_a_block(place: Place) -> Diagnostic | None:
    """In a block: imports and params, statements of other languages, lines that begin with an operator."""
    if not place.in_block or place.index > 1:
        return None
    first = place.first
    if place.index == 1 and first.type in ("FROM", "PARAM", "IMPORT"):
        what = "a param" if first.type == "PARAM" else "an import"
        return error(
            "E0139",
            f"{what} stands at the top level of the file",
            first.span,
            help="move the line out of the block, above its declaration",
        )
    if place.index == 1 and first.type in ("FOR", "IF", "ELSE"):
        advice = {
            "FOR": "go through a group in a call: `mean(len(z) for z in group)`",
            "IF": "choose between two values: `A if CONDITION else B`",
            "ELSE": "choose between two values: `A if CONDITION else B`",
        }
        return error("E0130", f"no statement begins with `{first.text}`", first.span, help=advice[first.type])
    if place.index == 0 and place.found.type in _BINARY:
        return error(
            "E0130",
            f"a line cannot begin with `{place.found.text}`",
            place.found.span,
            help="to go on with the line above, put the whole value in ( ): newlines are free there",
        )
    if place.index == 0 and place.found.type == "LBRACE":
        return error(
            "E0139",
            "a block belongs to a name on its line",
            place.found.span,
            help="put the `{` at the end of the line above, or name the block: `optim { … }`",
        )
    return None


def _declaration_without_value(place: Place) -> Diagnostic | None:
    """`arm base` and nothing behind it."""
    if (
        place.found.type not in _ENDS
        or place.first.type != "NAME"
        or place.type_at(1 - place.index) != "NAME"
    ):
        return None
    if not ({"EQUAL", "LBRACE"} <= place.expected and "NUMBER" not in place.expected):
        return None
    kind, name = place.tokens[0], place.tokens[1]
    if place.type_at(1) == "LBRACE":
        advice = f"put the `{{` on the same line: `{kind.text} {name.text} {{`"
    elif kind.text in ("return", "yield"):
        advice = f"a value stands alone, without a word before it: `{name.text}`"
    else:
        advice = f"write `{kind.text} {name.text} = …` or `{kind.text} {name.text} {{ … }}`"
    return error(
        "E0140",
        f"`{_clip(kind.text)} {_clip(name.text)}` has neither a value nor a block",
        name.span,
        help=advice,
    )


def _equals_and_colon(place: Place) -> Diagnostic | None:
    """`:` in a setting, `=` in an argument, a dotted setting."""
    token, before = place.found, place.before
    if before is None:
        return None
    opener = place.opener()
    if token.type == "COLON" and opener is None and "NUMBER" not in place.expected:
        value = _spelled(place.tokens[place.index + 1])
        if place.index == 1:
            return error(
                "E0141",
                "a setting is written with `=`",
                token.span,
                help=f"write `{_spelled(before)} = {value}`",
            )
        if place.first.type == "LET" or place.type_at(-2) == "NAME":
            return error("E0141", "a value is given with `=`", token.span, help=f"write `= {value}`")
        return None
    if token.type not in ("EQUAL", "PLUS_EQUAL") or "NUMBER" in place.expected:
        return None
    if opener is not None and place.tokens[opener].type == "LPAR" and place.type_at(-2) in ("LPAR", "COMMA"):
        value = _spelled(place.tokens[place.index + 1])
        return error(
            "E0141",
            "an argument is written with `:`",
            token.span,
            help=f"write `{before.text}: {value}`",
        )
    if opener is None and place.type_at(-2) == "DOT" and place.index == 3:
        head, name = place.first.text, before.text
        return error(
            "E0141",
            "a setting has a plain name",
            place.first.span,
            help=f"write `{head} {{ {name} = … }}`",
        )
    if opener is None and before.type == "NAME" and place.index > 3:
        return error(
            "E0142",
            f"nothing separates `{before.text}` from what stands before it",
            before.span,
            help=f"begin a new line before `{before.text}`" + (", or put a comma" if place.in_block else ""),
        )
    return error("E0141", f"`{token.text}` does not fit in a value", token.span, help="write `==` to compare")


def _value_missing(place: Place) -> Diagnostic | None:
    """Where a value has to stand, and something that is none stands."""
    if "NUMBER" not in place.expected:
        return None
    token, before = place.found, place.before
    if token.type in KEYWORDS:
        return error(
            "E0143",
            f"`{token.text}` is a word of the language, not a value",
            token.span,
            help=_keyword_advice(token),
        )
    if token.type == "LBRACE":
        return error(
            "E0140",
            "a block amends something, and nothing stands before it",
            token.span,
            help="write `NAME = parent { … }`, or a nested block without `=`: `optim { … }`",
        )
    if before is None:
        return error(
            "E0130",
            f"an item cannot begin with {describe(token)}",
            _at(place),
            help="an item of a block is a setting `NAME = VALUE`, a nested block `NAME { … }`, a declaration or a value",
        )
    if before.type in ("EQUAL", "PLUS_EQUAL", "COLON"):
        name = place.tokens[place.index - 2].text if place.index > 1 else ""
        message = (
            f"no value stands behind `{name} {before.text}`"
            if before.type != "COLON"
            else f"`{name}:` has no value"
        )
        spaced = f"{name}: VALUE" if before.type == "COLON" else f"{name} {before.text} VALUE"
        return error("E0140", message, _behind(before), help=f"write `{spaced}`")
    if before.type in _BINARY or before.type in KEYWORDS:
        newline = token.type == "SEP" and token.text not in (",", ";")
        advice = (
            "put the whole value in ( ) to go on in the next line"
            if newline
            else f"write a value behind `{before.text}`"
        )
        return error("E0140", f"no value stands behind `{before.text}`", _behind(before), help=advice)
    if token.type == "COMMA":
        return error(
            "E0142", "nothing stands before this `,`", token.span, help="delete it, or write the value"
        )
    return error(
        "E0140",
        f"a value is wanted here, and this is {describe(token)}",
        _at(place),
        help="a value is a number, a text in double quotes, a name, a call `f(…)` or a list `[…]`",
    )


def _behind(token: Tok) -> Span:
    """One column behind a token."""
    span = token.span
    return Span(span.path, span.end_line, span.end_column, span.end_line, span.end_column + 1)


def _keyword_advice(token: Tok) -> str:
    if token.type == "FOR":
        return "go through a group in a call: `mean(len(z) for z in group)`"
    if token.type in ("IF", "ELSE"):
        return "choose between two values: `A if CONDITION else B`"
    if token.type in ("AND", "OR", "IN"):
        return f"`{token.text}` stands between two values"
    return f"`{token.text}` names a setting (`{token.text} = …`), an argument (`{token.text}: …`) or a member only"


def _two_values(place: Place) -> Diagnostic | None:
    """A complete value and then another, or an operator that cannot follow."""
    token, before = place.found, place.before
    if (
        before is None
        or "NUMBER" in place.expected
        or not ("PLUS" in place.expected or "STAR" in place.expected)
    ):
        return None
    if token.type in _COMPARISONS:
        return error(
            "E0144",
            "comparisons are not chained",
            token.span,
            help="compare twice: `a < b and b < c`",
        )
    if "ELSE" in place.expected:
        return error(
            "E0140",
            "this choice has no `else`",
            _at(place),
            help="write `A if CONDITION else B`",
        )
    if token.type in ("FOR", "IF") or (token.type == "ELSE"):
        advice = _keyword_advice(token)
        return error("E0130", f"`{token.text}` does not fit here", token.span, help=advice)
    if place.type_at(-2) == "NUMBER" and before.text in ("K", "M", "G", "k", "m", "g"):
        number = place.tokens[place.index - 2].text + before.text.upper()
        rest = f" {token.text}" if token.type == "NAME" else ""
        return error(
            "E0136", "a suffix stands directly behind its number", before.span, help=f"write `{number}{rest}`"
        )
    opener = place.opener()
    if token.type == "COMMA" and opener is not None and place.tokens[opener].type == "LPAR":
        return error("E0130", "( ) holds one value", token.span, help="a list is written `[a, b]`")
    if token.type not in _VALUES and token.type != "LBRACE":
        return None
    if opener is not None and place.tokens[opener].type != "LBRACE":
        return error(
            "E0142",
            f"nothing joins {describe(before)} and {describe(token)}",
            token.span,
            help=f"put a comma or an operator before `{_spelled(token)}`",
        )
    separate = "begin a new line, put a comma," if place.in_block else "begin a new line"
    return error(
        "E0142",
        f"{describe(token)} follows a complete value",
        token.span,
        help=f"{separate} or write an operator before `{_spelled(token)}`",
    )


def _name_and_value(place: Place) -> Diagnostic | None:
    """`lr 5e-6`: a name and a value with nothing between."""
    token = place.found
    if (
        place.first.type != "NAME"
        or place.index not in (1, 2)
        or token.type not in ("NUMBER", "STRING", "TEXT")
    ):
        return None
    name = place.first.text if place.index == 1 else f"{place.first.text} {place.tokens[1].text}"
    return error(
        "E0142",
        f"`=` is missing before {describe(token)}",
        token.span,
        help=f"write `{name} = {_spelled(token)}`",
    )


_FORMS: dict[str, str] = {
    "FROM": "`from MODULE import NAME, NAME`",
    "PARAM": "`param NAME: TYPE = DEFAULT in LOWEST..HIGHEST`",
    "LET": "`let NAME = VALUE`",
    "DENSE": "`dense L in BUDGETS: VALUE`",
}


def _form(place: Place) -> Diagnostic | None:
    """Inside an import, a param, a `let`, a `dense` or the head of a declaration: show the whole form."""
    token, kind = place.found, place.first.type
    if "NUMBER" in place.expected:
        return None
    opener = place.opener()
    if kind in _FORMS and place.index > 0:
        if kind == "FROM" and token.type == "STAR":
            message = "an import lists its names"
        else:
            message = f"{describe(token)} does not fit in this {'import' if kind == 'FROM' else f'`{place.first.text}`'}"
        return error(
            "E0130", message, _at(place), _wanted(place.expected), help=f"the form is {_FORMS[kind]}"
        )
    declares = kind == "NAME" and place.index > 1 and place.tokens[1].type == "NAME"
    if declares and opener == 2:
        return error(
            "E0130",
            f"{describe(token)} does not fit in these parameters",
            _at(place),
            _wanted(place.expected),
            help="a parameter is `NAME: TYPE`, with `= DEFAULT` and `in LOWEST..HIGHEST` if wanted",
        )
    if declares and place.index <= 3:
        head = f"{place.first.text} {place.tokens[1].text}"
        return error(
            "E0130",
            f"{describe(token)} does not fit behind `{head}`",
            _at(place),
            _wanted(place.expected),
            help=f"write `{head} = VALUE` or `{head} {{ … }}`",
        )
    return None


def _comprehension(place: Place) -> Diagnostic | None:
    """A `for` without its `in`."""
    if place.expected != {"IN"} or place.type_at(-2) != "FOR":
        return None
    return error(
        "E0130",
        "this `for` has no `in`",
        _at(place),
        help=f"write `for {_spelled(place.tokens[place.index - 1])} in group`",
    )


def _anything(place: Place) -> Diagnostic:
    return error("E0130", f"{describe(place.found)} does not fit here", _at(place), _wanted(place.expected))


def _wanted(expected: Iterable[str]) -> str:
    """What fits, for the underline: `wanted: `,` or `)``; the operators of a value are left out."""
    names = set(expected)
    if {"PLUS", "STAR"} & names:
        names -= _BINARY | {"DOT", "LPAR", "LSQB", "LBRACE", "IF", "NAME", "TEXT"}
    words = []
    if "NUMBER" in names:
        return "wanted: a value"
    if "NAME" in names:
        words.append("a name")
    for name in sorted(names):
        if name in _SYMBOLS:
            words.append(f"`{_SYMBOLS[name]}`")
        elif name in KEYWORDS and "NAME" not in names:
            words.append(f"`{name.lower()}`")
        elif name in ("SEP", "$END"):
            words.append("a new line")
    words = list(dict.fromkeys(words))
    if not words:
        return ""
    return "wanted: " + (words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}")


_RULES: tuple[Callable[[Place], Diagnostic | None], ...] = (
    _missing_name,
    _name_and_value,
    _outside_a_block,
    _inside_a_block,
    _declaration_without_value,
    _equals_and_colon,
    _value_missing,
    _two_values,
    _comprehension,
    _form,
)
