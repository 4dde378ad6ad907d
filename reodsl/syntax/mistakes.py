"""Report the mistake at a token that does not fit the grammar, with what to write instead.

Each `row`, and each function with `@mistake`, describes one mistake. A mistake is recognised by the symbols of the grammar
that the parser has read of the item (`PARAM name` for `param n`), by the token that does not fit, and by the rules that
could begin at the token. The mistakes are tried in the order of this file; if none of them fits, `explain` reports E0130.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeAlias

from reodsl.diagnostics.model import Diagnostic, Span, error, join_words
from reodsl.syntax.scanner import CLOSERS, KEYWORDS, OPENERS, SIGNS, Token, clip_text

BINARY = frozenset({"PLUS", "MINUS", "STAR", "SLASH", "CARET", "AND", "OR", "NOT", "DOTDOT"})
COMPARISONS = frozenset({"EQ", "NE", "LE", "GE", "LT", "GT", "IN"})
OPERATORS = BINARY | COMPARISONS
LITERALS = frozenset({"NUMBER", "STRING", "TEXT"})
VALUES = KEYWORDS | LITERALS | {"NAME", "LPAR", "LSQB"}
ASSIGNMENTS = frozenset({"EQUAL", "PLUS_EQUAL"})
ENDS = frozenset({"SEP", "$END", "RBRACE"})
VALUE_RULES = frozenset(
    {"atom", "postfix", "power", "unary", "product", "sum", "range", "comparison", "inversion"}
    | {"conjunction", "disjunction", "expr"}
)


@dataclass(slots=True)
class SyntaxFault:
    """The token that does not fit, the item that contains it, and the parser's state before it."""

    tokens: list[Token]
    """The tokens of the item, up to a few after the token that does not fit."""
    index: int
    """The index of the token that does not fit."""
    in_block: bool
    """True if the item is in a block."""
    alone: bool
    """True if the text is a single expression, as on a command line, and no item."""
    read: str
    """The symbols of the grammar that the parser has read of the item."""
    rules: set[str]
    """The rules that may begin at the token."""
    complete: set[str]
    """The rules that may end before the token."""
    accepted: set[str]
    """The terminals that may stand instead of the token."""

    @property
    def token(self) -> Token:
        """Return the token that does not fit."""
        return self.tokens[self.index]

    @property
    def previous(self) -> Token | None:
        """Return the token before the one that does not fit; None if that is the first of its item."""
        return self.tokens[self.index - 1] if self.index else None

    @property
    def first(self) -> Token:
        """Return the first token of the item."""
        return self.tokens[0]

    @property
    def text(self) -> str:
        """Return the text of the token that does not fit."""
        return self.token.text

    @property
    def description(self) -> str:
        """Return words for the token that does not fit, such as "the name `lr`"."""
        return describe(self.token)

    @property
    def spelling(self) -> str:
        """Return the token that does not fit as a help line quotes it."""
        return quote_token(self.token)

    @property
    def head(self) -> str:
        """Return the text of the item before the token that does not fit."""
        return " ".join(token.text for token in self.tokens[: self.index])

    @property
    def declaration(self) -> str:
        """Return the first two words of the item, the kind and the name of a declaration."""
        return " ".join(clip_text(token.text) for token in self.tokens[:2])

    @property
    def value(self) -> str:
        """Return the value behind the token that does not fit, as a help line quotes it."""
        return quote_value(self)

    @property
    def keyword_advice(self) -> str:
        """Return how the keyword that does not fit is used."""
        return keyword_advice(self.token)

    @property
    def wants_value(self) -> bool:
        """Return whether the grammar allows a value to begin at the token that does not fit."""
        return "atom" in self.rules

    @property
    def after_value(self) -> bool:
        """Return whether the symbol before the token is a value, or a name that may be a value."""
        last = self.read.rpartition(" ")[2]
        return last in VALUE_RULES or "atom" in self.complete

    @property
    def after_whole_value(self) -> bool:
        """Return whether the symbol before the token is a value that may also be a comparison or a choice.

        It is false behind a default or a bound, where the grammar allows only sums.
        """
        return self.after_value and not self.read.endswith("sum")

    def type_at(self, offset: int) -> str:
        """Return the type of the token `offset` tokens after the one that does not fit; empty outside the item."""
        i = self.index + offset
        return self.tokens[i].type if 0 <= i < len(self.tokens) else ""

    def opener(self) -> str:
        """Return the type of the innermost bracket that is open before the token; empty if no bracket is open."""
        depth = 0
        for token in reversed(self.tokens[: self.index]):
            if token.type in CLOSERS:
                depth += 1
            elif token.type in OPENERS:
                if depth == 0:
                    return token.type
                depth -= 1
        return ""

    def ends_line(self) -> bool:
        """Return whether a line ended too early, so that something is missing at its end.

        Then the token that does not fit is the end of the line or file, or a closing bracket on a later line.
        """
        token, before = self.token, self.previous
        if before is None or token.text in (",", ";"):
            return False
        return token.type in ("SEP", "$END") or (
            token.type in CLOSERS and token.span.line > before.span.end_line
        )

    def span(self) -> Span:
        """Return the span to underline: the token, or the column behind the line's end if the line ended too early."""
        before = self.previous
        return behind(before) if before is not None and self.ends_line() else self.token.span

    def wanted(self) -> str:
        """Return the words beside the underline that list what may be written here, such as ``wanted: `,` or `)` ``.

        After a value the list has no operators, because they could continue any value. The text is empty if
        the list is.
        """
        if self.wants_value:
            return "wanted: a value"
        names = set(self.accepted)
        if self.after_value:
            names -= OPERATORS | {"DOT", "LPAR", "LSQB", "LBRACE", "IF", "NAME", "TEXT"}
            if not self.after_whole_value:
                names |= self.accepted & {"DOTDOT"}
        words = ["a name"] if "NAME" in names else []
        for name in sorted(names - {"SEP"}):
            if name in SIGNS:
                words.append(f"`{SIGNS[name]}`")
            elif name in KEYWORDS and "NAME" not in names:
                words.append(f"`{name.lower()}`")
        if names & {"SEP", "$END"}:
            words.append("a new line")
        return f"wanted: {join_words(words, 'or')}" if words else ""


