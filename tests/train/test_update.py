"""One PPO update against the same step written with the model's own forward and torch's own log-softmax."""

import copy
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from reodsl.diagnostics import Problem
from reodsl.ir.expression import Correct
from reodsl.ir.reward import Reward
from reodsl.ir.training import Advantage, Batch, Lora, Loss, Optimizer, Ppo, Sampling
from runners.data.draws import derive_seed, permutation
from runners.engine.protocol import Generation, Request
from runners.rewards.inputs import CutVerdicts, RewardInputs, pad_places
from runners.rollout.grader import Rollout
from runners.rollout.questions import PromptedQuestion
from runners.train import logprobs
from runners.train import update as module
from runners.train.adapters import adapt, merge_state
from runners.train.gather import batch_of, rollout_columns, score, step_metrics
from runners.train.optimizers import build_optimizers
from runners.train.ppo import update
from runners.train.rollouts import GradedStep
from runners.train.sharding import Scorer
from runners.train.update import Learner
from tests.train.models import small_model

QUESTIONS, ROLLOUTS = 3, 4


def method(**changes):
    base = {
        "rollout": Sampling(max_tokens=12),
        "max_prompt": 8,
        "batch": Batch(prompts=QUESTIONS, rollouts=ROLLOUTS),
        "minibatches": 2,
        "epochs": 2,
        "clip_low": 0.2,
        "clip_high": 0.2,
        "loss_mean": "token",
        "reward": Reward(name="r", outcome=Correct(of="y")),
        "advantage": Advantage(),
    }
    return Ppo(**(base | changes))


def experience(model, temperature=1.0):
    """Responses of random tokens, right and wrong in the first and last group, all right in the second."""
    draw = np.random.default_rng(4)
    requests, responses = [], []
    for number in range(QUESTIONS * ROLLOUTS):
        prompt = tuple(int(t) for t in draw.integers(2, 23, 3 + number // ROLLOUTS))
        tokens = tuple(int(t) for t in draw.integers(2, 23, draw.integers(1, 13)))
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([prompt + tokens])).logits[0] / temperature
        own = logits.log_softmax(-1)[len(prompt) - 1 : -1].gather(1, torch.tensor(tokens)[:, None])
        logprobs = tuple(float(x) for x in own.squeeze(1))
        requests.append(Request(prompt, number))
        responses.append(Generation(tokens, logprobs, logprobs, "stop", (0,)))
    shape = (QUESTIONS, ROLLOUTS)
    correct = np.array([[1, 0, 1, 0], [1, 1, 1, 1], [0, 0, 0, 1]], dtype=float)
    length = np.array([len(r.tokens) for r in responses], dtype=float).reshape(shape)
    places, present = pad_places([[(12,)]])
    nothing = CutVerdicts.of([], 1)
    names = tuple(f"q{i}" for i in range(QUESTIONS))
    rollouts = tuple(
        Rollout(
            PromptedQuestion(names[number // ROLLOUTS], "", "1", prompt=request.prompt),
            number,
            request,
            response,
        )
        for number, (request, response) in enumerate(zip(requests, responses, strict=True))
    )
    inputs = RewardInputs(names, length, correct, places, present)
    return GradedStep(rollouts, inputs, nothing, nothing, ((),) * len(requests), {})


def responses_of(found):
    return [one.response for one in found.rollouts]


def with_responses(found, responses):
    """The same rollouts with other responses."""
    pairs = zip(found.rollouts, responses, strict=True)
    return replace(found, rollouts=tuple(replace(one, response=response) for one, response in pairs))


def with_prefixes(found, tokens):
    """The same rollouts, the last so many tokens of each prompt a prefix that is trained."""
    questions = [replace(one.question, trained_prefix=tokens) for one in found.rollouts]
    pairs = zip(found.rollouts, questions, strict=True)
    return replace(found, rollouts=tuple(replace(one, question=question) for one, question in pairs))


def slow_update(model, found, rule, settings, seed, frozen=None):
    """Every response in every minibatch, one by one, with autograd through the model as it is.

    With `frozen`, `rule.kl` times its divergence is added: over every token, r - 1 - log r of the frozen model's probability
    over the model's. `rule.entropy` times the entropy of each token's distribution, as torch has it, is taken away.
    """
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=settings.lr,
        betas=settings.betas,
        eps=settings.eps,
        weight_decay=settings.weight_decay,
    )
    rewards = found.inputs.correct
    spread = rewards.std(axis=1, keepdims=True)
    advantages = np.where(
        spread > 0, (rewards - rewards.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1), 0
    )

    losses = []
    for epoch in range(rule.epochs):
        order = permutation(derive_seed(seed, "minibatches", 0, epoch), len(found.rollouts))
        for members in np.array_split(order, rule.minibatches):
            optimizer.zero_grad()
            total = sum(len(found.rollouts[i].response.tokens) for i in members)
            loss = torch.zeros(())
            for i in members:
                prompt, tokens = found.rollouts[i].request.prompt, found.rollouts[i].response.tokens
                logits = model(input_ids=torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
                logits = logits / rule.rollout.temperature
                new = logits.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None]).squeeze(1)
                ratio = torch.exp(new - torch.tensor(found.rollouts[i].response.logprobs))
                advantage = float(advantages.ravel()[i])
                if rule.loss.ratio == "sequence":
                    ratio = torch.exp(torch.log(ratio).sum() / len(tokens)).repeat(len(tokens))
                kept = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
                if rule.loss.clip == "weight":
                    kept = ratio.detach().clamp(0.8, 1.2) * advantage * new
                entropies = torch.distributions.Categorical(logits=logits).entropy()
                own = {"response": len(tokens), "constant": rule.rollout.max_tokens}
                weight = 1 / total if rule.loss_mean == "token" else 1 / (len(members) * own[rule.loss_mean])
                loss = loss - weight * kept.sum()
                if frozen is not None:
                    with torch.no_grad():
                        theirs = frozen(input_ids=torch.tensor([prompt + tokens])).logits[
                            0, len(prompt) - 1 : -1
                        ]
                    theirs = (theirs / rule.rollout.temperature).log_softmax(-1)
                    theirs = theirs.gather(1, torch.tensor(tokens)[:, None]).squeeze(1)
                    r = torch.exp(theirs) / torch.exp(new)
                    loss = loss + rule.kl * weight * (r - 1 - torch.log(r)).sum()
                loss = loss - rule.entropy * weight * entropies.sum()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), settings.grad_norm)
            optimizer.step()
            losses.append(float(loss.detach()))
    return sum(losses) / len(losses)


