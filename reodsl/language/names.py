"""Names: from a name in a scope to its value, or to what it was most likely meant to be."""

from __future__ import annotations

from dataclasses import replace

from reodsl.diagnostics.model import Span
from reodsl.language.context import Context
from reodsl.language.declare import declared
from reodsl.language.functions import SIGNATURES
from reodsl.language.kinds import METRICS
from reodsl.language.library import provided
from reodsl.language.modules import Loaded
from reodsl.language.reward.words import RESPONSE_NAMES
from reodsl.language.schema import A, Choice, Either, Many, Text, Type, kinds_of
from reodsl.language.suggest import advice, nearest, there_is
from reodsl.language.units import Quantity, shown
from reodsl.language.values import Record, Scope, Symbol, Value
from reodsl.syntax import tree


def named(ctx: Context, expr: tree.Name, scope: Scope, want: Type | None) -> Value | None:
    """The value of a name: a word of the setting's own, a local, a declaration, an import."""
    name = expr.name
    words = offered_words(want)
    if isinstance(want, A) and "metric" in want.kinds:
        return ctx.fail(
            "E0314",
            f"`{name}` is no metric",
            expr.span,
            "unknown",
            help=f"write `train.{name}`" if f"train.{name}" in METRICS else there_is(METRICS, "metrics are"),
        )
    if name in words:
        return Value(Symbol(name), expr.span)
    local = scope.find(name)
    if local is not None:
        value = local()
        return None if value is None else used_at(value, name, expr.span)
    found = lookup(ctx, scope.module, name)
    if found is not None:
        module, item = found
        value = declared(ctx, module, item)
        return None if value is None else used_at(value, name, expr.span)
    if name in scope.module.imports or _declared_badly(scope.module, name):
        return None
    unprovided = [each for each in scope.module.imports if not _provided(ctx, scope.module, each)]
    # An import that nothing provides has been reported, and most likely was meant to bring this name.
    if words or nearest(name, unprovided) is None:
        kinds = () if want is None else kinds_of(want)
        unknown(ctx, expr, scope, words, kinds, _quoted(expr, scope) if isinstance(want, Text) else None)
    return None


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


WORDS_ELSEWHERE = {
    "grpo": ("ppo", "over a question's rollouts, as advantages are here, it is GRPO"),
    "dpo": ("simpo", "it is what trains on pairs here"),
}
"""What other tools call a word, in small letters, with what that is here."""


def _quoted(expr: tree.Name, scope: Scope) -> str | None:
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
    return f"write `{same}`: {why}" if same in words else advice(name, words, "write one of")


ELSEWHERE = {
    **dict.fromkeys(("True", "yes", "Yes", "on"), "write `true`"),
    **dict.fromkeys(("False", "no", "No", "off"), "write `false`"),
    **dict.fromkeys(("None", "null", "nil", "none"), "a setting that is not wanted is left out"),
}
"""What other languages call a value that has another spelling here, or none."""


def _help(expr: tree.Name, scope: Scope, kinds: tuple[str, ...]) -> str:
    """What was meant by a name that nothing has: what an import provides, a value's own word, or a near name."""
    name = expr.name
    if hint := import_hint(expr, scope, kinds):
        return hint
    if name in ELSEWHERE:
        return ELSEWHERE[name]
    if (study := study_of_arm(scope, name)) is not None:
        return f"`{name}` is an arm of `{study}`: what reads arms is an arm there too, `arm NAME = … {{ … }}`"
    return advice(name, scope.names(), "this file has") if scope.names() else "write its value here"


def study_of_arm(scope: Scope, name: str) -> str | None:
    """The study of this file that has an arm of that name."""
    for study in scope.module.items.values():
        items = study.block.items if isinstance(study, tree.Decl) and study.block is not None else ()
        if any(
            isinstance(each, tree.Decl) and each.kind.name == "arm" and each.name.name == name
            for each in items
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


def full_name(expr: tree.Attribute, scope: Scope) -> list[str] | None:
    """The parts of `std.paper.qwen3_4b` behind `std`, where an attribute is a full name of the library."""
    parts = [expr.name.name]
    inner = expr.value
    while isinstance(inner, tree.Attribute):
        parts.insert(0, inner.name.name)
        inner = inner.value
    return (
        parts if isinstance(inner, tree.Name) and inner.name == "std" and "std" not in scope.names() else None
    )


def used_at(value: Value, name: str, span: Span) -> Value:
    """A value as it is used by name: the use is its place, the setting is remembered."""
    if isinstance(value.data, Record):
        return replace(value, span=span, literal=None)
    text = shown(value.data) if isinstance(value.data, Quantity) else ""
    via = ((value.span, f"`{name}` is {text}" if text else f"`{name}` is set here"), *value.via)
    return replace(value, span=span, via=via[:4], literal=None)


def lookup(ctx: Context, module: Loaded, name: str) -> tuple[Loaded, tree.ModuleItem] | None:
    """The declaration behind a name of a file, through imports."""
    item = module.items.get(name)
    if item is not None:
        ctx.used.add((module.key, name))
        return module, item
    imported = module.imports.get(name)
    if imported is None:
        return None
    ctx.used_imports.add((module.key, name))
    target = ctx.modules.loaded.get(imported.module) if imported.module is not None else None
    if target is None or imported.name not in target.items:
        return None
    ctx.used.add((target.key, imported.name))
    return target, target.items[imported.name]


def is_reward(ctx: Context, module: Loaded, name: str) -> bool:
    """Whether a file declares or imports a reward of that name."""
    found = lookup(ctx, module, name)
    return found is not None and isinstance(found[1], tree.Decl) and found[1].kind.name == "reward"


def _provided(ctx: Context, module: Loaded, name: str) -> bool:
    imported = module.imports[name]
    target = ctx.modules.loaded.get(imported.module) if imported.module is not None else None
    return target is not None and imported.name in target.items


def _declared_badly(module: Loaded, name: str) -> bool:
    return any(item.name.name == name for item in module.module.items)


def offered_words(want: Type | None) -> tuple[str, ...]:
    """The words that a setting of this type may be written as; a name that is one of them means the word."""
    match want:
        case Choice():
            return want.words
        case Many():
            return offered_words(want.item) if want.lone else ()
        case Either():
            return tuple(word for option in want.options for word in offered_words(option))
    return ()
