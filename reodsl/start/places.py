"""Where a starting spec trains: a model with its data, lengths and suite, as text of the language.

`$name` in a method stands for what its place has under that name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A model to start from. `parts` are declarations that a method may name, in the order in which they are written;
    `words` fill the holes of methods; `imports` say where the library has what all of these name.
    """

    doc: str
    imports: Mapping[str, tuple[str, ...]]
    parts: Mapping[str, str]
    words: Mapping[str, str]


_SEEDS = "param seeds: [int] = [1]"
MINIATURE = Place(
    doc="the small model that overthinks: minutes on a laptop",
    imports={
        "std.miniature": (
            "overthinker", "asked_overthinker", "chain", "chain_train", "chain_suite", "chain_forcing", "chain_think",
            "chain_no_think", "chain_within", "chain_at_most", "chain_within_64_tokens", "chain_within_32_tokens",
        ),
    },
    parts={
        "seeds": _SEEDS,
        "few": "data few { source = generated(chain, count: 256, seed: 5), verifier = exact }",
        "rl": """
recipe rl = ppo {
  base       = checkpoint($start)
  data       = chain_train
  forcing    = chain_forcing
  batch      { prompts = 32, rollouts = 8 }
  rollout    { max_tokens = 128 tokens }
  max_prompt = 32 tokens
  steps      = 28 steps
  optim      { lr = 3e-4 }
  eval       = chain_suite
}
""",
        "tuned": """
recipe tuned = sft {
  base       = checkpoint($start)
  batch      { prompts = 16 }
  max_tokens = 192 tokens
  passes     = 10
  steps      = 400 steps  # at most
  optim      { lr = 3e-4 }
  eval       = chain_suite
}
""",
        "preferred": """
recipe preferred = simpo {
  base       = checkpoint($start)
  batch      { prompts = 16 }
  beta       = 2
  gamma      = 1.2
  max_tokens = 192 tokens
  passes     = 2
  steps      = 400 steps  # at most
  optim      { lr = 1e-4 }
  eval       = chain_suite
}
""",
        "vanilla": "experiment vanilla = rl { reward = outcome }",
    },
    words={
        "start": "overthinker",
        "base": "checkpoint($start)",
        "suite": "chain_suite",
        "cluster": "",
        "offline_cluster": "",
        "pooled": "few",
        "least": "4 tokens",
        "longest": "128 tokens",
        "first_cap": "64 tokens",
        "last_cap": "32 tokens",
        "until": "until = plateau(train.accuracy, window: 10 steps, within: 0.2%)",
        "alpha": "0.1",
        "reference": "data = few, reference_samples = 8",
        "step_marks": 'separator: " . ", keywords: ["wait", "so"], min_chunks: 3',
        "step_forcing": "",
        "think": "chain_think",
        "no_think": "chain_no_think",
        "overlong": "longest: 80 tokens, buffer: 16 tokens",
        "overlong_rollout": "rollout { max_tokens = 80 tokens }",
        "brpo_longest": "128 tokens",
        "brpo_part": "32 tokens",
        "brpo_forcing": "",
        "wide": "64 tokens",
        "narrow": "32 tokens",
        "within_wide": "chain_within_64_tokens",
        "within_narrow": "chain_within_32_tokens",
        "l1_alpha": "0.009375",
        "beta": "0.039",
        "l1_model": "",
        "l1_eval": "",
        "exactly": "chain_within",
        "at_most": "chain_at_most",
        "ratio": "0.5",
        "pairs_twice": "",
        "dast_longest": "128 tokens",
        "laser_target": "32 tokens",
        "laser_least": "32 tokens",
        "laser_step": "8 tokens",
        "laser_rollouts": "8",
        "laser_monitor": "monitor { questions = 32, samples = 8, every = 7 steps }",
        "frontier": "frontier edge = envelope(of: [base, vanilla], to: 128 tokens)  # existing methods only",
        "score": "score = reg(against: edge, to: 128 tokens, relative_to: vanilla)",
        "with_vanilla": "yes",
    },
)  # fmt: skip


