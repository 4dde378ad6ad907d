"""Rows of a product rounded up: which numbers occur, and that nothing but zeros is added."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from runners.engine.embedded.model import computes_bfloat16, pad_rows, round_up


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
