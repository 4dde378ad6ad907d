"""PPO's update against loops over tokens in float64: what is cropped, what weights multiply, and the unit of each number."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
import torch

from reodsl.ir.training import Loss, Ppo
from reodsl.ir.wording import Wording
from runners.train.batch import TrainBatch
from runners.train.ppo import update
from runners.train.update import Learner
from tests.sampled import slow_but
from tests.train.models import small_model
from tests.train.test_update import method

PROMPTS = [(3, 4), (5,), (6, 2, 7), (8,)]
TOKENS = [(5, 6, 7, 9, 3), (8, 9, 10, 11), (4,), (12, 13, 2, 6, 5, 4)]
GAPS = [0.1, 0.1, 0.5, 0.5, 0.7, -0.2, 0.0, 0.1, 0.1, 0.3, 0.3, -0.4, 0.2, -0.6, 0.0, 0.9]
ADVANTAGES = [1.0, 1.0, 0, 0, 0, -1.0, -1.0, -1.0, -1.0, 0, 0, 0.5, 0, -2.0, 0, 0]
"""Returns of early sections: two responses have a tail without an advantage, and one has none at all."""
COUNTS = [len(tokens) for tokens in TOKENS]


def learner(seed: int = 0) -> Learner:
    model = small_model(seed=seed)
    return Learner.of(model, [torch.optim.SGD(model.parameters(), lr=0.0)], 0.0)


@torch.no_grad()
def read(model: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The log-probability of each token and the entropy of what it was drawn from, by the model's own forward."""
    logprobs, entropies = [], []
    for prompt, tokens in zip(PROMPTS, TOKENS, strict=True):
        logits = model(input_ids=torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1].double()
        own = logits.log_softmax(-1)
        logprobs.append(own.gather(1, torch.tensor(tokens)[:, None]).squeeze(1))
        entropies.append(-(own.exp() * own).sum(1))
    return torch.cat(logprobs), torch.cat(entropies)


def made(advantages: list[float] = ADVANTAGES) -> TrainBatch:
    """The responses, as an engine drew them whose log-probabilities are less than the trainer's by `GAPS`."""
    batch = TrainBatch.of(PROMPTS, TOKENS)
    theirs = (read(small_model(seed=0))[0] - torch.tensor(GAPS, dtype=torch.float64)).float()
    drawn = torch.ones(len(theirs), dtype=torch.bool)
    return replace(
        batch,
        sampled_mask=drawn,
        engine_logprobs=theirs,
        sampling_logprobs=theirs,
        advantages=torch.tensor(advantages),
    )


def rule(**changes: Any) -> Ppo:
    return method(**({"minibatches": 1, "epochs": 1} | changes))


def trained(ours: Ppo, batch: TrainBatch | None = None) -> tuple[dict[str, float], torch.Tensor]:
    """The numbers of an update, and its gradient."""
    own = learner()
    reference = learner(seed=3) if ours.kl else None
    row = update(own, batch or made(), ours, 5, 0, reference=reference)
    return row, torch.cat([p.grad.flatten() for p in own.model.parameters()])


def forms() -> list[Loss]:
    """A loss for each value that each of its settings may have: of a new setting too."""
    losses = [Loss()]
    for name, field in Loss.model_fields.items():
        kinds = (field.annotation, *get_args(field.annotation))
        values = [each for each in get_args(field.annotation) if isinstance(each, str)]
        values += [True] * (bool in kinds) + [0.5, 1.5] * (float in kinds) + [4] * (int in kinds)
        # `factors` are those of a ratio of the response.
        more = {"ratio": "sequence"} if name == "clip" else {}
        losses += [Loss(**{name: value, **(more if value == "factors" else {})}) for value in values]
    return losses


SETTINGS: list[dict[str, Any]] = [
    {"loss": loss, **more}
    for loss in forms()
    for more in ({}, {"importance_cap": 1.4})
    if more or loss.importance == "token"
]
WORDINGS = tuple(Wording(name=name, question=name) for name in "ab")


