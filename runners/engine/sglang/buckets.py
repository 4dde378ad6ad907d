"""Put weights into flat buckets, so that a few large pieces travel to servers and not hundreds of small ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch

from reodsl.price.memory import HANDED

State = Mapping[str, torch.Tensor]

SIZE = HANDED // 2
"""Bytes of weights that are on their way at once. A single larger tensor is a bucket of its own."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Some tensors of a model, as views of `flat`, a tensor of bytes in which one follows the other."""

    flat: torch.Tensor
    tensors: tuple[tuple[str, torch.Tensor], ...]


def buckets(tensors: Iterable[tuple[str, torch.Tensor]], size: int = SIZE) -> Iterator[Bucket]:
    """Yield named tensors in their order, copied into buckets of at most `size` bytes each.

    The copy is made on the tensors' own device, bucket by bucket, so that nobody who reads a bucket sees the trainer's own
    memory. Tensors of one width follow each other; a bucket never mixes widths, so each view is aligned.
    """
    for part in parts(tensors, size):
        whole = sum(tensor.numel() * tensor.element_size() for _, tensor in part)
        flat = torch.empty(whole, dtype=torch.uint8, device=part[0][1].device)
        views: list[tuple[str, torch.Tensor]] = []
        at = 0
        for name, tensor in part:
            end = at + tensor.numel() * tensor.element_size()
            view = flat[at:end].view(tensor.dtype).view(tensor.shape)
            view.copy_(tensor.detach())
            views.append((name, view))
            at = end
        yield Bucket(flat, tuple(views))


def parts(
    tensors: Iterable[tuple[str, torch.Tensor]], size: int = SIZE
) -> Iterator[list[tuple[str, torch.Tensor]]]:
    """Yield named tensors in their order, as many at a time as `size` bytes hold."""
    part: list[tuple[str, torch.Tensor]] = []
    filled = 0
    for name, tensor in tensors:
        bytes_ = tensor.numel() * tensor.element_size()
        if part and (filled + bytes_ > size or tensor.element_size() != part[0][1].element_size()):
            yield part
            part, filled = [], 0
        part.append((name, tensor))
        filled += bytes_
    if part:
        yield part


def untied(state: State) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a state dict without a head that is tied to the embeddings before it, as in files of weights."""
    seen: set[tuple[int, tuple[int, ...]]] = set()
    for name, tensor in state.items():
        mark = (tensor.data_ptr(), tuple(tensor.shape))
        if not (mark in seen and name.startswith("lm_head")):
            yield name, tensor
        seen.add(mark)
