"""The forms of PPO's loss against their papers' formulas, written out response by response over padded rows."""

import math
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reodsl.ir.training import Loss
from runners.train.losses import divergence, policy_loss, token_weights

LOW, HIGH, CAP = 0.2, 0.28, 3.0


def gspo(new, old, mask, advantages):
    """Zheng et al. 2025, eq. 5 and 7: s = (pi(y) / pi_old(y)) ^ (1 / |y|), clipped, times the response's advantage."""
    s = torch.exp(((new - old) * mask).sum(1) / mask.sum(1))
    return -torch.minimum(s * advantages, s.clamp(1 - LOW, 1 + HIGH) * advantages).mean()


def luspo(new, old, mask, advantages):
    """Liu et al. 2026: GSPO's loss of a response times its tokens; `constant` divides this by the most tokens, here 1."""
    losses = [gspo(*(part[i : i + 1] for part in (new, old, mask, advantages))) for i in range(len(new))]
    return (torch.stack(losses) * mask.sum(1)).mean()


def cispo(new, old, mask, advantages):
    """MiniMax 2025, eq. 4: sg(clip(r)) A log pi over the tokens, by their number."""
    r = torch.exp(new - old).clamp(1 - LOW, 1 + HIGH).detach()
    return -(mask * r * advantages[:, None] * new).sum() / mask.sum()


def dual(new, old, mask, advantages):
    """Ye et al. 2020, eq. 5: max(min(r A, clip(r) A), c A) where A < 0, else what PPO has."""
    r, a = torch.exp(new - old), advantages[:, None]
    kept = torch.minimum(r * a, r.clamp(1 - LOW, 1 + HIGH) * a)
    kept = torch.where(a < 0, torch.maximum(kept, CAP * a), kept)
    return -(mask * kept).sum() / mask.sum()


def gmpo(new, old, mask, advantages):
    """Zhao et al. 2025: the geometric mean of min(|r A|, |clip(r) A|), with the sign of A."""
    total, logs = 0.0, (new - old)
    for i, advantage in enumerate(advantages):
        r = torch.exp(logs[i][mask[i].bool()])
        factors = torch.minimum(r * advantage.sign(), r.clamp(1 - LOW, 1 + HIGH) * advantage.sign()).abs()
        if advantage != 0:
            total = total + factors.prod() ** (1 / len(r)) * advantage
    return -total / len(advantages) + 0.0 * (mask * new).sum()


def sapo(new, old, mask, advantages):
    """Gao et al. 2025: 4 / tau sigmoid(tau (r - 1)) A, with 1.0 for good responses and 1.05 for bad ones."""
    a = advantages[:, None]
    tau = torch.where(a > 0, torch.tensor(1.0, dtype=a.dtype), torch.tensor(1.05, dtype=a.dtype))
    gate = 4 / tau / (1 + torch.exp(-tau * (torch.exp(new - old) - 1)))
    return -((mask * gate * a).sum(1) / mask.sum(1)).mean()


def unclipped(new, old, mask, advantages):
    """Importance sampling as it is."""
    return -(mask * torch.exp(new - old) * advantages[:, None]).sum() / mask.sum()


def reinforce(new, old, mask, advantages):
    """Williams 1992: A log pi."""
    return -(mask * new * advantages[:, None]).sum() / mask.sum()


FORMS = {
    "sequence": (Loss(ratio="sequence"), gspo, "response"),
    "sequence by length": (Loss(ratio="sequence"), luspo, "constant"),
    "weight": (Loss(clip="weight"), cispo, "token"),
    "dual": (Loss(clip="dual", cap=CAP), dual, "token"),
    "factors": (Loss(ratio="sequence", clip="factors"), gmpo, "response"),
    "gate": (Loss(clip="gate"), sapo, "response"),
    "unclipped": (Loss(clip="none"), unclipped, "token"),
    "no ratio": (Loss(ratio="none", clip="none"), reinforce, "token"),
}
PAGE = Path(__file__).resolve().parents[2] / "docs" / "TRAINING.md"
RESPONSE = st.tuples(
    st.lists(st.tuples(st.floats(-3, 0), st.floats(-2.5, 2.5)), min_size=1, max_size=6),
    st.sampled_from([-1.5, -0.4, 0.0, 0.7]),
)


def rows(responses):
    """Padded log-probabilities of before and after, and the mask, of [(tokens, advantage)]; padding is far out."""
    width = max(len(tokens) for tokens, _ in responses)
    old, new, mask = (torch.zeros(len(responses), width, dtype=torch.float64) for _ in range(3))
    for i, (tokens, _) in enumerate(responses):
        for j, (before, change) in enumerate(tokens):
            # Ratios on the edge of a clip would leave the derivative open.
            old[i, j], new[i, j], mask[i, j] = before, before + change + 1e-4, 1.0
    return old, new, mask, torch.tensor([a for _, a in responses], dtype=torch.float64)


