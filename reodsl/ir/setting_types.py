"""Types that settings of several kinds share: tokens, steps, shares, learning rates, checkpoints."""

from __future__ import annotations

from reodsl.ir.setting import A, Either, Num, OneOf

TOKENS = Num("tokens", whole=True, low=1, example="32K tokens")
TOKENS0 = Num("tokens", whole=True, low=0)
LENGTHS = Num("tokens", low=0)
STEPS = Num("steps", whole=True, low=1, example="400 steps")
STEPS0 = Num("steps", whole=True, low=0)
LAG = Num("steps", whole=True, low=0, high=16)
COUNT = Num(whole=True, low=1, high=2**24)
NATURAL = Num(whole=True, low=0, high=2**53)
SHARE = Num(low=0, high=1)
UTILISED = Num(low=0, high=1, above=True)
POSITIVE = Num(low=0, above=True)
TEMPERATURE = Num(low=0, high=10)
TOP_P = UTILISED
ENGINES = OneOf(("embedded", "sglang"))
BETA = Num(low=0, high=1, below=True, example="0.95")
LR = Num(low=0, high=1, above=True, example="5e-6")
HOURS = Num("gpu_hours", low=0, above=True, example="4K gpu_hours")
PPO = ("ppo",)
PAIRS = ("simpo", "dpo", "ipo")
SEQUENCES = ("sft", *PAIRS)
SFT = ("sft",)
SIMPO = ("simpo",)
CHECKPOINT = A(("model", "experiment", "checkpoint"), "a model or a checkpoint")
SPLITS = A(("budgets", "oracle_budgets", "question_budgets", "steps_split", "exits_split"), "budgets")
MODEL_SOURCES = ("hub", "folder", "package", "architecture", "served")
DATA_SOURCES = ("generated", "file", "hub", "package")
QUESTIONS = A(("data", "selected"), "data, or a selection of a pool")
READER = Either(
    (
        OneOf(("boxed", "final", "last_number", "code", "whole")),
        A(("after", "regex"), '`after("…")` or `regex("…")`'),
    ),
)
