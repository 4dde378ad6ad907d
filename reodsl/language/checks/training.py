"""Check how a stage trains: its method, optimiser, batches, lag, data and model."""

from __future__ import annotations

from collections.abc import Iterator

from reodsl.diagnostics.model import Diagnostic, Label, error, warning
from reodsl.ir.kinds import KINDS
from reodsl.ir.model import THINK_CLOSE
from reodsl.ir.setting import Block
from reodsl.ir.training import TRAINING, warmup_steps
from reodsl.language.checks.cases import (
    LIBRARY_PATH,
    CheckedExperiment,
    CheckedStage,
    Settings,
    SettingView,
    case_check,
    finding_at,
    is_selective,
    list_wordings,
    ppo_check,
    stage_check,
)
from reodsl.language.resolve import WITHOUT_TRAINING
from reodsl.language.units import PLAIN, TOKENS, Quantity, write_quantity
from reodsl.language.values import Record, Until, list_records

BYTES_PER_PARAMETER = 2 + 4 + 4 + 8
"""bf16 weight and gradient in fp32, fp32 master weight and two moments."""
BYTES_ON_HOST, BYTES_WITH_ADAPTERS = 2 + 4 + 4, 2 + 4
"""The same with the moments on the host, and of weights that are not trained."""
CHARACTERS_PER_TOKEN = 3


