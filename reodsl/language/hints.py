"""Return help for a wrong name, setting or value: what to write instead, from tables of common mistakes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from reodsl.diagnostics.dropped import refuse_dropped
from reodsl.diagnostics.model import join_words, quote
from reodsl.ir.kinds import KINDS
from reodsl.ir.setting import DATA_SOURCES, MODEL_SOURCES, Block, Kind, Num
from reodsl.language.context import Context
from reodsl.language.functions import SIGNATURES
from reodsl.language.modules import LIBRARY, ParsedFile, list_library
from reodsl.language.reward.names import RESPONSE_NAMES
from reodsl.language.suggest import list_names, nearest, suggest
from reodsl.language.values import Items, Record, Scope, StageRef, Value, article
from reodsl.syntax import tree

_DECLARES = re.compile(r"^([a-z]+) ([A-Za-z_][A-Za-z0-9_]*) *[={(:]", re.MULTILINE)
_TABLE = re.compile(r".*\.(jsonl?|parquet|csv)", re.IGNORECASE)
BUDGETS = "`exp(from: 1K tokens, to: 32K tokens, n: 5)`"
POOL = "pool(checkpoint(…), data: …, samples: 8, max_tokens: …)"
WORDS_ELSEWHERE = {"grpo": ("ppo", "over a question's rollouts, as advantages are here, it is GRPO")}
"""Words of other tools, in small letters, and what to write here."""
VALUES_ELSEWHERE = {
    **dict.fromkeys(("True", "yes", "Yes", "on"), "write `true`"),
    **dict.fromkeys(("False", "no", "No", "off"), "write `false`"),
    **dict.fromkeys(("None", "null", "nil", "none"), "leave out a setting that you do not want"),
}
"""Values of other languages that have another spelling here, or none."""
METHODS: Mapping[str, str] = {
    "ppo": "PPO is `method = ppo`; its ratio and clip are `loss { ratio = token, clip = two_sided }`",
    "grpo": "GRPO is `method = ppo` with `advantage { normalise = group }`, and the original's mean `loss_mean = response`",
    "gspo": "GSPO is a ratio, `loss { ratio = sequence }`, with a two-sided clip, `clip { low = 3e-4, high = 4e-4 }`, and "
    "`loss_mean = response`",
    "cispo": "CISPO clips a weight, `loss { clip = weight }`, by `clip { low = 1, high = 3 }`, with `loss_mean = token`",
    "dapo": "DAPO is `resample = 10`, `clip { low = 0.2, high = 0.28 }` and `loss_mean = token`, with the reward "
    "`std.rewards.soft_overlong`",
    "dr_grpo": "Dr. GRPO is `advantage { normalise = center }` and `loss_mean = constant`",
    "rloo": "RLOO is `advantage { normalise = leave_one_out }`",
    "sapo": "SAPO is a soft gate, `loss { clip = gate }`, with `loss_mean = response`",
    "gmpo": "GMPO is `loss { ratio = sequence, clip = factors }`, `clip { low = 0.33, high = 0.49 }` and "
    "`loss_mean = response`",
    "reinforce": "REINFORCE is `loss { ratio = none, clip = none }`",
    "dler": "DLER is `resample = 10`, `clip { low = 0.2, high = 0.28 }` and "
    "`advantage { normalise = center, batch = true }`, with the reward `std.rewards.outcome` and a short `max_tokens`",
    "tis": "truncated importance sampling is `importance_cap = 2`",
    "gae": "there is no critic here: `credit` and `advantage` say how rewards become advantages",
    "dpo": "DPO is `method = dpo`, and trains on pairs",
    "simpo": "SimPO is `method = simpo`, and trains on pairs",
}
"""The ways to write methods, by the names of methods in small letters with underscores."""
_ALIASES = {"drgrpo": "dr_grpo", "reinforce_leave_one_out": "rloo", "truncated_importance_sampling": "tis"}
_INSTEAD: Mapping[str, str] = {
    'a text is searched by `matches(y, "…")` and `number(y, "…", empty: 0)`, or by a function of yours: '
    '`python("style.py:score", y)`': (
        "contains includes startswith endswith starts_with ends_with match regex re search find split words text "
        "sentences lines strip lower replace similarity bleu rouge format has_format format_reward repetition ngrams judge"
    ),
    "run over tokens: `mean(prob(t) for t in truth(y))` is how likely the reference answer is": (
        "probability likelihood confidence"
    ),
    "run over tokens: `mean(logprob(t) for t in y)`": (
        "logprobs log_prob log_probs logp log_p nll loglikelihood log_likelihood perplexity ppl logits"
    ),
    "`kl = 1e-3` in the experiment keeps the policy near the reference model": "kl",
    "write `len(y)`": "length num_tokens n_tokens token_count tokens size",
    "write `correct(y)`": "accuracy acc is_correct right verify grade pass",
    "write `mean(len(z) for z in group)`": "avg average",
    "square it: `std(correct(z) for z in group)^2`": "var variance",
    "count them: `count(z for z in group if correct(z)) > 0`": "any exists",
    "count the others: `count(z for z in group if not correct(z)) == 0`": "all",
    "write `log(…)`": "ln",
    "divide by the base's: `log(…) / log(2)`": "log2 log10",
    "write `(…)^2`": "pow power square",
    "write `2 * sigmoid(2 * (…)) - 1`": "tanh",
    "write `max(…, 0)`": "relu",
    "write `log(1 + exp(…))`": "softplus",
    "write `cos((…) - pi / 2)`": "sin",
    "write `(1 if … > 0 else 0)`": "sign",
    "write `floor((…) + 0.5)`": "round",
    "write `-floor(-(…))`": "ceil",
    "write `clip(…, 0, 1)`": "clamp bound minmax",
    "write `(1 if correct(y) else 0)`": "where iif cond select",
    "write `z(correct(y))`, a whole part of a sum": "normalize normalise zscore standardize whiten",
}
FUNCTIONS_ELSEWHERE: Mapping[str, str] = {
    name: helps for helps, names in _INSTEAD.items() for name in names.split()
}
"""The advice for functions of other tools whose names resemble no function here."""
TRAIN_KINDS = frozenset({"experiment", "recipe", "arm", "stage"})
"""The kinds that have the settings of training."""
_TRAINING_ELSEWHERE = {
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
    "reward", "advantage", "credit", "clip", "loss", "loss_mean", "kl", "entropy", "importance_cap",
    "resample",
)  # fmt: skip
"""The settings of the objective, which are listed for an unknown setting instead of all settings."""
BLOCK_NAMES = frozenset(
    name for kind in KINDS.values() for name, field in kind.fields.items() if isinstance(field.type, Block)
)
"""The settings that are blocks."""
SETTINGS_ELSEWHERE: Mapping[str, Mapping[str, str]] = {
    "study": {"seed": "replicate", "seeds": "replicate", "suite": "eval", "budget": "limit"},
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
    "experiment": _TRAINING_ELSEWHERE,
    "recipe": _TRAINING_ELSEWHERE,
    "arm": _TRAINING_ELSEWHERE,
    "stage": _TRAINING_ELSEWHERE,
}
"""The advice, by kind, for settings of other tools whose names resemble no setting here."""


def find_in_library(name: str) -> tuple[tuple[str, str], ...]:
    """Return the modules of the standard library that declare a name, each with the kind of the declaration."""
    return tuple((module, kind) for module, kind, declared in list_declarations() if declared == name)


@cache
def list_declarations() -> tuple[tuple[str, str, str], ...]:
    """Return (module, kind, name) for each declaration of the standard library."""
    declarations = []
    for module in list_library():
        path = LIBRARY.joinpath(*module.split("."))
        text = path.with_name(path.name + ".reo").read_text(encoding="utf-8")
        declarations += [(f"std.{module}", kind, name) for kind, name in _DECLARES.findall(text)]
    return tuple(declarations)


def explain_method(name: str) -> str | None:
    """Return how a training method of the literature is written in a spec; None for an unknown name."""
    word = name.lower().replace("-", "_").replace(".", "").replace(" ", "_")
    if example := METHODS.get(_ALIASES.get(word, word)):
        return example
    module = next((module for module, kind in find_in_library(word) if kind == "reward"), None)
    return f"`{word}` is a reward: `reward = {module}.{word}`" if module is not None else None


def suggest_declaration(value: Value, kinds: tuple[str, ...]) -> str | None:
    """Return help for a value in place of a record of certain kinds; None if no help fits.

    Args:
        value: The value that does not fit.
        kinds: The kinds of record that the setting accepts.
    """
    data = value.data
    if not kinds:
        return None
    if "budgets" in kinds:
        return (
            f"write a schedule, such as {BUDGETS}, or a list of budgets that ends with the longest response"
        )
    if isinstance(data, str):
        return _suggest_for_text(data, kinds)
    if kinds == ("frontier",):
        arm = isinstance(data, Record) and data.kind in ("arm", "experiment") and data.name
        return f"declare a frontier, and name it here: `frontier NAME = envelope({f'of: [{arm}], to: …' if arm else '…'})`"
    if isinstance(data, Items):
        single = data.values[0].data if len(data.values) == 1 else None
        single_name = isinstance(single, Record) and single.kind in kinds and single.name
        return f"write `{single_name}`, without brackets" if single_name else None
    return first_help(_explain_record(data, kinds)) if isinstance(data, Record) else None


def first_help(rows: Iterable[tuple[bool, str]]) -> str | None:
    """Return the text of the first pair whose condition is true; None if no condition is."""
    return next((help for holds, help in rows if holds), None)


def _explain_record(data: Record, kinds: tuple[str, ...]) -> Iterator[tuple[bool, str]]:
    """Yield pairs (whether the advice applies, advice) for a record of a wrong kind.

    Args:
        data: The record.
        kinds: The kinds of record that the setting accepts.
    """
    name, kind = data.name, data.kind
    yield kind == "selection" and "selected" in kinds, f"give it a pool to pick from: `{name}({POOL})`"
    if isinstance(data, StageRef):
        yield "checkpoint" in kinds, f"take its checkpoint: `checkpoint({_format_stage(data)})`"
    yield (
        kind in MODEL_SOURCES and "model" in kinds,
        f"declare a model, and name it here: `{_format_model(kind)}`",
    )
    yield (
        kind in DATA_SOURCES and "data" in kinds,
        f"declare the data, and name it here: `data NAME {{ source = {kind}(…) }}`",
    )
    if kind == "python":
        term = f"python({quote(data.data('function'))}, y)"
        yield ("reward" in kinds, f"call it in a reward, and name that here: `reward NAME {{ {term} }}`")
    yield (
        kind in ("experiment", "recipe", "model") and kinds == ("arm",) and bool(name),
        f"make it an arm: `arm {name} = {name}`",
    )


def _format_model(source: str) -> str:
    """Return how a spec declares a model from a source such as `hub` or `folder`."""
    return f"model NAME {{ source = {source}(…), context = 32K tokens }}"


def _format_stage(stage: StageRef) -> str:
    """Return a stage of an experiment as a spec names it: `mine.stages[1024 tokens]`."""
    experiment, name = stage.name.rsplit(".", 1)
    unit = " tokens" if name.isdigit() else ""
    return f"{experiment}.stages[{name}{unit}]"


def _suggest_for_text(text: str, kinds: tuple[str, ...]) -> str | None:
    """Return help for a text in quotes given where a record of certain kinds is expected; None if no help fits.

    Args:
        text: The text, perhaps a path, a repository or a declaration's name.
        kinds: The kinds of record that the setting accepts.
    """
    is_table = bool(_TABLE.fullmatch(text))
    model = _format_model("folder" if text.startswith((".", "/")) else "hub").replace("…", f'"{text}"')
    data = f'data NAME {{ source = {"file" if is_table else "hub"}("{text}") }}'
    rows = (
        ("file" in kinds and is_table, f'write `file("{text}")`'),
        ("hub" in kinds and bool(re.fullmatch(r"[\w.-]+/[\w.-]+", text)), f'write `hub("{text}")`'),
        (
            "hub" not in kinds and bool(re.fullmatch(r"[A-Za-z_]\w*", text)),
            f"a declaration is named without quotes: `{text}`",
        ),
        ("model" in kinds, f"declare a model, and name it here: `{model}`"),
        ("data" in kinds, f"declare the data, and name it here: `{data}`"),
    )
    return first_help(rows)


def report_name(
    ctx: Context,
    expr: tree.Name,
    scope: Scope,
    words: tuple[str, ...],
    kinds: tuple[str, ...] = (),
    quoted: str | None = None,
    number: Num | None = None,
) -> None:
    """Report a name that has no meaning in the spec.

    The name may belong to responses (E0308), be none of a setting's words (E0314), be a function without
    its arguments (E0201), or be unknown (E0201). The error is for the first of these cases that applies.

    Args:
        ctx: The state of the evaluation.
        expr: The name in the syntax tree.
        scope: The names that can be used.
        words: The words that the setting accepts; empty if it accepts none.
        kinds: The kinds of declaration that the setting accepts; empty for all kinds.
        quoted: The help if the setting accepts a text in quotes; else None.
        number: The type of number that the setting accepts besides words; None if it accepts no number.
    """
    name = expr.name
    if name in RESPONSE_NAMES and not words and quoted is None:
        ctx.error(
            "E0308",
            f"`{name}` belongs to a response, and no response exists outside a reward",
            expr.span,
            "not in a reward",
            help="use it inside `reward NAME { … }`, and name the reward here",
        )
        return
    if words and (dropped := refuse_dropped(name, expr.span)):
        ctx.report(dropped)
        return
    if words:
        ctx.error(
            "E0314",
            f"`{name}` is not one of the words that this setting accepts",
            expr.span,
            "unknown",
            notes=[list_names(words, "the words are")],
            help=_suggest_word(name, words)
            + (f", or a number, {number.range_words()}" if number is not None else ""),
        )
        return
    if name in SIGNATURES:
        ctx.error(
            "E0201",
            f"`{name}` is a function, and is used here without arguments",
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
        help=quoted or _suggest_name(expr, scope, kinds),
    )


def suggest_quotes(expr: tree.Name, scope: Scope) -> str | None:
    """Return help that puts a word in quotes, where the setting is a text; None if it resembles a name or value.

    Args:
        expr: The word in the syntax tree. Its path is `--set NAME` or `--amend PATH` on the command line.
        scope: The names that can be used.
    """
    if expr.name in VALUES_ELSEWHERE or nearest(expr.name, scope.names()) is not None:
        return None
    option, _, target = expr.span.path.partition(" ")
    if option in ("--set", "--amend"):
        return f"a text is written in quotes: {option} '{target}=\"{expr.name}\"'"
    return f'a text is written in quotes: write `"{expr.name}"`'


def _suggest_word(name: str, words: tuple[str, ...]) -> str:
    """Return help for a name that is not an accepted word: its word here, its method, or similar words."""
    equivalent, reason = WORDS_ELSEWHERE.get(name.lower(), ("", ""))
    if equivalent in words:
        return f"write `{equivalent}`: {reason}"
    return explain_method(name) or suggest(name, words, "write one of")


def _suggest_name(expr: tree.Name, scope: Scope, kinds: tuple[str, ...]) -> str:
    """Return help for an unknown name: an import, another spelling of a value, a method, or a similar name.

    Args:
        expr: The name in the syntax tree.
        scope: The names that can be used.
        kinds: The kinds of declaration that the setting accepts; empty for all kinds.
    """
    name, study = expr.name, study_of_arm(scope, expr.name)
    declared = _find_kinds(scope.module)
    names = [n for n in scope.names() if not kinds or declared.get(n, kinds[0]) in kinds]
    return (
        suggest_import(expr, scope, kinds)
        or VALUES_ELSEWHERE.get(name)
        or explain_method(name)
        or (
            f"`{name}` is an arm of `{study}`: to use an arm, declare another arm there, `arm NAME = … {{ … }}`"
            if study is not None
            else suggest(name, names, "this file has")
            if names
            else f"declare or import {article(kinds[0])} {kinds[0]}, and name it here"
            if kinds
            else "write its value here"
        )
    )


def _find_kinds(file: ParsedFile) -> dict[str, str]:
    """Return the kind of each name that a file declares or imports from the library; a param's is `param`."""
    items = (*file.items.values(), *(member for _, members in file.studies() for member in members))
    return {
        local: kind
        for local, imported in file.imports.items()
        for module, kind in find_in_library(imported.name)
        if imported.module == module.replace(".", ":", 1)
    } | {item.name.name: item.kind.name if isinstance(item, tree.Decl) else "param" for item in items}


