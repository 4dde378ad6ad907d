"""Explain that memory ran out, while generating or training: with numbers, and with what to change."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from reodsl.diagnostics import first_line, problem
from reodsl.price.machine import devices_of
from reodsl.price.memory import ALL_WEIGHTS, Recipe, Sizes, activation_bytes, state_bytes
from reodsl.price.show import memory

OOM_TEXTS = (
    "DefaultCPUAllocator",
    "could not create a memory",
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "std::bad_alloc",
)
"""Texts by which torch and the libraries below it report a lack of memory."""


def is_out_of_memory(fault: BaseException) -> bool:
    """Return whether memory ran out: by torch's own error, Python's, or the words of the libraries below them."""
    return isinstance(fault, MemoryError | torch.OutOfMemoryError) or any(
        text in str(fault) for text in OOM_TEXTS
    )


def describe_memory(device: torch.device) -> str:
    """Return in words the memory of the device, or of the machine for a CPU."""
    if device.type != "cpu":
        free, total = torch.get_device_module(device).mem_get_info(device)
        return f"the device has {memory(total)}, of which {memory(free)} are free"
    return f"the machine has {memory(os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES'))}"


Explanation = tuple[str, Sequence[str], str]
"""Words for what was being done, notes on the memory it takes, and advice."""


@contextmanager
def explain_oom(device: torch.device, explain: Callable[[], Explanation]) -> Iterator[None]:
    """Run the block, and raise E0937 with the explanation when memory runs out in it."""
    try:
        yield
    except (MemoryError, RuntimeError) as fault:
        if not is_out_of_memory(fault):
            raise
        doing, notes, help = explain()
        raise problem(
            "E0937",
            f"memory ran out {doing}",
            where=str(device),
            notes=[first_line(fault, "no more memory"), describe_memory(device), *notes],
            help=help,
        ) from fault


def explain_training(
    sizes: Sizes | None,
    device: torch.device,
    doing: str,
    recipe: Recipe = ALL_WEIGHTS,
    rows: int = 0,
    tokens: int = 0,
    bound: int = 0,
) -> Explanation:
    """Explain the memory of a model and its training, and of a micro-batch of `rows` and `tokens`, padding included."""
    notes = ["the last saved step is kept, and nothing of this one"]
    if sizes is not None and (devices := devices_of(None)) is not None:
        state = memory(state_bytes(sizes, devices, recipe))
        notes.insert(0, f"weights, gradients and moments are {state}, over all devices together")
        if tokens:
            plain, little = (
                memory(
                    activation_bytes(sizes, replace(devices, microbatch=tokens, recompute=recompute), tokens)
                )
                for recompute in (False, True)
            )
            activations = f"{tokens} tokens keep about {plain} in float32, {little} with `checkpointing = on`"
            notes.insert(0, f"{activations}, half of that in bfloat16")
    if rows > 1:
        return (
            doing,
            notes,
            f"write `microbatch = {min(bound, tokens) // 2} tokens` or less, which is {bound} now",
        )
    lines = ["`checkpointing = on`, which computes again in place of keeping"] if rows else []
    if recipe.adapters is None:
        lines.append("`lora { rank = 32 }`")
        if device.type == "cpu":
            lines.append("`algorithm = muon`, which keeps one moment")
        elif not recipe.on_host:
            lines.append("`optim { on = host }`")
    return (
        doing,
        notes,
        f"write {', '.join(lines)}, " * bool(lines)
        + "take more GPUs in `cluster`, or "
        + ("shorten `max_tokens`" if rows else "take a smaller model"),
    )
