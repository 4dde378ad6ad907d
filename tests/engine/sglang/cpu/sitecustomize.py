"""What SGLang lacks without a GPU, in each process of a server: operators of torchvision, seeds on torch attention.

`tests/conftest.py` puts this folder on the import path of servers that tests start.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

KEPT: list[Any] = []


def define_operators() -> None:
    """torchvision's own library does not load beside a CPU build of torch, and registers shapes for these anyhow."""
    import torch

    operators = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    KEPT.append(operators)


def allow_torch_attention(choices: Any) -> None:
    choices.add_deterministic_attention_backend_choices(["torch_native"])
    choices.add_radix_supported_deterministic_attention_backend_choices(["torch_native"])


def replace_nothing(invariant: Any) -> None:
    """The operators to replace are Triton's; on one thread torch's do not depend on the batch."""

    def already_invariant(*_: object, **__: object) -> None:
        """Nothing is to do."""

    invariant.enable_batch_invariant_mode = already_invariant
    invariant.batch_invariant_ops.enable_batch_invariant_mode = already_invariant


BEFORE: dict[str, Callable[[], None]] = {"torchvision": define_operators}
AFTER: dict[str, Callable[[Any], None]] = {
    "sglang.srt.arg_groups.choices": allow_torch_attention,
    "sglang.srt.batch_invariant_ops": replace_nothing,
}


class Suited(importlib.abc.MetaPathFinder):
    """Calls what is to be done before or after a module is first imported."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name in BEFORE:
            BEFORE.pop(name)()
        if name not in AFTER:
            return None
        after, spec = AFTER.pop(name), importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        loader: Any = spec.loader
        load = loader.exec_module

        def exec_module(module: Any) -> None:
            load(module)
            after(module)

        loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Suited())
