"""Learning from a teacher: a slow reference in float64, ties, tokens, and whole stages."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import polars as pl
import pytest
import torch

from reodsl.diagnostics import Problem
from reodsl.ir.training import Lora, Loss, Sampling
from reodsl.ir.wording import Wording
from runners.train import logprobs
from runners.train.adapters import adapt
from runners.train.gather import batch_of, score
from runners.train.ppo import update
from runners.train.update import Learner
from tests.train.conftest import Stopped
from tests.train.models import small_model
from tests.train.test_train import OUTCOME, ppo, same
from tests.train.test_update import experience, method

TEMPERATURE = 0.7
EXACT = {
    "reverse": Loss(estimator="reverse"),
    "forward": Loss(estimator="forward"),
    "jsd": Loss(estimator="jsd", jsd_beta=0.3),
    "top": Loss(estimator="reverse", top_k=4),
    "top_forward": Loss(estimator="forward", top_k=4),
    "top_jsd": Loss(estimator="jsd", jsd_beta=0.3, top_k=4),
}


def asked_of(number: int) -> tuple[int, ...]:
    """The prompt that a teacher reads in the place of rollout `number`'s."""
    return tuple(2 + (5 * number + at) % 21 for at in range(2 + number % 3))


def gather(found, rule, own_words=False):
    """The batch of a step; with `own_words` the teacher is asked otherwise."""
    if own_words:
        rollouts = [
            replace(one, question=replace(one.question, teacher_prompt=asked_of(number)))
            for number, one in enumerate(found.rollouts)
        ]
        found = replace(found, rollouts=tuple(rollouts))
    return batch_of(score(found, rule))


def slow_divergence(model, teacher, found, form, own_words):
    """The mean over tokens of the divergence as it is written, one token after another, in float64."""
    model, teacher = model.double(), teacher.double()
    total, count = torch.zeros((), dtype=torch.float64), 0
    for number, one in enumerate(found.rollouts):
        prompt, tokens = one.request.prompt, one.response.tokens
        asked = asked_of(number) if own_words else prompt
        logits = model(input_ids=torch.tensor([prompt + tokens])).logits[0]
        with torch.no_grad():
            theirs = teacher(input_ids=torch.tensor([asked + tokens])).logits[0]
        for at in range(len(tokens)):
            p = (logits[len(prompt) + at - 1] / TEMPERATURE).softmax(-1)
            q = (theirs[len(asked) + at - 1][: len(p)] / TEMPERATURE).softmax(-1)
            if form.top_k is not None:
                likely = q.topk(form.top_k).indices
                others = torch.ones(len(q), dtype=torch.bool)
                others[likely] = False
                p, q = (torch.cat((each[likely], each[others].sum()[None])) for each in (p, q))
            m = form.jsd_beta * q + (1 - form.jsd_beta) * p
            terms = {
                "reverse": p * (p / q).log(),
                "forward": q * (q / p).log(),
                "jsd": form.jsd_beta * q * (q / m).log() + (1 - form.jsd_beta) * p * (p / m).log(),
            }
            total = total + terms[form.estimator].sum()
            count += 1
    return total / count


@pytest.mark.parametrize(
    ("name", "own_words"),
    [
        ("reverse", True),
        ("forward", False),
        ("jsd", False),
        ("top", True),
        ("top_forward", False),
        ("top_jsd", False),
    ],
)
def test_whole_distributions_equal_a_loop_over_tokens(monkeypatch, name, own_words):
    """Value and gradient, in several chunks, of a teacher whose vocabulary is padded further."""
    monkeypatch.setattr(logprobs, "CHUNK_ELEMENTS", 23 * 4 * 5)
    model, teacher = small_model(), small_model(seed=1, vocab=25)
    found = experience(small_model(), TEMPERATURE)
    found.inputs.correct[:] = 1
    rollout = Sampling(max_tokens=12, temperature=TEMPERATURE)
    rule = method(epochs=1, minibatches=1, kl=0.5, loss=EXACT[name], rollout=rollout)
    slow = copy.deepcopy(model)
    expected = slow_divergence(slow, copy.deepcopy(teacher), found, rule.loss, own_words)
    expected.backward()
    learner = Learner.of(model, [torch.optim.SGD(model.parameters(), lr=1.0)], 0.0, microbatch=40)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    batch = gather(found, rule, own_words)
    numbers = update(learner, batch, rule, 5, 0, reference=Learner.of(teacher, (), 0.0))
    assert numbers["kl"] == pytest.approx(float(expected.detach()), rel=1e-5)
    assert numbers["loss"] == pytest.approx(0.5 * float(expected.detach()), rel=1e-5)
    for key, parameter in slow.named_parameters():
        step = before[key] - model.get_parameter(key).detach()
        torch.testing.assert_close(step.double(), 0.5 * parameter.grad, rtol=1e-3, atol=2e-6)


