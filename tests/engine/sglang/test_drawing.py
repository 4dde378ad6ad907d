"""Tokens drawn row by row, each by its own kind, against sorting every row; and the settings that ask for exact kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from runners.engine.sglang.drawing import draw_rows, draw_uncut
from runners.engine.sglang.settings import Settings
from tests.devices.fixture import DEVICES
from tests.devices.module import NAME
from tests.devices.simulated import simulated, waits

WIDTH = 40


def gumbel(kept: Any, seeds: Any) -> Any:
    """One token a row, by noise that depends on the row's seed and the token's id alone."""
    noise = torch.stack(
        [
            torch.rand(WIDTH, generator=torch.Generator().manual_seed(int(seed)), dtype=torch.double)
            for seed in seeds
        ]
    )
    return (kept.double().log() - (-noise.log()).log()).argmax(dim=-1, keepdim=True)


def sorted_rows(probs: Any, top_ks: Any, top_ps: Any, min_ps: Any) -> Any:
    """The slow reference: what is left of every row, sorted whatever its kind is."""
    left = torch.zeros_like(probs)
    for row, (k, p, least) in enumerate(zip(top_ks.tolist(), top_ps.tolist(), min_ps.tolist(), strict=True)):
        order = sorted(range(WIDTH), key=lambda token: (-float(probs[row, token]), token))[:k]
        whole, before = sum(float(probs[row, token]) for token in order), 0.0
        for rank, token in enumerate(order):
            weight = float(probs[row, token])
            if (rank == 0 or p >= 1.0 or before / whole < p) and weight >= least * float(
                probs[row, order[0]]
            ):
                left[row, token] = probs[row, token]
            before += weight
    return left


def mixed() -> tuple[Any, Any, Any, Any]:
    probs = torch.softmax(torch.randn(6, WIDTH, generator=torch.Generator().manual_seed(3)) * 2, dim=-1)
    top_ks = torch.tensor([1, 1 << 30, 5, 1 << 30, 1 << 30, 7])
    top_ps = torch.tensor([1.0, 1.0, 1.0, 0.7, 1.0, 0.9])
    return probs, top_ks, top_ps, torch.tensor([0.0, 0.0, 0.0, 0.0, 0.2, 0.0])


@pytest.mark.parametrize("with_min_p", [False, True])
def test_each_row_draws_as_if_every_row_was_sorted(with_min_p: bool) -> None:
    probs, top_ks, top_ps, min_ps = mixed()
    if not with_min_p:
        min_ps = torch.zeros(6)
    seeds = torch.arange(6) + 11
    tokens, weights, ids, drawn = draw_rows(
        probs, top_ks, top_ps, min_ps if with_min_p else None, lambda kept, rows: gumbel(kept, seeds[rows])
    )
    left = sorted_rows(probs, top_ks, top_ps, min_ps)
    assert torch.equal(tokens, gumbel(left, seeds))
    assert torch.equal(torch.zeros_like(probs).scatter_(-1, ids, weights), left)
    assert torch.equal(drawn, left.gather(1, tokens).view(-1))


def test_a_rows_token_does_not_depend_on_the_rows_beside_it() -> None:
    probs, top_ks, top_ps, _ = mixed()
    seeds = torch.arange(6) + 5
    together = draw_rows(probs, top_ks, top_ps, None, lambda kept, rows: gumbel(kept, seeds[rows]))[0]
    for row in range(6):
        at = slice(row, row + 1)
        alone = draw_rows(
            probs[at], top_ks[at], top_ps[at], None, lambda kept, rows, at=at: gumbel(kept, seeds[at][rows])
        )[0]
        assert torch.equal(alone, together[at])


def test_only_cut_rows_are_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    probs, top_ks, top_ps, _ = mixed()
    sizes: list[int] = []
    plain = torch.Tensor.sort

    def sort(self: Any, *args: Any, **named: Any) -> Any:
        sizes.append(self.shape[0])
        return plain(self, *args, **named)

    monkeypatch.setattr(torch.Tensor, "sort", sort)
    draw_rows(probs, top_ks, top_ps, None, lambda kept, rows: kept.argmax(dim=-1, keepdim=True))
    assert sizes == [3]


def test_rows_of_which_none_is_cut_are_drawn_without_waiting_for_the_device() -> None:
    probs, _, _, _ = mixed()
    top_ks, seeds = torch.tensor([1, 1 << 30, 1, 1 << 30, 1 << 30, 1]), torch.arange(6) + 11

    def pick(kept: Any, rows: Any) -> Any:
        return gumbel(kept.cpu(), seeds[rows]).to(kept.device)

    want = draw_rows(probs, top_ks, torch.ones(6), None, pick)[0]
    assert torch.equal(draw_uncut(probs, top_ks, pick), want)
    assert torch.equal(want[top_ks == 1], probs[top_ks == 1].argmax(-1, keepdim=True))
    if NAME not in DEVICES:
        pytest.skip("needs the simulated device, which counts")
    with simulated():
        there, ks = probs.to(NAME), top_ks.to(NAME)
        before = sum(waits.values())
        draw_uncut(there, ks, lambda kept, _: kept.argmin(dim=-1, keepdim=True))
        assert sum(waits.values()) == before
        draw_rows(there, ks, torch.ones(6).to(NAME), None, lambda kept, _: kept.argmin(dim=-1, keepdim=True))
        assert sum(waits.values()) > before


def test_exact_kernels_are_asked_for_unless_the_cluster_is_seeded() -> None:
    exact = Settings(Path("model"), 100, 8, device="cuda")
    seeded = Settings(Path("model"), 100, 8, device="cuda", determinism="seeded")
    assert "--enable-deterministic-inference" in exact.arguments("127.0.0.1", 1)
    words = seeded.arguments("127.0.0.1", 1)
    assert "--enable-deterministic-inference" not in words
    assert words[words.index("--sampling-backend") + 1] == "pytorch"
    assert seeded.environment({}, "key")["REODSL_SGLANG_DETERMINISM"] == "seeded"
