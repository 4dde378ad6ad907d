"""Say which modules of the standard library declare a name, and how a method of the literature is written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from reodsl.language.modules import LIBRARY, library_names

_DECLARES = re.compile(r"^([a-z]+) ([A-Za-z_][A-Za-z0-9_]*) *[={(:]", re.MULTILINE)


def provided(name: str) -> tuple[tuple[str, str], ...]:
    """The modules of the standard library that declare `name`, each with the kind of that declaration."""
    return tuple((module, kind) for module, kind, each in _declarations() if each == name)


@cache
def _declarations() -> tuple[tuple[str, str, str], ...]:
    declarations = []
    for module in library_names():
        path = LIBRARY.joinpath(*module.split("."))
        text = path.with_name(path.name + ".reo").read_text(encoding="utf-8")
        declarations += [(f"std.{module}", kind, name) for kind, name in _DECLARES.findall(text)]
    return tuple(declarations)


WRITTEN: Mapping[str, str] = {
    "ppo": "PPO is `method = ppo`; its ratio and clip are `loss { ratio = token, clip = two_sided }`",
    "grpo": "GRPO is `method = ppo` with `advantage { normalise = group }`, and the original's mean `loss_mean = response`",
    "gspo": "GSPO is a ratio, `loss { ratio = sequence }`, with a two-sided clip, `clip { low = 3e-4, high = 4e-4 }`, and "
    "`loss_mean = response`",
    "cispo": "CISPO clips a weight, `loss { clip = weight }`, by `clip { low = 1, high = 3 }`, with `loss_mean = token`",
    "dapo": "DAPO is `resample = 10`, `clip { low = 0.2, high = 0.28 }` and `loss_mean = token`, with the reward "
    "`std.rewards.soft_overlong`",
    "dr_grpo": "Dr. GRPO is `advantage { normalise = center }` and `loss_mean = constant`",
    "rloo": "RLOO is `advantage { normalise = none }`, with the mean of the others taken away in the reward; "
    "docs/COOKBOOK.md has the formula",
    "reinforce": "REINFORCE is `loss { ratio = none, clip = none }`",
    "dler": "DLER is `resample = 10`, `clip { low = 0.2, high = 0.28 }` and "
    "`advantage { normalise = center, batch = true }`, with the reward `std.rewards.outcome` and a short `max_tokens`",
    "tis": "truncated importance sampling is `importance_cap = 2`",
    "gae": "there is no critic here: `credit` and `advantage` say how rewards become advantages",
    "dpo": "DPO is `method = dpo`, and trains on pairs",
    "ipo": "IPO is `method = ipo`, and trains on pairs",
    "simpo": "SimPO is `method = simpo`, and trains on pairs",
}
"""How methods are written, by their names in small letters with underscores."""
_ALIASES = {"drgrpo": "dr_grpo", "reinforce_leave_one_out": "rloo", "truncated_importance_sampling": "tis"}


def method_written(name: str) -> str | None:
    """How a method is written that is called so; None for a name of none."""
    word = name.lower().replace("-", "_").replace(".", "").replace(" ", "_")
    if written := WRITTEN.get(_ALIASES.get(word, word)):
        return written
    module = next((module for module, kind in provided(word) if kind == "reward"), None)
    return f"`{word}` is a reward: `reward = {module}.{word}`" if module is not None else None
