"""Log-probabilities of tokens by the pass of a `transformers` decoder, on any device.

Rows are padded on the right, which a causal decoder never looks at, so no mask is needed; or packed into one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from runners.train.attention import Sequences
from runners.train.divergences import Distributions, Likeliest, score_tokens


class Scorer(nn.Module):
    """Log-probabilities of tokens as one module, so that sharded parameters are whole from the embedding to the loss.

    `precision` is that of the passes. A sharded model has its weights in it; another `casts` them, and its residual stream,
    norms and softmax stay float32.
    """

    def __init__(self, model: Any, precision: torch.dtype = torch.float32, casts: bool = False) -> None:
        """Wrap a model."""
        super().__init__()
        self.model, self.precision, self.casts = model, precision, casts

    def forward(
        self,
        ids: Tensor,
        at: Tensor,
        targets: Tensor | None,
        temperature: float = 1.0,
        entropies: bool = False,
        sequences: Sequences | None = None,
        other: Distributions | Likeliest | None = None,
    ) -> Tensor:
        """Return log-probabilities, as `score_tokens`, for ids and flat positions `at` in them.

        Ids and positions are those of `MicroBatch`. Without targets it is the last hidden states [positions, hidden].
        """
        where = {} if sequences is None else {"position_ids": sequences.positions, "sequences": sequences}
        body = self.model.get_submodule("model")
        with torch.autocast(ids.device.type, self.precision, enabled=self.casts):
            states = body(input_ids=ids, use_cache=False, **where).last_hidden_state
        hidden: Tensor = states.flatten(0, 1)[at].to(self.precision)
        if targets is None:
            return hidden
        weight = self.model.get_output_embeddings().weight.to(self.precision)
        return score_tokens(hidden, weight, targets, temperature, entropies, other)


def keep_little(model: Any) -> None:
    """Let the model's own forward keep one hidden state a layer, and its backward pass compute the rest again."""
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for layer in model.get_submodule("model").layers:
        # Of the layer alone: what is inside it stays in evaluation mode, so that no dropout begins.
        layer.training = True