def study_of_arm(scope: Scope, name: str) -> str | None:
    """Return the name of the study in this file that has an arm called `name`; None if no study has."""
    for study, members in scope.module.studies():
        if any(member.kind.name == "arm" and member.name.name == name for member in members):
            return study.name.name
    return None


def suggest_import(expr: tree.Name, scope: Scope, kinds: tuple[str, ...] = ()) -> str | None:
    """Return help that says how a name is imported; None if no help fits.

    It fits if this file imports the name under another name, or if the standard library declares the name.

    Args:
        expr: The name in the syntax tree.
        scope: The names that can be used.
        kinds: The kinds of declaration that may be suggested; empty for all kinds.
    """
    name = expr.name
    for local, imported in scope.module.imports.items():
        if imported.name == name:
            return f"this file imports it as `{local}`"
    modules = [module for module, kind in find_in_library(name) if not kinds or kind in kinds]
    if not modules:
        return None
    if expr.span.path.startswith(("--amend ", "--set ")):
        return "name it in full: " + " or ".join(f"`{module}.{name}`" for module in modules)
    return "import it: " + " or ".join(f"`from {module} import {name}`" for module in modules)


def _is_block(type: object, kind: Kind) -> bool:
    """Return whether a type is the block of a kind's settings."""
    return isinstance(type, Block) and type.kind == kind.name


