"""Twenty published methods as data: rewards, advantages and losses against the papers' formulas, written out slowly."""

from __future__ import annotations

import math
import random
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from reodsl.ir.reward import Exits, ResponseGroup, Reward, RewardedResponse
from reodsl.ir.training import Dpo, Experiment, FromTraining, Ppo
from reodsl.language import compile_file
from runners.rewards.interpret import interpret
from runners.rewards.tracks import track_values
from runners.rewards.vectorise import vectorise
from runners.train.advantages import advantages_of, finish_batch
from runners.train.losses import pair_loss, policy_loss, token_weights
from tests.rewards.reward_groups import arrays
from tests.specs.test_miniature import short_form
from tests.train.test_objective import cispo, gspo, luspo, rows
from tests.train.test_preference import slow_dpo

ROOT = Path(__file__).resolve().parents[2]
SPECS, LIBRARY = ROOT / "specs" / "miniature", ROOT / "stdlib"
METHODS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "GRPO-LEAD": ("grpo_lead", ("grpo_lead",), ("methods.grpo_lead",)),
    "DLER": ("dler", ("dler",), ()),
    "LCPO": ("l1_ranges", ("exactly", "atmost"), ("rewards.l1_exact", "rewards.l1_max")),
    "S-GRPO": ("s_grpo", ("s_grpo",), ("methods.s_grpo",)),
    "AdaptThink": ("adapt_think", ("adapt_think",), ("methods.adapt_think",)),
    "Laser": ("laser", ("laser",), ("methods.laser",)),
    "Laser-D": ("laser_d", ("laser_d",), ("methods.laser_d",)),
    "GSPO": ("gspo", ("gspo",), ()),
    "CISPO": ("cispo", ("cispo",), ()),
    "Dr. GRPO": ("dr_grpo", ("dr_grpo",), ()),
    "DPO": ("dpo_shortest", ("dpo_shortest",), ("selections.shortest_against_longest",)),
    "GFPO": ("gfpo", ("gfpo",), ("methods.gfpo",)),
    "LUSPO": ("luspo", ("luspo",), ()),
    "CPAS": ("cpas", ("cpas",), ("methods.cpas",)),
    **{
        name: (name, (name,), (f"methods.{name}",))
        for name in ("pear", "smart_thinker", "deep_compress", "max_rl", "dgpo", "real")
    },
    "Skywork-OR1": ("skywork_or1", ("skywork_or1",), ("methods.skywork_or1",)),
    "PPO's adaptive KL": ("adaptive_kl", ("adaptive_kl",), ("methods.adaptive_kl",)),
}
"""Of each method its spec in miniature, the arms that are trained by it, and what it has in the library."""


def trained(spec: str, arm: str) -> Experiment:
    found = compile_file(SPECS / f"{spec}.reo")
    assert found.spec is not None, [each.message for each in found.diagnostics]
    start = found.spec.study.arm(arm).checkpoint
    assert isinstance(start, FromTraining)
    return start.experiment


def ppo(spec: str, arm: str = "") -> Ppo:
    method = trained(spec, arm or spec).stages[0].method
    assert isinstance(method, Ppo)
    return method


def code_lines(text: str) -> list[str]:
    """Lines without texts, comments and imports, and without the study at the end."""
    text = re.sub(r'"""[^"]*"""', "", text)
    text = re.sub(r"^from .*$\n|^study .*\Z", "", text, flags=re.MULTILINE | re.DOTALL)
    return [line for line in (each.split("#")[0].strip() for each in text.splitlines()) if line]


def declared(where: str) -> str:
    """The text of a declaration of the library, `MODULE.NAME`."""
    module, name = where.split(".")
    text = (LIBRARY / f"{module}.reo").read_text()
    return re.search(rf"^(?:reward|selection) {name}\b.*?^}}$", text, re.MULTILINE | re.DOTALL)[0]  # type: ignore[index]


@pytest.mark.parametrize("method", METHODS)
def test_a_method_takes_at_most_25_lines(method: str) -> None:
    spec, _, parts = METHODS[method]
    text = "\n".join(line for line in (SPECS / f"{spec}.reo").read_text().splitlines() if "from " not in line)
    lines = code_lines(text)
    for part in parts:
        lines += code_lines(declared(part))
    assert 3 <= len(lines) <= 25, len(lines)


def test_no_runner_knows_one_of_them() -> None:
    names = re.compile(
        r"\b(grpo.?lead|dler|lcpo|s.?grpo|adapt.?think|laser|gspo|cispo|dr.?grpo|gfpo|l1.?exact|l1.?max)\b",
        re.IGNORECASE,
    )
    for path in (ROOT / "runners").rglob("*.py"):
        code = re.sub(r'"""[\s\S]*?"""|#.*', "", path.read_text())
        assert not names.search(code), path


# Rewards


