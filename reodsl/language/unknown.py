"""Report a name or a setting that does not exist, with what was most likely meant."""

from __future__ import annotations

from collections.abc import Mapping

from reodsl.ir.kinds import KINDS
from reodsl.ir.setting import Block, Kind
from reodsl.language.context import Context
from reodsl.language.functions import SIGNATURES
from reodsl.language.hints import method_written, provided
from reodsl.language.members import declarations
from reodsl.language.reward.names import RESPONSE_NAMES
from reodsl.language.suggest import advice, nearest, there_is
from reodsl.language.values import Scope, article
from reodsl.syntax import tree

WORDS_ELSEWHERE = {
    "grpo": ("ppo", "over a question's rollouts, as advantages are here, it is GRPO"),
}
"""Words of other tools, in small letters, with what to write here."""
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
        ctx.error(
            "E0308",
            f"`{name}` belongs to a response, and there is none outside a reward",
            expr.span,
            "not in a reward",
            help="use it inside `reward NAME { … }`, and name that reward here",
        )
        return
    if words:
        ctx.error(
            "E0314",
            f"`{name}` is not one of the words that stand here",
            expr.span,
            "unknown",
            notes=[there_is(words, "the words are")],
            help=_word(name, words),
        )
        return
    if name in SIGNATURES:
        ctx.error(
            "E0201",
            f"`{name}` is a function, and stands here without its arguments",
            expr.span,
            "not called",
            help=f"call it: `{name}(…)`; `reodsl explain E0310` shows arguments",
        )
        return
    ctx.error(
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


TRAINED = frozenset({"experiment", "recipe", "arm", "stage"})
"""The kinds that have the settings of training."""
_TRAINING_CALLED = {
    "model": "base",
    "dataset": "data",
    "suite": "eval",
    "evaluation": "eval",
    "evaluate": "eval",
    "gpus": "cluster",
    "kl_coef": "kl",
    "num_steps": "steps",
    "learning_rate": "optim { lr = … }",
    "optimizer": "optim { … }",
    "stages": "stages(NAME in LIST) { … }",
    "batch_size": "batch { prompts = … }",
    "group_size": "batch { rollouts = … }",
    "num_generations": "batch { rollouts = … }",
    "max_new_tokens": "rollout { max_tokens = … }",
    "max_length": "rollout { max_tokens = … }",
    "clip_range": "clip { low = …, high = … }",
    "clip_low": "clip { low = … }",
    "clip_high": "clip { high = … }",
    "grad_clip": "optim { grad_norm = … }",
    "max_grad_norm": "optim { grad_norm = … }",
    "beta_kl": "kl",
    "entropy_coeff": "entropy",
    "loss_type": "loss { … }",
    "objective": "loss { … }",
    "seq_mean": "loss_mean = response",
    "importance_sampling_level": "loss { ratio = sequence }",
    "scale_rewards": "advantage { normalise = … }",
}
_OBJECTIVE = (
    "reward",
    "advantage",
    "credit",
    "clip",
    "loss",
    "loss_mean",
    "kl",
    "entropy",
    "importance_cap",
    "resample",
)
"""The settings that what is learnt is made of, told where a setting resembles none: all of them are too many to read."""
BLOCK_NAMES = frozenset(
    name for kind in KINDS.values() for name, field in kind.fields.items() if isinstance(field.type, Block)
)
"""The settings that are blocks."""
CALLED: Mapping[str, Mapping[str, str]] = {
    "study": {
        "seed": "replicate",
        "seeds": "replicate",
        "suite": "eval",
        "budget": "limit",
    },
    "optim": {
        "learning_rate": "lr",
        "optimizer": "algorithm",
        "warmup_steps": "warmup",
        "warmup_ratio": "warmup",
        "schedule": "decay",
        "scheduler": "decay",
        "grad_clip": "grad_norm",
        "max_grad_norm": "grad_norm",
    },
    "loss": {
        "divergence": "estimator",
        "mean": "loss_mean",
        "kl_estimator": "estimator",
        "importance_sampling_level": "ratio",
    },
    "suite": {
        "max_length": "max_tokens",
        "max_new_tokens": "max_tokens",
        "n": "samples",
        "num_samples": "samples",
    },
    "data": {
        "path": 'source = file("…")',
        "file": 'source = file("…")',
        "columns": 'source = file("…", columns: columns(…))',
    },
    "experiment": _TRAINING_CALLED,
    "recipe": _TRAINING_CALLED,
    "arm": _TRAINING_CALLED,
    "stage": _TRAINING_CALLED,
}
"""What settings are called elsewhere, by kind, where no spelling leads from that to their names here."""


def unknown_setting(ctx: Context, kind: Kind, name: tree.Ident) -> None:
    """The diagnostic of a setting that a kind does not have: one level off, misspelt, or unknown."""
    word = name.name
    inside = [
        each
        for each, field in kind.fields.items()
        if isinstance(field.type, Block) and word in KINDS[field.type.kind].fields
    ]
    around = [
        each
        for each in KINDS.values()
        if any(f.type == Block(kind.name) for f in each.fields.values()) and word in each.fields
    ]
    above = _of_the_study(kind, word)
    if above is not None:
        helps = above
    elif word in kind.children:
        helps = f"it has a name: `{_begun(word)}`"
    elif word in CALLED.get(kind.name, ()):
        helps = f"did you mean `{CALLED[kind.name][word]}`?"
    elif kind.name in (*TRAINED, "loss", "advantage") and (written := method_written(word)) is not None:
        helps = written
    elif inside:
        helps = f"`{word}` is a setting of `{inside[0]}`: write `{inside[0]} {{ {word} = … }}`"
    elif around:
        helps = f"`{word}` is a setting of the {around[0].name} around this block"
    elif beside := _beside(kind, word):
        helps = f"`{word}` is a setting of `{beside}`: write `{beside} {{ {word} = … }}` beside this block"
    else:
        helps = advice(word, [*kind.fields, *kind.children], "its settings are")
        if kind.name in TRAINED and helps.startswith("its settings"):
            parts = [f"`{name}`" for name in _OBJECTIVE]
            helps = (
                "that is not supported, and no setting is called like it. The objective is made of "
                f"{', '.join(parts[:-1])} and {parts[-1]}; docs/REFERENCE.md has all settings"
            )
        meant = nearest(word, [*kind.fields, *kind.children])
        if meant in kind.children:
            helps = f"did you mean `{_begun(meant)}`?"
        if kind.name in TRAINED and nearest(word, kind.fields) is None:
            deeper = {
                sub: each
                for each, field in kind.fields.items()
                if isinstance(field.type, Block)
                for sub in KINDS[field.type.kind].fields
            }
            near = nearest(word, deeper)
            if near is not None:
                helps = f"did you mean `{deeper[near]} {{ {near} = … }}`?"
    ctx.error(
        "E0203",
        f"{article(kind.name)} {kind.name} has no setting `{word}`",
        name.span,
        "unknown",
        help=helps,
    )


def _begun(child: str) -> str:
    """How a declaration inside another is written."""
    return f"{child} NAME = …" if child == "arm" else f"{child} NAME {{ … }}"


def _of_the_study(kind: Kind, word: str) -> str | None:
    """Where to write a setting of the study that stands in what it compares: seeds, the score, the report."""
    named = "replicate" if word == "seeds" else word
    field = KINDS["study"].fields.get(named)
    if kind.name not in TRAINED or named in kind.fields or field is None:
        return None
    setting = f"{named} {{ … }}" if isinstance(field.type, Block) else f"{named} = …"
    if named == "replicate":
        setting = "replicate = [1, 2, 3]"
    return f"a study says this for all its arms: `study NAME {{ {setting}, arm NAME = … }}`"


def _beside(kind: Kind, word: str) -> str | None:
    """The block next to one of this kind that has a setting of that name."""
    for parent in KINDS.values():
        if any(field.type == Block(kind.name) for field in parent.fields.values()):
            for name, field in parent.fields.items():
                if isinstance(field.type, Block) and word in KINDS[field.type.kind].fields:
                    return name
    return None
