"""A cohort: responses that started together and share a preallocated key-value cache, live ones first.

Prompts end at the same column, so every live row writes its next token to the same column. A row that finishes
changes places with the last live one: decoding reads live rows alone, and finished rows keep their cache for
forced answers, ordered from the last to finish to the first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from runners.engine.embedded.cache import Cache
from runners.engine.embedded.shape import Shape


class Cohort:
    """The rows of one cache and what is known of each, in slot order."""

    def __init__(
        self, shape: Shape, owners: Sequence[int], prompts: Sequence[int], columns: int, like: torch.Tensor
    ) -> None:
        """`owners[i]` is the request of slot i and `prompts[i]` the length of its prompt."""
        rows = len(owners)
        self.cache = Cache.empty(shape, rows, columns, like)
        self.owner: NDArray[np.int64] = np.array(owners, dtype=np.int64)
        self.prompt: NDArray[np.int64] = np.array(prompts, dtype=np.int64)
        self.filled = int(self.prompt.max())
        self.start: NDArray[np.int64] = self.filled - self.prompt
        self.live = rows
        self._width = self.filled
        self._bias: torch.Tensor | None = None
        self._mask()

    def positions(self) -> NDArray[np.int64]:
        """The position of the token last written in each live row."""
        return self.filled - 1 - self.start[: self.live]

    def attend(
        self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, out: torch.Tensor
    ) -> None:
        """One step of the live rows: writes their keys and values to the newest column, attends to all.

        Queries [live, heads, head_dim] come scaled and contiguous; `out` has their shape.
        """
        live, kv_heads = self.live, keys.shape[1]
        newest = slice(self.filled - 1, self.filled)
        self.cache.rows(slice(live)).write(layer, newest, keys.unsqueeze(1), values.unsqueeze(1))
        past_keys, past_values = self.cache.flat(layer, slice(live), self.filled)
        grouped = (live * kv_heads, -1, queries.shape[-1])
        scores = torch.bmm(queries.view(grouped), past_keys)
        if self._bias is not None:
            scores.view(live, kv_heads, -1, self.filled)[..., : self._width].add_(self._bias[:live])
        weights = torch.softmax(scores, -1, dtype=torch.float32).to(scores.dtype)
        torch.bmm(weights, past_values, out=out.view(grouped))

    def retire(self, finished: Sequence[int]) -> NDArray[np.int64]:
        """Moves finished live slots behind the live ones; returns the new order as old slot numbers."""
        order = np.arange(len(self.owner))
        remaining = self.live - len(finished)
        holes = [slot for slot in finished if slot < remaining]
        gone = set(finished)
        movers = [slot for slot in range(remaining, self.live) if slot not in gone]
        for hole, mover in zip(holes, movers, strict=True):
            order[[hole, mover]] = order[[mover, hole]]
            self.cache.swap(hole, mover, self.filled)
        self.live = remaining
        self.owner, self.prompt, self.start = self.owner[order], self.prompt[order], self.start[order]
        if holes:
            self._mask()
        return order

    def _mask(self) -> None:
        """Hides the columns before each prompt; no mask when all prompts are equally long."""
        if not self.start.any():
            return
        like = self.cache.keys
        start = torch.from_numpy(self.start).to(like.device)
        hidden = torch.arange(self._width, device=like.device) < start[:, None]
        bias = torch.zeros(hidden.shape, device=like.device, dtype=like.dtype).masked_fill_(
            hidden, -torch.inf
        )
        self._bias = bias[:, None, None, :]
