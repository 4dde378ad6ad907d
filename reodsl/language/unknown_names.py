"""Help for a name that nothing has: what an import provides, a value's own word, or a near name."""

from __future__ import annotations

from reodsl.language.context import Context
from reodsl.language.functions import SIGNATURES
from reodsl.language.known_methods import method_written
from reodsl.language.library import provided
from reodsl.language.members import declarations
from reodsl.language.reward.words import RESPONSE_NAMES
from reodsl.language.suggest import advice, nearest, there_is
from reodsl.language.values import Scope
from reodsl.syntax import tree

WORDS_ELSEWHERE = {
    "grpo": ("ppo", "over a question's rollouts, as advantages are here, it is GRPO"),
}
"""What other tools call a word, in small letters, with what that is here."""
ELSEWHERE = {
    **dict.fromkeys(("True", "yes", "Yes", "on"), "write `true`"),
    **dict.fromkeys(("False", "no", "No", "off"), "write `false`"),
    **dict.fromkeys(("None", "null", "nil", "none"), "a setting that is not wanted is left out"),
}
"""What other languages call a value that has another spelling here, or none."""


def unknown(
    ctx: Context,
    expr: tree.Name,
    scope: Scope,
    words: tuple[str, ...],
    kinds: tuple[str, ...] = (),
    quoted: str | None = None,
) -> None:
    """The diagnostic of a name that nothing has, where a word or a declaration of one of these kinds may stand, or a text
    that is to be `quoted`.
    """
    name = expr.name
    if name in RESPONSE_NAMES and not words and quoted is None:
        ctx.fail(
            "E0308",
            f"`{name}` belongs to a response, and there is none outside a reward",
            expr.span,
            "not in a reward",
            help="use it inside `reward NAME { … }`, and name that reward here",
        )
        return
    if words:
        ctx.fail(
            "E0314",
            f"`{name}` is not one of the words that stand here",
            expr.span,
            "unknown",
            notes=[there_is(words, "the words are")],
            help=_word(name, words),
        )
        return
    if name in SIGNATURES:
        ctx.fail(
            "E0201",
            f"`{name}` is a function, and stands here without its arguments",
            expr.span,
            "not called",
            help=f"call it: `{name}(…)`; `reodsl explain E0310` shows arguments",
        )
        return
    ctx.fail(
        "E0201",
        f"there is no `{name}` here",
        expr.span,
        "unknown",
        help=quoted or _help(expr, scope, kinds),
    )


def quoting_hint(expr: tree.Name, scope: Scope) -> str | None:
    """The help for a word where a text is wanted, unless it is nearly a name; in a command with the shell's own quotes."""
    if expr.name in ELSEWHERE or nearest(expr.name, scope.names()) is not None:
        return None
    option, _, target = expr.span.path.partition(" ")
    if option in ("--set", "--amend"):
        return f"a text stands in quotes: {option} '{target}=\"{expr.name}\"'"
    return f'a text stands in quotes: write `"{expr.name}"`'


def _word(name: str, words: tuple[str, ...]) -> str:
    """The help for a name that is none of some words."""
    same, why = WORDS_ELSEWHERE.get(name.lower(), ("", ""))
    if same in words:
        return f"write `{same}`: {why}"
    return method_written(name) or advice(name, words, "write one of")


def _help(expr: tree.Name, scope: Scope, kinds: tuple[str, ...]) -> str:
    """What was meant by a name that nothing has: what an import provides, a value's own word, or a near name."""
    name = expr.name
    if hint := import_hint(expr, scope, kinds):
        return hint
    if name in ELSEWHERE:
        return ELSEWHERE[name]
    if (written := method_written(name)) is not None:
        return written
    if (study := study_of_arm(scope, name)) is not None:
        return f"`{name}` is an arm of `{study}`: what reads arms is an arm there too, `arm NAME = … {{ … }}`"
    return advice(name, scope.names(), "this file has") if scope.names() else "write its value here"


def study_of_arm(scope: Scope, name: str) -> str | None:
    """The study of this file that has an arm of that name."""
    for study in scope.module.items.values():
        if isinstance(study, tree.Decl) and any(
            each.kind.name == "arm" and each.name.name == name for each in declarations(study)
        ):
            return study.name.name
    return None


def import_hint(expr: tree.Name, scope: Scope, kinds: tuple[str, ...] = ()) -> str | None:
    """The help for a name that an import provides: under another name, or not yet; in a command, its full name."""
    name = expr.name
    for local, imported in scope.module.imports.items():
        if imported.name == name:
            return f"this file imports it as `{local}`"
    known = provided(name)
    modules = [module for module, kind in known if kind in kinds] or [module for module, _ in known]
    if not modules:
        return None
    if expr.span.path.startswith(("--amend ", "--set ")):
        return "name it in full: " + " or ".join(f"`{module}.{name}`" for module in modules)
    return "import it: " + " or ".join(f"`from {module} import {name}`" for module in modules)
