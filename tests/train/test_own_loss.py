"""A loss of the user's: equal to the settings that it repeats, in parts as in one, and a message for all that is wrong."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from reodsl.diagnostics import Problem
from reodsl.ir.data import Python
from reodsl.ir.training import Loss, Optimizer, Ppo
from reodsl.store.consent import read_code
from runners.train.gather import batch_of, score
from runners.train.losses import step_numbers
from runners.train.optimizers import build_optimizers
from runners.train.own_loss import UserLoss, _tokens
from runners.train.ppo import update
from runners.train.update import Learner
from tests.train.models import small_model
from tests.train.test_update import experience, method

TOPR = Path(__file__).resolve().parents[2] / "specs" / "miniature"
CLIPPED = """
    ratio = (tokens.logprobs - tokens.old).exp()
    within = ratio.clamp(1 - tokens.low, 1 + tokens.high)
    return -torch.minimum(ratio * tokens.advantages, within * tokens.advantages)
"""
SEQUENCE = """
    sums = torch.zeros_like(tokens.lengths, dtype=torch.float32)
    change = sums.index_add(0, tokens.responses, tokens.logprobs - tokens.old) / tokens.lengths
    ratio = change.exp()[tokens.responses]
    within = ratio.clamp(1 - tokens.low, 1 + tokens.high)
    return -torch.minimum(ratio * tokens.advantages, within * tokens.advantages)
"""
HELD = """
    gap = tokens.reference - tokens.logprobs
    return -tokens.advantages * tokens.logprobs + tokens.kl * (gap.exp() - 1 - gap) - tokens.entropy * tokens.entropies
"""
COMPARED = """
    return -tokens.advantages * tokens.logprobs + tokens.kl * tokens.divergences
