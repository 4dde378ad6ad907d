"""Settings that a kind does not have: from their names to what was most likely meant."""

from __future__ import annotations

from collections.abc import Mapping

from reodsl.ir.setting import Block, Kind
from reodsl.ir.settings import KINDS
from reodsl.language.context import Context
from reodsl.language.known_methods import method_written
from reodsl.language.suggest import advice, nearest
from reodsl.language.values import article
from reodsl.syntax import tree

TRAINED = frozenset({"experiment", "recipe", "arm", "stage"})
"""The kinds that have the settings of training."""
_TRAINING_CALLED = {
    "model": "base",
    "dataset": "data",
    "suite": "eval",
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
    ctx.fail(
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