SETTINGS = Optimizer(algorithm="adamw", lr=1e-2, weight_decay=0.05, grad_norm=0.5)


def updated(rule, temperature=1.0, far=None, near=1e-5):
    """Update a model, and another without shortcuts, which come out alike: the numbers, the other's loss, the responses."""
    model = small_model()
    slow, found = copy.deepcopy(model), experience(model, temperature)
    learner = Learner.of(model, build_optimizers(model, SETTINGS), SETTINGS.grad_norm)
    reference = Learner.of(far, (), 0.0) if far is not None else None
    numbers = update(learner, batch_of(score(found, rule)), rule, 5, 0, reference=reference)
    expected = slow_update(slow, found, rule, SETTINGS, 5, far)
    assert numbers["loss"] == pytest.approx(expected, abs=near)
    for (name, p), q in zip(model.named_parameters(), slow.parameters(), strict=True):
        # A step of Adam turns the sign of a gradient near nothing into a whole step.
        assert float((p - q).detach().abs().mean()) < 2e-4, name
    return numbers, expected, found


@pytest.mark.parametrize("loss_mean", ["token", "response", "constant"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("bound", [16, 4096])
def test_the_update_equals_one_without_shortcuts(monkeypatch, loss_mean, temperature, bound):
    monkeypatch.setattr(module, "token_bound", lambda device: bound)
    rule = method(loss_mean=loss_mean, rollout=Sampling(max_tokens=12, temperature=temperature))
    numbers, _, _ = updated(rule, temperature)
    assert 0 <= numbers["ratio_error_median"] <= numbers["ratio_error"] < 1e-4
    assert numbers["clip_fraction"] > 0


def test_ratio_error_shows_weights_that_differ_from_those_that_sampled():
    model = small_model()
    found = experience(small_model(seed=1))
    learner = Learner.of(model, build_optimizers(model, SETTINGS), 1.0)
    numbers = update(learner, batch_of(score(found, method())), method(), 5, 0)
    assert numbers["ratio_error"] > 0.1


@pytest.mark.parametrize(("loss", "norm"), [(math.inf, 1.0), (1.0, math.nan)])
def test_a_loss_or_a_gradient_alone_may_diverge(loss, norm):
    with pytest.raises(Problem):
        module._require_finite(loss, norm, "step 1")


def test_a_step_is_checked_before_anything_changes():
    class Stopped(Exception):
        pass

    def check():
        raise Stopped

    model = small_model()
    learner = Learner.of(model, build_optimizers(model, SETTINGS), 1.0)
    batch = batch_of(score(experience(model), method()))
    with pytest.raises(Stopped):
        module.optimizer_step(learner, batch, lambda part, scores: scores.sum(), 1.0, "step 1", check)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), small_model().parameters(), strict=True))