Say: TypeAlias = Callable[[SyntaxFault], Diagnostic | None]


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake: the conditions under which it applies, and the function that explains it."""

    read: str
    """A pattern that is searched for in what has been read."""
    tokens: frozenset[str] | None
    """The terminals that may not fit; None for any."""
    where: str
    """`item`, `block`, `file`, or empty for anywhere."""
    say: Say
    """Returns the diagnostic, or None if the mistake does not apply after all."""

    def applies(self, fault: SyntaxFault) -> bool:
        """Return whether the pattern, token and context of this mistake fit a fault; `say` may still decline."""
        if self.tokens is not None and fault.token.type not in self.tokens:
            return False
        context = "alone" if fault.alone else "block" if fault.in_block else "file"
        # Patterns are compiled when they are first needed: a spec without mistakes has no use for them.
        return context in _WHERE[self.where] and re.search(self.read, fault.read) is not None


_WHERE = {"": {"file", "block", "alone"}, "item": {"file", "block"}, "file": {"file"}, "block": {"block"}}

MISTAKES: list[Mistake] = []


def mistake(read: str = "", tokens: Iterable[str] | None = None, where: str = "") -> Callable[[Say], Say]:
    """Return a decorator that adds the decorated function to `MISTAKES`.

    The function takes the fault, and returns the diagnostic, or None if the mistake does not apply.

    Args:
        read: A regular expression that must be found in `SyntaxFault.read`.
        tokens: The types of the token that does not fit; None for any type.
        where: `item` (not in an expression on its own, as on a command line), `block`, `file`, or empty for
            anywhere.
    """

    def enter(say: Say) -> Say:
        """Add the function to `MISTAKES` and return it."""
        MISTAKES.append(Mistake(read, None if tokens is None else frozenset(tokens), where, say))
        return say

    return enter


def row(
    code: str,
    message: str,
    help: str | Callable[[SyntaxFault], str],
    *,
    read: str = "",
    tokens: Iterable[str] | None = None,
    where: str = "",
    when: Callable[[SyntaxFault], bool] | None = None,
    mark: Callable[[SyntaxFault], Span] | None = None,
    lists_tokens: bool = False,
) -> None:
    """Add a mistake to `MISTAKES` from format strings instead of a function.

    Args:
        code: The diagnostic's code.
        message: The message, a format string; `{0}` is the `SyntaxFault`.
        help: The help line, a format string like `message` or a function of the fault.
        read: A regular expression that must be found in `SyntaxFault.read`.
        tokens: The types of the token that does not fit; None for any type.
        where: `item`, `block` or `file` as in `mistake`; empty for anywhere.
        when: A further condition on the fault; None for no condition.
        mark: Returns the span to underline; by default the span of the token that does not fit.
        lists_tokens: Whether the words beside the underline list the tokens that may be written instead.
    """

    def report_row(fault: SyntaxFault) -> Diagnostic | None:
        """Return the diagnostic of the mistake, or None if the condition `when` is false."""
        if when is not None and not when(fault):
            return None
        span = fault.token.span if mark is None else mark(fault)
        advice = help.format(fault) if isinstance(help, str) else help(fault)
        return error(code, message.format(fault), span, fault.wanted() if lists_tokens else "", help=advice)

    report_row.__name__ = message
    mistake(read, tokens, where)(report_row)


def explain(fault: SyntaxFault) -> Diagnostic:
    """Return the diagnostic of the first mistake in `MISTAKES` that applies, or else a general E0130.

    E0130 names the token that does not fit, and lists the tokens that fit.
    """
    for candidate in MISTAKES:
        diagnostic = candidate.say(fault) if candidate.applies(fault) else None
        if diagnostic is not None:
            return diagnostic
    return error(
        "E0130",
        f"{describe(fault.token)} does not fit here",
        fault.span(),
        fault.wanted(),
        help="write what is wanted before it, or delete it",
    )


# Heads of items

# `return x`, which would read as a declaration.
row(
    "E0130",
    "there is no `return`",
    "the last line of a block is its value: write the value alone",
    where="item",
    when=lambda fault: fault.index > 0 and (fault.first.type, fault.first.text) == ("NAME", "return"),
    mark=lambda fault: fault.first.span,
)

# `budgets from = …`: a keyword where a new name is given.
row(
    "E0143",
    "`{0.text}` is a keyword and cannot be a name here",
    "write another name, such as `{0.text}_`",
    tokens=KEYWORDS,
    where="item",
    when=lambda fault: fault.index > 0 and "name" in fault.rules,
)

# `experiment "my-run" = …`.
row(
    "E0130",
    "a name is written without quotes",
    lambda fault: f"write `{fault.first.text} {_convert_to_name(str(fault.token.payload))}`",
    read="^NAME$",
    tokens=["STRING"],
    where="item",
    when=lambda fault: fault.type_at(1) in ("EQUAL", "LBRACE"),
)

# `lr 5e-6` or `arm x 5`: a head and a value with nothing between.
row(
    "E0142",
    "`=` is missing before {0.description}",
    "write `{0.head} = {0.spelling}`",
    read="^NAME( name)?$",
    tokens=LITERALS,
    where="item",
)

# `experiment mine = ppo:`, as Python opens a block.
row(
    "E0130",
    "a block is opened by `{{`, not by `:`",
    "write `{{` here, and `}}` behind the block: indentation means nothing",
    read="^(NAME|any_name)",
    tokens=["COLON"],
    where="item",
    when=lambda fault: (
        fault.type_at(-1) in ("NAME", "RPAR") and fault.type_at(1) in ENDS and not fault.opener()
    ),
)

# `experiment: e`.
row(
    "E0141",
    "a declaration is not written with `:`",
    "a declaration is `KIND NAME = VALUE` or `KIND NAME {{ … }}`",
    read="^NAME$",
    tokens=["COLON"],
    where="file",
)

# A triple-quoted text behind other items.
row(
    "E0139",
    "a docstring comes first in its file or block",
    "move it to the start of the file or block, or after a param's or a setting's value, or write `# …`",
    read="^$",
    tokens=["TEXT"],
    where="file",
)

# `reward r(a: int)` and its `{` on the line below.
row(
    "E0139",
    "a block belongs to the declaration on its line",
    "put the `{{` at the end of the line above: `experiment NAME = parent {{`",
    read="^$",
    tokens=["LBRACE"],
    where="file",
)


@mistake(read="^$", tokens=["IMPORT"], where="file")
def import_without_from(fault: SyntaxFault) -> Diagnostic:
    """Report `import std.models`, which has no `from`."""
    words = takewhile(lambda token: token.type in ("NAME", "DOT"), fault.tokens[1:])
    module = "".join(word.text for word in words)
    return error(
        "E0130",
        "an import names its module first",
        fault.token.span,
        help=f"write `from {clip_text(module) or '…'} import NAME`",
    )


# `let a = 1` outside a block.
row(
    "E0139",
    "`{0.text}` belongs in the block of a reward or a selection",
    "put it between the `{{` and `}}` of `reward NAME(…) {{ … }}`",
    read="^$",
    tokens=["LET", "DENSE"],
    where="file",
)

# Anything else that begins no item of a file.
row(
    "E0139",
    "an item of a file cannot begin with {0.description}",
    "a file holds imports, params and declarations: `KIND NAME = VALUE` or `KIND NAME {{ … }}`",
    read="^$",
    where="file",
)

# `lr = 3`, `batch { … }` or a value outside a block.
for _what, _at, _advice in (
    ("a setting", ASSIGNMENTS, "if `{0.first.text}` is a kind, it lacks its name: `{0.first.text} NAME = …`"),
    (
        "a nested block",
        ["LBRACE"],
        "if `{0.first.text}` is a kind, it lacks its name: `{0.first.text} NAME {{ … }}`",
    ),
    ("an expression", None, "a declaration is `KIND NAME = VALUE` or `KIND NAME {{ … }}`"),
):
    row(
        "E0139",
        f"{_what} belongs in the block of a declaration",
        _advice,
        read="^NAME$",
        tokens=_at,
        where="file",
        mark=lambda fault: fault.first.span,
    )

# `from …` or `param …` in a block.
for _what, _words in (("a param", ("PARAM",)), ("an import", ("FROM", "IMPORT"))):
    row(
        "E0139",
        f"{_what} belongs at the top level of the file",
        "move the line out of the block, above its declaration",
        read="^(any_name|FROM|PARAM|IMPORT)$",
        where="block",
        when=lambda fault, words=_words: fault.index == 1 and fault.first.type in words,  # type: ignore[misc]
        mark=lambda fault: fault.first.span,
    )

# `for …` or `if …` as a statement.
for _words, _advice in (
    (
        ("FOR",),
        "there are no loops: write out each line, or write stages as `stages(NAME in LIST) {{ … }}`; "
        "a reward goes through a group in a call, `mean(len(z) for z in group)`",
    ),
    (("IF", "ELSE"), "choose between two values: `A if CONDITION else B`"),
):
    row(
        "E0130",
        "there is no `{0.first.text}` statement",
        _advice,
        read="^(any_name|FOR|IF|ELSE)$",
        where="block",
        when=lambda fault, words=_words: fault.index == 1 and fault.first.type in words,  # type: ignore[misc]
        mark=lambda fault: fault.first.span,
    )

# A line that continues the value of the line above.
row(
    "E0130",
    "a line cannot begin with `{0.text}`",
    "to continue the line above, put the whole value in ( ), in which newlines are allowed",
    read="^$",
    tokens=OPERATORS,
    where="block",
)

# `{ … }` alone.
row(
    "E0139",
    "a block belongs to a name on its line",
    "put the `{{` at the end of the line above, or name the block: `optim {{ … }}`",
    read="^$",
    tokens=["LBRACE"],
    where="block",
)

# `arm base` and nothing behind it.
row(
    "E0140",
    "`{0.declaration}` has neither a value nor a block",
    lambda fault: (
        f"put the `{{` on the same line: `{fault.declaration} {{`"
        if fault.type_at(1) == "LBRACE"
        else f"write `{fault.declaration} = …` or `{fault.declaration} {{ … }}`"
    ),
    read="^NAME name( decl_params)?$",
    tokens=ENDS,
    where="item",
    mark=lambda fault: fault.tokens[1].span,
)

# `table main { … } chart curves { … }`, in one line with nothing between.
row(
    "E0142",
    "{0.description} follows a complete block",
    "start a new line, or put a comma before `{0.spelling}`",
    tokens=["NAME"],
    where="block",
    when=lambda fault: fault.type_at(-1) == "RBRACE" and fault.opener() in ("", "LBRACE"),
)

# `=` and `:`

# `lr: 5e-6`.
row(
    "E0141",
    "a setting is written with `=`",
    "write `{0.head} = {0.value}`",
    read=r"^\w+$",
    tokens=["COLON"],
    when=lambda fault: fault.index == 1 and (fault.in_block or fault.alone),
)

# `let a: 1` or `arm x: 5`.
row("E0141", "a value is given with `=`", "write `= {0.value}`", read="^(LET|NAME) name$", tokens=["COLON"])

# `exp(from = 1K tokens)`.
row(
    "E0141",
    "an argument is written with `:`",
    "write `{0.previous.text}: {0.value}`",
    read=r"postfix LPAR (args COMMA )?(NAME|any_name)$",
    tokens=ASSIGNMENTS,
)

# `optim.lr = 1e-6`.
row(
    "E0141",
    "a setting has a plain name",
    "write `{0.first.text} {{ {0.previous.text} = … }}`",
    read="^expr$",
    tokens=ASSIGNMENTS,
    when=lambda fault: fault.index == 3 and fault.type_at(-2) == "DOT",
    mark=lambda fault: fault.first.span,
)

# `lr = 5e-6 clip = 3`, in which `clip` reads as a unit.
row(
    "E0142",
    "nothing separates `{0.previous.text}` from what comes before it",
    lambda fault: (
        f"start a new line before `{fault.tokens[fault.index - 1].text}`"
        + ", or put a comma" * fault.in_block
    ),
    read="(^|EQUAL )expr$",
    tokens=ASSIGNMENTS,
    when=lambda fault: not fault.opener() and fault.type_at(-1) == "NAME" and fault.type_at(-2) == "NUMBER",
    mark=lambda fault: fault.tokens[fault.index - 1].span,
)

# `[b = 1]`.
row(
    "E0141",
    "`{0.text}` does not fit in a value",
    "write `==` to compare",
    tokens=ASSIGNMENTS,
    when=lambda fault: fault.after_value,
)

# A value is wanted

# `a = import`.
row(
    "E0143",
    "`{0.text}` is a keyword, not a value",
    "{0.keyword_advice}",
    tokens=KEYWORDS,
    when=lambda fault: fault.wants_value,
)

# `experiment e = { … }`.
for _when, _advice in (
    (
        lambda fault: fault.opener() in ("LPAR", "LSQB"),
        'values that belong together are a call, such as `columns(question: "problem")`, or have a name above',
    ),
    (
        lambda fault: fault.read == "any_name EQUAL" and fault.first.type == "NAME",
        "write `{0.first.text} {{ … }}`, without the `=`",
    ),
    (
        lambda fault: True,
        "write `NAME = parent {{ … }}`, or, for a block that amends nothing, leave out the `=`",
    ),
):
    row(
        "E0140",
        "there is no value before this block that it could amend",
        _advice,
        tokens=["LBRACE"],
        when=lambda fault, when=_when: fault.wants_value and when(fault),  # type: ignore[misc]
    )

# Something else where an expression begins, or an item of a block.
row(
    "E0140",
    "a value is wanted here",
    "write a number, a name or a call `f(…)`",
    read="^$",
    when=lambda fault: fault.wants_value and fault.alone,
    mark=SyntaxFault.span,
)
row(
    "E0130",
    "an item cannot begin with {0.description}",
    "an item of a block is a setting `NAME = VALUE`, a nested block `NAME {{ … }}`, a declaration or a value",
    read="^$",
    when=lambda fault: fault.wants_value,
    mark=SyntaxFault.span,
)


@mistake(read="(EQUAL|COLON)$")
def no_value_follows_name(fault: SyntaxFault) -> Diagnostic | None:
    """Report a name, `=` or `:` without a value, as in `a =` or `f(n:)`; None if no value may come here."""
    before = fault.previous
    if before is None or not fault.wants_value:
        return None
    name = fault.tokens[fault.index - 2].text if fault.index > 1 else ""
    # Behind a param's type it is the type's last word.
    name = "" if fault.tokens[0].text == "param" else name
    head = f"{name}:" if before.text == ":" else f"{name} {before.text}".strip()
    advice = f"write `{head} VALUE`"
    if fault.ends_line() and fault.type_at(1) in LITERALS | {"LSQB", "LPAR", "MINUS"}:
        advice = f"move the value up: `{head} {quote_value(fault)}`"
    return error("E0140", f"no value follows `{head}`", behind(before), help=advice)


# `1 +` or `not`.
row(
    "E0140",
    "no value follows `{0.previous.text}`",
    lambda fault: (
        "put the whole value in ( ) to continue on the next line"
        if fault.ends_line()
        else f"write a value after `{fault.tokens[fault.index - 1].text}`"
    ),
    when=lambda fault: fault.wants_value and fault.type_at(-1) in OPERATORS | KEYWORDS,
    mark=lambda fault: behind(fault.tokens[fault.index - 1]),
)

# `[1,,2]`.
row(
    "E0142",
    "nothing comes before this `,`",
    "delete it, or write the value",
    tokens=["COMMA"],
    when=lambda fault: fault.wants_value,
)

# Any other token in the place of a value.
row(
    "E0140",
    "a value is wanted here, and this is {0.description}",
    "a value is a number, a text in double quotes, a name, a call `f(…)` or a list `[…]`",
    when=lambda fault: fault.wants_value,
    mark=SyntaxFault.span,
)

# A value is complete

# `1 < len(y) < 3`.
row(
    "E0144",
    "comparisons cannot be chained",
    "compare twice: `a < b and b < c`",
    tokens=COMPARISONS,
    when=lambda fault: fault.after_whole_value,
)

# `1 if correct(y)`.
row(
    "E0140",
    "this choice has no `else`",
    "write `A if CONDITION else B`",
    read="(?<!IN )disjunction IF disjunction$",
    mark=SyntaxFault.span,
)

# `[z for z in group]`: such a word goes elsewhere.
row(
    "E0130",
    "`{0.text}` does not fit here",
    "{0.keyword_advice}",
    tokens=["FOR", "IF", "ELSE"],
    when=lambda fault: fault.after_value,
)


@mistake()
def suffix_apart(fault: SyntaxFault) -> Diagnostic | None:
    """Report a suffix that is separated from its number, as in `16 K tokens`; None for any other fault."""
    if not fault.after_value or fault.type_at(-2) != "NUMBER" or fault.type_at(-1) != "NAME":
        return None
    number, suffix = fault.tokens[fault.index - 2 : fault.index]
    if suffix.text.upper() not in ("K", "M", "G"):
        return None
    unit = f" {fault.token.text}" if fault.token.type == "NAME" else ""
    return error(
        "E0136",
        "a suffix is written directly after its number",
        suffix.span,
        help=f"write `{number.text}{suffix.text.upper()}{unit}`",
    )


# `(1, 2)`.
row(
    "E0130",
    "( ) holds one value",
    "a list is written `[a, b]`",
    read="(?<!postfix )LPAR expr$",
    tokens=["COMMA"],
)


@mistake(tokens=VALUES | {"LBRACE"})
def two_values(fault: SyntaxFault) -> Diagnostic | None:
    """Report a complete value that is followed by another value, as in `a = b c = d` or `[b c]`.

    The result is None if no complete value comes before the token. The advice depends on the place: inside
    brackets, in a block, at the top of a file, or in an expression on its own, as on a command line (`alone`).
    """
    before, token = fault.previous, fault.token
    if before is None or not fault.after_value:
        return None
    if fault.opener() not in ("", "LBRACE"):
        return error(
            "E0142",
            f"a comma or an operator is missing between {describe(before)} and {describe(token)}",
            token.span,
            help=f"put a comma or an operator before `{quote_token(token)}`",
        )
    advice = "start a new line, put a comma," if fault.in_block else "start a new line"
    advice += f" or write an operator before `{quote_token(token)}`"
    if not fault.in_block and fault.type_at(1) in ASSIGNMENTS:
        advice = f"a block of settings is in braces: write `{{` before `{quote_token(token)}`, and `}}` behind the last one"
    if fault.alone:
        advice = f"write an operator before `{quote_token(token)}`, or delete it"
    return error("E0142", f"{describe(token)} follows a complete value", token.span, help=advice)


# `mean(z for group)`.
row(
    "E0130",
    "this `for` has no `in`",
    "the form is `mean(len(z) for z in group)`",
    read="FOR name$",
    mark=SyntaxFault.span,
)

# Forms: an import, a param, a `let`, a `dense` and the head of a declaration

_FORMS = {
    "FROM": "from MODULE import NAME, NAME",
    "PARAM": "param NAME: TYPE = DEFAULT in LOWEST..HIGHEST",
    "LET": "let NAME = VALUE",
    "DENSE": "dense L in BUDGETS: VALUE",
}


@mistake(where="item")
def broken_form(fault: SyntaxFault) -> Diagnostic | None:
    """Report an import, `param`, `let` or `dense` that is incomplete, and show how it is written; None for other items."""
    first, token = fault.first, fault.token
    if fault.index == 0 or first.type not in _FORMS:
        return None
    message = f"{describe(token)} does not fit in this `{first.text}`"
    if first.type == "FROM":
        message = f"{describe(token)} does not fit in this import"
        if token.type == "STAR":
            message = "an import has to list its names"
    return error("E0130", message, fault.span(), fault.wanted(), help=f"the form is `{_FORMS[first.type]}`")


# `reward r(alpha) { … }`.
row(
    "E0130",
    "{0.description} does not fit in these parameters",
    "a parameter is `NAME: TYPE`, with `= DEFAULT` and `in LOWEST..HIGHEST` if wanted",
    read="^NAME name LPAR",
    where="item",
    mark=SyntaxFault.span,
    lists_tokens=True,
)

# `experiment my-run = …`.
row(
    "E0130",
    "a name is made of letters, digits and `_`",
    lambda fault: f"write `{fault.first.text} {clip_text(f'{fault.tokens[1].text}_{fault.tokens[3].text}')}`",
    read="^NAME name$",
    tokens=["MINUS"],
    where="item",
    when=lambda fault: fault.type_at(1) in ("NAME", "NUMBER"),
    mark=SyntaxFault.span,
)

# `experiment e ppo { … }`.
row(
    "E0130",
    "{0.description} does not fit after `{0.head}`",
    lambda fault: (
        f"there are no loops: write `{fault.first.text} NAME = VALUE` for each value"
        if fault.token.type == "IN"
        else f"write `{fault.head} = VALUE` or `{fault.head} {{ … }}`"
    ),
    read="^NAME name$",
    where="item",
    mark=SyntaxFault.span,
    lists_tokens=True,
)

# Words for messages


def describe(token: Token) -> str:
    """Return words for a token in a message, such as "the name `lr`" or "the end of the line"."""
    if token.type == "$END":
        return "the end of the file"
    if token.type == "SEP":
        return f"`{token.text}`" if token.text in (",", ";") else "the end of the line"
    if token.type == "NUMBER":
        return f"the number `{clip_text(token.text)}`"
    if token.type in ("STRING", "TEXT"):
        return "a text"
    if token.type == "NAME":
        return f"the name `{clip_text(token.text)}`"
    return f"the keyword `{token.text}`" if token.type in KEYWORDS else f"`{token.text}`"


def quote_token(token: Token) -> str:
    """Return a token's text for a help line; `…` for the end of an item or a text of several lines."""
    if token.type in ENDS:
        return "…"
    return clip_text(token.text) if "\n" not in token.text else "…"