def outcomes(reward: Reward, asked: ResponseGroup) -> list[float]:
    """The reward of each response, one by one; as arrays it is the same."""
    found = [interpret(reward, asked, index)[0] for index in range(len(asked.rollouts))]
    made = arrays([asked], [[(200,)] * len(asked.rollouts)])
    inputs = replace(made.inputs, tracks=asked.tracks)
    values = vectorise(reward, inputs, made.forced.look_up, made.bare.look_up)
    np.testing.assert_allclose(values[0, :, 0], found, rtol=1e-12, atol=1e-12)
    return found


def groups(seed: int, size: int = 6, count: int = 12) -> list[ResponseGroup]:
    draw = random.Random(seed)
    found = []
    for number in range(count):
        chance = (0.0, 1.0, 0.2, 0.5, 0.8)[number % 5]
        lengths = [draw.choice((5, 17, draw.randint(1, 60))) for _ in range(size)]
        rollouts = tuple(
            RewardedResponse(length, draw.random() < chance, features={"mode": float(i % 2), "budget": 32.0})
            for i, length in enumerate(lengths)
        )
        reference = tuple(RewardedResponse(9, draw.random() < 0.5) for _ in range(4))
        found.append(ResponseGroup(f"q{number}", rollouts, reference))
    return found


def slow_lead(asked: ResponseGroup) -> list[float]:
    """Zhang and Zuo 2025, with their code's alpha .05 and weights from 1.5 to .4 around .75, k = 10."""
    right = [r.length for r in asked.rollouts if r.correct]
    rewards = []
    for r in asked.rollouts:
        if not r.correct:
            rewards.append(-1.0)
            continue
        spread = pstdev(right)
        rewards.append(math.exp(-0.05 * (r.length - fmean(right)) / spread) if spread else 1.0)
    if pstdev(rewards) == 0:
        return [0.0] * len(rewards)
    p = len(right) / len(rewards)
    found = []
    for reward in rewards:
        score = (reward - fmean(rewards)) / pstdev(rewards)
        eased = p if score > 0 else 1 - p
        found.append(score * (0.4 + (1.5 - 0.4) / (1 + math.exp(10 * (eased - 0.75)))))
    return found


def test_grpo_lead() -> None:
    method = ppo("grpo_lead")
    assert (method.advantage.normalise, method.advantage.batch) == ("none", False)
    for asked in groups(1, count=6):
        assert outcomes(method.reward, asked) == pytest.approx(slow_lead(asked), abs=1e-9)


def slow_gfpo(asked: ResponseGroup, k: int) -> list[float]:
    """Shrivastava et al. 2025: mean and deviation of the k shortest, and nothing for the others."""
    limit = sorted(r.length for r in asked.rollouts)[k - 1]
    kept = [float(r.correct) for r in asked.rollouts if r.length <= limit]
    spread = pstdev(kept)
    return [
        (r.correct - fmean(kept)) / spread if r.length <= limit and spread else 0.0 for r in asked.rollouts
    ]


def test_gfpo() -> None:
    method = ppo("gfpo")
    assert (method.batch.rollouts, method.advantage.normalise) == (16, "none")
    for asked in groups(2, size=16, count=5):
        assert outcomes(method.reward, asked) == pytest.approx(slow_gfpo(asked, 8))


def test_adapt_think() -> None:
    """Zhang et al. 2025: 1[y_1 = </think>] delta + R(y) - the reference's mean; tests/train has the objective."""
    method = ppo("adapt_think")
    assert (method.loss.ratio, method.loss.mode_tokens, method.loss_mean) == (
        "sequence",
        "shares",
        "response",
    )
    assert method.advantage.normalise == "none"
    assert [wording.prefix for wording in method.wordings] == ["hmm .", "</think>"]
    for asked in groups(3):
        base = fmean(float(r.correct) for r in asked.reference)
        slow = [(0.05 if r.features["mode"] == 1 else 0) + r.correct - base for r in asked.rollouts]
        assert outcomes(method.reward, asked) == pytest.approx(slow)


def test_laser() -> None:
    """Liu et al. 2025: C(y) + .5 I(C) I(|y| <= L)."""
    method = ppo("laser")
    for asked in groups(4):
        slow = [r.correct * (1 + 0.5 * (r.length <= 32)) for r in asked.rollouts]
        assert outcomes(method.reward, asked) == pytest.approx(slow)