def test_sequences_cost_flops_or_tokens_where_sizes_are_not_known(monkeypatch):
    learner = Learner.of(small_model(), (), 0.0)
    sizes = learner.sizes
    # A token attends to half of its sequence.
    assert learner._costs([3, 10]) == [sizes.forward_flops(3, 4.5), sizes.forward_flops(10, 50.0)]
    monkeypatch.setattr(module, "from_config", lambda config: None)
    assert learner._costs([3, 10]) == [3.0, 10.0]


def test_weights_are_the_models_and_gradients_are_gone():
    model = small_model()
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    found = Learner.of(model, (), 0.0).weights()
    assert found.keys() == model.state_dict().keys()
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in found.items())
    assert all(p.grad is None for p in model.parameters())


def test_a_device_that_an_engine_shares_gives_back_what_its_allocator_keeps(monkeypatch):
    asked = []
    monkeypatch.setattr(
        torch, "get_device_module", lambda device: SimpleNamespace(empty_cache=lambda: asked.append(device))
    )
    for yields in (True, False):
        Learner.release_memory(
            SimpleNamespace(model=small_model(), device=torch.device("cuda"), shares_device=yields)
        )
    Learner.of(small_model(), (), 0.0).release_memory()
    assert asked == [torch.device("cuda")]


def test_ratio_error_shows_passes_in_another_precision():
    model = small_model()
    batch = batch_of(score(experience(model), method()))
    scorer = Scorer(model, torch.bfloat16, casts=True)
    learner = Learner.of(model, build_optimizers(model, SETTINGS), 1.0, scorer=scorer)
    assert update(learner, batch, method(), 5, 0)["ratio_error"] > 1e-3


def test_a_divergence_says_where_and_changes_nothing(refusal):
    model = small_model()
    found = experience(model)
    scored = score(found, method())
    scored.advantages[0, 0] = np.inf
    before = copy.deepcopy(model.state_dict())
    learner = Learner.of(model, build_optimizers(model, SETTINGS), 1.0)
    with pytest.raises(Problem) as caught:
        update(learner, batch_of(scored), method(minibatches=1), 5, 6)
    diagnostic = caught.value.diagnostics[0]
    refusal("train/E0926.txt", caught.value, task="tiny.train.s1")
    assert diagnostic.where == "step 7, epoch 1, minibatch 1"
    assert "optim.lr" in (diagnostic.help or "")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_step_in_which_all_groups_agree_leaves_only_momentum_and_decay():
    model = small_model()
    found = experience(model)
    found.inputs.correct[:] = 1
    scored = score(found, method())
    assert scored.equal_groups == 1
    learner = Learner.of(model, build_optimizers(model, SETTINGS), 1.0)
    numbers = update(learner, batch_of(scored), method(), 5, 0)
    assert (numbers["loss"], numbers["grad_norm"], numbers["trained_tokens"]) == (0, 0, 0)


@pytest.mark.parametrize("loss_mean", ["token", "response", "constant"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_a_divergence_is_over_all_tokens_those_without_an_advantage_too(loss_mean, temperature):
    far = small_model()
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in far.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=draw))
    rule = method(loss_mean=loss_mean, rollout=Sampling(max_tokens=12, temperature=temperature), kl=0.7)
    numbers, _, _ = updated(rule, temperature, far, near=2e-5)
    assert numbers["kl"] > 1e-3


@pytest.mark.parametrize(
    "changes", [{"loss": Loss(ratio="sequence"), "loss_mean": "response"}, {"loss": Loss(clip="weight")}]
)
@pytest.mark.parametrize("bound", [16, 4096])
def test_the_forms_of_the_loss_equal_updates_without_shortcuts(monkeypatch, changes, bound):
    monkeypatch.setattr(module, "token_bound", lambda device: bound)
    rule = method(**changes)
    _, expected, found = updated(rule)
    plain = slow_update(small_model(), found, rule.model_copy(update={"loss": Loss()}), SETTINGS, 5)
    assert abs(plain - expected) > 1e-4


