"""Sizes: counts against published totals, files that were written, and FLOPs against closed forms."""

from __future__ import annotations

from reodsl.ir.model import Architecture, WordTokenizer
from reodsl.price.memory import Sizes, from_architecture, from_config, sizes_of
from tests.graph import studies as make


def test_products_and_norms_make_up_the_published_total(qwen3_4b: Sizes) -> None:
    norms = 36 * (2 * 2560 + 2 * 128) + 2560
    assert qwen3_4b.products + norms == qwen3_4b.parameters


def test_a_drawn_model_has_the_weights_that_its_file_holds() -> None:
    words = tuple(f"w{i}" for i in range(57))
    source = Architecture(
        family="qwen3",
        hidden=128,
        layers=2,
        heads=8,
        kv_heads=4,
        head_dim=16,
        intermediate=320,
        tokenizer=WordTokenizer(words=words, eos="<eos>", pad="<pad>"),
    )
    found = from_architecture(source)
    # model.safetensors of this model has 1410768 bytes, of which a few thousand are its header.
    assert 0 < 1410768 - 4 * found.parameters < 4096
    assert found.vocabulary == 59


def test_an_untied_output_is_multiplied_and_the_lookup_is_not() -> None:
    tied = make.DRAWN
    untied = tied.model_copy(update={"tie_embeddings": False})
    one, two = from_architecture(tied), from_architecture(untied)
    assert two.products == one.products
    assert two.parameters - one.parameters == two.vocabulary * tied.hidden


QWEN3_4B = {
    "hidden_size": 2560,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "intermediate_size": 9728,
    "tie_word_embeddings": True,
}


def test_a_configuration_tells_the_same(qwen3_4b: Sizes) -> None:
    found = from_config(QWEN3_4B)
    assert found is not None
    assert found.products == qwen3_4b.products
    assert abs(found.parameters / qwen3_4b.parameters - 1) < 1e-5


def test_a_configuration_that_is_none_has_no_sizes() -> None:
    assert from_config({}) is None
    assert from_config({"hidden_size": "wide", "num_hidden_layers": 1}) is None
    for strange in (10**4000, float("inf"), float("nan"), -1):
        names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "intermediate_size")
        assert from_config(dict.fromkeys(names, strange)) is None
    assert from_config({"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 0}) is None


def test_dimensions_are_needed_where_weights_come_from_elsewhere() -> None:
    assert sizes_of(make.downloaded().model) is None
    assert sizes_of(make.model()) is not None


def test_flops_of_a_forward_pass_are_those_of_each_product() -> None:
    one = from_architecture(make.DRAWN)
    hidden, heads, width = 8, 2 * 4, 1 * 4
    layer = 2 * (hidden * heads * 2 + hidden * width * 2 + 3 * hidden * 16)
    logits = 2 * hidden * 5
    # Three tokens, causal: they attend to 1, 2 and 3 positions; scores and sums are 2 FLOPs a number each.
    attention = sum(2 * 2 * heads * context for context in (1, 2, 3))
    assert one.forward_flops(3, 1 + 2 + 3) == 3 * (layer + logits) + attention


def test_cached_bytes_of_a_token(qwen3_4b: Sizes) -> None:
    assert qwen3_4b.kv_bytes(2) == 147456
