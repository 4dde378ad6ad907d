"""What a starting spec trains by: for each reward and selection of the library a few lines that use it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Method:
    """`body` declares the experiment `mine`; or `arm` is that of a study, where it needs what other arms have.

    `doc` is the spec's first line. `vanilla`: vanilla RL stands beside it where that is cheap; `asked`: the model has to
    know budgets in prompts; `offline`: nothing but SFT or SimPO, whose tables have a cluster of their own. `unequal` says
    why it trains for longer than vanilla RL, if it does.
    """

    doc: str
    body: str = "experiment mine = rl { reward = $name }"
    arm: str = "mine"
    vanilla: bool = True
    asked: bool = False
    offline: bool = False
    unequal: str = ""


def _reward(call: str, doc: str, settings: str = "", before: str = "", unequal: str = "") -> Method:
    body = f"{before}\n\nexperiment mine = rl {{\n  reward = {call}\n{settings}\n}}\n"
    return Method(doc, body, unequal=unequal)


def _pooled(selection: str, doc: str, parent: str, more: str = "", settings: str = "") -> Method:
    pool = "pool($base, data: $pooled, samples: 16, max_tokens: $longest)"
    body = f"experiment mine = {parent} {{\n  data = {selection}({pool}{more})\n  {settings}\n}}"
    return Method(doc, body, vanilla=False, offline=True)


_BUDGETS = "budgets five = exp(from: $least, to: $longest, n: 5)"
_MODES = "pool($base, data: $pooled, samples: 1, max_tokens: $longest, wordings: [$think, $no_think])"
_TWO_MODES = f"""
experiment two_modes = tuned {{
  data   = both_modes({_MODES})
  passes = 1
}}
"""

_LASER = "clip { low = 0.2, high = 0.28 }\nkl = 1e-3\nentropy = 1e-3"

METHODS: Mapping[str, Method] = {
    "own": Method(
        "A reward of one's own: an answer's worth, less a share of its length.",
        '''
reward own(cost: number in 0..1) {
  """Right answers earn 1; every answer costs its length, relative to the longest of its group."""
  let longest = max(len(z) for z in group)
  correct(y) - cost * len(y) / longest
}

experiment mine = rl { reward = own(cost: 0.1) }
''',
    ),
    "outcome": Method("Vanilla RL: the outcome alone.", vanilla=False),
    "token_budgets": Method(
        "RL with a token budget that is halved stage by stage.",
        """
experiment mine = rl {
  reward = outcome
  stages(cap in halve(from: $first_cap, to: $last_cap)) {
    rollout { max_tokens = cap }
    $until
  }
}
""",
    ),
    "reo": _reward("reo(at: five)", "REO-RL with exponentially spaced budgets.", before=_BUDGETS),
    "reo_uniform": _reward("reo_uniform(at: five)", "REO-RL with all coefficients 1.", before=_BUDGETS),
    "reo_as_printed": Method(
        "REO-RL (Q-Spec) with its printed coefficients: one budget a question, from another arm's training.",
        "",
        "rl { reward = reo_as_printed(at: question_min(rollouts: [vanilla])) }",
    ),
    "first_budget_alone": Method(
        "A hard budget for each question, from another arm's training.",
        "",
        "rl { reward = first_budget_alone(at: question_min(rollouts: [vanilla])) }",
    ),
    "length_group_norm": _reward(
        "length_group_norm(alpha: $alpha)", "Lengths normalised over a group's right responses; alpha is a choice."
    ),
    "length_harmonizing": _reward(
        "length_harmonizing(gamma: 2)", "Lengths against the starting model's; gamma is a choice.", "$reference"
    ),
    "mrt": _reward(
        "mrt(at: steps($step_marks), alpha: 0.2)",
        "MRT: each reasoning step earns what the forced answer gains by it.",
        "credit = own\n$step_forcing",
    ),
    "hgpo": _reward(
        "hgpo(alpha: 1, delta: 0.2)",
        "HGPO: SFT on both modes, then RL with a margin for not thinking.",
        "base = checkpoint(two_modes)\nrollout { wordings = [$think, $no_think] }",
        before=_TWO_MODES,
    ),
    "l1_exact": Method(
        "L1-Exact: the response's length against a budget in the prompt.",
        """
experiment mine = rl {
  $l1_model
  reward = l1_exact(alpha: $l1_alpha)
  rollout { wordings = [$exactly] }
  $l1_eval
}
""",
        asked=True,
    ),
    "l1_max": Method(
        "L1-Max, from L1-Exact: half of the questions each ask for exactly, and for at most, a budget.",
        """
experiment exact = rl {
  $l1_model
  reward = l1_exact(alpha: $l1_alpha)
  rollout { wordings = [$exactly] }
}