def quote_value(fault: SyntaxFault) -> str:
    """Return the value behind the token that does not fit, for a help line.

    It is a single token, or a number with its unit; the result is `…` for a longer value.
    """
    token, unit = fault.tokens[fault.index + 1], fault.type_at(2)
    if token.type == "NUMBER" and unit == "NAME":
        return f"{quote_token(token)} {fault.tokens[fault.index + 2].text}"
    return "…" if unit in ("LPAR", "DOT", "LBRACE", "LSQB") or token.type in OPENERS else quote_token(token)


def behind(token: Token) -> Span:
    """Return the span of the single column behind a token."""
    span = token.span
    return Span(span.path, span.end_line, span.end_column, span.end_line, span.end_column + 1)


def keyword_advice(token: Token) -> str:
    """Return the advice for a keyword that does not fit: how the keyword is used."""
    if token.type == "FOR":
        return "go through a group in a call: `mean(len(z) for z in group)`"
    if token.type in ("IF", "ELSE"):
        return "choose between two values: `A if CONDITION else B`"
    if token.type in ("AND", "OR", "IN"):
        return f"`{token.text}` goes between two values"
    return f"`{token.text}` names a setting (`{token.text} = …`), an argument (`{token.text}: …`) or a member only"


def _convert_to_name(words: str) -> str:
    """Return a text as a valid name: `my-run 2` gives `my_run_2`."""
    name = re.sub(r"\W+", "_", words, flags=re.ASCII).strip("_")
    return clip_text(name if name and not name[0].isdigit() else f"_{name}")