def report_setting(ctx: Context, kind: Kind, name: tree.Ident) -> None:
    """Report a setting that a kind does not have, with help for where or how the setting is written.

    The setting may belong to the study, to a block inside this one, to a block beside this one, or to the
    declaration around it; or another tool's name for it is known. Else the help has a similar name.

    Args:
        ctx: The state of the evaluation.
        kind: The kind of the declaration or block.
        name: The unknown setting.
    """
    word = name.name
    if dropped := refuse_dropped(word, name.span):
        ctx.report(dropped)
        return
    blocks = [
        block
        for block, field in kind.fields.items()
        if isinstance(field.type, Block) and word in KINDS[field.type.kind].fields
    ]
    outer_kinds = [
        parent
        for parent in KINDS.values()
        if any(_is_block(f.type, kind) for f in parent.fields.values()) and word in parent.fields
    ]
    sibling = _find_beside(kind, word)
    hint = (
        _suggest_study(kind, word)
        or first_help(
            (
                (word in kind.children, f"it has a name: `{_begin_child(word)}`"),
                (
                    word in SETTINGS_ELSEWHERE.get(kind.name, ()),
                    f"did you mean `{SETTINGS_ELSEWHERE.get(kind.name, {}).get(word)}`?",
                ),
            )
        )
        or (explain_method(word) if kind.name in (*TRAIN_KINDS, "loss", "advantage") else None)
        or first_help(
            (
                *(
                    (True, f"`{word}` is a setting of `{block}`: write `{block} {{ {word} = … }}`")
                    for block in blocks
                ),
                (
                    bool(outer_kinds) and sibling is not None and word not in BLOCK_NAMES,
                    f"write `{sibling} {{ {word} = … }}` beside this block, or `{word} = …` around it, as its method has it",
                ),
                (
                    bool(outer_kinds),
                    f"`{word}` is a setting of the declaration around this block: write `{_begin_setting(word)}` there",
                ),
                (
                    sibling is not None,
                    f"`{word}` is a setting of `{sibling}`: write `{sibling} {{ {word} = … }}` beside this block",
                ),
            )
        )
        or _suggest_setting(kind, word)
    )
    ctx.error(
        "E0203", f"{article(kind.name)} {kind.name} has no setting `{word}`", name.span, "unknown", help=hint
    )


