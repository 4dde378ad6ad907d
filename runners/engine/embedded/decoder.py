"""A decoder's forward pass over flat tokens and positions; the caller's `attend` says which tokens see each other.

One pass serves prefill, decoding and forced branches: they differ in the attention alone. The arithmetic is that of
transformers' Qwen3 and Llama models.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch.nn import functional

from runners.engine.embedded.shape import Shape
from runners.engine.embedded.weights import Weights
from runners.rows import filled


class Attend(Protocol):
    """Attention of one layer: takes the keys and values of the new tokens in, and answers the queries."""

    def __call__(
        self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """Queries [n, heads, head_dim], keys and values [n, kv_heads, head_dim]; returns [n, heads × head_dim]."""
        ...


class Decoder:
    """A model ready to run: its shape, its weights and a table of rotary angles."""

    def __init__(self, shape: Shape, weights: Weights) -> None:
        self.shape = shape
        self.weights = weights
        self.device = weights.embedding.device
        self.like = torch.empty(0, device=self.device, dtype=weights.products)
        self._cos = torch.empty(0, shape.head_dim, device=self.device)
        self._sin = self._cos

    def cover(self, positions: int) -> None:
        """Makes the rotary table reach `positions` rows; growing it changes no row."""
        if positions <= self._cos.shape[0]:
            return
        rows = max(positions, 2 * self._cos.shape[0], 256)
        angles = torch.outer(torch.arange(rows, dtype=torch.float32), self.shape.inverse_frequencies)
        cos, sin = angles.cos() * self.shape.rope_factor, angles.sin() * self.shape.rope_factor
        # The sine carries the sign of the rotated half, so that a rotation is y·cos + swap(y)·sin.
        self._cos = torch.cat((cos, cos), -1).to(self.device)
        self._sin = torch.cat((-sin, sin), -1).to(self.device)

    def run(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        attend: Attend,
        wanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Logits [n, vocab] of flat tokens [n] at positions [n]; with `wanted`, of those rows only.

        Every token's keys and values reach `attend`, wanted or not; rows that `filled` adds do not. What is multiplied
        has the weights' `products` as its type; the residual stream, norms, rotations and logits are float32.
        """
        shape, weights, products = self.shape, self.weights, self.weights.products
        count = len(tokens)
        tokens, positions = filled(tokens), filled(positions)
        cos, sin = self._cos[positions].unsqueeze(1), self._sin[positions].unsqueeze(1)
        rotated = shape.heads + shape.kv_heads
        size, width = (shape.hidden,), shape.head_dim
        x = weights.embedding[tokens]
        for index, layer in enumerate(weights.layers):
            rows = functional.rms_norm(x, size, layer.attention_norm, shape.norm_eps).to(products)
            qkv = layer.qkv(rows).view(-1, rotated + shape.kv_heads, width)
            qk = qkv[:, :rotated].float()
            if layer.qk_norm is not None:
                qk = functional.rms_norm(qk, (width,), None, shape.norm_eps) * layer.qk_norm
            swapped = torch.cat((qk[..., width // 2 :], qk[..., : width // 2]), -1)
            qk = torch.addcmul(qk * cos, swapped, sin).to(products)
            keys, values = qk[:count, shape.heads :], qkv[:count, rotated:]
            mixed = attend(index, qk[:count, : shape.heads], keys, values)
            if wanted is not None and index == shape.layers - 1:
                count = len(wanted)
                x, mixed = filled(x[wanted]), mixed[wanted]
            x = x + layer.output(filled(mixed))
            rows = functional.rms_norm(x, size, layer.mlp_norm, shape.norm_eps).to(products)
            gate, up = layer.gate_up(rows).chunk(2, -1)
            x = x + layer.down(functional.silu(gate).mul_(up))
        return weights.head(functional.rms_norm(x, size, weights.norm, shape.norm_eps))[:count]
