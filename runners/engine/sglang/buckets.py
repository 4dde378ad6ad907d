"""Put weights into flat buckets, so that a few large pieces travel to servers and not hundreds of small ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

State = Mapping[str, torch.Tensor]

SIZE = 1 << 29
"""Bytes of weights that are on their way at once. A single larger tensor is a bucket of its own."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Some tensors of a model, as views of `flat`, a tensor of bytes in which one follows the other."""

    flat: torch.Tensor
    tensors: tuple[tuple[str, torch.Tensor], ...]


def buckets(state: State, size: int = SIZE) -> Iterator[Bucket]:
    """The tensors of a state dict in their order, copied into buckets of at most `size` bytes each.

    The copy is made on the tensors' own device, bucket by bucket, so that nobody who reads a bucket sees the trainer's own
    memory. Tensors of one width follow each other; a bucket never mixes widths, so each view is aligned.
    """
    for part in parts(state, size):
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


def parts(state: State, size: int = SIZE) -> Iterator[list[tuple[str, torch.Tensor]]]:
    """The tensors in their order, as many at a time as `size` bytes hold.

    A head that is tied to the embeddings before it is left out, as in files of weights.
    """
    part: list[tuple[str, torch.Tensor]] = []
    held = 0
    seen: set[tuple[int, tuple[int, ...]]] = set()
    for name, tensor in state.items():
        mark = (tensor.data_ptr(), tuple(tensor.shape))
        if mark in seen and name.startswith("lm_head"):
            continue
        seen.add(mark)
        bytes_ = tensor.numel() * tensor.element_size()
        if part and (held + bytes_ > size or tensor.element_size() != part[0][1].element_size()):
            yield part
            part, held = [], 0
        part.append((name, tensor))
        held += bytes_
    if part:
        yield part