def _suggest_setting(kind: Kind, word: str) -> str:
    """Return help for an unknown setting of a kind: a similar name, or the list of settings.

    For kinds with the settings of training, settings inside its blocks are searched too, and the list has only
    the settings of the objective.
    """
    blocks = {name: field.type.kind for name, field in kind.fields.items() if isinstance(field.type, Block)}
    block_of_setting = {sub: outer for outer, block in blocks.items() for sub in KINDS[block].fields}
    trains, inner = (
        kind.name in TRAIN_KINDS,
        nearest(word, block_of_setting) if kind.name in TRAIN_KINDS else None,
    )
    near_name, names = nearest(word, [*kind.fields, *kind.children]), [f"`{name}`" for name in _OBJECTIVE]
    rows = (
        (
            trains and inner is not None and nearest(word, kind.fields) is None,
            f"did you mean `{block_of_setting.get(inner or '')} {{ {inner} = … }}`?",
        ),
        (near_name in kind.children, f"did you mean `{_begin_child(near_name or '')}`?"),
        (
            trains and near_name is None,
            "this is not supported, and no setting has a similar name. The objective is made of "
            f"{join_words(names)}; `reodsl explain reference` has all settings",
        ),
    )
    return first_help(rows) or suggest(word, [*kind.fields, *kind.children], "its settings are")


