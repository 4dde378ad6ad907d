"""Explain that memory ran out while generating or training: with the memory that is needed, and what to change."""

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
    """Return whether an exception means that memory ran out, by its class, or by texts of libraries in its message."""
    return isinstance(fault, MemoryError | torch.OutOfMemoryError) or any(
        text in str(fault) for text in OOM_TEXTS
    )


def describe_memory(device: torch.device) -> str:
    """Return a sentence on the total and free memory of a GPU, or on the total memory of the machine for a CPU."""
    if device.type != "cpu":
        free, total = torch.get_device_module(device).mem_get_info(device)
        return f"the device has {memory(total)}, of which {memory(free)} are free"
    return f"the machine has {memory(os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES'))}"


Explanation = tuple[str, Sequence[str], str]
"""(words for the activity, such as `while training`; notes on the memory that it needs; advice)."""


@contextmanager
def explain_oom(device: torch.device, explain: Callable[[], Explanation]) -> Iterator[None]:
    """Turn an error for lack of memory in the `with` block into E0937 with an explanation; pass other errors on.

    Args:
        device: Device of the work.
        explain: Function that returns the explanation, called only after such an error.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as fault:
        if not is_out_of_memory(fault):
            raise
        activity, notes, help = explain()
        raise problem(
            "E0937",
            f"memory ran out {activity}",
            where=str(device),
            notes=[first_line(fault, "no more memory"), describe_memory(device), *notes],
            help=help,
        ) from fault


def explain_training(
    sizes: Sizes | None,
    device: torch.device,
    activity: str,
    recipe: Recipe = ALL_WEIGHTS,
    rows: int = 0,
    tokens: int = 0,
    microbatch_tokens: int = 0,
) -> Explanation:
    """Return an explanation for a training that ran out of memory: how much it needs, and what to change in the spec.

    The advice is a smaller `microbatch` if the micro-batch had several rows. Otherwise it is settings that save memory,
    more GPUs, and shorter responses or a smaller model.

    Args:
        sizes: Sizes of the model; None if they are not known.
        device: Device of the training.
        activity: Words for what ran out of memory, such as `while training`.
        recipe: Which weights and moments the training keeps.
        rows: Rows of the micro-batch; 0 if no micro-batch was processed.
        tokens: Tokens of the micro-batch, padding included; 0 if they are not known.
        microbatch_tokens: Present limit `microbatch`, in tokens.
    """
    notes = ["the last saved step is kept; this step is lost"]
    if sizes is not None and (devices := devices_of(None)) is not None:
        state = memory(state_bytes(sizes, devices, recipe))
        notes.insert(0, f"weights, gradients and moments are {state}, over all devices together")
        if tokens:
            stored, recomputed = (
                memory(
                    activation_bytes(sizes, replace(devices, microbatch=tokens, recompute=recompute), tokens)
                )
                for recompute in (False, True)
            )
            activations = (
                f"{tokens} tokens need about {stored} in float32, {recomputed} with `checkpointing = on`"
            )
            notes.insert(0, f"{activations}, half of that in bfloat16")
    if rows > 1:
        return (
            activity,
            notes,
            f"write `microbatch = {min(microbatch_tokens, tokens) // 2} tokens` or less, which is {microbatch_tokens} now",
        )
    changes = ["`checkpointing = on`, which recomputes activations"] if rows else []
    if recipe.adapters is None:
        changes.append("`lora { rank = 32 }`")
        if device.type == "cpu":
            changes.append("`algorithm = muon`, which keeps one moment")
        elif not recipe.on_host:
            changes.append("`optim { on = host }`")
    return (
        activity,
        notes,
        f"write {', '.join(changes)}, " * bool(changes)
        + "take more GPUs in `cluster`, or "
        + ("shorten `max_tokens`" if rows else "take a smaller model"),
    )
