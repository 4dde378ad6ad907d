"""Products on a processor: who multiplies, equal results of both libraries, and rows that are rounded up."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from reodsl.diagnostics import Problem
from reodsl.ir.training import Lora
from runners.models import products as module
from runners.models.folder import load_model
from runners.models.products import (
    ProductLinear,
    Products,
    choose_products,
    computes_bfloat16,
    describe_products,
    multiply,
    pad_rows,
    read_maker,
    round_up,
)
from runners.train.adapters import adapt
from runners.train.logprobs import token_logprobs
from tests.train.models import small_model

BOTH, ENGINE, NEITHER = Products("onednn", "onednn"), Products("torch", "onednn"), Products("torch", "torch")


@pytest.mark.parametrize(
    ("maker", "instructions", "named", "onednn", "expected"),
    [
        ("AuthenticAMD", "AVX512", "", True, BOTH),
        ("AuthenticAMD", "AVX2", "", True, NEITHER),
        ("AuthenticAMD", "DEFAULT", "", True, ENGINE),
        ("GenuineIntel", "AVX512", "", True, ENGINE),
        ("", "DEFAULT", "", True, ENGINE),
        ("GenuineIntel", "AVX512", "onednn", True, BOTH),
        ("AuthenticAMD", "AVX512", "torch", True, NEITHER),
        ("AuthenticAMD", "AVX512", "", False, NEITHER),
    ],
)
def test_a_table_chooses_the_library(
    maker: str, instructions: str, named: str, onednn: bool, expected: Products
) -> None:
    assert choose_products(maker, instructions, named, onednn) == expected


def test_a_name_of_no_library_is_refused() -> None:
    with pytest.raises(Problem, match="`mkl` is not a library") as caught:
        choose_products("GenuineIntel", "AVX512", "mkl")
    assert "REODSL_PRODUCTS=onednn" in str(caught.value.diagnostics[0].help)
    with pytest.raises(Problem, match="built without oneDNN"):
        choose_products("AuthenticAMD", "AVX512", "onednn", onednn=False)


def test_the_maker_is_read(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: fpu\n")
    assert (read_maker(tmp_path / "cpuinfo"), read_maker(tmp_path / "none")) == ("AuthenticAMD", "")


@pytest.mark.parametrize("chosen", [BOTH, ENGINE, NEITHER])
def test_the_choice_is_described(chosen: Products, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "products", lambda: chosen)
    assert describe_products().startswith("oneDNN" if chosen == BOTH else "torch's")
    assert ("embedded engine" in describe_products()) == (chosen == ENGINE)


@pytest.mark.parametrize("lora", [None, Lora(rank=2, alpha=4.0)])
def test_both_libraries_train_alike(
    lora: Lora | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_model().save_pretrained(tmp_path / "model")
    ids, targets = torch.arange(40).view(4, 10) % 23, torch.arange(40) % 19

    def train(chosen: Products) -> tuple[type[nn.Module], torch.Tensor, list[torch.Tensor]]:
        monkeypatch.setattr(module, "products", lambda: chosen)
        model = load_model(tmp_path / "model")
        kind = type(model.model.layers[0].mlp.up_proj)
        if lora is not None:
            adapt(model, lora, 3)
            for name, parameter in model.named_parameters():
                parameter.data += 0.1 * name.endswith("lora_B")
        states = model.model(input_ids=ids).last_hidden_state.flatten(0, 1)
        logprobs = token_logprobs(states, model.lm_head.weight, targets, 0.7)
        logprobs.sum().backward()
        return kind, logprobs, [p.grad for p in model.parameters() if p.grad is not None]

    (plain, expected, slopes), (replaced, logprobs, found) = train(NEITHER), train(BOTH)
    assert (plain, replaced) == (nn.Linear, ProductLinear)
    torch.testing.assert_close(logprobs, expected, rtol=1e-5, atol=1e-5)
    assert len(slopes) == len(found) > 0
    for slope, other in zip(slopes, found, strict=True):
        assert (slope - other).norm() <= 1e-5 * slope.norm()
    norms = [sum(float(slope.square().sum()) for slope in every) for every in (slopes, found)]
    assert norms[0] == pytest.approx(norms[1], rel=2e-6)


def test_other_types_and_devices_are_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "products", lambda: BOTH)
    for x in (torch.ones(3, 4, dtype=torch.bfloat16), torch.ones(3, 4, device="meta")):
        assert multiply(x, torch.ones_like(x)).shape == (3, 3)
        layer = ProductLinear(4, 2, device=x.device, dtype=x.dtype)
        assert layer(x).dtype == x.dtype


@given(st.integers(0, 1 << 20))
def test_at_most_a_sixteenth_is_added(rows: int) -> None:
    assert rows <= round_up(rows) <= rows + rows // 16
    assert round_up(round_up(rows)) == round_up(rows)


def test_few_numbers_occur() -> None:
    assert {round_up(rows) for rows in range(33)} == set(range(33))
    assert [round_up(rows) for rows in (33, 34, 35, 65, 247, 2047, 2048, 2049)] == [
        34,
        34,
        36,
        68,
        248,
        2048,
        2048,
        2176,
    ]
    for low in (64, 512, 4096):
        assert len({round_up(rows) for rows in range(low + 1, 2 * low + 1)}) == 16


@given(st.integers(0, 100), st.lists(st.integers(1, 3), max_size=2))
def test_zeros_come_after_the_rows(rows: int, rest: list[int]) -> None:
    x = torch.ones(rows, *rest)
    found = pad_rows(x)
    assert found.shape == (round_up(rows), *rest)
    assert torch.equal(found[:rows], x)
    assert not found[rows:].any()


def test_other_devices_keep_their_rows() -> None:
    x = torch.ones(33, 2, device="meta")
    assert pad_rows(x) is x


def test_products_in_bfloat16_are_right_where_onednn_has_them() -> None:
    if not computes_bfloat16():
        pytest.skip("this processor multiplies no bfloat16")
    rows = (torch.arange(32 * 64) % 13 - 6.0).view(32, 64).bfloat16()
    weight = (torch.arange(48 * 64) % 7 - 3.0).view(48, 64).bfloat16()
    packed = torch.ops.mkldnn._reorder_linear_weight(weight)
    product = torch.ops.mkldnn._linear_pointwise(rows, packed, None, "none", [], "")
    # Whole numbers this small are summed without an error, so that the last rounding alone is left.
    assert torch.equal(product, (rows.float() @ weight.float().t()).bfloat16())