def _published(model: str, doc: str, frontier: str | None = None, **more: str) -> Place:
    """A model of the paper, in the paper's recipe on its benchmarks."""
    data = more.get("data", "areal_boba_7b")
    cluster = more.get("cluster", "h800_16x8")
    longest = more.get("longest", "32K tokens")
    printed = '"""Table for PPO, as printed for 1.5B."""'
    shorter = f"\n  rollout {{ max_tokens = {longest} {printed} }}" if "longest" in more else ""
    score = "score = reg(against: printed_frontier, to: 16K tokens, relative_to: base)" if frontier else ""
    return Place(
        doc=doc,
        imports={
            "std.models": (model,),
            "std.data": (data,),
            "std.suites": ("math_reg",),
            "std.clusters": tuple(dict.fromkeys((cluster, "h800_16x8"))),
            "std.forcing": ("time_is_up", "summary"),
            "std.wordings": ("think", "no_think", "l1_exactly", "l1_at_most", "within_4000", "within_3000"),
            **({"std.paper": (f"{frontier} as printed_frontier",)} if frontier else {}),
        },
        parts={
            "seeds": _SEEDS,
            "asked": f'model asked = {model} {{ prompt {{ template = "{{question}}" }} }}  # the wording says how to answer',
            "for_4k": """
wording for_4k {
  question = "{question} Let's think step by step and output the final answer within \\\\boxed{}. Think for 4096 tokens."
}
""",
            "rl": f"""
recipe rl = ppo {{
  base  = {model}
  data  = {data}{shorter}
  steps = 250 steps  # the paper gives a price instead of a number
  eval  = math_reg
  cluster = {cluster}
  limit   = 4K gpu_hours
}}
""",
            "tuned": f"""
recipe tuned = sft {{
  base    = {model}
  passes  = 10
  steps   = {more.get("tuned_steps", "2100")} steps  # at most
  eval    = math_reg
  cluster = h800_16x8
}}
""",
            "preferred": f"""
recipe preferred = simpo {{
  base   = {model}
  beta   = 2    # the table prints "1/2" without saying which model has which
  gamma  = 1.2  # and "1.2/1.4"
  optim  {{ lr = {more.get("simpo_lr", "3e-6")} }}
  passes = 2
  steps  = {more.get("preferred_steps", "1700")} steps  # at most: a pair a question
  eval   = math_reg
  cluster = h800_16x8
}}
""",
            "vanilla": "experiment vanilla = rl { reward = outcome }",
        },
        words={
            "start": model,
            "base": f"checkpoint({model})",
            "suite": "math_reg",
            "cluster": f"cluster = {cluster}",
            "offline_cluster": "cluster = h800_16x8",
            "pooled": data,
            "least": "1K tokens",
            "longest": longest,
            "first_cap": "16K tokens",
            "last_cap": "512 tokens",
            "until": "until = plateau(train.accuracy, window: 20 steps, within: 0.2%) or steps(400)",
            "reference": "reference_samples = 16",
            "step_marks": 'separator: "\\n\\n", keywords: ["Wait", "But wait", "Alternatively", '
            '"Is there another way to think about this?", "But let me double-check", "But hold on"], min_chunks: 3',
            "step_forcing": "forcing = time_is_up",
            "think": "think",
            "no_think": "no_think",
            "overlong": "longest: 20K tokens, buffer: 4K tokens",
            "overlong_rollout": "rollout { max_tokens = 20K tokens }",
            "brpo_longest": "8000 tokens",
            "brpo_part": "2000 tokens",
            "brpo_forcing": "forcing = summary\n  rollout { max_tokens = 8000 tokens }",
            "wide": "4000 tokens",
            "narrow": "3000 tokens",
            "within_wide": "within_4000",
            "within_narrow": "within_3000",
            "alpha": "0.1",
            "l1_alpha": "0.0003",
            "beta": "0.001",
            "l1_model": "base = asked",
            "l1_eval": "eval = math_reg { wording = for_4k }",
            "exactly": "l1_exactly",
            "at_most": "l1_at_most",
            "ratio": "0.5",
            "pairs_twice": f"steps = {more.get('pairs_twice_steps', '3400')} steps",
            "dast_longest": longest,
            "laser_target": "8K tokens",
            "laser_least": "1K tokens",
            "laser_step": "1K tokens",
            "laser_rollouts": "16",
            "laser_monitor": "monitor { questions = 500, samples = 16, every = 20 steps }",
            "frontier": "",
            "score": score,
            "with_vanilla": "",
        },
    )


_SMALL = {
    "data": "deepscaler_and_areal",
    "cluster": "h800_8x8",
    "longest": "24376 tokens",
    "simpo_lr": "1e-5",
    "tuned_steps": "2700",
    "preferred_steps": "2200",
    "pairs_twice_steps": "4300",
}
PLACES: Mapping[str, Place] = {
    "miniature": MINIATURE,
    "qwen3_4b": _published("qwen3_4b", "Qwen3-4B, in the paper's recipe", "qwen3_4b"),
    "qwen3_8b": _published("qwen3_8b", "Qwen3-8B, in the paper's recipe", "qwen3_8b"),
    "qwen3_32b": _published("qwen3_32b", "Qwen3-32B, which the paper does not train"),
    "deepseek_1_5b_rl": _published(
        "deepseek_1_5b_rl", "the paper's start of its 1.5B runs", "deepseek_1_5b", **_SMALL
    ),
    "deepseek_1_5b": _published(
        "deepseek_1_5b", "DeepSeek-R1-Distill-Qwen-1.5B as it comes", "deepseek_1_5b", **_SMALL
    ),
    "deepseek_7b_rl": _published("deepseek_7b_rl", "the paper's start of its 7B runs", "deepseek_7b"),
    "deepseek_7b": _published("deepseek_7b", "DeepSeek-R1-Distill-Qwen-7B as it comes", "deepseek_7b"),
}
"""Models by name."""