@pytest.mark.parametrize("every", slow_but([10], [10, 1]))
def test_what_is_cropped_changes_neither_loss_nor_gradient(
    monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """A row ends at its last advantage only where nothing reads the rest, whatever the loss is."""
    crops = Ppo.crops.fget
    assert crops is not None
    cropped = 0
    for changes in SETTINGS[::every]:
        ours = rule(**changes, wordings=WORDINGS)
        if not crops(ours):
            continue
        cropped += 1
        row, gradient = trained(ours)
        with monkeypatch.context() as patch:
            patch.setattr(Ppo, "crops", property(lambda ours: False))
            whole, wanted = trained(ours)
        assert row["loss"] == pytest.approx(whole["loss"], abs=1e-6), changes
        torch.testing.assert_close(gradient, wanted, atol=1e-6, rtol=1e-4, msg=str(changes))
    assert cropped > 20 / every


@pytest.mark.parametrize("every", slow_but([12], [12, 1]))
@pytest.mark.parametrize("term", ["kl", "entropy"])
def test_a_term_that_weighs_nothing_changes_nothing(term: str, every: int) -> None:
    for changes in SETTINGS[::every]:
        ours = rule(**changes, wordings=WORDINGS)
        plain, wanted = trained(ours)
        row, gradient = trained(ours.model_copy(update={term: 1e-12}))
        assert row["loss"] == pytest.approx(plain["loss"], abs=1e-6), changes
        torch.testing.assert_close(gradient, wanted, atol=1e-6, rtol=1e-4, msg=str(changes))


def test_a_weight_of_the_response_is_of_all_its_tokens() -> None:
    """exp(1.9) for a response whose five tokens differ by 0.1, 0.1, 0.5, 0.5 and 0.7, of which two have an advantage."""
    sums = [sum(gaps) for gaps in np.split(np.array(GAPS), np.cumsum(COUNTS)[:-1])]
    for level, wanted in (
        ("sequence", [math.exp(each) for each in sums]),
        ("mean", [math.exp(each / count) for each, count in zip(sums, COUNTS, strict=True)]),
    ):
        row, _ = trained(rule(importance_cap=10.0, loss=Loss(importance=level)))
        weights = np.repeat(np.minimum(wanted, 10), COUNTS)
        assert row["importance_mean"] == pytest.approx(weights.mean(), rel=1e-4)
        assert row["loss"] == pytest.approx(-(weights * ADVANTAGES).sum() / len(weights), rel=1e-4)


def importance(ours: Ppo, gaps: np.ndarray, token: int) -> tuple[float, bool]:
    """The weight of a token of a response with these gaps, and whether the cap cut it."""
    level = {"token": gaps[token], "sequence": gaps.sum(), "mean": gaps.mean()}
    weight, cap = math.exp(level[ours.loss.importance]), ours.importance_cap or math.inf
    return min(weight, cap), weight > cap


def loop(ours: Ppo) -> dict[str, float]:
    """The numbers of one step with one minibatch, token by token."""
    gaps, advantages, rows = np.array(GAPS), np.array(ADVANTAGES), np.repeat(range(len(COUNTS)), COUNTS)
    logprobs, entropies = (column.numpy() for column in read(small_model(seed=0)))
    d = logprobs - read(small_model(seed=3))[0].numpy()
    divergences = {"k1": d, "k2": d**2 / 2, "k3": np.exp(-d) - 1 + d, "advantage": d}[ours.loss.estimator]
    weighs = ours.importance_cap is not None
    # Ratios divide by the engine's numbers where nothing else accounts for these.
    change = np.zeros(len(gaps)) if weighs or ours.old_logprobs == "trainer" else gaps
    if ours.kl and ours.loss.estimator == "advantage":
        advantages = advantages - ours.kl * (d - change)
    loss, clipped, weights, bounded, run = 0.0, 0, [], [], []
    for token, (row, advantage) in enumerate(zip(rows, advantages, strict=True)):
        first = int(np.flatnonzero(rows == row)[0])
        weight, past = importance(ours, gaps[rows == row], token - first) if weighs else (1.0, False)
        share = {
            "token": 1 / len(gaps),
            "response": 1 / (len(COUNTS) * COUNTS[row]),
            "constant": 1 / (len(COUNTS) * ours.rollout.max_tokens),
        }[ours.loss_mean]
        ratio = math.exp(change[token])
        within = min(max(ratio, 1 - ours.clip_low), 1 + ours.clip_high)
        clipped += within * advantage < ratio * advantage
        loss -= share * weight * min(ratio * advantage, within * advantage)
        if ours.loss.estimator != "advantage":
            loss += share * ours.kl * divergences[token]
        loss -= share * ours.entropy * entropies[token]
        if not ours.crops or (advantages[token:][rows[token:] == row] != 0).any():
            weights, bounded, run = [*weights, weight], [*bounded, past], [*run, token]
    moved, size = int((advantages != 0).sum()), np.abs(gaps[run])
    numbers = {
        "loss": loss,
        "clip_fraction": clipped / moved,
        "trained_tokens": moved,
        "mismatch_median": math.exp(np.median(size)),
        "mismatch_max": math.exp(size.max()),
        "mismatch_kl": (np.exp(gaps[run]) - 1 - gaps[run]).mean(),
        "ratio_error": np.abs(change[run]).max(),
    }
    if ours.kl:
        numbers["kl"] = divergences.mean()
    if weighs:
        numbers |= {"importance_mean": np.mean(weights), "importance_capped": np.mean(bounded)}
    return numbers


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"old_logprobs": "trainer"},
        {"loss_mean": "response", "kl": 0.7},
        {"loss_mean": "constant", "kl": 0.7, "entropy": 0.2},
        {"kl": 0.7, "loss": Loss(estimator="k1"), "loss_mean": "constant"},
        {"kl": 0.7, "loss": Loss(estimator="k2"), "loss_mean": "response", "importance_cap": 10.0},
        {"kl": 0.7, "loss": Loss(estimator="advantage"), "importance_cap": 10.0},
        {"importance_cap": 1.4},
        {"importance_cap": 1.4, "kl": 0.7, "entropy": 0.2},
        {"importance_cap": 3.0, "kl": 0.7, "loss": Loss(importance="sequence"), "loss_mean": "response"},
        {"importance_cap": 3.0, "entropy": 0.2, "loss": Loss(importance="mean")},
    ],
    ids=str,
)
def test_every_number_of_a_step_is_a_loops(changes: dict[str, Any]) -> None:
    ours = rule(**changes)
    row, _ = trained(ours)
    wanted = loop(ours)
    assert {name: row[name] for name in wanted} == pytest.approx(wanted, abs=2e-5)
    assert row.keys() == wanted.keys() | {"grad_norm", "ratio_error_median"}


