"""What a server of SGLang 0.5.23, started by this project's launcher on a CPU, said of itself: the parts that are read."""

from __future__ import annotations

from typing import Any

from runners.engine.sglang.account import Account

SETTINGS: dict[str, Any] = {
    "version": "0.5.23",
    "model_path": "/nowhere/checkpoint",
    "context_length": 168,
    "max_total_num_tokens": 131072,
    "max_req_input_len": 162,
    "enable_deterministic_inference": True,
    "disable_radix_cache": False,
    "speculative_algorithm": None,
    "sampling_mask_max_tokens": 1073741824,
    "tp_size": 1,
    "pp_size": 1,
    "dp_size": 1,
    "skip_tokenizer_init": True,
}
MODEL: dict[str, Any] = {
    "model_path": "/nowhere/checkpoint",
    "weight_version": "0",
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
}


def answer(highest: float = -1.25, mask: int = 1) -> dict[str, Any]:
    """One token: the highest log-probability, and how many tokens of the cut distribution are told."""
    meta = {"output_top_logprobs": [[[highest, 7, None]]], "output_token_sampling_mask": [[*range(mask)]]}
    return {"output_ids": [7], "meta_info": meta}


def fitting_account(**settings: Any) -> Account:
    """One that fits a run of 160 tokens, but for what is given."""
    return Account(SETTINGS | settings, MODEL, [answer(), answer()])
