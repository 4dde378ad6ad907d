"""The words of a reward: its functions by what they are of, and the names that only a reward knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from reodsl.ir.expression import Statistic, WeightRule
from reodsl.ir.functions import Function

WEIGHTS: tuple[WeightRule, ...] = get_args(WeightRule)
STATISTICS: tuple[Statistic, ...] = get_args(Statistic)
NUMERIC: tuple[Function, ...] = get_args(Function)
RESPONSE = ("len", "correct", "answer", "mode", "python")
FUNCTIONS = (*RESPONSE, *WEIGHTS, "before", "z", *dict.fromkeys((*STATISTICS, *NUMERIC)))

HISTORIES = ("quantile", "steps", "monitor", "step")
"""What a track alone may say: its own statistic, what it runs over, and the number of steps that are done."""

_INSTEAD: Mapping[str, str] = {
    'a reward measures no text; a function of yours does: `python("style.py:score", y)`': (
        "contains includes startswith endswith starts_with ends_with match matches regex re search find split words text "
        "sentences lines strip lower replace similarity bleu rouge format has_format format_reward repetition ngrams judge"
    ),
    "a reward knows no probabilities of tokens; what holds a model near its start is `kl = 1e-3` in the experiment": (
        "logprob logprobs log_prob log_probs logp log_p prob probability likelihood nll loglikelihood log_likelihood "
        "perplexity ppl entropy kl confidence logits"
    ),
    "write `len(y)`": "length num_tokens n_tokens token_count tokens size",
    "write `correct(y)`": "accuracy acc is_correct right verify grade pass",
    "write `mean(len(z) for z in group)`": "avg average",
    "square it: `std(correct(z) for z in group)^2`": "var variance",
    "count them: `count(z for z in group if correct(z)) > 0`": "any exists",
    "count the others: `count(z for z in group if not correct(z)) == 0`": "all",
    "write `log(…)`": "ln",
    "divide by the base's: `log(…) / log(2)`": "log2 log10",
    "write `(…)^2`": "pow power square",
    "write `2 * sigmoid(2 * (…)) - 1`": "tanh",
    "write `max(…, 0)`": "relu",
    "write `log(1 + exp(…))`": "softplus",
    "write `cos((…) - pi / 2)`": "sin",
    "write `(1 if … > 0 else 0)`": "sign",
    "write `floor((…) + 0.5)`": "round",
    "write `-floor(-(…))`": "ceil",
    "write `clip(…, 0, 1)`": "clamp bound minmax",
    "write `(1 if correct(y) else 0)`": "where iif cond select",
    "write `z(correct(y))`, a whole part of a sum": "normalize normalise zscore standardize whiten",
}
CALLED: Mapping[str, str] = {name: helps for helps, names in _INSTEAD.items() for name in names.split()}
"""The functions of other tools and what serves here, where no spelling leads to it."""

RESPONSE_NAMES = frozenset({"y", "x", "group", "ref", *RESPONSE, *WEIGHTS, "before"})