@pytest.mark.parametrize("weights", [None, 10.0, 1.0])
def test_neither_divergence_nor_bonus_is_weighed_by_importance(weights: float | None) -> None:
    """Without advantages these are all of the loss: the same where every ratio is cut."""
    batch = made([0.0] * len(GAPS))
    found, gradient = trained(rule(kl=1.0, entropy=0.3, importance_cap=weights), batch)
    plain, wanted = trained(rule(kl=1.0, entropy=0.3), batch)
    assert found["loss"] == pytest.approx(plain["loss"], rel=1e-5)
    assert found["kl"] == pytest.approx(plain["kl"], rel=1e-5)
    torch.testing.assert_close(gradient, wanted, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("mean", ["token", "response", "constant"])
@pytest.mark.parametrize("estimator", ["k3", "reverse"])
def test_a_divergence_is_nats_a_token_over_all_passes(mean: str, estimator: str) -> None:
    """Minibatches of unlike lengths and two epochs of weights that stay: the mean over all tokens."""
    ours = rule(kl=1.0, loss_mean=mean, minibatches=3, epochs=2, loss=Loss(estimator=estimator))
    row, _ = trained(ours)
    policy, other = small_model(seed=0), small_model(seed=3)
    exact = []
    for prompt, tokens in zip(PROMPTS, TOKENS, strict=True):
        with torch.no_grad():
            p, q = (
                model(input_ids=torch.tensor([prompt + tokens]))
                .logits[0, len(prompt) - 1 : -1]
                .double()
                .log_softmax(-1)
                for model in (policy, other)
            )
        gap = (q - p).gather(1, torch.tensor(tokens)[:, None]).squeeze(1)
        exact += ((p.exp() * (p - q)).sum(1) if estimator == "reverse" else gap.expm1() - gap).tolist()
    assert row["kl"] == pytest.approx(np.mean(exact), rel=1e-4)
