"""The losses against formulas written out token by token, and their gradients against derivatives done by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.train.losses import divergence, pair_loss, policy_loss, token_weights


def slow_loss(new, old, advantages, weights, low, high):
    """Loss, gradient with respect to the new log-probabilities, and clipped tokens, by cases."""
    loss, gradient, clipped = 0.0, [], 0
    for n, o, a, w in zip(new, old, advantages, weights, strict=True):
        ratio = math.exp(n - o)
        stopped = (a > 0 and ratio > 1 + high) or (a < 0 and ratio < 1 - low)
        used = (1 + high if a > 0 else 1 - low) if stopped else ratio
        loss -= w * used * a
        gradient.append(0.0 if stopped else -w * ratio * a)
        clipped += stopped
    return loss, gradient, clipped


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(st.floats(-3, 0), st.floats(-0.6, 0.6), st.sampled_from([-1.5, 0.0, 0.7])),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from([(0.2, 0.2), (0.2, 0.28), (0.5, 0.5)]),
)
def test_clipped_loss_and_gradient(tokens, clip):
    old = np.array([t[0] for t in tokens])
    # Ratios on the edge of the clip would leave its derivative open.
    new = old + np.array([t[1] + 1e-4 for t in tokens])
    advantages = np.array([t[2] for t in tokens])
    weights = np.linspace(0.1, 1, len(tokens))
    leaf = torch.tensor(new, requires_grad=True)
    found = policy_loss(leaf, *(torch.tensor(x) for x in (old, advantages, weights)), *clip)
    loss, gradient, clipped = slow_loss(new, old, advantages, weights, *clip)
    found.loss.backward()
    assert float(found.loss.detach()) == pytest.approx(loss, abs=1e-12)
    assert leaf.grad is not None
    np.testing.assert_allclose(leaf.grad.numpy(), gradient, atol=1e-12)
    assert found.num_clipped == clipped


def test_divergence_by_hand():
    """Probabilities 1/2 and 1/4 under the policy, 1/4 and 1/2 under the reference: r = 1/2 and 2."""
    logprobs = torch.log(torch.tensor([0.5, 0.25])).requires_grad_()
    reference = torch.log(torch.tensor([0.25, 0.5]))
    weights = torch.tensor([1.0, 3.0])
    found = (weights * divergence(logprobs, reference)).sum()
    by_hand = (0.5 - 1 - math.log(0.5)) + 3 * (2 - 1 - math.log(2))
    assert float(found.detach()) == pytest.approx(by_hand)
    found.backward()
    # The gradient in a log-probability is w (1 - r).
    assert logprobs.grad.tolist() == pytest.approx([0.5, -3.0])


def test_means_over_tokens_and_over_responses():
    assert token_weights([1, 3], "token", 8) == [0.25, 0.25]
    assert token_weights([0, 3], "response", 8) == pytest.approx([1 / 2, 1 / 6])
    assert token_weights([1, 3], "response", 8) == [0.5, 1 / 6]
    # Dr. GRPO: 1/G sum over responses of their tokens' sum over 8.
    assert token_weights([1, 3], "constant", 8) == [1 / 16, 1 / 16]


def test_simpo_by_hand():
    # Pair 1: 2 (-4/4 + 6/3) - 0.5 = 1.5; pair 2: 2 (-9/3 + 2/2) - 0.5 = -4.5.
    preferred = torch.tensor([-4.0, -9.0], requires_grad=True)
    rejected = torch.tensor([-6.0, -2.0], requires_grad=True)
    lead = preferred / torch.tensor([4, 3]) - rejected / torch.tensor([3, 2])
    loss = pair_loss(lead, 2.0, 0.5)
    expected = [math.log(1 + math.exp(-1.5)), math.log(1 + math.exp(4.5))]
    assert float(loss.detach()) == pytest.approx(sum(expected) / 2)
    loss.backward()
    slopes = [-1 / (1 + math.exp(1.5)), -1 / (1 + math.exp(-4.5))]
    assert preferred.grad is not None
    assert rejected.grad is not None
    np.testing.assert_allclose(preferred.grad, [slopes[0] * 2 / 4 / 2, slopes[1] * 2 / 3 / 2], rtol=1e-6)
    np.testing.assert_allclose(rejected.grad, [-slopes[0] * 2 / 3 / 2, -slopes[1] * 2 / 2 / 2], rtol=1e-6)