@stage_check
def check_method_settings(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0521: settings of a method by which no stage of the experiment trains."""
    if case.methods is None:
        return  # A method that is none has been reported.
    for name, slot in stage.record.fields.items():
        field = TRAINING.get(name)
        if field is None or not field.methods or slot.span is None or case.methods & set(field.methods):
            continue
        yield error(
            "E0521",
            f"`{name}` is a setting of {' and '.join(field.methods)}, and this trains by {stage.method}",
            slot.span,
            "has no effect",
            labels=[stage["method"].label(f"`{stage.method}`")],
            help=_name_experiments(case, slot.span.path, name, field.methods)
            if slot.span.path.startswith("--amend ")
            else _suggest_block(name, field.methods[0], stage.method),
        )


def _name_experiments(case: CheckedExperiment, path: str, name: str, methods: tuple[str, ...]) -> str:
    """Return what to write for a change that reaches an experiment of another method."""
    target, verb = path.split()[-1], "have" if len(methods) > 1 else "has"
    if target.split(".")[0] == case.name:
        return (
            f"leave it out: `{case.name}` has no use for it, and only {' and '.join(methods)} {verb} `{name}`"
        )
    if not case.file_methods & set(methods):
        return f"leave it out: only {' and '.join(methods)} {verb} `{name}`, and nothing here trains by that"
    return f"name the experiments that it is for: `--amend NAME.{target}=…`"


def _suggest_block(name: str, of: str, method: str) -> str:
    """Return the help for a setting of another method: a block of this method with this setting, or a removal."""
    for block, field in TRAINING.items():
        if isinstance(field.type, Block) and (not field.methods or method in field.methods):
            inner = KINDS[field.type.kind].fields
            if name in inner and (not inner[name].methods or method in inner[name].methods):
                return f"write `{block} {{ {name} = … }}`"
    return f"take it out: it is for training by {of}"


@stage_check
def check_muon(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0507: Muon without a rule for parameters that are no matrices, with adapters, or on the host."""
    algorithm = stage["optim.algorithm"]
    if algorithm.text != "muon":
        return
    where = stage["optim.on"]
    if "optim.rest" not in stage:
        yield algorithm.error(
            "E0507",
            "`muon` updates matrices only, and nothing is said of the rest",
            "needs `rest`",
            help="add `rest { lr = 6e-3 }`: AdamW for embeddings, norms and biases",
        )
    reasons = []
    if stage.record.sub("lora") is not None:
        why = "`muon` updates whole matrices of the model, and `lora` trains none of them"
        reasons.append((stage["lora"], why))
    if where.text == "host":
        reasons.append((where, "`muon` multiplies matrices at every step, which takes a GPU"))
    helps = "write `optim { algorithm = adamw }`, with a learning rate for it and no `rest`, or take this out"
    for setting, why in reasons:
        yield setting.error("E0507", why, "not with `muon`", algorithm.label("`muon`"), help=helps)


@stage_check
def check_plateau(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report W0523: a plateau compares two windows of more steps than the stage has."""
    until = stage.record.sub("until")
    watched = until.plateau if isinstance(until, Until) else until
    if watched is None:
        return
    window = SettingView("window", watched.fields.get("window"), stage.record.span)
    steps = stage["steps"]
    width, most = window.number, steps.number
    if 2 * width > most:
        yield finding_at(
            warning,
            "W0523",
            f"the plateau needs two windows of {width:g} steps, and the stage ends after {most:g}",
            [window.label(f"{width:g} steps"), *steps.labels],
            f"write `window: {max(int(most) // 4, 1)} steps`, give the stage more steps, or leave the plateau out",
        )


@stage_check
def check_warmup(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report W0523: a warm-up that ends after the stage, or is shorter than a step."""
    warmup, steps = stage["optim.warmup"], stage["steps"]
    if not warmup.is_given or warmup.file.startswith(LIBRARY_PATH) or not warmup.number:
        return
    share = warmup.value.data.unit == PLAIN  # type: ignore[union-attr]
    rising = warmup_steps(float(warmup.number), int(steps.number)) if share else int(warmup.number)
    if rising and (rising < steps.number or rising == 1):
        return
    long = f"the learning rate rises for {rising} of {steps.number} steps, and is never at `lr` before the last one"
    none = f"{float(warmup.number):.3g} of {steps.number} steps, rounded down, is no step"
    yield warmup.warning(
        "W0523",
        long if rising else none,
        "as long as the stage" if rising == steps.number else "past its end" if rising else "no warm-up",
        *steps.labels,
        help=f"write `warmup = {max(1, int(steps.number) // 10)} steps`, or 0",
    )


@stage_check
def check_intervals(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report W0523: a monitor that is asked once, since its interval is as long as the stage."""
    steps, every = stage["steps"], stage["monitor.every"]
    if every.is_given and not every.file.startswith(LIBRARY_PATH) and every.number >= steps.number:
        yield every.warning(
            "W0523",
            f"the stage has {steps.number} steps: `monitor` is measured once, before the first step",
            "as long as the stage" if every.number == steps.number else "past its end",
            *steps.labels,
            help=f"write `every = {max(1, int(steps.number) // 10)} steps`, or 1 step",
        )


@case_check
def check_checkpoint_settings(case: CheckedExperiment) -> Iterator[Diagnostic]:
    """Report E0521: settings of training for a checkpoint that is only evaluated."""
    if case.record.is_trained:
        return
    helps = f"or train from there: `{case.name} = ppo {{ base = checkpoint(…), … }}`"
    reason = f"`{case.name}` is a checkpoint that is evaluated as it is"
    for setting, slot in case.record.fields.items():
        if setting in TRAINING and setting not in WITHOUT_TRAINING and slot.span is not None:
            words = f"`{setting}` is a setting of training, and {reason}"
            yield error("E0521", words, slot.span, "has no effect", help=f"take it out, {helps}")
    for stage in case.record.stages[:1]:
        words = f"stages are of training, and {reason}"
        yield error("E0521", words, stage.span, "has no effect", help=f"take them out, {helps}")


@case_check
def check_weights(case: CheckedExperiment) -> Iterator[Diagnostic]:
    """Report E0311: a training that starts from a model behind an address, whose weights are elsewhere."""
    model = case.model
    source = model.sub("source") if model is not None else None
    if model is None or source is None or source.kind != "served":
        return
    if case.is_repeated or not case.record.is_trained:
        return
    yield error(
        "E0311",
        f"`{case.name}` would train `{model.name}`, which is a model behind an address",
        Settings(case.record)["base"].span,
        "its weights are not here",
        labels=[Label(source.span, "served")],
        help=f"evaluate it, `arm served = checkpoint({model.name})`; train one whose source is `hub(…)` or `folder(…)`",
    )


@stage_check
def check_solutions(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0510: SFT on data with a source that has no worked solutions."""
    for source in list_records(stage.record.sub("data"), "source") if stage.method == "sft" else ():
        columns, task = source.sub("columns"), source.sub("task")
        # What a function of the user's gives is known once it is run.
        if (
            source.get("traces") is not None
            or (columns is not None and columns.get("trace") is not None)
            or (task is not None and task.kind == "python")
        ):
            continue
        how = "`traces: …`" if source.kind in ("generated", "package") else '`columns: columns(trace: "…")`'
        labels = [stage["data"].label("trained on"), Label(source.span, "questions and answers alone")]
        message = "SFT trains on worked solutions, and this data has none"
        yield finding_at(error, "E0510", message, labels, f"add {how} to the source")


@ppo_check
def check_minibatches(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0502: prompts x rollouts do not divide into equal minibatches."""
    prompts, rollouts, parts = stage["batch.prompts"], stage["batch.rollouts"], stage["minibatches"]
    a, b, c = prompts.number, rollouts.number, parts.number
    if (a * b) % c == 0:
        return
    below = max(d for d in range(1, int(c) + 1) if (a * b) % d == 0)
    yield parts.error(
        "E0502",
        f"{a:g} prompts x {b:g} rollouts are {a * b:g} responses, which {c:g} minibatches do not divide",
        f"{c:g} minibatches",
        *prompts.labels,
        *rollouts.labels,
        help=f"write `minibatches = {below}`, or change the batch",
    )


@ppo_check
def check_lag_helps(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report W0528: engines and trainers take turns on the same GPUs, so that a lag saves nothing."""
    cluster = case.cluster(stage.record)
    if not stage["lag"].number:
        return
    if stage.formula.uses & {"policy", "teacher"}:
        yield stage["lag"].warning(
            "W0528",
            "responses lag, and no time is saved: the trainers are asked about tokens before they learn",
            "computes what it would beside training",
            stage["reward"].label("asks models about tokens"),
            help="take `lag` out",
        )
        return
    if cluster is None:
        return
    alone = [cluster.data("nodes"), cluster.data("gpus_per_node")] == [1, 1]
    if cluster.data("placement") == "apart" and not alone:
        return
    yield stage["lag"].warning(
        "W0528",
        "responses lag, and no time is saved: on this cluster generation and training take turns on the same GPUs",
        "computes what it would on a cluster whose roles are apart",
        Label(cluster.span, "one GPU" if alone else "`placement = colocated`"),
        help="take `lag` out" if alone else "write `placement = apart` in the cluster, or take `lag` out",
    )


@stage_check
def check_sequence(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0501: traces or pairs may be longer than the model's context."""
    if stage.method == "ppo":
        return
    room, longest = case.context, stage["max_tokens"]
    if longest.number > room.number:
        labels = [*longest.labels, *room.labels]
        helps = f"lower `max_tokens` to {room.number} tokens, or take a model with a longer context"
        yield finding_at(error, "E0501", "a sequence is longer than the model's context", labels, helps)


@ppo_check
def check_context(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0501: a prompt, a response and a forced answer may be longer than the model's context."""
    room, prompt, response = case.context, stage["max_prompt"], stage["rollout.max_tokens"]
    forcing, forced = stage.record.sub("forcing"), 0
    if stage.reward is not None and stage.reward.uses & {"forced", "truth"} and forcing is not None:
        forced = _count_tokens(str(forcing.data("text")), case.model) + int(forcing.data("answer_tokens"))
    ending = (
        _count_tokens(stage["rollout.ending"].text or THINK_CLOSE, case.model)
        if "rollout.solution" in stage
        else 0
    )
    total = int(prompt.number) + int(response.number) + ending + forced
    over = total - room.number
    if over <= 0:
        return
    sizes = {"max_tokens": response.number, "max_prompt": prompt.number}
    lower = [f"`{name}`" for name, size in sizes.items() if size > over]
    helps = f"lower {' or '.join(lower)} by {over} tokens"
    if not lower:
        helps = f"lower both to {room.number - ending - forced} tokens together, or take a model with a longer context"
    parts = f"prompt {prompt.number} + response {response.number}"
    parts += f" + end of thinking {ending}" if ending else ""
    parts += f" + forced answer {forced}" if forced else ""
    message = f"{parts} are {total} tokens, past the model's context of {room.number}"
    yield finding_at(error, "E0501", message, [*response.labels, *prompt.labels, *room.labels], helps)


def _count_tokens(text: str, model: Record | None) -> int:
    """Return roughly how many tokens a text has: words for a word-level vocabulary, else a third of its length."""
    source = model.sub("source") if model is not None else None
    if source is not None and source.kind == "architecture":
        return len(text.split())
    return len(text) // CHARACTERS_PER_TOKEN


DEFAULT_WORDS = ("<pad>", "<eos>", "<unk>", "<think>", "</think>")
"""The words that a tokenizer has without naming them."""


@case_check
def check_vocabulary_of_texts(case: CheckedExperiment) -> Iterator[Diagnostic]:
    """Report E0815: a text that a model's own word list cannot write; tokenizers of files are read when a run begins."""
    source = case.model.sub("source") if case.model is not None else None
    tokenizer = source.sub("tokenizer") if source is not None and source.kind == "architecture" else None
    if case.model is None or tokenizer is None or tokenizer.data("words") is None:
        return
    vocabulary = {*tokenizer.data("words"), tokenizer.data("eos"), tokenizer.data("pad"), *DEFAULT_WORDS}
    texts = [
        (Settings(case.model)[f"think.{side}"], f"the model's `think.{side}`") for side in ("open", "close")
    ]
    forcings = (
        [Settings(case.suite)["forcing.text"]]
        if case.suite is not None and "grid" in Settings(case.suite)
        else []
    )
    for stage in case.stages:
        if stage.reward is not None and stage.reward.uses & {"forced", "truth"}:
            forcings.append(stage["forcing.text"])
        texts.append((stage["rollout.ending"], "the text that ends thinking"))
    texts += [(forcing, "the text that forces an answer") for forcing in forcings]
    for setting, noun in texts:
        lacking = next((word for word in setting.text.split() if word not in vocabulary), None)
        if lacking is not None:
            labels = [setting.label(f"has `{lacking}`"), Label(tokenizer.span, "has no such word")]
            message = f"the model's tokenizer cannot write `{lacking}`, which is in {noun}"
            helps = (
                f"add `{lacking}` to the words of `{tokenizer.name}`, or write the text in words that it has"
            )
            yield finding_at(error, "E0815", message, labels, helps)


@stage_check
def check_memory(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0606: a cluster that is too small for the weights and the optimizer's state."""
    cluster, model = case.cluster(case.record), case.model
    dimensions = model.sub("dimensions") if model is not None else None
    if cluster is None or model is None or dimensions is None:
        return
    gpus = cluster.data("nodes") * cluster.data("gpus_per_node")
    have, bytes_each = gpus * cluster.data("memory"), BYTES_PER_PARAMETER
    if stage.record.sub("lora") is not None:
        bytes_each = BYTES_WITH_ADAPTERS
    elif stage["optim.on"].text == "host":
        bytes_each = BYTES_ON_HOST
    need = dimensions.data("parameters") * bytes_each / 2**30
    if need > have:
        yield error(
            "E0606",
            f"training {model.name} keeps {need:.0f} GiB of weights and optimizer state, and the cluster has {have:.0f} GiB",
            SettingView("cluster", case.record.fields.get("cluster"), stage.record.span).span,
            f"{gpus} GPUs of {cluster.data('memory'):g} GiB",
            labels=[Label(model.span, f"{dimensions.data('parameters'):,} parameters x {bytes_each} bytes")],
            help="take more GPUs, or a smaller model"
            if bytes_each == BYTES_WITH_ADAPTERS
            else "take more GPUs, a smaller model, or train adapters beside it: `lora { rank = 32 }`",
        )


@stage_check
def check_phases(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0538: phases of thinking and solution that do not fit, or a reward of phases without phases."""
    pool = stage.pool
    if pool is not None:
        yield from _check_phases(Settings(pool), "", case.model)
    if stage.method != "ppo":
        return
    yield from _check_phases(stage, "rollout.", case.model)
    yield from _check_cuts(stage)
    if stage.reward is not None and "phases" in stage.reward.uses and "rollout.solution" not in stage:
        half = _write_half(stage["rollout.max_tokens"])
        yield stage["reward"].error(
            "E0538",
            "the reward pays a response's thinking or its solution apart, and the rollouts have no phases",
            "pays a phase",
            help=f"give the solution tokens of its own: `rollout {{ solution = {half} }}`",
        )


def _write_half(longest: SettingView) -> str:
    """Return half of the longest response, an example of a solution's length, as a spec writes it."""
    return write_quantity(Quantity(max(1, int(longest.number) // 2), TOKENS))


def _check_cuts(stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0538: responses that are cut without a solution, or that do not fill groups evenly."""
    shares, rollouts = stage["rollout.cut_at"], stage["batch.rollouts"]
    if not shares.is_given:
        return
    parts = 1 + len(stage.record.data("rollout.cut_at"))
    if "rollout.solution" not in stage:
        message, text = "a response that is cut goes on for `solution` tokens, and there are none", "goes on"
        helps = f"add `solution = {_write_half(stage['rollout.max_tokens'])}`"
        yield shares.error("E0538", message, text, help=helps)
    if rollouts.number % parts:
        most = parts * max(1, round(rollouts.number / parts))
        yield rollouts.error(
            "E0538",
            f"{rollouts.number} rollouts are not whole responses and each of them cut {parts - 1} time{'s' * (parts > 2)}",
            "does not come out even",
            shares.label("cut here"),
            help=f"write `rollouts = {most}`, or another multiple of {parts}",
        )
    wordings = list_wordings(stage.record.sub("rollout"))
    chosen = any(map(is_selective, wordings))
    turns = stage["rollout.wordings_per"].text == "rollout" and len(wordings) > 1 and not chosen
    if turns:
        yield stage["rollout.wordings"].error(
            "E0538",
            "a response that is cut goes on from a whole one of the same words",
            "gives it others",
            shares.label("cuts responses"),
            help="take `wordings` out, or `cut_at`",
        )


@case_check
def check_suite_phases(case: CheckedExperiment) -> Iterator[Diagnostic]:
    """Report E0538: phases of a suite that do not fit."""
    yield from _check_phases(case.evaluation, "", case.model)


def _check_phases(rule: Settings, prefix: str, model: Record | None) -> Iterator[Diagnostic]:
    """Report E0538 for the settings of sampling below `prefix` of a record."""
    solution, ending, most = (rule[prefix + name] for name in ("solution", "ending", "max_tokens"))
    if ending.text and not solution.slot:
        message = "`ending` ends the thinking that has used its tokens, and nothing bounds it"
        yield ending.error("E0538", message, "has no effect", help=f"add `solution = {_write_half(most)}`")
    if solution.slot is None:
        return
    mark = (model.data("think.close") if model is not None else None) or THINK_CLOSE
    if ending.text and mark not in ending.text:
        yield ending.error(
            "E0538",
            f"what ends the thinking has no `{mark}` in it, and the model would think on",
            f"no `{mark}`",
            help=f"write `{mark}` at its end",
        )
    if most.slot is not None and solution.number >= most.number:
        yield solution.error(
            "E0538",
            f"a solution of {solution.number} tokens leaves none of {most.number} for thinking",
            "as long as the response",
            *most.labels,
            help=f"write `solution = {_write_half(most)}`, or raise `max_tokens`: it counts thinking and solution together",
        )