"""
PLAIN = Loss(ratio="none", clip="none")


def own_loss(folder, body, ours=None):
    (folder / "mine.py").write_text(f"import torch\n\n\ndef loss(tokens):{body}")
    ours = ours or method()
    named = ours.loss.model_copy(update={"own": Python(function="mine.py:loss")})
    ours = ours.model_copy(update={"loss": named})
    return UserLoss(read_code("mine.py:loss", folder), ours), ours


def trained(ours, own=None, bound=None, frozen=False):
    """The weights after two steps, and the numbers of the last."""
    found, model = experience(small_model()), small_model()
    learner = Learner.of(
        model, build_optimizers(model, Optimizer(algorithm="adamw", lr=1e-2)), 1.0, microbatch=bound
    )
    other = Learner.of(small_model(seed=1), (), 0.0) if frozen else None
    for number in range(2):
        row = update(learner, batch_of(score(found, ours)), ours, 5, number, reference=other, user_loss=own)
    return model.state_dict(), row


def apart(one, other):
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def test_a_loss_that_repeats_the_clip_gives_its_bytes(tmp_path, monkeypatch):
    # A loss of one's own may be one of tokens without an advantage, which shorter rows are rid of.
    monkeypatch.setattr(Ppo, "crops", False)
    ours = method(old_logprobs="trainer")
    own, named = own_loss(tmp_path, CLIPPED, ours)
    own.try_it(torch.device("cpu"))
    with_setting, row = trained(ours)
    without, told = trained(named, own)
    assert apart(without, small_model().state_dict()) > 1e-3
    assert apart(without, with_setting) == 0
    assert told["loss"] == row["loss"]


@pytest.mark.parametrize(
    ("body", "settings", "frozen"),
    [
        (SEQUENCE, {"loss": Loss(ratio="sequence"), "loss_mean": "response"}, False),
        (HELD, {"loss": PLAIN, "kl": 0.3, "entropy": 0.1}, True),
        (COMPARED, {"loss": PLAIN.model_copy(update={"estimator": "reverse"}), "kl": 0.3}, True),
        (COMPARED, {"loss": PLAIN.model_copy(update={"estimator": "jsd", "top_k": 3}), "kl": 0.3}, True),
    ],
    ids=["sequence", "held", "reverse", "top_k"],
)
def test_a_loss_that_repeats_settings_trains_alike_in_small_parts_too(tmp_path, body, settings, frozen):
    ours = method(**settings)
    forms = {"estimator": ours.loss.estimator, "top_k": ours.loss.top_k}
    own, named = own_loss(tmp_path, body, method(**settings | {"loss": Loss(**forms)}))
    own.try_it(torch.device("cpu"))
    expected, row = trained(ours, frozen=frozen)
    for bound in (None, 24):
        weights, told = trained(named, own, bound, frozen)
        assert apart(weights, expected) < 5e-6, bound
        assert told["loss"] == pytest.approx(row["loss"], rel=1e-5, abs=1e-6)
        assert told.get("kl", 0) == pytest.approx(row.get("kl", 0), rel=1e-5)


def test_topr_is_its_papers_gradient(tmp_path):
    """Le Roux et al. 2025: R d log pi for a right response, and [pi/mu] from 0 to 1 times that for a wrong one."""
    ours = method(loss=Loss(own=Python(function="topr.py:loss")), loss_mean="constant")
    own = UserLoss(read_code("topr.py:loss", TOPR), ours)
    own.try_it(torch.device("cpu"))
    batch = batch_of(score(experience(small_model()), ours))
    draw = torch.Generator().manual_seed(3)
    now = (
        batch.engine_logprobs + 0.3 * torch.randn(len(batch.engine_logprobs), generator=draw)
    ).requires_grad_()
    batch = replace(batch, old_logprobs=batch.engine_logprobs, weights=torch.full_like(now, 0.5).detach())
    own(batch, now).backward()
    slopes, start = [], 0
    for length in batch.num_trained.tolist():
        part = slice(start, start + length)
        start += length
        ratio = float((now.detach()[part] - batch.old_logprobs[part]).double().sum().exp())
        for reward in batch.advantages[part].tolist():
            slopes.append(-0.5 * reward * (min(ratio, 1.0) if reward < 0 else 1.0))
    assert now.grad.tolist() == pytest.approx(slopes, rel=1e-5)
    assert len({round(each, 6) for each in slopes}) > 5


OWN = TOPR.parent / "own"


def named_loss(name, **changes):
    ours = method(loss=Loss(own=Python(function=f"losses.py:{name}")), **changes)
    own = UserLoss(read_code(f"losses.py:{name}", OWN), ours)
    own.try_it(torch.device("cpu"))
    return own, ours


def slopes_of(own, ours, rows=1, **columns):
    """The slopes of a loss by each token's log-probability, and those by its entropy, with weights of 1."""
    batch = batch_of(score(experience(small_model()), ours))
    draw = torch.Generator().manual_seed(3)
    scores = batch.engine_logprobs + 0.3 * torch.randn(rows, len(batch.engine_logprobs), generator=draw)
    scores = (scores if rows > 1 else scores[0]).requires_grad_()
    batch = replace(
        batch, old_logprobs=batch.engine_logprobs, weights=torch.ones_like(batch.engine_logprobs), **columns
    )
    own(batch, scores).backward()
    return batch, scores.detach(), scores.grad


def clipped_slopes(batch, now):
    """PPO's: -r A, and 0 where the clip is reached."""
    slopes = []
    for new, old, advantage in zip(
        now.tolist(), batch.old_logprobs.tolist(), batch.advantages.tolist(), strict=True
    ):
        ratio = math.exp(new - old)
        held = ratio > 1.2 if advantage > 0 else ratio < 0.8
        slopes.append(0.0 if held else -ratio * advantage)
    return slopes