experiment mine = exact {
  base   = checkpoint(exact)
  reward = l1_max(alpha: $l1_alpha)
  rollout { wordings = [$exactly, $at_most], wordings_per = question }
  $l1_eval
}
""",
        asked=True,
    ),
    "kimi_length": _reward("kimi_length(weight: 0.5)", "Kimi k1.5's length reward; its weight is a choice."),
    "soft_overlong": _reward(
        "soft_overlong($overlong)",
        "DAPO's soft overlong penalty, its clip, and its dynamic sampling.",
        "$overlong_rollout\nclip { low = 0.2, high = 0.28 }\nresample = 10",
    ),
    "brpo": _reward(
        "brpo(at: linear(to: $brpo_longest, n: 3), part: $brpo_part)",
        "BRPO: four even budgets, and a baseline of the response's own earlier answers and the group's.",
        "credit = own\nadvantage { normalise = none }\n$brpo_forcing",
    ),
    "brpo_linear": _reward(
        "brpo_linear(at: linear(to: $brpo_longest, n: 3), longest: $brpo_longest, n: 3)",
        "BRPO's evenly spaced budgets, against the group alone.",
        "advantage { normalise = center }\n$brpo_forcing",
    ),
    "pruned": Method(
        "ThinkPrune: a limit on the length that the prompt names, lowered once.",
        """
experiment mine = rl {
  stage wide   { reward = pruned(limit: $wide), rollout { max_tokens = $wide, wordings = [$within_wide] } }
  stage narrow { reward = pruned(limit: $narrow), rollout { max_tokens = $narrow, wordings = [$within_narrow] } }
}
""",
        asked=True,
        unequal="the second limit has a stage of its own",
    ),
    "alp": _reward(
        "alp(beta: 0.1, scale: $longest)", "ALP: tokens cost the more, the more of a group are right; beta is a choice."
    ),
    "shorter_better": _reward(
        "shorter_better(alpha: 2, beta: $beta)", "ShorterBetter: the group's shortest right length is aimed at."
    ),
    "cosine_length": _reward(
        "cosine_length(longest: $longest, right_short: 1, right_long: 0.5, wrong_short: -0.5, wrong_long: 0, exceeded: -1)",
        "The cosine reward: short right answers earn most, short wrong ones least; its values are choices.",
    ),
    "grpo_lead": _reward(
        "grpo_lead",
        "GRPO-LEAD: lengths of right answers against the group's, weighed by how hard the question is.",
        "advantage { normalise = none }\nclip { low = 0.2, high = 0.28 }",
    ),
    "laser": _reward(
        "laser(target: $laser_target)",
        "Laser: a bonus for right answers within a target length; the target is a choice.",
        _LASER,
    ),
    "laser_d": _reward(
        "laser_d(longest: $longest, least: $laser_least, step: $laser_step, rollouts: $laser_rollouts)",
        "Laser-D: targets by difficulty that follow a monitor set.",
        f"$laser_monitor\n{_LASER}",
    ),
    "adapt_think": _reward(
        "adapt_think",
        "AdaptThink: the model learns when to think, from both modes alike.",
        "rollout { wordings = [$think, $no_think] }\nadvantage { normalise = none }\n"
        "loss { ratio = sequence, mode_tokens = shares }\nloss_mean = response\nreference_samples = 16",
    ),
    "gfpo": _reward(
        "gfpo(k: 8)",
        "GFPO: the shorter half of a larger group is learnt from.",
        "batch { rollouts = 16 }\nadvantage { normalise = none }",
        unequal="GFPO chooses among larger groups",
    ),
    "s_grpo": _reward(
        "s_grpo(at: random_exits(n: 8))",
        "S-GRPO: exits along a response, of which earlier right ones earn more.",
        "credit = causal\nadvantage { normalise = none }",
    ),
    "gspo": _reward(
        "outcome",
        "GSPO: one ratio a response, clipped as a whole.",
        "loss { ratio = sequence }\nclip { low = 3e-4, high = 4e-4 }\nloss_mean = response",
    ),
    "cispo": _reward(
        "outcome",
        "CISPO: a weight that is clipped, and keeps every token's gradient; its bound is a choice.",
        "loss { clip = weight }\nclip { low = 1, high = 3 }\nloss_mean = token",
    ),
    "dr_grpo": _reward(
        "outcome",
        "Dr. GRPO: neither a response's length nor a group's deviation divides.",
        "advantage { normalise = center }\nloss_mean = constant",
    ),
    "dler": _reward(
        "outcome",
        "DLER: truncation alone, with advantages normalised over the batch.",
        "rollout { max_tokens = $wide }\nadvantage { normalise = center, batch = true }\n"
        "clip { low = 0.2, high = 0.28 }\nresample = 10",
    ),
    "shortest": _pooled("shortest", "SFT on the shortest right response of 16.", "tuned"),
    "both_modes": Method(
        "SFT on the model's own responses in both modes.",
        f"experiment mine = tuned {{ data = both_modes({_MODES}), passes = 1 }}",
        vanilla=False,
        offline=True,
    ),
    "shortest_against_longest": _pooled(
        "shortest_against_longest", "SimPO on the shortest right response against the longest.", "preferred"
    ),
    "dast": _pooled(
        "dast",
        "SimPO on DAST's two kinds of pairs; how much shorter is a choice.",
        "preferred",
        ", ratio: $ratio",
        "$pairs_twice",
    ),
    "dast_by_margin": _pooled(
        "dast_by_margin",
        "SimPO on DAST's pairs as its authors have them: the lowest margins are left out.",
        "preferred",
        ", longest: $dast_longest, share: 15%",
        "$pairs_twice",
    ),
}  # fmt: skip
"""Methods by the name of the reward or selection that they are about, or by their own where settings make them."""
