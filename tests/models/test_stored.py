"""Tensors read by rows: what is asked for and no more, from one file or from several that each have a part."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.torch import save_file

from runners.models.tensors import TensorFiles


@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.integers(0, 20), st.integers(0, 20))
def test_rows_are_those_of_the_whole_tensor_however_it_is_cut(tmp_path_factory, counts, first, last):
    folder = tmp_path_factory.mktemp("cut")
    whole = torch.arange(3.0 * sum(counts)).reshape(-1, 3)
    paths = []
    for number, part in enumerate(whole.split(counts)):
        paths.append(folder / f"{number}.safetensors")
        save_file({"a": part.clone(), "step": torch.tensor(7.0)}, paths[-1], {"facts": f'{{"n": {number}}}'})
    stored = TensorFiles(paths)
    assert stored.shape("a") == (sum(counts), 3)
    assert torch.equal(stored.rows("a", first, last), whole[first:last])
    assert (stored.shape("step"), stored.rows("step", 0, 0)) == ((), torch.tensor(7.0))
    assert set(stored.names) == {"a", "step"}
    assert stored.facts == {"n": 0}


def test_tensors_of_several_files_and_a_broken_one(tmp_path):
    save_file({"a": torch.ones(2, 2, dtype=torch.bfloat16)}, tmp_path / "1.safetensors")
    save_file({"b": torch.zeros(3)}, tmp_path / "2.safetensors")
    stored = TensorFiles([tmp_path / "1.safetensors", tmp_path / "2.safetensors"])
    assert stored.names == ("a", "b")
    assert stored.rows("a", 1, 2).tolist() == [[1.0, 1.0]]
    assert stored.rows("b", 0, 3).tolist() == [0.0] * 3
    (tmp_path / "2.safetensors").write_bytes(b"no")
    with pytest.raises(SafetensorError):
        TensorFiles([tmp_path / "2.safetensors"])