@pytest.mark.parametrize("own_words", [False, True])
def test_the_sampled_divergence_in_the_advantage(own_words):
    """-kl (log p - log q) of each token, on top of what its reward gives (Thinking Machines 2025)."""
    model, teacher = small_model(), small_model(seed=1)
    found = experience(small_model())
    rule = method(epochs=1, minibatches=1, kl=0.5, loss=Loss(estimator="advantage"))
    batch = gather(found, rule, own_words)
    moved = []
    for number, one in enumerate(found.rollouts):
        asked, tokens = asked_of(number) if own_words else one.request.prompt, one.response.tokens
        with torch.no_grad():
            logits = teacher(input_ids=torch.tensor([asked + tokens])).logits[0]
        theirs = logits.log_softmax(-1)[len(asked) - 1 : -1].gather(1, torch.tensor(tokens)[:, None])[:, 0]
        moved.append(torch.tensor(one.response.logprobs) - theirs)
    plain = method(epochs=1, minibatches=1)
    by_hand = replace(batch, advantages=batch.advantages - 0.5 * torch.cat(moved))
    after = []
    for each, own, other in ((batch, rule, Learner.of(teacher, (), 0.0)), (by_hand, plain, None)):
        learner = copy.deepcopy(model)
        optimizers = [torch.optim.SGD(learner.parameters(), lr=1.0)]
        numbers = update(Learner.of(learner, optimizers, 0.0), each, own, 5, 0, reference=other)
        after.append((numbers["loss"], torch.cat([p.detach().flatten() for p in learner.parameters()])))
        assert numbers.get("kl", float(torch.cat(moved).mean())) == pytest.approx(
            float(torch.cat(moved).mean())
        )
    assert after[0][0] == pytest.approx(after[1][0], abs=1e-6)
    torch.testing.assert_close(after[0][1], after[1][1], atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("adapted", [False, True])
@pytest.mark.parametrize("name", EXACT)
def test_a_model_has_nothing_to_learn_from_itself(name, adapted):
    """Nor from itself without its adapters, which add nothing at first."""
    model = small_model()
    found = experience(model)
    found.inputs.correct[:] = 1
    rule = method(epochs=1, minibatches=1, kl=1.0, loss=EXACT[name])
    if adapted:
        adapt(model, Lora(rank=2), 3)
    learner = Learner.of(model, [torch.optim.SGD(model.parameters(), lr=1.0)], 0.0)
    frozen = replace(learner, base=True) if adapted else Learner.of(copy.deepcopy(model), (), 0.0)
    numbers = update(learner, gather(found, rule), rule, 5, 0, reference=frozen)
    assert numbers["kl"] == pytest.approx(0, abs=1e-7)
    assert numbers["grad_norm"] < 1e-6


@pytest.mark.slow
def test_a_stage_moves_to_its_teacher_and_goes_on_to_the_same_bytes(bench):
    """A teacher that is asked otherwise, of responses that lag."""
    changes = {"kl": 1.0, "loss": Loss(estimator="reverse"), "lag": 1}
    changes["teacher_wording"] = Wording(name="w", question="{question} hmm")
    plain = ppo(OUTCOME, steps=3)
    stage = plain.model_copy(update={"method": plain.method.model_copy(update=changes), "save_every": 1})
    roles = {"start": "base", "data": "questions", "teacher": "init"}
    whole = bench.train(stage, "taught_whole", **roles)
    found = pl.read_parquet(whole / "metrics.parquet")["kl"]
    assert found[2] < found[0]
    with pytest.raises(Stopped):
        bench.train(stage, "taught", stop_at=2, **roles)
    same(whole, bench.train(stage, "taught", **roles))


def test_a_teacher_with_other_tokens_is_refused(bench, refusal):
    folder = bench.root / "foreign" / "checkpoint"
    folder.mkdir(parents=True)
    for path in (bench.root / "base" / "checkpoint").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    tokens = json.loads((folder / "tokenizer.json").read_text())
    words = tokens["model"]["vocab"]
    words["so"], words["hmm"] = words["hmm"], words["so"]
    (folder / "tokenizer.json").write_text(json.dumps(tokens))
    plain = ppo(OUTCOME, steps=1)
    stage = plain.model_copy(update={"method": plain.method.model_copy(update={"kl": 1.0})})
    with pytest.raises(Problem) as caught:
        bench.train(stage, "refused_teacher", start="base", data="questions", teacher="foreign")
    refusal("train/E0514.txt", caught.value, task="refused_teacher")
