"""Models: sequences that fit the context, and state that fits the cluster."""

from __future__ import annotations

from collections.abc import Iterator

from reodsl.diagnostics.model import Diagnostic, Label, error
from reodsl.language.checks.cases import Case, StageCase, amount, finding_at, place, set_here
from reodsl.language.values import Record, plain

BYTES_PER_PARAMETER = 2 + 4 + 4 + 8
"""bf16 weight and gradient in fp32, fp32 master weight and two moments."""
ON_HOST, BESIDE_ADAPTERS = 2 + 4 + 4, 2 + 4
"""The same with the moments on the host, and of weights that are not trained."""
CHARACTERS_PER_TOKEN = 3


def check_models(case: Case, stage: StageCase) -> Iterator[Diagnostic]:
    """E0501 for a context that is too small, E0606 for a cluster that is."""
    model = case.model
    if model is None:
        return
    yield from _context(stage, model)
    yield from _memory(case, stage, model)


def _context(stage: StageCase, model: Record) -> Iterator[Diagnostic]:
    record = stage.record
    context = model.fields.get("context")
    room = model.data("context")
    if room is None:
        return
    if stage.method != "ppo":
        longest = record.fields.get("max_tokens")
        if longest is not None and (amount(longest.value) or 0) > room:
            labels = [*set_here(longest, record), *set_here(context, model)]
            helps = f"lower `max_tokens` to {room} tokens, or take a model with a longer context"
            yield finding_at(error, "E0501", "a sequence is longer than the model's context", labels, helps)
        return
    prompt, response = record.fields.get("max_prompt"), record.at("rollout.max_tokens")
    if prompt is None or response is None:
        return
    forced = 0
    forcing = record.sub("forcing")
    if stage.reward is not None and "forced" in stage.reward.uses and forcing is not None:
        forced = forcing_tokens(forcing, model) + int(forcing.data("answer_tokens"))
    total = int(amount(prompt.value) or 0) + int(amount(response.value) or 0) + forced
    if total > room:
        parts = f"prompt {amount(prompt.value)} + response {amount(response.value)}"
        parts += f" + forced answer {forced}" if forced else ""
        labels = [*set_here(response, record), *set_here(prompt, record), *set_here(context, model)]
        over = total - room
        sizes = {"max_tokens": int(amount(response.value) or 0), "max_prompt": int(amount(prompt.value) or 0)}
        lower = [f"`{name}`" for name, size in sizes.items() if size > over]
        helps = (
            f"lower {' or '.join(lower)} by {over} tokens"
            if lower
            else f"lower both to {room - forced} tokens together, or take a model with a longer context"
        )
        yield finding_at(
            error, "E0501", f"{parts} are {total} tokens, past the model's context of {room}", labels, helps
        )


def forcing_tokens(forcing: Record, model: Record) -> int:
    """About how many tokens a forcing text is: its words for a word-level vocabulary, else a third of its letters."""
    source = model.sub("source")
    text = str(forcing.data("text"))
    return (
        len(text.split())
        if source is not None and source.kind == "architecture"
        else len(text) // CHARACTERS_PER_TOKEN
    )


def _memory(case: Case, stage: StageCase, model: Record) -> Iterator[Diagnostic]:
    cluster = case.record.sub("cluster") or (case.study.sub("cluster") if case.study is not None else None)
    dimensions = model.sub("dimensions")
    if cluster is None or dimensions is None:
        return
    gpus = cluster.data("nodes") * cluster.data("gpus_per_node")
    have = gpus * cluster.data("memory")
    record = stage.record
    on, each = record.at("optim.on"), BYTES_PER_PARAMETER
    if record.sub("lora") is not None:
        each = BESIDE_ADAPTERS
    elif on is not None and plain(on.value) == "host":
        each = ON_HOST
    need = dimensions.data("parameters") * each / 2**30
    if need > have:
        yield error(
            "E0606",
            f"training {model.name} keeps {need:.0f} GiB of weights and optimizer state, and the cluster has {have:.0f} GiB",
            place(case.record.fields.get("cluster"), stage.record.span),
            f"{gpus} GPUs of {cluster.data('memory'):g} GiB",
            others=[Label(model.span, f"{dimensions.data('parameters'):,} parameters x {each} bytes")],
            help="take more GPUs, or a smaller model"
            if each == BESIDE_ADAPTERS
            else "take more GPUs, a smaller model, or train adapters beside it: `lora { rank = 32 }`",
        )