def _begin_setting(word: str) -> str:
    """Return how a setting is written: `word { … }` for a block, else `word = …`."""
    return f"{word} {{ … }}" if word in BLOCK_NAMES else f"{word} = …"


def _begin_child(child: str) -> str:
    """Return how a declaration inside another declaration is written."""
    return f"{child} NAME = …" if child == "arm" else f"{child} NAME {{ … }}"


def _suggest_study(kind: Kind, word: str) -> str | None:
    """Return help for a setting of studies, such as `report`, that is written in an arm or experiment; else None.

    `seeds` counts as `replicate`, the setting for a study's seeds.

    Args:
        kind: The kind of the declaration that has the setting.
        word: The name of the setting.
    """
    setting_name = "replicate" if word == "seeds" else word
    field = KINDS["study"].fields.get(setting_name)
    if kind.name not in TRAIN_KINDS or setting_name in kind.fields or field is None:
        return None
    setting = "replicate = [1, 2, 3]" if setting_name == "replicate" else _begin_setting(setting_name)
    return f"a study sets this for all its arms: `study NAME {{ {setting}, arm NAME = … }}`"


def _find_beside(kind: Kind, word: str) -> str | None:
    """Return the name of a block that has a setting called `word` and that may stand beside a block of `kind`.

    The result is None if there is no such block. Example: `rollout` for a temperature that is written in
    `optim { … }`.
    """
    for parent in KINDS.values():
        if any(_is_block(field.type, kind) for field in parent.fields.values()):
            for name, field in parent.fields.items():
                if isinstance(field.type, Block) and word in KINDS[field.type.kind].fields:
                    return name
    return None
