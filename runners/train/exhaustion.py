"""Diagnose running out of memory while training, with numbers and what to change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from reodsl.diagnostics import problem
from reodsl.price.machine import devices_of
from reodsl.price.memory import WHOLE, Recipe, activation_bytes, state_bytes
from reodsl.price.show import memory
from reodsl.price.sizes import Sizes, from_config
from runners.exhaustion import exhausted, said, there_is


@contextmanager
def room(
    config: Any,
    device: torch.device,
    ids: Tensor | None,
    bound: int,
    doing: str = "in the optimizer's step",
    lengths: Sequence[int] = (),
    recipe: Recipe = WHOLE,
) -> Iterator[None]:
    """Runs the passes of a micro-batch, `ids` [rows, width], or without one what `doing` says; `config` is the model's.
    Packed sequences are one row, and `lengths` theirs. `recipe` says what training keeps.

    Raises E0937 when memory runs out; nothing has been changed by then.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as fault:
        if not exhausted(fault):
            raise
        notes = [
            said(fault),
            *_numbers(from_config(config.to_dict()), device, ids, recipe),
            "the last saved step is kept, and nothing of this one",
        ]
        if ids is None:
            message = f"memory ran out {doing}"
            options = (*lines_that_save(device, recipe), "take more GPUs in `cluster`, or a smaller model")
            advice = ("write " if len(options) > 1 else "") + ", ".join(options)
        else:
            rows, width = ids.shape
            count, longest = (len(lengths), max(lengths)) if lengths else (rows, width)
            shape = f"{count} packed sequences, {width}" if lengths else f"{rows} x {width}"
            message = f"memory ran out on a micro-batch of {shape} tokens"
            smaller = max(longest + 1, min(bound, rows * width) // 2)
            advice = (
                f"write `microbatch = {smaller} tokens` or less, which is {bound} now"
                if count > 1
                else "a single sequence is too long: write "
                + ", ".join(
                    (
                        "`checkpointing = on`",
                        *lines_that_save(device, recipe),
                        "shorten `max_tokens`, or take more GPUs",
                    )
                )
            )
        raise problem("E0937", message, where=str(device), notes=notes, help=advice) from fault


def lines_that_save(device: torch.device, recipe: Recipe) -> list[str]:
    """The lines of a recipe that would make its state smaller."""
    lines = []
    if recipe.adapters is None:
        lines.append("`lora { rank = 32 }`")
        if device.type != "cpu" and not recipe.on_host:
            lines.append("`optim { on = host }`")
        elif device.type == "cpu":
            lines.append("`algorithm = muon`, which keeps one moment")
    return lines


def _numbers(sizes: Sizes | None, device: torch.device, ids: Tensor | None, recipe: Recipe) -> list[str]:
    """What the parts are expected to take, and what there is."""
    notes = [there_is(device)]
    here = devices_of(None)
    if sizes is None or here is None:
        return notes
    if ids is not None:
        tokens = ids.numel()
        plain = activation_bytes(sizes, replace(here, microbatch=tokens), tokens)
        little = activation_bytes(sizes, replace(here, microbatch=tokens, recompute=True), tokens)
        notes.append(
            f"{tokens} tokens keep about {memory(plain)} in float32, {memory(little)} with `checkpointing = on`,"
            " half of that in bfloat16"
        )
    notes.append(
        f"weights, gradients and moments are {memory(state_bytes(sizes, here, recipe))}, over all devices together"
    )
    return notes
