"""Recipes: batches, contexts, and what a reward needs of the recipe around it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from reodsl.diagnostics.model import Diagnostic, Label, error, warning
from reodsl.ir.setting import Block
from reodsl.ir.settings import KINDS, TRAINING
from reodsl.language.checks.cases import Case, StageCase, amount, finding_at, place, set_here
from reodsl.language.checks.wordings import check_selected, check_wordings, wordings_of
from reodsl.language.resolve import WITHOUT_TRAINING
from reodsl.language.values import Record, Slot, Until, plain, records_of


def check_recipe(case: Case, stage: StageCase, methods: frozenset[str]) -> Iterator[Diagnostic]:
    """Every check of one stage's recipe; `methods` are those of all that the file trains."""
    record = stage.record
    yield from _foreign(case, stage, methods)
    optim = record.sub("optim")
    if optim is not None and optim.data("algorithm") == "muon" and optim.sub("rest") is None:
        yield error(
            "E0507",
            "`muon` updates matrices only, and nothing is said of the rest",
            place(optim.fields.get("algorithm"), record.span),
            "needs `rest`",
            help="add `rest { lr = 6e-3 }`: AdamW for embeddings, norms and biases",
        )
    yield from _muon(record)
    yield from _plateau(record)
    yield from check_selected(stage)
    if stage.method == "sft":
        yield from _solved(record)
    if stage.method == "ppo":
        yield from _minibatches(record)
        yield from _corrected(record)
        yield from _idle_parts(record)
        yield from _wide(record)
        yield from _unreached(stage)
        yield from _needs(stage)
        yield from _monitored(stage)
        yield from _alike(record)
        yield from check_wordings(stage)


def _muon(record: Record) -> Iterator[Diagnostic]:
    """E0532: Muon beside adapters, or on the host."""
    optim = record.sub("optim")
    if optim is None or optim.data("algorithm") != "muon":
        return
    lora, where = record.fields.get("lora"), record.at("optim.on")
    reasons = []
    if record.sub("lora") is not None:
        reasons.append((lora, "`muon` updates whole matrices of the model, and `lora` trains none of them"))
    if where is not None and _word(where) == "host":
        reasons.append((where, "`muon` multiplies matrices at every step, which takes a GPU"))
    for slot, why in reasons:
        yield error(
            "E0532",
            why,
            place(slot, record.span),
            "not with `muon`",
            others=[Label(place(optim.fields.get("algorithm"), record.span), "`muon`")],
            help="write `optim { algorithm = adamw }`, with a learning rate for it, or take this out",
        )


def _foreign(case: Case, stage: StageCase, methods: frozenset[str]) -> Iterator[Diagnostic]:
    """E0506: settings of another method than the experiment's stages use."""
    # A method that is none has been reported.
    used = case.methods
    if used is None:
        return
    for name, slot in stage.record.fields.items():
        field = TRAINING.get(name)
        if field is None or not field.methods or slot.span is None or used & set(field.methods):
            continue
        yield error(
            "E0506",
            f"`{name}` is a setting of {' and '.join(field.methods)}, and this trains by {stage.method}",
            slot.span,
            "has no effect",
            others=[Label(place(stage.record.fields.get("method"), stage.record.span), f"`{stage.method}`")],
            help=_named(case.name, slot.span.path, name, field.methods, methods)
            if slot.span.path.startswith("--amend ")
            else _instead(name, field.methods[0], stage.method),
        )


def _named(case: str, path: str, name: str, methods: tuple[str, ...], used: frozenset[str]) -> str:
    """What to write for a change that reaches an experiment of another method: whose it is, or that it has none."""
    target, verb = path.split()[-1], "have" if len(methods) > 1 else "has"
    if target.split(".")[0] == case:
        return f"leave it out: `{case}` has no use for it, and only {' and '.join(methods)} {verb} `{name}`"
    if not used & set(methods):
        return f"leave it out: only {' and '.join(methods)} {verb} `{name}`, and nothing here trains by that"
    return f"name the experiments that it is for: `--amend NAME.{target}=…`"


def _instead(name: str, of: str, method: str) -> str:
    """What to write for a setting of another method: the block of this one that has such a setting, or its method."""
    for block, field in TRAINING.items():
        if isinstance(field.type, Block) and (not field.methods or method in field.methods):
            inner = KINDS[field.type.kind].fields
            if name in inner and (not inner[name].methods or method in inner[name].methods):
                return f"write `{block} {{ {name} = … }}`"
    return f"take it out: it is for training by {of}"


