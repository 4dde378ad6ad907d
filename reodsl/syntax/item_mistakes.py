"""Mistakes in what an item is and where it stands: each function knows one, or says None."""

from __future__ import annotations

import re

from reodsl.diagnostics.model import Diagnostic, error
from reodsl.syntax.place import BINARY, ENDS, KEYWORDS, Place, clipped, describe, spelled, wanted, where


def _dotted(place: Place) -> str:
    """The module's name behind the `import` that begins a file's item, dots and all."""
    name = ""
    for token in place.tokens[1:]:
        if token.type not in ("NAME", "DOT"):
            break
        name += token.text
    return clipped(name) or "…"


def missing_name(place: Place) -> Diagnostic | None:
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


def outside_a_block(place: Place) -> Diagnostic | None:
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
                "a docstring comes first in its file or block",
                token.span,
                help="move it to the start of the file or block, or after a param's or a setting's value, or write `# …`",
            )
        if token.type == "LBRACE":
            return error(
                "E0139",
                "a block belongs to the declaration on its line",
                token.span,
                help="put the `{` at the end of the line above: `experiment NAME = parent {`",
            )
        if token.type == "IMPORT":
            return error(
                "E0130",
                "an import names its module first",
                token.span,
                help=f"write `from {_dotted(place)} import NAME`",
            )
        if token.type in ("LET", "DENSE"):
            return error(
                "E0139",
                f"`{token.text}` belongs in the block of a reward or a selection",
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
    return error("E0139", f"{what} belongs in the block of a declaration", first.span, help=advice)


def inside_a_block(place: Place) -> Diagnostic | None:
    """In a block: imports and params, statements of other languages, lines that begin with an operator."""
    if not place.in_block or place.index > 1:
        return None
    first = place.first
    if place.index == 1 and first.type in ("FROM", "PARAM", "IMPORT"):
        what = "a param" if first.type == "PARAM" else "an import"
        return error(
            "E0139",
            f"{what} belongs at the top level of the file",
            first.span,
            help="move the line out of the block, above its declaration",
        )
    if place.index == 1 and first.type in ("FOR", "IF", "ELSE"):
        advice = {
            "FOR": "there are no loops: write each line, or stages as `stages(NAME in LIST) { … }`; "
            "in a reward go through a group in a call, `mean(len(z) for z in group)`",
            "IF": "choose between two values: `A if CONDITION else B`",
            "ELSE": "choose between two values: `A if CONDITION else B`",
        }
        return error("E0130", f"no statement begins with `{first.text}`", first.span, help=advice[first.type])
    if place.index == 0 and place.found.type in BINARY:
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


def behind_a_block(place: Place) -> Diagnostic | None:
    """`table main { … } chart curves { … }`, in one line with nothing between."""
    before, opener = place.before, place.opener()
    if before is None or before.type != "RBRACE" or place.found.type != "NAME" or not place.in_block:
        return None
    if opener is not None and place.tokens[opener].type != "LBRACE":
        return None
    return error(
        "E0142",
        f"{describe(place.found)} follows a complete block",
        place.found.span,
        help=f"start a new line, or put a comma before `{spelled(place.found)}`",
    )


def returned(place: Place) -> Diagnostic | None:
    """`return x`, which would read as a declaration."""
    if place.first.type != "NAME" or place.first.text != "return" or place.index == 0:
        return None
    return error(
        "E0130",
        "nothing is returned by a word",
        place.first.span,
        help="the last line of a block is its value: write it alone, without `return`",
    )


def declaration_without_value(place: Place) -> Diagnostic | None:
    """`arm base` and nothing behind it."""
    if place.found.type not in ENDS or place.first.type != "NAME" or place.type_at(1 - place.index) != "NAME":
        return None
    if not ({"EQUAL", "LBRACE"} <= place.expected and "NUMBER" not in place.expected):
        return None
    kind, name = place.tokens[0], place.tokens[1]
    if place.type_at(1) == "LBRACE":
        advice = f"put the `{{` on the same line: `{kind.text} {name.text} {{`"
    else:
        advice = f"write `{kind.text} {name.text} = …` or `{kind.text} {name.text} {{ … }}`"
    return error(
        "E0140",
        f"`{clipped(kind.text)} {clipped(name.text)}` has neither a value nor a block",
        name.span,
        help=advice,
    )


def name_and_value(place: Place) -> Diagnostic | None:
    """`lr 5e-6`: a name and a value with nothing between."""
    token = place.found
    if (
        place.first.type != "NAME"
        or place.index not in (1, 2)
        or token.type not in ("NUMBER", "STRING", "TEXT")
    ):
        return None
    if place.index == 1 and token.type == "STRING" and place.type_at(1) in ("EQUAL", "LBRACE"):
        return error(
            "E0130",
            "a name stands without quotes",
            token.span,
            help=f"write `{place.first.text} {_named(str(token.payload))}`",
        )
    name = place.first.text if place.index == 1 else f"{place.first.text} {place.tokens[1].text}"
    return error(
        "E0142",
        f"`=` is missing before {describe(token)}",
        token.span,
        help=f"write `{name} = {spelled(token)}`",
    )


def _named(words: str) -> str:
    """A name that is left of a text: `my-run 2` to `my_run_2`."""
    name = re.sub(r"\W+", "_", words, flags=re.ASCII).strip("_")
    return clipped(name if name and not name[0].isdigit() else f"_{name}")


def python_block(place: Place) -> Diagnostic | None:
    """`experiment mine = ppo:`, as Python opens a block."""
    token, before = place.found, place.before
    if token.type != "COLON" or before is None or place.type_at(1) not in ENDS or place.opener() is not None:
        return None
    if place.first.type != "NAME" or before.type not in ("NAME", "RPAR"):
        return None
    return error(
        "E0130",
        "a block is opened by `{`, not by `:`",
        token.span,
        help="write `{` here, and `}` behind the block: indentation means nothing",
    )


_FORMS: dict[str, str] = {
    "FROM": "`from MODULE import NAME, NAME`",
    "PARAM": "`param NAME: TYPE = DEFAULT in LOWEST..HIGHEST`",
    "LET": "`let NAME = VALUE`",
    "DENSE": "`dense L in BUDGETS: VALUE`",
}


def form(place: Place) -> Diagnostic | None:
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
            "E0130", message, where(place), wanted(place.expected), help=f"the form is {_FORMS[kind]}"
        )
    declares = kind == "NAME" and place.index > 1 and place.tokens[1].type == "NAME"
    if declares and opener == 2:
        return error(
            "E0130",
            f"{describe(token)} does not fit in these parameters",
            where(place),
            wanted(place.expected),
            help="a parameter is `NAME: TYPE`, with `= DEFAULT` and `in LOWEST..HIGHEST` if wanted",
        )
    if declares and token.type == "MINUS" and place.index == 2 and place.type_at(1) in ("NAME", "NUMBER"):
        name = f"{place.tokens[1].text}_{place.tokens[3].text}"
        return error(
            "E0130",
            "a name is made of letters, digits and `_`",
            where(place),
            help=f"write `{place.first.text} {clipped(name)}`",
        )
    if declares and place.index <= 3:
        head = f"{place.first.text} {place.tokens[1].text}"
        return error(
            "E0130",
            f"{describe(token)} does not fit after `{head}`",
            where(place),
            wanted(place.expected),
            help=f"there are no loops: write `{place.first.text} NAME = VALUE` for each value"
            if token.type == "IN"
            else f"write `{head} = VALUE` or `{head} {{ … }}`",
        )
    return None
