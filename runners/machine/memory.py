"""Explain that memory ran out, while generating or training: with numbers, and with what to change."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from reodsl.diagnostics import first_line, problem
from reodsl.price.machine import devices_of
from reodsl.price.memory import WHOLE, Recipe, Sizes, activation_bytes, from_config, state_bytes
from reodsl.price.show import memory

SAID = (
    "DefaultCPUAllocator",
    "could not create a memory",
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "std::bad_alloc",
)
"""Texts by which torch and the libraries below it report it."""


def exhausted(fault: BaseException) -> bool:
    """Return whether memory ran out: by torch's own error, Python's, or the words of the libraries below them."""
    return isinstance(fault, MemoryError | torch.OutOfMemoryError) or any(said in str(fault) for said in SAID)


def there_is(device: torch.device) -> str:
    """Return in words what memory the device has, or the machine where it is a processor."""
    if device.type != "cpu":
        free, total = torch.get_device_module(device).mem_get_info(device)
        return f"the device has {memory(total)}, of which {memory(free)} are free"
    return f"the machine has {memory(os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES'))}"


def _words(fault: BaseException) -> str:
    return first_line(fault, "no more memory")


@contextmanager
def explain_generation_oom(doing: str, device: str, cache_bytes: float) -> Iterator[None]:
    """Run a piece of generation, `doing` in words. Raises E0816 when memory runs out."""
    try:
        yield
    except (MemoryError, RuntimeError) as fault:
        if not exhausted(fault):
            raise
        notes = [_words(fault), f"caches of keys and values may have {memory(cache_bytes)}"]
        raise problem(
            "E0816",
            f"memory ran out while {doing}",
            where=device,
            notes=[*notes, there_is(torch.device(device))],
            help="shorten the longest response, see what else uses the device, or write `engine = sglang`",
        ) from fault


@contextmanager
def explain_training_oom(
    config: Any,
    device: torch.device,
    ids: Tensor | None,
    bound: int,
    doing: str = "in the optimizer's step",
    lengths: Sequence[int] = (),
    recipe: Recipe = WHOLE,
) -> Iterator[None]:
    """Run the passes of a micro-batch, `ids` [rows, width], or without one what `doing` says; `config` is the model's.

    Packed sequences are one row, and `lengths` theirs. `recipe` says what training keeps. Raises E0937 when memory runs
    out; nothing has been changed by then.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as fault:
        if not exhausted(fault):
            raise
        notes = [
            _words(fault),
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
            saving = ("`checkpointing = on`", *lines_that_save(device, recipe))
            advice = (
                f"write `microbatch = {smaller} tokens` or less, which is {bound} now"
                if count > 1
                else "a single sequence is too long: write "
                + ", ".join((*saving, "shorten `max_tokens`, or take more GPUs"))
            )
        raise problem("E0937", message, where=str(device), notes=notes, help=advice) from fault


def lines_that_save(device: torch.device, recipe: Recipe) -> list[str]:
    """Return the lines of a recipe that would make its state smaller."""
    if recipe.adapters is not None:
        return []
    lines = ["`lora { rank = 32 }`"]
    if device.type == "cpu":
        lines.append("`algorithm = muon`, which keeps one moment")
    elif not recipe.on_host:
        lines.append("`optim { on = host }`")
    return lines


def _numbers(sizes: Sizes | None, device: torch.device, ids: Tensor | None, recipe: Recipe) -> list[str]:
    """Return what the parts are expected to take, and what there is."""
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