def _plateau(record: Record) -> Iterator[Diagnostic]:
    """W0518: two windows are compared, and the stage has fewer steps than those."""
    until, steps = record.sub("until"), record.fields.get("steps")
    watched = until.plateau if isinstance(until, Until) else until
    window = watched.fields.get("window") if watched is not None else None
    if window is None or steps is None:
        return
    width, most = amount(window.value), amount(steps.value)
    if width is None or most is None or 2 * width <= most:
        return
    yield finding_at(
        warning,
        "W0518",
        f"the plateau needs two windows of {width:g} steps, and the stage ends after {most:g}",
        [Label(place(window, record.span), f"{width:g} steps"), *set_here(steps, record)],
        f"write `window: {max(int(most) // 4, 1)} steps`, give the stage more steps, or leave the plateau out",
    )


def check_idle(case: Case) -> Iterator[Diagnostic]:
    """E0506: settings of training where a checkpoint is evaluated as it is."""
    if case.record.is_trained:
        return
    name = case.name
    for setting, slot in case.record.fields.items():
        if setting not in TRAINING or setting in WITHOUT_TRAINING or slot.span is None:
            continue
        yield error(
            "E0506",
            f"`{setting}` is a setting of training, and `{name}` is a checkpoint that is evaluated as it is",
            slot.span,
            "has no effect",
            help=f"take it out, or train from there: `{name} = ppo {{ base = checkpoint(…), … }}`",
        )
    for stage in case.record.stages[:1]:
        yield error(
            "E0506",
            f"stages are of training, and `{name}` is a checkpoint that is evaluated as it is",
            stage.span,
            "has no effect",
            help=f"take them out, or train from there: `{name} = ppo {{ base = checkpoint(…), … }}`",
        )


def _solved(record: Record) -> Iterator[Diagnostic]:
    """E0508: SFT trains on worked solutions, which every source of its data has to have."""
    data = record.sub("data")
    for source in records_of(data, "source"):
        columns = source.sub("columns")
        solved = source.get("traces") is not None or (
            columns is not None and columns.get("trace") is not None
        )
        task = source.sub("task")
        # What a function of the user's gives is known once it is run.
        solved = solved or (task is not None and task.kind in ("python", "programs"))
        if not solved:
            how = (
                "`traces: …`" if source.kind in ("generated", "package") else '`columns: columns(trace: "…")`'
            )
            labels = [
                Label(place(record.fields.get("data"), record.span), "trained on"),
                Label(source.span, "questions and answers alone"),
            ]
            helps = f"add {how} to the source"
            yield finding_at(
                error, "E0508", "SFT trains on worked solutions, and this data has none", labels, helps
            )


def _minibatches(record: Record) -> Iterator[Diagnostic]:
    """E0502: prompts x rollouts must fall into equal minibatches."""
    prompts, rollouts, parts = (
        record.at("batch.prompts"),
        record.at("batch.rollouts"),
        record.at("minibatches"),
    )
    if prompts is None or rollouts is None or parts is None:
        return
    a, b, c = amount(prompts.value), amount(rollouts.value), amount(parts.value)
    if a is None or b is None or c is None or (a * b) % c == 0:
        return
    below = max(d for d in range(1, int(c) + 1) if (a * b) % d == 0)
    yield error(
        "E0502",
        f"{a:g} prompts x {b:g} rollouts are {a * b:g} responses, which {c:g} minibatches do not divide",
        place(parts, record.span),
        f"{c:g} minibatches",
        others=[*set_here(prompts, record), *set_here(rollouts, record)],
        help=f"write `minibatches = {below}`, or change the batch",
    )


def _corrected(record: Record) -> Iterator[Diagnostic]:
    """E0516: weights of trainer over engine, on top of ratios that already divide by the engine."""
    cap, old = record.fields.get("importance_cap"), record.fields.get("old_logprobs")
    if cap is None or record.data("importance_cap") is None or record.data("old_logprobs") != "engine":
        return
    yield error(
        "E0516",
        "the difference between trainer and engine would be corrected twice",
        place(cap, record.span),
        "weighs tokens by trainer over engine",
        others=[Label(place(old, record.span), "ratios that divide by the engine's already")],
        help="write `old_logprobs = trainer`, or take `importance_cap` out",
    )


NEEDS = {
    "cap": ("clip = dual", "bounds the ratio of negative advantages where the clip is `dual` alone"),
    "estimator": ("kl = 1e-3", "estimates the divergence, whose weight `kl` is 0"),
    "entropy_share": ("entropy = 1e-3", "chooses tokens for the bonus, whose weight `entropy` is 0"),
}
"""What each of these settings of `loss` needs, and why."""