def slow_targets(
    monitor: list[ResponseGroup], grid: list[int], longest: int, rollouts: int
) -> dict[str, int]:
    """Their code's targets: the least of the grid within which a right response is expected of the fewest of each level."""
    fewest = {"easy": int(rollouts * 2 / 3), "medium": int(rollouts / 3), "hard": 1}
    lengths: dict[str, list[int]] = {name: [] for name in fewest}
    for asked in monitor:
        p = Fraction(sum(r.correct for r in asked.rollouts), len(asked.rollouts))
        level = "easy" if p >= Fraction(2, 3) else "medium" if p >= Fraction(1, 3) else "hard"
        lengths[level] += [r.length for r in asked.rollouts]
    targets = dict.fromkeys(fewest, longest)
    for level, of in lengths.items():
        for limit in sorted(grid, reverse=True):
            if of and Fraction(sum(n <= limit for n in of), len(of)) * fewest[level] >= 1:
                targets[level] = limit
    return targets


@pytest.mark.parametrize("seed", [5, 6, 7])
def test_laser_d(seed: int) -> None:
    method = ppo("laser_d")
    assert method.monitor is not None
    monitor = groups(seed, size=8, count=(1, 9, 30)[seed % 3])
    table = pl.DataFrame(
        [
            {"rollout": i, "tokens": r.length, "correct": r.correct, "mode": None, "budget": None}
            for asked in monitor
            for i, r in enumerate(asked.rollouts)
        ]
    )
    tracks = track_values(method.reward, 7, [], table)
    targets = slow_targets(monitor, list(range(32, 129, 8)), 128, 8)
    for asked in groups(seed + 10, size=6):
        p = Fraction(sum(r.correct for r in asked.rollouts), 6)
        level = "easy" if p >= Fraction(2, 3) else "medium" if p >= Fraction(1, 3) else "hard"
        slow = [r.correct * (1 + 0.5 * (r.length <= targets[level])) for r in asked.rollouts]
        own = ResponseGroup(asked.question, asked.rollouts, asked.reference, tracks)
        assert outcomes(method.reward, own) == pytest.approx(slow), level


def test_lcpo() -> None:
    """Aggarwal and Welleck 2025, and a length for each question from a range."""
    exact, most = ppo("l1_ranges", "exactly"), ppo("l1_ranges", "atmost")
    assert [(w.low, w.high) for w in (*exact.wordings, *most.wordings)] == [(16, 48)] * 3
    assert most.wordings_per == "question"
    for asked in groups(8):
        alpha = 0.0003 * 32 / 1.024
        slow = [r.correct - alpha * abs(32 - r.length) for r in asked.rollouts]
        assert outcomes(exact.reward, asked) == pytest.approx(slow)
        slow = [r.correct * min(max(alpha * (32 - r.length) + 0.5, 0), 1) for r in asked.rollouts]
        assert outcomes(most.reward, asked) == pytest.approx(slow)


def slow_serial(verdicts: list[bool]) -> list[float]:
    """Dai et al. 2025: the n-th right exit earns 1 / 2^(n - 1), less the mean over all exits."""
    rewards, right = [], 0
    for verdict in verdicts:
        right += verdict
        rewards.append(1 / 2 ** (right - 1) if verdict else 0.0)
    return [reward - fmean(rewards) for reward in rewards]


def test_s_grpo() -> None:
    method = ppo("s_grpo")
    assert (method.advantage.credit, method.advantage.normalise) == ("causal", "none")
    assert method.reward.dense is not None
    assert method.reward.dense.split == Exits(n=8, l_max=128)
    draw, places = random.Random(9), (4, 8, 12)
    for _ in range(20):
        verdicts, length = [draw.random() < 0.5 for _ in places], draw.choice((3, 8, 20))
        one = RewardedResponse(length, verdicts[-1], dict(zip(places, verdicts, strict=True)))
        # A response that has ended is graded as it is: its own verdict stands at every later exit.
        verdicts = [one.forced_at(at) for at in places]
        assert interpret(method.reward, ResponseGroup("q", (one, one)), 0, places) == pytest.approx(
            slow_serial(verdicts)
        )


# Advantages


def test_dler() -> None:
    """Liu et al. 2025: rewards less their group's mean, z-scored over the batch's tokens; then its settings."""
    method = ppo("dler")
    assert (method.resample, method.clip_low, method.clip_high, method.rollout.max_tokens) == (
        10,
        0.2,
        0.28,
        64,
    )
    asked = [each for each in groups(11) if 0 < sum(r.correct for r in each.rollouts) < 6]
    rewards = np.array([[[float(r.correct)] for r in each.rollouts] for each in asked])
    length = np.array([[float(r.length) for r in each.rollouts] for each in asked])
    present = np.ones(rewards.shape, dtype=np.bool_)
    scored, tokens = advantages_of(rewards, length[:, :, None], present, length, method.advantage)
    found = finish_batch(scored, tokens, method.advantage)
    centred = [
        (float(r.correct) - fmean(float(z.correct) for z in each.rollouts), r.length)
        for each in asked
        for r in each.rollouts
    ]
    of_tokens = [value for value, count in centred for _ in range(count)]
    slow = [(value - fmean(of_tokens)) / pstdev(of_tokens) for value, _ in centred]
    np.testing.assert_allclose(found.ravel(), slow, rtol=1e-9)


