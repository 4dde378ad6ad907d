"""Check how a stage trains: its method, optimiser, batches, lag, data and model."""

from __future__ import annotations

from collections.abc import Iterator

from reodsl.diagnostics.model import Diagnostic, Label, error, plural, warning
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
"""Bytes on the GPU per parameter with the moments on the host, and per frozen parameter beside adapters."""
CHARACTERS_PER_TOKEN = 3
"""A low estimate for tokenizers that are not in the spec, so that a text is counted as too long rather than too short."""


@stage_check
def check_method_settings(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0521 for each setting that belongs to a training method which no stage of the experiment has.

    `case.methods` are the methods of all stages; None if one of them is invalid, which is reported elsewhere.
    """
    if case.methods is None:
        return  # An invalid method has its own finding.
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
    """Return the help for a command-line change (`--amend`) that also changes an experiment of another method.

    There are three cases: the user named this experiment; no experiment of the file has a method with the setting;
    or some have, which the user should name.

    Args:
        case: The experiment.
        path: What the user wrote, as `--amend TARGET`.
        name: The name of the setting.
        methods: The training methods that have this setting.
    """
    target, verb = path.split()[-1], "have" if len(methods) > 1 else "has"
    if target.split(".")[0] == case.name:
        return (
            f"leave it out: `{case.name}` does not use it, and only {' and '.join(methods)} {verb} `{name}`"
        )
    if not case.file_methods & set(methods):
        return f"leave it out: only {' and '.join(methods)} {verb} `{name}`, and no experiment here trains so"
    return f"name the experiments that it is for: `--amend NAME.{target}=…`"


def _suggest_block(name: str, setting_method: str, method: str) -> str:
    """Return the help for a setting of another training method.

    Args:
        name: The name of the setting.
        setting_method: A method that has the setting.
        method: The method of the stage. If one of its blocks has a setting of this name, the help names it.
    """
    for block, field in TRAINING.items():
        if isinstance(field.type, Block) and (not field.methods or method in field.methods):
            inner = KINDS[field.type.kind].fields
            if name in inner and (not inner[name].methods or method in inner[name].methods):
                return f"write `{block} {{ {name} = … }}`"
    return f"take it out: it is for training by {setting_method}"


@stage_check
def check_muon(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0507 for the optimizer Muon without settings for other parameters, with adapters, or on the host.

    Muon updates matrices only: `rest` sets the optimizer of embeddings, norms and biases.
    """
    algorithm = stage["optim.algorithm"]
    if algorithm.text != "muon":
        return
    device = stage["optim.on"]
    if "optim.rest" not in stage:
        yield algorithm.error(
            "E0507",
            "`muon` updates matrices only, and no optimizer is set for the other parameters",
            "needs `rest`",
            help="add `rest { lr = 6e-3 }`: AdamW for embeddings, norms and biases",
        )
    reasons = []
    if stage.record.sub("lora") is not None:
        reason = "`muon` updates the model's matrices, which `lora` leaves frozen"
        reasons.append((stage["lora"], reason))
    if device.text == "host":
        reasons.append((device, "`muon` multiplies matrices at every step, which takes a GPU"))
    hint = "write `optim { algorithm = adamw }`, with its learning rate and no `rest`, or take this out"
    for setting, reason in reasons:
        yield setting.error("E0507", reason, "not with `muon`", algorithm.label("`muon`"), help=hint)


@stage_check
def check_plateau(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report W0523 if the two windows of steps that a plateau compares are longer than the stage.

    A plateau (`until`) ends a stage early once a metric stops improving from one window to the next.
    """
    until = stage.record.sub("until")
    plateau = until.plateau if isinstance(until, Until) else until
    if plateau is None:
        return
    window = SettingView("window", plateau.fields.get("window"), stage.record.span)
    steps = stage["steps"]
    width, num_steps = window.number, steps.number
    if 2 * width > num_steps:
        shorter = f"write `window: {plural(max(int(num_steps) // 4, 1), 'step')}`, " if num_steps > 1 else ""
        yield finding_at(
            warning,
            "W0523",
            f"the plateau needs two windows of {width:g} steps, and the stage ends after {num_steps:g}",
            [window.label(f"{width:g} steps"), *steps.labels],
            f"{shorter}give the stage more steps, or leave the plateau out",
        )


@stage_check
def check_warmup(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report W0523 for a warm-up of the learning rate that is as long as the stage or longer, or shorter than a step.

    A warm-up of exactly one step, of 0, or of the library is not reported.
    """
    warmup, steps = stage["optim.warmup"], stage["steps"]
    if not warmup.is_given or warmup.file.startswith(LIBRARY_PATH) or not warmup.number:
        return
    is_share = warmup.value.data.unit == PLAIN  # type: ignore[union-attr]
    rising = warmup_steps(float(warmup.number), int(steps.number)) if is_share else int(warmup.number)
    if rising and (rising < steps.number or rising == 1):
        return
    too_long = f"the warm-up has {plural(rising, 'step')} and the stage {steps.number}, so it never ends"
    too_short = f"{float(warmup.number):.3g} of {steps.number} steps, rounded down, is no step"
    yield warmup.warning(
        "W0523",
        too_long if rising else too_short,
        "as long as the stage" if rising == steps.number else "past its end" if rising else "no warm-up",
        *steps.labels,
        help=f"write `warmup = {plural(max(1, int(steps.number) // 10), 'step')}`, or 0",
    )


@stage_check
def check_intervals(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report W0523 if a stage ends before its monitor measures again, its lag is reached or its learning rate falls."""
    steps, num_steps = stage["steps"], int(stage["steps"].number)
    tenth, most = plural(max(1, num_steps // 10), "step"), plural(num_steps - 1, "step")
    start_of_last = 1 - 1 / num_steps if stage["optim.decay"].text == "linear" else 2.0  # above all shares
    # Each setting with the least value that the stage ends before, and a value to write in a stage of so many steps.
    findings = (
        ("monitor.every", num_steps, "`monitor` is measured once, before the first step", tenth, 2),
        ("lag", num_steps, "its first weights sample all responses, as with less `lag`", most, 2),
        ("optim.decay_from", start_of_last, "the learning rate never falls", "50%", 3),
    )
    for path, too_late, reason, value, least in findings:
        setting, name = stage[path], path.rpartition(".")[2]
        if setting.is_given and not setting.file.startswith(LIBRARY_PATH) and setting.number >= too_late:
            yield setting.warning(
                "W0523",
                f"the stage has {plural(num_steps, 'step')}: {reason}",
                "as long as the stage" if setting.number == num_steps else "past its end",
                *steps.labels,
                help=f"write `{name} = {value}`" if num_steps >= least else f"take `{name}` out",
            )


@case_check
def check_checkpoint_settings(case: CheckedExperiment) -> Iterator[Diagnostic]:
    """Report E0521 for settings and stages of training in an arm whose checkpoint is only evaluated.

    Each setting is reported, and of the stages the first.
    """
    if case.record.is_trained:
        return
    hint = f"or train from the checkpoint: `{case.name} = ppo {{ base = checkpoint(…), … }}`"
    reason = f"`{case.name}` is a checkpoint that is only evaluated"
    for setting, slot in case.record.fields.items():
        if setting in TRAINING and setting not in WITHOUT_TRAINING and slot.span is not None:
            message = f"`{setting}` is a setting of training, and {reason}"
            yield error("E0521", message, slot.span, "has no effect", help=f"take it out, {hint}")
    for stage in case.record.stages[:1]:
        message = f"stages are for training, and {reason}"
        yield error("E0521", message, stage.span, "has no effect", help=f"take the stages out, {hint}")


@case_check
def check_weights(case: CheckedExperiment) -> Iterator[Diagnostic]:
    """Report E0311 if a training starts from a served model, whose weights the trainer does not have."""
    model = case.model
    source = model.sub("source") if model is not None else None
    is_checked = case.record.is_trained and not case.is_repeated
    if is_checked and model is not None and source is not None and source.kind == "served":
        yield error(
            "E0311",
            f"`{case.name}` would train `{model.name}`, which is a model behind an address",
            Settings(case.record)["base"].span,
            "needs weights",
            labels=[Label(source.span, "served")],
            help=f"evaluate it, `arm served = checkpoint({model.name})`, or train a model from `hub(…)` or `folder(…)`",
        )


@stage_check
def check_solutions(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0510 for SFT on a source of questions that has no worked solutions (`traces` or a trace column)."""
    for source in list_records(stage.record.sub("data"), "source") if stage.method == "sft" else ():
        columns, task = source.sub("columns"), source.sub("task")
        # A user's function may return solutions, which is known only when it runs.
        if (
            source.get("traces") is not None
            or (columns is not None and columns.get("trace") is not None)
            or (task is not None and task.kind == "python")
        ):
            continue
        item = "`traces: …`" if source.kind in ("generated", "package") else '`columns: columns(trace: "…")`'
        labels = [stage["data"].label("trained on"), Label(source.span, "has only questions and answers")]
        message = "SFT trains on worked solutions, and this data has none"
        yield finding_at(error, "E0510", message, labels, f"add {item} to the source")


@ppo_check
def check_minibatches(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0502 if the responses of a step, prompts times rollouts, do not divide into equal minibatches."""
    prompts, rollouts, minibatches = stage["batch.prompts"], stage["batch.rollouts"], stage["minibatches"]
    responses, count = prompts.number * rollouts.number, minibatches.number
    if responses % count == 0:
        return
    divisor = max(number for number in range(1, int(count) + 1) if responses % number == 0)
    yield minibatches.error(
        "E0502",
        f"{count:g} minibatches do not divide {prompts.number:g} prompts x {rollouts.number:g} rollouts evenly",
        f"{count:g} minibatches",
        *prompts.labels,
        *rollouts.labels,
        help=f"write `minibatches = {divisor}`, or change the batch",
    )


@ppo_check
def check_lag_helps(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report W0528 if a lag saves no time.

    With a lag, engines generate responses while trainers learn. This saves no time in two cases: engines and
    trainers take turns on the same GPUs, or the reward reads probabilities by models of the trainers, which then
    score the responses before they learn.
    """
    cluster = case.cluster(stage.record)
    if not stage["lag"].number:
        return
    if stage.formula.uses & {"policy", "teacher"}:
        yield stage["lag"].warning(
            "W0528",
            "`lag` saves no time: the trainers' models score the responses for the reward before the trainers learn",
            "only makes responses older",
            stage["reward"].label("reads models' probabilities"),
            help="take `lag` out",
        )
        return
    if cluster is None:
        return
    one_gpu = [cluster.data("nodes"), cluster.data("gpus_per_node")] == [1, 1]
    if cluster.data("placement") == "apart" and not one_gpu:
        return
    yield stage["lag"].warning(
        "W0528",
        "`lag` saves no time: on this cluster generation and training take turns on the same GPUs",
        "only makes responses older",
        Label(cluster.span, "one GPU" if one_gpu else "`placement = colocated`"),
        help="take `lag` out" if one_gpu else "write `placement = apart` in the cluster, or take `lag` out",
    )


@stage_check
def check_sequence(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0501 if a stage of SFT or preferences allows sequences that are longer than the model's context."""
    if stage.method == "ppo":
        return
    context, longest = case.context, stage["max_tokens"]
    if longest.number > context.number:
        labels = [*longest.labels, *context.labels]
        hint = f"lower `max_tokens` to {context.number} tokens, or take a model with a longer context"
        yield finding_at(error, "E0501", "a sequence is longer than the model's context", labels, hint)


@ppo_check
def check_context(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0501 if a prompt, a response, the end of thinking and a forced answer may exceed the model's context.

    All lengths are in tokens.
    """
    context, prompt, response = case.context, stage["max_prompt"], stage["rollout.max_tokens"]
    forcing, forced = stage.record.sub("forcing"), 0
    if stage.reward is not None and stage.reward.uses & {"forced", "truth"} and forcing is not None:
        forced = _count_tokens(str(forcing.data("text")), case.model) + int(forcing.data("answer_tokens"))
    ending = (
        _count_tokens(stage["rollout.ending"].text or THINK_CLOSE, case.model)
        if "rollout.solution" in stage
        else 0
    )
    total = int(prompt.number) + int(response.number) + ending + forced
    excess = total - context.number
    if excess <= 0:
        return
    sizes = {"max_tokens": response.number, "max_prompt": prompt.number}
    can_lower = [f"`{name}`" for name, size in sizes.items() if size > excess]
    hint = f"lower {' or '.join(can_lower)} by {excess} tokens"
    if not can_lower:
        hint = f"lower both to {total - ending - forced - excess} tokens together, or take a model with a longer context"
    terms = f"prompt {prompt.number} + response {response.number}"
    terms += f" + end of thinking {ending}" if ending else ""
    terms += f" + forced answer {forced}" if forced else ""
    message = f"{terms} are {total} tokens, past the model's context of {context.number}"
    yield finding_at(error, "E0501", message, [*response.labels, *prompt.labels, *context.labels], hint)


def _count_tokens(text: str, model: Record | None) -> int:
    """Return an estimate of how many tokens a text has.

    For a model with a word-level vocabulary this is the number of words, else a third of the characters.
    """
    source = model.sub("source") if model is not None else None
    if source is not None and source.kind == "architecture":
        return len(text.split())
    return len(text) // CHARACTERS_PER_TOKEN


DEFAULT_WORDS = ("<pad>", "<eos>", "<unk>", "<think>", "</think>")
"""The tokens that every word-level tokenizer has, even if the spec does not list them."""


@case_check
def check_vocabulary_of_texts(case: CheckedExperiment) -> Iterator[Diagnostic]:
    """Report E0815 for each text of a spec with a word that the model's word-level tokenizer lacks.

    The texts are the marks around the thinking, the text that ends a thinking which is too long, and the forcing
    texts that are used: by the suite's grid, and by rewards that force answers. Only a tokenizer that the spec
    lists word by word is checked here. A tokenizer in a file is checked when a run begins.
    """
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
            hint = f"add `{lacking}` to the words of `{tokenizer.name}`, or use only words that it has"
            yield finding_at(error, "E0815", message, labels, hint)


@stage_check
def check_memory(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0606 if the memory of a cluster's GPUs is too small for the state of training.

    The state is the weights and what the optimizer keeps on GPUs, as bytes for each parameter of the model. It
    is smaller with adapters (`lora`) and with an optimizer in the memory of the host. Nothing is reported without a
    cluster or without the model's number of parameters.
    """
    cluster, model = case.cluster(case.record), case.model
    dimensions = model.sub("dimensions") if model is not None else None
    if cluster is None or model is None or dimensions is None:
        return
    gpus = cluster.data("nodes") * cluster.data("gpus_per_node")
    available_gib, bytes_each = gpus * cluster.data("memory"), BYTES_PER_PARAMETER
    if stage.record.sub("lora") is not None:
        bytes_each = BYTES_WITH_ADAPTERS
    elif stage["optim.on"].text == "host":
        bytes_each = BYTES_ON_HOST
    needed_gib = dimensions.data("parameters") * bytes_each / 2**30
    if needed_gib > available_gib:
        yield error(
            "E0606",
            f"training {model.name} needs {needed_gib:.0f} GiB for its state, and the cluster has {available_gib:.0f} GiB",
            SettingView("cluster", case.record.fields.get("cluster"), stage.record.span).span,
            f"{gpus} GPUs of {cluster.data('memory'):g} GiB",
            labels=[Label(model.span, f"{dimensions.data('parameters'):,} parameters x {bytes_each} bytes")],
            help="take more GPUs, or a smaller model"
            if bytes_each == BYTES_WITH_ADAPTERS
            else "take more GPUs, a smaller model, or train adapters: `lora { rank = 32 }`",
        )


@stage_check
def check_phases(case: CheckedExperiment, stage: CheckedStage) -> Iterator[Diagnostic]:
    """Report E0538 for wrong settings of the two phases of a response, thinking and solution.

    This covers the sampling of the stage's pool, and for PPO its rollouts and cut rollouts. Also report E0538 if
    the reward pays for a phase and rollouts have no phases, because `rollout { solution }` is missing.
    """
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
            "the reward pays for a response's thinking or solution, and the rollouts have no phases",
            "pays for a phase",
            help=f"reserve tokens for the solution: `rollout {{ solution = {half} }}`",
        )


def _write_half(longest: SettingView) -> str:
    """Return half of the longest response's tokens as a spec writes it, to suggest a length of solutions."""
    return write_quantity(Quantity(max(1, int(longest.number) // 2), TOKENS))


def _check_cuts(stage: CheckedStage) -> Iterator[Diagnostic]:
    """Check `rollout { cut_at }`, by which each complete response is also cut at given shares of its tokens.

    A complete response and its cuts are 1 + (number of shares) rollouts, which is `variants` in the code. Report
    E0538 in these cases: there is no `solution`, the number of tokens by which a cut response continues; the
    number of rollouts is not a multiple of `variants`; or rollouts of a question alternate between wordings.
    """
    shares, rollouts = stage["rollout.cut_at"], stage["batch.rollouts"]
    if not shares.is_given:
        return
    variants = 1 + len(stage.record.data("rollout.cut_at"))
    if "rollout.solution" not in stage:
        message, text = "a cut response continues for `solution` tokens, which is not set", "continues"
        hint = f"add `solution = {_write_half(stage['rollout.max_tokens'])}`"
        yield shares.error("E0538", message, text, help=hint)
    if rollouts.number % variants:
        nearest = variants * max(1, round(rollouts.number / variants))
        yield rollouts.error(
            "E0538",
            f"{rollouts.number} rollouts are not complete responses with {variants - 1} cut{'s' * (variants > 2)} each",
            f"not a multiple of {variants}",
            shares.label("cut here"),
            help=f"write `rollouts = {nearest}`, or another multiple of {variants}",
        )
    wordings = list_wordings(stage.record.sub("rollout"))
    chosen_by_question = any(map(is_selective, wordings))
    per_rollout = stage["rollout.wordings_per"].text == "rollout" and len(wordings) > 1
    if per_rollout and not chosen_by_question:
        yield stage["rollout.wordings"].error(
            "E0538",
            "a cut response continues a complete response of the same wording, and here wordings alternate",
            "alternates wordings",
            shares.label("cuts responses"),
            help="take `wordings` out, or `cut_at`",
        )


@case_check
def check_suite_phases(case: CheckedExperiment) -> Iterator[Diagnostic]:
    """Report E0538 for wrong settings of thinking and solution in an experiment's suite."""
    yield from _check_phases(case.evaluation, "", case.model)


def _check_phases(settings: Settings, prefix: str, model: Record | None) -> Iterator[Diagnostic]:
    """Report E0538 for settings of sampling whose phases contradict each other.

    `solution` reserves tokens at the end of `max_tokens`; `ending` is the text that then ends the thinking.

    Args:
        settings: The stage, suite or pool with the settings.
        prefix: The path of the block that has the settings, such as `rollout.`; empty for the record itself.
        model: The model that is sampled, whose mark `think.close` the ending needs.
    """
    solution, ending, longest = (settings[prefix + name] for name in ("solution", "ending", "max_tokens"))
    if ending.text and not solution.slot:
        message = "`ending` ends a thinking that is too long, and no `solution` limits the thinking"
        yield ending.error("E0538", message, "has no effect", help=f"add `solution = {_write_half(longest)}`")
    if solution.slot is None:
        return
    mark = (model.data("think.close") if model is not None else None) or THINK_CLOSE
    if ending.text and mark not in ending.text:
        yield ending.error(
            "E0538",
            f"the text that ends the thinking has no `{mark}`, so the model would go on thinking",
            f"no `{mark}`",
            help=f"write `{mark}` at the end of the text",
        )
    if longest.slot is not None and solution.number >= longest.number:
        yield solution.error(
            "E0538",
            f"a solution of {solution.number} tokens leaves none of {longest.number} for thinking",
            "as long as the response",
            *longest.labels,
            help=f"write `solution = {_write_half(longest)}`, or raise `max_tokens`, which counts thinking and solution",
        )