@pytest.mark.parametrize("loss_mean", ["token", "response"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("chunk", [1 << 25, 64])
def test_a_bonus_is_of_the_entropy_of_every_trained_token(monkeypatch, loss_mean, temperature, chunk):
    monkeypatch.setattr(logprobs, "CHUNK_ELEMENTS", chunk)
    rule = method(loss_mean=loss_mean, rollout=Sampling(max_tokens=12, temperature=temperature), entropy=0.3)
    numbers, _, found = updated(rule, temperature, near=2e-5)
    without = rule.model_copy(update={"entropy": 0.0})
    assert numbers["loss"] != pytest.approx(slow_update(small_model(), found, without, SETTINGS, 5), abs=1e-2)


def test_a_gradient_of_any_length_is_taken_where_its_bound_is_0():
    after = []
    for bound in (0.0, 1e9):
        model = small_model()
        learner = Learner.of(model, [torch.optim.SGD(model.parameters(), lr=0.1)], bound)
        update(learner, batch_of(score(experience(model), method())), method(), 5, 0)
        after.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(*after)
    assert not torch.equal(after[0], torch.cat([p.detach().flatten() for p in small_model().parameters()]))


def test_a_bonus_alone_leads_to_more_entropy():
    model = small_model()
    found = experience(model)
    found.inputs.correct[:] = 1
    rule = method(entropy=1.0)
    learner = Learner.of(model, build_optimizers(model, SETTINGS), 1.0)
    losses = [update(learner, batch_of(score(found, rule)), rule, 5, 0)["loss"] for _ in range(3)]
    assert losses[2] < losses[1] < losses[0] < 0
    assert -losses[2] < np.log(model.config.vocab_size)


def test_a_divergence_from_itself_is_nothing_at_first():
    model = small_model()
    frozen = Learner.of(copy.deepcopy(model), (), 0.0)
    found = experience(model)
    found.inputs.correct[:] = 1
    rule = method(kl=1.0, epochs=1, minibatches=1)
    settings = SETTINGS.model_copy(update={"weight_decay": 0.0})
    learner = Learner.of(model, build_optimizers(model, settings), 1.0)
    numbers = update(learner, batch_of(score(found, rule)), rule, 5, 0, reference=frozen)
    assert numbers["kl"] == pytest.approx(0, abs=1e-9)
    assert numbers["grad_norm"] < 1e-5


def test_what_is_reported_of_a_step():
    found = experience(small_model())
    scored = score(found, method())
    row = step_metrics(scored)
    assert row["accuracy"] == row["reward"] == pytest.approx(7 / 12)
    assert row["equal_groups"] == pytest.approx(1 / 3)
    assert row["tokens"] == sum(len(r.response.tokens) for r in found.rollouts)
    assert row["entropy"] == pytest.approx(-np.mean([x for r in found.rollouts for x in r.response.logprobs]))
    columns = rollout_columns(scored, 3)
    assert columns["question"][4:6] == ["q1", "q1"]
    assert columns["rollout"][:5] == [0, 1, 2, 3, 0]
    assert columns["correct"][:4] == [True, False, True, False]


def test_forced_verdicts_are_told_beside_the_response_they_were_forced_out_of():
    found = experience(small_model())
    verdicts = [{4: True}, {}, {2: False, 9: True}, *({} for _ in found.rollouts[3:-1]), {1: True}]
    told = [(at, cut, verdict) for at, each in enumerate(verdicts) for cut, verdict in each.items()]
    scored = score(replace(found, forced=CutVerdicts.of(told, 13)), method())
    columns = rollout_columns(scored, 1)
    assert columns["cuts"] == [sorted(each) for each in verdicts]
    assert columns["forced"] == [[each[cut] for cut in sorted(each)] for each in verdicts]


def test_weights_are_whole_by_the_names_of_transformers():
    plain = small_model()
    whole = {name: value.clone() for name, value in plain.state_dict().items()}
    kept = Learner.of(plain, (), 0.0).weights()
    assert kept.keys() == whole.keys()
    assert all(torch.equal(kept[name], value) for name, value in whole.items())
    adapt(plain, Lora(rank=2), 5)
    with torch.no_grad():
        for name, parameter in plain.named_parameters():
            if name.endswith("lora_B"):
                parameter.fill_(0.1)
    learner = Learner.of(plain, (), 0.0)
    assert learner.adapted
    merged = learner.weights()
    assert merged.keys() == whole.keys()
    changed = {name for name, value in whole.items() if not torch.equal(merged[name], value)}
    assert changed == {name for name in whole if name.endswith("_proj.weight")}
    assert all(torch.equal(merged[name], value) for name, value in merge_state(plain).items())