def test_dr_grpo() -> None:
    """Liu et al. 2025: the sum over tokens by one constant, of rewards less their group's mean alone."""
    method = ppo("dr_grpo")
    responses = [([(-1.0, 0.3), (-0.5, -0.4)], 1.0), ([(-2.0, 0.1)], 0.0), ([(-0.1, 0.0)] * 3, 0.0)]
    old, new, mask, rewards = rows(responses)
    length = mask.sum(1).numpy()[None]
    present = np.ones((1, 3, 1), dtype=np.bool_)
    scored, _ = advantages_of(
        rewards.numpy()[None, :, None], length[:, :, None], present, length, method.advantage
    )
    ratio, centred = torch.exp(new - old), (rewards - rewards.mean())[:, None]
    low, high = 1 - method.clip_low, 1 + method.clip_high
    kept = torch.minimum(ratio * centred, ratio.clamp(low, high) * centred)
    slow = -(mask * kept).sum(1).mean() / method.rollout.max_tokens
    found = own_loss(method, old, new, mask, torch.from_numpy(scored[0, :, 0]))
    assert float(found) == pytest.approx(float(slow))


# Losses; their forms are held to the papers for all inputs in tests/train/test_objective.py


@pytest.mark.parametrize(
    ("spec", "clip", "slow", "divisor"),
    [("gspo", (3e-4, 4e-4), gspo, 1), ("luspo", (2e-3, 2.5e-3), luspo, 128), ("cispo", (1, 3), cispo, 1)],
)
def test_an_objective(spec: str, clip: tuple[float, float], slow: Any, divisor: int) -> None:
    """Bounds are those of section 5.1 of GSPO and of LUSPO. No ratio here reaches its bound."""
    method = ppo(spec)
    assert (method.clip_low, method.clip_high) == clip
    old, new, mask, advantages = rows([([(-1.0, 2e-4), (-0.5, -9e-4)], 1.0), ([(-2.0, 1e-4)], -1.0)])
    expected = float(slow(new, old, mask, advantages)) / divisor
    assert float(own_loss(method, old, new, mask, advantages)) == pytest.approx(expected, abs=1e-12)


def own_loss(
    method: Ppo, old: torch.Tensor, new: torch.Tensor, mask: torch.Tensor, advantages: torch.Tensor
) -> torch.Tensor:
    """The loss of padded rows, as the spec's settings say it."""
    held, lengths = mask.bool(), mask.sum(1).long()
    weights = torch.tensor(
        token_weights(lengths.tolist(), method.loss_mean, method.rollout.max_tokens), dtype=torch.float64
    ).repeat_interleave(lengths)
    each = advantages.repeat_interleave(lengths)
    return policy_loss(
        new[held], old[held], each, weights, method.clip_low, method.clip_high, lengths, method.loss
    ).loss


def test_dpo() -> None:
    stage = trained("dpo_shortest", "dpo_shortest").stages[0]
    assert isinstance(stage.method, Dpo)
    assert stage.selected is not None
    assert stage.selected.selection.name == "shortest_against_longest"
    new, start = [(-3.0, -5.0), (-2.0, -1.0)], [(-4.0, -4.5), (-2.5, -2.0)]
    pairs = [[tuple(map(torch.tensor, pair)) for pair in of] for of in (new, start)]
    lead = torch.tensor([(w - w0) - (l - l0) for (w, l), (w0, l0) in zip(new, start, strict=True)])  # noqa: E741
    found = pair_loss(lead, stage.method.beta, stage.method.gamma)
    assert float(found) == pytest.approx(float(slow_dpo(*pairs, stage.method.beta)))


# Two steps of each


@pytest.mark.heavy
@pytest.mark.parametrize("method", METHODS)
def test_a_method_trains_on_the_miniature(method: str, tmp_path: Path) -> None:
    spec, arms, _ = METHODS[method]
    sets = {"prompts": "2", "rl_steps": "2", "tuned_steps": "2", "reference": "2"}
    known = set(re.findall(r"^param (\w+)", (SPECS / f"{spec}.reo").read_text(), re.MULTILINE))
    sets = {name: value for name, value in sets.items() if name in known}
    # Pairs need right responses, and so a start that has learnt something.
    steps, amends = (36, {f"{spec}.batch.prompts": "2"}) if method == "DPO" else (2, {})
    _, folders = short_form(SPECS / f"{spec}.reo", tmp_path, steps=steps, sets=sets, amends=amends)
    for arm in arms:
        name = next(each for each in folders if each.startswith(f"{arm}.train"))
        metrics = pl.read_parquet(folders[name] / "metrics.parquet")
        assert metrics.height >= 1
        assert metrics["loss"].is_finite().all()
        assert metrics["grad_norm"].is_finite().all()