def both(responses, name):
    """(loss, gradient by new log-probabilities) of the formula and of the library, and what that counts as clipped."""
    form, formula, mean = FORMS[name]
    old, new, mask, advantages = rows(responses)
    leaf = new.clone().requires_grad_()
    slow = formula(leaf, old, mask, advantages)
    slow.backward()
    held = mask.bool()
    lengths = mask.sum(1).long()
    flat = new[held].clone().requires_grad_()
    weights = torch.tensor(token_weights(lengths.tolist(), mean, 1), dtype=torch.float64).repeat_interleave(
        lengths
    )
    own = advantages.repeat_interleave(lengths)
    found = policy_loss(flat, old[held], own, weights, LOW, HIGH, lengths, form)
    found.loss.backward()
    return (slow, leaf.grad[held]), (found.loss, flat.grad), int(found.num_clipped)


def test_every_clip_has_its_formula_here_and_in_the_documents():
    clips = set(get_args(Loss.model_fields["clip"].annotation))
    assert {form.clip for form, *_ in FORMS.values()} == clips, "write the paper's formula into FORMS"
    untold = {clip for clip in clips if f"`clip = {clip}`" not in PAGE.read_text()}
    assert not untold, f"give {untold} a row in docs/TRAINING.md"


@pytest.mark.parametrize("name", FORMS)
@settings(max_examples=60, deadline=None)
@given(st.lists(RESPONSE, min_size=1, max_size=5))
def test_a_form_is_its_papers(name, responses):
    (slow, slope), (loss, gradient), _ = both(responses, name)
    # GSPO's token form has its value only up to the mean, which is over the same tokens.
    assert float(loss.detach()) == pytest.approx(float(slow.detach()), abs=1e-12)
    np.testing.assert_allclose(gradient.numpy(), slope.numpy(), atol=1e-12)


@pytest.mark.parametrize("name", ["token", *FORMS])
def test_with_equal_policies_the_gradient_is_the_policy_gradient(name):
    form = Loss() if name == "token" else FORMS[name][0]
    logprobs = torch.tensor([-1.0, -0.2, -3.0, -0.5], requires_grad=True)
    advantages, weights = torch.tensor([1.0, 1.0, -2.0, 0.0]), torch.tensor([0.1, 0.2, 0.3, 0.4])
    lengths = torch.tensor([2, 1, 1])
    found = policy_loss(logprobs, logprobs.detach(), advantages, weights, LOW, HIGH, lengths, form)
    found.loss.backward()
    np.testing.assert_allclose(logprobs.grad, -weights * advantages, rtol=1e-6)
    assert found.num_clipped == 0


@pytest.mark.parametrize("name", ["token", "weight", "dual", "sequence", "factors", "gate", "unclipped"])
@pytest.mark.parametrize("far", [-500.0, -30.0, 30.0, 500.0])
def test_a_ratio_far_out_leaves_numbers(name, far):
    form = Loss() if name == "token" else FORMS[name][0]
    old = torch.tensor([-1.0, -1.0, -1.0])
    logprobs = (old + far).requires_grad_()
    advantages = torch.tensor([1.0, -1.0, 0.0])
    found = policy_loss(
        logprobs, old, advantages, torch.ones(3) / 3, LOW, HIGH, torch.tensor([1, 1, 1]), form
    )
    found.loss.backward()
    assert torch.isfinite(found.loss)
    assert torch.isfinite(logprobs.grad).all()
    if form.clip == "two_sided" and far > 0:
        assert logprobs.grad[0] == 0
    if name == "weight":
        bound = 1 + HIGH if far > 0 else 1 - LOW
        np.testing.assert_allclose(logprobs.grad, -advantages * bound / 3, rtol=1e-6)
        assert found.num_clipped == 2
    if name == "dual" and far > 0:
        assert logprobs.grad.tolist() == [0, 0, 0]
        assert float(found.loss.detach()) == pytest.approx(-(1 + HIGH - CAP) / 3)


@pytest.mark.parametrize(
    ("advantage", "ratio", "clipped"),
    [
        (-1.0, CAP + 0.1, 1),
        (-1.0, CAP - 0.1, 0),
        (-1.0, CAP, 0),
        (-1.0, 1 - LOW - 0.01, 1),
        (-1.0, 1 - LOW + 0.01, 0),
        (1.0, 1 + HIGH + 0.01, 1),
        (1.0, 1 - LOW - 0.01, 0),
        (0.0, CAP + 0.1, 0),
    ],
)
def test_a_token_that_the_dual_clip_stops_is_counted_and_has_no_gradient(advantage, ratio, clipped):
    logprobs = torch.tensor([math.log(ratio)], dtype=torch.float64, requires_grad=True)
    found = policy_loss(
        logprobs, torch.zeros(1), torch.tensor([advantage]), torch.ones(1), LOW, HIGH, form=FORMS["dual"][0]
    )
    found.loss.backward()
    assert found.num_clipped == clipped
    assert logprobs.grad.tolist() == pytest.approx([0.0 if clipped else -ratio * advantage])