def test_tokens_too_far_from_the_engine_are_dropped():
    """A gap of log 3, as of -log 3, is beyond the bounds of 2 and 0.5; log 1.5 is a weight of 1.5."""
    own, ours = named_loss("masked")
    gaps = [math.log(each) for each in (3, 1 / 3, 1.5)]
    count = len(batch_of(score(experience(small_model()), ours)).engine_logprobs)
    gap = torch.tensor([gaps[at % 3] for at in range(count)])
    logprobs = batch_of(score(experience(small_model()), ours)).engine_logprobs
    batch, now, found = slopes_of(own, ours, sampling_logprobs=logprobs - gap)
    wanted = [each * (1.5 if at % 3 == 2 else 0.0) for at, each in enumerate(clipped_slopes(batch, now))]
    assert found.tolist() == pytest.approx(wanted, rel=1e-5)
    assert sum(map(bool, wanted)) > 3


@pytest.mark.parametrize("name", ["forking", "fork_bonus"])
def test_a_fifth_of_a_responses_tokens_fork(name):
    own, ours = named_loss(name, entropy=0.3)
    batch, scores, found = slopes_of(own, ours, rows=2)
    forks = []
    for part in scores[1].split(batch.num_trained.tolist()):
        order = sorted(part.tolist(), reverse=True)
        forks += [each >= order[max(1, len(order) // 5) - 1] for each in part.tolist()]
    plain = clipped_slopes(batch, scores[0])
    if name == "forking":
        wanted = [each if fork else 0.0 for each, fork in zip(plain, forks, strict=True)]
        assert found[0].tolist() == pytest.approx(wanted, rel=1e-5)
        assert not found[1].any()
    else:
        assert found[0].tolist() == pytest.approx(plain, rel=1e-5)
        assert found[1].tolist() == pytest.approx([-0.3 * fork for fork in forks])
    assert 0 < sum(forks) < len(forks) / 2


@pytest.mark.parametrize("name", ["skewed", "skewed_forward"])
def test_a_skewed_divergence_has_its_gradient_in_the_mean(name):
    """Over all tokens that the policy may draw, each as often as it does, it is the slope of the divergence as printed."""
    draw = torch.Generator().manual_seed(5)
    logits, theirs = (2 * torch.randn(9, generator=draw, dtype=torch.float64) for _ in range(2))
    logits.requires_grad_()
    p, q = logits.softmax(0), theirs.softmax(0)
    exact = p * (p / (0.1 * p + 0.9 * q)).log() if name == "skewed" else q * (q / (0.1 * q + 0.9 * p)).log()
    (wanted,) = torch.autograd.grad(exact.sum(), logits, retain_graph=True)
    own, _ = named_loss(name, kl=0.7)
    tokens = SimpleNamespace(logprobs=p.log(), reference=q.log(), kl=0.7)
    (found,) = torch.autograd.grad((p.detach() * own._function(tokens)).sum(), logits)
    torch.testing.assert_close(found, 0.7 * wanted)
    assert float(wanted.abs().max()) > 0.05


WRONG = {
    "\n    return tokens.logprobs / 0 * 0": "8 of 8 losses are no finite numbers, the first is nan",
    "\n    return (tokens.logprobs * 0).sqrt() - tokens.logprobs": "8 of 8 gradients are no finite numbers",
    "\n    return (tokens.logprobs * tokens.advantages).mean()": r"of shape \[\], .* and not torch.float32 of shape \[8\]",
    "\n    return tokens.logprobs[:, None]": r"of shape \[8, 1\]",
    "\n    return tokens.logprobs.detach()": "its losses are detached",
    "\n    return torch.zeros_like(tokens.old, requires_grad=True) + 1": "no gradient reaches `tokens.logprobs`",
    "\n    return tokens.logprobs * 0": "no gradient reaches `tokens.logprobs`",
    "\n    return tokens.logprobs.tolist()": r"it gave list, and not torch.float32 of shape \[8\]",
    "\n    return tokens.responses": "it gave torch.int64",
    "\n    return -tokens.logprobs * (tokens.advantages - tokens.advantages.mean())": "by themselves, and",
    "\n    return tokens.logprobs * torch.rand(8 if len(tokens.old) == 8 else 1)": "without random numbers",
    "\n    x = tokens.logprobs\n    return x * tokens.nothing": "AttributeError: 'Tokens' object has no",
    "\n    x = tokens.logprobs.exp()\n    y = x * 1\n    x.add_(1)\n    return y": "RuntimeError: .*inplace",
    "\n    return tokens.logprobs.to_sparse()": "torch.sparse_coo on cpu",
    "\n    return tokens.logprobs.to('meta')": "torch.strided on meta",
    "\n    return tokens.logprobs.to(torch.float8_e4m3fn)": "it gave torch.float8_e4m3fn",
    "\n    return tokens.logprobs.to(torch.complex64)": "it gave torch.complex64",
    "\n    class E(Exception):\n        def __str__(self): raise RuntimeError\n    raise E()": "E",
    "\n    raise SystemExit(3)": "SystemExit: 3",
    "\n    import beside_it": "No module named 'beside_it'",
}


def test_a_tensor_of_a_class_of_the_users_is_a_tensor(tmp_path):
    body = (
        "\n    class T(torch.Tensor): pass\n    return (-tokens.advantages * tokens.logprobs).as_subclass(T)"
    )
    own_loss(tmp_path, body)[0].try_it(torch.device("cpu"))


@pytest.mark.parametrize("body", WRONG)
def test_what_is_no_loss_is_told_at_its_place_before_anything_is_trained(tmp_path, body):
    with pytest.raises(Problem) as caught:
        own_loss(tmp_path, body)[0].try_it(torch.device("cpu"))
    (told,) = caught.value.diagnostics
    assert told.code == "E0744"
    assert re.search(WRONG[body], f"{told.message} {told.help}")
    assert "mine.py" in told.where
    assert told.help
    if " failed: " in told.message and "inplace" not in WRONG[body]:
        assert told.where.endswith(f"mine.py:{4 + body.count(chr(10))}")


def test_a_file_that_fails_as_it_is_loaded_is_told_at_its_line(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\nBOUND = 1 / 0\n\n\ndef loss(tokens):\n    return tokens.logprobs\n"
    )
    with pytest.raises(Problem, match="ZeroDivisionError") as caught:
        UserLoss(read_code("mine.py:loss", tmp_path), method())
    assert caught.value.diagnostics[0].where.endswith("mine.py:2")


def test_numbers_that_stop_being_finite_in_training_are_told(tmp_path):
    own, named = own_loss(tmp_path, "\n    return -tokens.advantages * tokens.logprobs / (tokens.old > -2.5)")
    with pytest.raises(Problem, match="losses are no finite numbers"):
        trained(named, own)


def test_what_a_loss_changes_in_place_is_its_own(tmp_path):
    own, named = own_loss(
        tmp_path, "\n    tokens.advantages.clamp_(max=0)\n    return -tokens.advantages * tokens.logprobs"
    )
    batch = batch_of(score(experience(small_model()), named))
    batch = replace(batch, old_logprobs=batch.engine_logprobs)
    before = batch.advantages.clone()
    own(batch, batch.engine_logprobs.clone().requires_grad_())
    assert torch.equal(batch.advantages, before)


def test_the_tensors_are_those_of_whole_responses(tmp_path):
    _, ours = own_loss(tmp_path, CLIPPED)
    batch = batch_of(score(experience(small_model()), ours))
    now = replace(batch, old_logprobs=batch.engine_logprobs)
    tokens = _tokens(ours, now, batch.engine_logprobs, step_numbers(ours))
    assert tokens.responses.bincount().tolist() == tokens.lengths.tolist() == batch.num_trained.tolist()
    assert {len(each) for each in (tokens.old, tokens.rollout, tokens.advantages, tokens.drawn)} == {
        len(batch.engine_logprobs)
    }
    assert (tokens.reference, tokens.entropies, tokens.divergences) == (None, None, None)