def _idle_parts(record: Record) -> Iterator[Diagnostic]:
    """E0521: parts of the loss that nothing reads."""
    loss = record.sub("loss")
    if loss is None:
        return
    there = {
        "cap": loss.data("clip") == "dual",
        "estimator": bool(record.data("kl")),
        "entropy_share": bool(record.data("entropy")),
    }
    for name, used in there.items():
        slot = loss.fields.get(name)
        if slot is None or slot.span is None or used:
            continue
        needed, why = NEEDS[name]
        where = f"`loss {{ {needed} }}`" if name == "cap" else f"`{needed}`"
        yield error(
            "E0521",
            f"`{name}` {why}",
            place(slot, record.span),
            "has no effect",
            help=f"take it out, or write {where}",
        )
    yield from _modeless(record, loss)
    ratio, clip = loss.fields.get("ratio"), loss.fields.get("clip")
    if loss.data("ratio") == "none" and loss.data("clip") != "none":
        yield error(
            "E0521",
            "there is no ratio, and the clip is of ratios",
            place(ratio, record.span),
            "no ratio",
            others=[Label(clip.span, f"`{_word(clip)}`")] if clip is not None and clip.span else [],
            help="write `loss { ratio = none, clip = none }`, or take `ratio` out",
        )
    if clip is None or loss.data("clip") != "none":
        return
    for name in ("low", "high"):
        slot = record.at(f"clip.{name}")
        # A recipe's bounds, on which an experiment builds, are not taken back.
        if slot is None or slot.span is None or clip.span is None or slot.span.path != clip.span.path:
            continue
        yield error(
            "E0521",
            f"`clip {{ {name} = … }}` is a bound, and the loss has no clip",
            place(slot, record.span),
            "has no effect",
            others=[Label(clip.span, "no clip")],
            help="take `clip { … }` out, or write `loss { clip = two_sided }`",
        )


def _modeless(record: Record, loss: Record) -> Iterator[Diagnostic]:
    """E0521: tokens of modes, where no wording begins a response, or all begin it alike."""
    slot = loss.fields.get("mode_tokens")
    if slot is None or _word(slot) == "rewarded":
        return
    prefixes = [wording.data("prefix") for wording in wordings_of(record.sub("rollout"))]
    shares = _word(slot) == "shares"
    if shares and len(prefixes) > 1 and all(prefixes) and len(set(prefixes)) == len(prefixes):
        return
    if not shares and any(prefixes):
        return
    helps = "write `rollout { wordings = [THINK, NO_THINK] }`, of wordings with a `prefix`"
    yield error(
        "E0521",
        "`mode_tokens = shares` compares modes, each opened by a wording's own `prefix`"
        if shares
        else "`mode_tokens` trains what wordings put before a response, and none has a `prefix`",
        place(slot, record.span),
        "has no modes" if shares else "has no effect",
        help=f"{helps}, or take it out",
    )


WIDE = 0.1
"""Bounds from here on are those of tokens: GSPO's, of whole responses, are 0.0003 and 0.0004."""


def _wide(record: Record) -> Iterator[Diagnostic]:
    """W0522: bounds as for ratios of tokens, around ratios of whole responses, which are never that far from 1."""
    loss = record.sub("loss")
    if loss is None or loss.data("ratio") != "sequence" or loss.data("clip") == "none":
        return
    if loss.data("mode_tokens") == "shares":
        return  # a mode's first token may be far from its share, and short responses with it
    for name in ("low", "high"):
        slot = record.at(f"clip.{name}")
        bound = amount(slot.value) if slot is not None else None
        # A low one of 1 says that there is none.
        if slot is None or bound is None or bound < WIDE or bound == 1:
            continue
        yield warning(
            "W0522",
            f"`clip.{name}` is {bound:g}, and a response's ratio is hardly ever that far from 1",
            place(slot, record.span),
            "so wide for tokens",
            others=[Label(place(loss.fields.get("ratio"), record.span), "a mean over the response's tokens")],
            help="write `clip { low = 3e-4, high = 4e-4 }`, the bounds of GSPO's paper",
        )
        return


def _unreached(stage: StageCase) -> Iterator[Diagnostic]:
    """W0523: a bound that no z-score over so few rollouts reaches.

    The largest of n z-scores is sqrt(n - 1), where one rollout differs from all others (Samuelson 1968), and the
    sample's deviation makes it (n - 1) / sqrt(n). Parts of a reward add up, and a batch's z-scores know no such limit.
    """
    record, reward = stage.record, stage.reward
    bound, rollouts = record.at("advantage.bound"), record.at("batch.rollouts")
    rule, std = record.at("advantage.normalise"), record.at("advantage.std")
    batch = record.at("advantage.batch")
    if reward is None or reward.parts or bound is None or rollouts is None:
        return
    if rule is None or std is None or batch is None or _word(rule) != "group" or batch.value.data is True:
        return
    cut, count = amount(bound.value), amount(rollouts.value)
    if cut is None or count is None or count < 2:
        return
    most = (count - 1) / math.sqrt(count) if _word(std) == "sample" else math.sqrt(count - 1)
    if cut < most:
        return
    yield warning(
        "W0523",
        f"no advantage reaches {cut:g}: of {count:g} rollouts the largest z-score is {most:.3g}",
        place(bound, record.span),
        "cuts nothing",
        others=set_here(rollouts, record),
        help=f"write a bound below {most:.3g}, or take it out",
    )