def test_the_dual_clip_bounds_negative_advantages_alone():
    """A cap below the other clip shows it: for A = 1/2 the loss is -r A, and not -cap A."""
    new = torch.tensor([math.log(1.25)], dtype=torch.float64)
    form = Loss(clip="dual", cap=1.1)
    found = policy_loss(new, torch.zeros(1), torch.tensor([0.5]), torch.ones(1), LOW, HIGH, form=form)
    assert float(found.loss) == pytest.approx(-1.25 / 2)


def test_clipped_weights_count_where_there_is_an_advantage():
    advantages = torch.tensor([1.0, 0.0, 1.0, -1.0, 1.0])
    new = torch.tensor([1.0, 1.0, 0.0, -1.0, -1.0])
    found = policy_loss(new, torch.zeros(5), advantages, torch.ones(5), LOW, HIGH, form=FORMS["weight"][0])
    assert found.num_clipped == 3


def test_a_ratio_grows_to_that_of_sixty_nats():
    far = torch.tensor([500.0], dtype=torch.float64)
    found = policy_loss(
        far, torch.zeros(1), torch.ones(1), torch.ones(1), LOW, HIGH, form=FORMS["unclipped"][0]
    )
    assert float(found.loss) == pytest.approx(-math.exp(60.0))


def test_a_response_of_one_token_has_one_ratio_for_both():
    old, new = torch.tensor([-1.0, -2.0]), torch.tensor([-0.5, -2.6])
    advantages, weights, lengths = torch.tensor([1.0, -1.0]), torch.tensor([0.5, 0.5]), torch.tensor([1, 1])
    one = policy_loss(new, old, advantages, weights, LOW, HIGH, lengths, Loss(ratio="sequence"))
    other = policy_loss(new, old, advantages, weights, LOW, HIGH)
    assert one.loss == other.loss
    assert one.num_clipped == other.num_clipped == 2


def test_advantages_of_tokens_under_a_ratio_of_the_sequence():
    """GSPO-token, eq. 14: each token's slope is its own advantage times the response's ratio."""
    old = torch.tensor([-1.0, -2.0], dtype=torch.float64)
    new = torch.tensor([-0.9, -2.05], dtype=torch.float64, requires_grad=True)
    advantages = torch.tensor([1.0, -2.0], dtype=torch.float64)
    weights = torch.full((2,), 0.5, dtype=torch.float64)
    form = Loss(ratio="sequence")
    policy_loss(new, old, advantages, weights, LOW, HIGH, torch.tensor([2]), form).loss.backward()
    s = math.exp((0.1 - 0.05) / 2)
    assert new.grad.tolist() == pytest.approx([-0.5 * s, 0.5 * s * 2])


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_estimates_of_a_divergence_summed_over_all_that_can_be_drawn(estimator):
    """Over a whole vocabulary: values of k1 and k3 are KL(policy || start); k1's and k2's gradients are its own."""
    draw = torch.Generator().manual_seed(3)
    start = torch.randn(7, generator=draw, dtype=torch.float64).log_softmax(-1)
    logits = torch.randn(7, generator=draw, dtype=torch.float64).requires_grad_()
    policy = logits.log_softmax(-1)
    # The policy's own probability is how often each is drawn, and no part of the estimate.
    found = (policy.detach().exp() * divergence(policy, start, estimator)).sum()
    (gradient,) = torch.autograd.grad(found, logits, retain_graph=True)
    forward = (policy.exp() * (policy - start)).sum()
    reverse = (start.exp() * (start - policy)).sum()
    exact = torch.autograd.grad(reverse if estimator == "k3" else forward, logits)[0]
    np.testing.assert_allclose(gradient, exact, atol=1e-12)
    value = (policy.exp() * (policy - start) ** 2).sum() / 2 if estimator == "k2" else forward
    assert float(found.detach()) == pytest.approx(float(value.detach()), abs=1e-12)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_a_policy_that_is_the_start_has_no_divergence(estimator):
    leaf = torch.tensor([-1.0, -0.3], requires_grad=True)
    found = divergence(leaf, leaf.detach(), estimator).sum()
    found.backward()
    assert float(found.detach()) == 0
    assert leaf.grad.tolist() == [0, 0]
