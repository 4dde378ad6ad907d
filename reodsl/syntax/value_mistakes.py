"""Mistakes in values, arguments and what joins them: each function knows one, or says None."""

from __future__ import annotations

from reodsl.diagnostics.model import Diagnostic, error
from reodsl.syntax.place import (
    BINARY,
    COMPARISONS,
    KEYWORDS,
    VALUES,
    Place,
    behind,
    describe,
    ends_line,
    keyword_advice,
    spelled,
    value_after,
    where,
)


def equals_and_colon(place: Place) -> Diagnostic | None:
    """`:` in a setting, `=` in an argument, a dotted setting."""
    token, before = place.found, place.before
    if before is None:
        return None
    opener = place.opener()
    if token.type == "COLON" and opener is None and "NUMBER" not in place.expected:
        value = value_after(place)
        if place.index == 1:
            return error(
                "E0141",
                "a setting is written with `=`",
                token.span,
                help=f"write `{spelled(before)} = {value}`",
            )
        if place.first.type == "LET" or place.type_at(-2) == "NAME":
            return error("E0141", "a value is given with `=`", token.span, help=f"write `= {value}`")
        return None
    if token.type not in ("EQUAL", "PLUS_EQUAL"):
        return None
    if opener is not None and place.calls(opener) and place.type_at(-2) in ("LPAR", "COMMA"):
        return error(
            "E0141",
            "an argument is written with `:`",
            token.span,
            help=f"write `{before.text}: {value_after(place)}`",
        )
    if "STAR" not in place.expected:
        return None
    if opener is None and place.type_at(-2) == "DOT" and place.index == 3:
        head, name = place.first.text, before.text
        return error(
            "E0141",
            "a setting has a plain name",
            place.first.span,
            help=f"write `{head} {{ {name} = … }}`",
        )
    if opener is None and before.type == "NAME" and place.type_at(-2) == "NUMBER":
        return error(
            "E0142",
            f"nothing separates `{before.text}` from what comes before it",
            before.span,
            help=f"start a new line before `{before.text}`" + (", or put a comma" if place.in_block else ""),
        )
    return error("E0141", f"`{token.text}` does not fit in a value", token.span, help="write `==` to compare")


def value_missing(place: Place) -> Diagnostic | None:
    """Where a value has to stand, and something that is none stands."""
    if "NUMBER" not in place.expected:
        return None
    token, before = place.found, place.before
    if token.type in KEYWORDS:
        return error(
            "E0143",
            f"`{token.text}` is a word of the language, not a value",
            token.span,
            help=keyword_advice(token),
        )
    if token.type == "LBRACE":
        return error(
            "E0140",
            "this block amends nothing: no value comes before it",
            token.span,
            help=f"write `{place.first.text} {{ … }}`, without the `=`"
            if place.in_block and place.index == 2 and place.first.type == "NAME"
            else "write `NAME = parent { … }`, or, for a block that amends nothing, leave out the `=`",
        )
    if before is None and place.alone:
        return error(
            "E0140", "a value is wanted here", where(place), help="write a number, a name or a call `f(…)`"
        )
    if before is None:
        return error(
            "E0130",
            f"an item cannot begin with {describe(token)}",
            where(place),
            help="an item of a block is a setting `NAME = VALUE`, a nested block `NAME { … }`, a declaration or a value",
        )
    if before.type in ("EQUAL", "PLUS_EQUAL", "COLON"):
        name, mark = place.tokens[place.index - 2].text if place.index > 1 else "", before.text
        spaced = f"{name}:" if mark == ":" else f"{name} {mark}"
        following = place.type_at(1) in ("NUMBER", "STRING", "TEXT", "LSQB", "LPAR", "MINUS")
        advice = f"write `{spaced} VALUE`"
        if ends_line(place) and following:
            advice = f"move the value up: `{spaced} {value_after(place)}`"
        return error("E0140", f"no value follows `{spaced}`", behind(before), help=advice)
    if before.type in BINARY or before.type in KEYWORDS:
        newline = ends_line(place)
        advice = (
            "put the whole value in ( ) to go on in the next line"
            if newline
            else f"write a value after `{before.text}`"
        )
        return error("E0140", f"no value follows `{before.text}`", behind(before), help=advice)
    if token.type == "COMMA":
        return error(
            "E0142", "nothing comes before this `,`", token.span, help="delete it, or write the value"
        )
    return error(
        "E0140",
        f"a value is wanted here, and this is {describe(token)}",
        where(place),
        help="a value is a number, a text in double quotes, a name, a call `f(…)` or a list `[…]`",
    )


def two_values(place: Place) -> Diagnostic | None:
    """A complete value and then another, or an operator that cannot follow."""
    token, before = place.found, place.before
    if (
        before is None
        or "NUMBER" in place.expected
        or not ("PLUS" in place.expected or "STAR" in place.expected)
    ):
        return None
    if token.type in COMPARISONS:
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
            where(place),
            help="write `A if CONDITION else B`",
        )
    if token.type in ("FOR", "IF") or (token.type == "ELSE"):
        advice = keyword_advice(token)
        return error("E0130", f"`{token.text}` does not fit here", token.span, help=advice)
    if place.type_at(-2) == "NUMBER" and before.text in ("K", "M", "G", "k", "m", "g"):
        number = place.tokens[place.index - 2].text + before.text.upper()
        rest = f" {token.text}" if token.type == "NAME" else ""
        return error(
            "E0136",
            "a suffix is written directly after its number",
            before.span,
            help=f"write `{number}{rest}`",
        )
    opener = place.opener()
    if token.type == "COMMA" and opener is not None and place.tokens[opener].type == "LPAR":
        return error("E0130", "( ) holds one value", token.span, help="a list is written `[a, b]`")
    if token.type not in VALUES and token.type != "LBRACE":
        return None
    if opener is not None and place.tokens[opener].type != "LBRACE":
        return error(
            "E0142",
            f"nothing joins {describe(before)} and {describe(token)}",
            token.span,
            help=f"put a comma or an operator before `{spelled(token)}`",
        )
    if place.alone:
        advice = f"write an operator before `{spelled(token)}`, or delete it"
        return error("E0142", f"{describe(token)} follows a complete value", token.span, help=advice)
    separate = "start a new line, put a comma," if place.in_block else "start a new line"
    return error(
        "E0142",
        f"{describe(token)} follows a complete value",
        token.span,
        help=f"{separate} or write an operator before `{spelled(token)}`",
    )


def comprehension(place: Place) -> Diagnostic | None:
    """A `for` without its `in`."""
    if place.expected != {"IN"} or place.type_at(-2) != "FOR":
        return None
    return error(
        "E0130",
        "this `for` has no `in`",
        where(place),
        help="the form is `mean(len(z) for z in group)`",
    )