def _alike(record: Record) -> Iterator[Diagnostic]:
    """E0519: rollouts of a question that are all equal have equal rewards, and so advantages of 0.

    Wordings, taken in turn, make prompts that differ.
    """
    rule, rollout = record.at("advantage.normalise"), record.sub("rollout")
    if rollout is None or rule is None or _word(rule) == "none" or wordings_of(rollout):
        return
    why = {"temperature": (0, "greedy"), "top_k": (1, "one token is left to draw")}
    for name, (value, text) in why.items():
        slot = rollout.fields.get(name)
        if slot is None or slot.span is None or amount(slot.value) != value:
            continue
        labels = [Label(place(slot, record.span), text), *set_here(record.at("batch.rollouts"), record)]
        if rule.span is not None:
            labels.append(Label(place(rule, record.span), "compares the rollouts of a question"))
        yield finding_at(
            error,
            "E0519",
            "nothing would be learnt: the rollouts of a question are all equal, and so are all advantages 0",
            labels,
            "write `rollout { temperature = 1 }`"
            if name == "temperature"
            else "take `top_k` out: -1 keeps all tokens",
        )
        return


def _needs(stage: StageCase) -> Iterator[Diagnostic]:
    """E0309, E0504, E0505: group statistics need rollouts, forced answers a forcing, `ref` samples of the start."""
    record, reward = stage.record, stage.reward
    rollouts = record.at("batch.rollouts")
    if reward is None:
        return
    span = place(record.fields.get("reward"), record.span)
    one = rollouts is not None and amount(rollouts.value) == 1
    normalised = record.at("advantage.normalise")
    grouped = "group" in reward.uses
    if one and (
        grouped or (normalised is not None and record.data("method") and _word(normalised) != "none")
    ):
        why = (
            "its reward compares a question's responses"
            if grouped
            else "rewards are normalised over a question's responses"
        )
        yield error(
            "E0309",
            f"{why}, and there is one response a question",
            place(rollouts, record.span),
            "1 rollout",
            others=[Label(span, "this reward")] if grouped else [],
            help="write `rollouts = 8`" + ("" if grouped else ", or `advantage { normalise = none }`"),
        )
    if "forced" in reward.uses and record.sub("forcing") is None:
        yield error(
            "E0504",
            "the reward forces answers, and nothing says how",
            span,
            "forces answers",
            help="add `forcing = reo_forcing`, from `std.forcing`, or one of your own",
        )
    samples = record.at("reference_samples")
    if (
        "ref" not in reward.uses
        and samples is not None
        and samples.span is not None
        and amount(samples.value)
    ):
        yield warning(
            "W0520",
            "the starting model's responses are sampled, and the reward compares with none of them",
            place(samples, record.span),
            others=[Label(span, "has no `ref`")],
            help="take `reference_samples` out, or let the reward run over `ref`: `mean(len(z) for z in ref)`",
        )
    if "ref" in reward.uses and samples is not None and amount(samples.value) == 0:
        yield error(
            "E0505",
            "the reward compares with the starting model's responses, and none are sampled",
            span,
            "uses `ref`",
            help="add `reference_samples = 16`",
        )


def _monitored(stage: StageCase) -> Iterator[Diagnostic]:
    """E0530, W0531: tracks of a monitor set that is not there, and a monitor set that no track is of."""
    record, reward = stage.record, stage.reward
    slot = record.fields.get("monitor")
    if reward is None:
        return
    span = place(record.fields.get("reward"), record.span)
    monitor = record.sub("monitor")
    if "monitor" in reward.uses and monitor is None:
        yield error(
            "E0530",
            "the reward has a track of the monitor set, and there is none",
            span,
            "runs over `monitor`",
            help="add `monitor { questions = 64, samples = 8, every = 20 steps }`",
        )
    if "monitor" not in reward.uses and monitor is not None and slot is not None and slot.span is not None:
        yield warning(
            "W0531",
            "a monitor set is answered from time to time, and no track of the reward is of it",
            place(slot, record.span),
            others=[Label(span, "runs over no `monitor`")],
            help="take `monitor` out, or write a track: `track usual = mean(len(z) for z in monitor)`",
        )


def _word(slot: object) -> str:
    return str(plain(slot.value)) if isinstance(slot, Slot) else ""
