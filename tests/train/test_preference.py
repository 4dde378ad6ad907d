"""SimPO and DPO on pairs: their gradients against autograd through the losses as printed, and whole stages."""

import copy
import json
import math

import polars as pl
import pytest
import torch

from reodsl.diagnostics import Problem
from reodsl.ir.training import Dpo, Optimizer, Simpo, Stage
from runners.train import update as module
from runners.train.losses import pair_loss
from runners.train.optimizers import build_optimizers
from runners.train.stages import Trace, preference_step
from runners.train.update import Learner
from tests.train.conftest import Stopped
from tests.train.models import small_model
from tests.train.test_train import NO_DATA, same, sft

RULE = Simpo(batch=2, max_tokens=64, beta=2.0, gamma=1.2)
SGD = Optimizer(algorithm="adamw", lr=1e-2, grad_norm=0.0)
PAIRS = [
    (Trace((3, 4, 5), (6, 7)), Trace((3, 4, 5), (8, 9, 10, 11, 12))),
    (Trace((9,), (5, 5, 5, 6, 7, 8)), Trace((9,), (2,))),
]


def test_the_margin_by_hand():
    """beta 2, gamma 1.2: means -0.5 and -1.5 give 2 * 1 - 1.2 = 0.8, so the loss is log(1 + e^-0.8)."""
    one = pair_loss(torch.tensor([-0.5 + 1.5]), 2.0, 1.2)
    assert float(one) == pytest.approx(math.log1p(math.exp(-0.8)))


def mean_logprob(model, trace):
    ids = torch.tensor([trace.prompt + trace.tokens])
    logits = model(input_ids=ids).logits[0, len(trace.prompt) - 1 : -1]
    return logits.log_softmax(-1).gather(1, torch.tensor(trace.tokens)[:, None]).mean()


@pytest.mark.parametrize("bound", [8, 4096])
def test_the_step_equals_one_through_the_loss_itself(monkeypatch, bound):
    monkeypatch.setattr(module, "token_bound", lambda device: bound)
    model = small_model()
    slow = copy.deepcopy(model)
    learner = Learner.of(model, build_optimizers(model, SGD), 0.0)
    row = preference_step(learner, PAIRS, RULE, 0)
    margins = [RULE.beta * (mean_logprob(slow, w) - mean_logprob(slow, l)) - RULE.gamma for w, l in PAIRS]  # noqa: E741
    loss = -torch.nn.functional.logsigmoid(torch.stack(margins)).mean()
    loss.backward()
    assert row["loss"] == pytest.approx(float(loss.detach()), abs=1e-5)
    assert row["margin"] == pytest.approx(float(torch.stack(margins).mean().detach()), abs=1e-4)
    assert row["accuracy"] == sum(float(m.detach()) + RULE.gamma > 0 for m in margins) / 2
    for p, q in zip(model.parameters(), slow.parameters(), strict=True):
        assert p.grad is not None
        assert torch.allclose(p.grad, q.grad, atol=1e-5)


def sum_logprob(model, trace):
    return mean_logprob(model, trace) * len(trace.tokens)


def slow_dpo(new, start, beta):
    """Rafailov et al. 2023, eq. 7: minus the log of the sigmoid of beta times the difference of the two log-ratios."""
    total = torch.zeros(())
    for (w, l), (w0, l0) in zip(new, start, strict=True):  # noqa: E741
        total = total - torch.log(1 / (1 + torch.exp(-(beta * (w - w0) - beta * (l - l0)))))
    return total / len(new)


@pytest.mark.parametrize("bound", [8, 4096])
def test_steps_against_a_frozen_start_equal_those_through_the_papers_loss(monkeypatch, bound):
    monkeypatch.setattr(module, "token_bound", lambda device: bound)
    model, start = small_model(), small_model(seed=1)
    slow, rule = copy.deepcopy(model), Dpo(batch=2, max_tokens=64, beta=0.3)
    learner = Learner.of(model, build_optimizers(model, SGD), 0.0)
    row = preference_step(learner, PAIRS, rule, 0, Learner.of(start, (), 0.0))
    with torch.no_grad():
        old = [[sum_logprob(start, one) for one in pair] for pair in PAIRS]
    found = [[sum_logprob(slow, one) for one in pair] for pair in PAIRS]
    loss = slow_dpo(found, old, 0.3)
    loss.backward()
    assert row["loss"] == pytest.approx(float(loss.detach()), rel=1e-4)
    leads = [float(((w - w0) - (l - l0)).detach()) for (w, l), (w0, l0) in zip(found, old, strict=True)]  # noqa: E741
    assert row["margin"] == pytest.approx(0.3 * sum(leads) / 2, abs=1e-4)
    assert row["accuracy"] == sum(lead > 0 for lead in leads) / 2
    for p, q in zip(model.parameters(), slow.parameters(), strict=True):
        assert float((p.grad - q.grad).abs().max()) < 1e-4 * max(1.0, float(q.grad.abs().max()))


def test_a_start_that_is_compared_with_itself_has_no_lead():
    model = small_model()
    learner = Learner.of(model, build_optimizers(model, SGD), 0.0)
    frozen = Learner.of(copy.deepcopy(model), (), 0.0)
    row = preference_step(learner, PAIRS, Dpo(batch=2, max_tokens=64, beta=0.5), 0, frozen)
    assert row["margin"] == 0
    assert row["loss"] == pytest.approx(math.log(2))
    assert row["grad_norm"] > 0


@pytest.fixture(scope="module")
def pairs(bench):
    """Traces against themselves begun twice: a table as a selection leaves it."""
    traces = pl.read_parquet(bench.root / "traces" / "questions.parquet")
    folder = bench.root / "pairs"
    folder.mkdir(exist_ok=True)
    table = traces.head(12).select(
        "id",
        "question",
        "answer",
        "meta",
        preferred="trace",
        preferred_prefix=pl.lit(""),
        preferred_ended=pl.lit(True),
        rejected=pl.concat_str([pl.col("trace"), pl.lit("hmm hmm hmm")], separator=" "),
        rejected_prefix=pl.lit("hmm ."),
        rejected_ended=pl.lit(False),
    )
    table.write_parquet(folder / "questions.parquet")
    return "pairs"


def stage(batch=4, **changes):
    method = Simpo(batch=batch, max_tokens=80, beta=2.0, gamma=0.5)
    optim = Optimizer(algorithm="adamw", lr=1e-3)
    base = {"name": "p", "method": method, "data": NO_DATA, "optim": optim, "steps": 100, "passes": 2}
    return Stage(**(base | changes))


def test_a_stage_passes_over_its_pairs_and_learns_to_prefer(bench, pairs):
    out = bench.train(stage(), "simpo", start="base", data=pairs)
    metrics = pl.read_parquet(out / "metrics.parquet")
    assert metrics.height == math.ceil(2 * 12 / 4)
    assert metrics["loss"][-1] < metrics["loss"][0]
    assert metrics["margin"][-1] > metrics["margin"][0]
    facts = json.loads((out / "train.json").read_text())
    assert (facts["pairs"], facts["steps"], facts["ended"]) == (12, 6, "steps")


def test_a_stage_compares_with_where_it_began_also_after_an_interruption(bench, pairs):
    planned, name = stage(method=Dpo(batch=4, max_tokens=80, beta=0.1), save_every=1), "Dpo"
    whole = bench.train(planned, f"{name}_whole", start="base", data=pairs)
    margins = pl.read_parquet(whole / "metrics.parquet")["margin"]
    assert margins[0] == 0
    assert margins[-1] > 0
    with pytest.raises(Stopped):
        bench.train(planned, name, start="base", data=pairs, stop_at=3)
    same(whole, bench.train(planned, name, start="base", data=pairs))


def test_fewer_pairs_than_a_batch_and_no_pairs_are_refused(bench, pairs, refusal):
    with pytest.raises(Problem) as caught:
        bench.train(stage(batch=13), "few", start="base", data=pairs)
    refusal("train/E0513-run.txt", caught.value, task="few")
    with pytest.raises(Problem) as caught:
        bench.train(stage(), "none", start="base", data="traces")
    assert caught.value.diagnostics[0].code == "E0510"


def test_sft_ends_after_its_passes_and_warms_up_for_a_share_of_their_steps(bench):
    planned = sft(steps=50, passes=1)
    optim = planned.optim.model_copy(update={"warmup_share": 0.5, "decay": "constant"})
    planned = planned.model_copy(update={"optim": optim})
    out = bench.train(planned, "passes", start="base", data="traces")
    rates = pl.read_parquet(out / "metrics.parquet")["lr"] / optim.lr
    assert rates.to_list() == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1, 1, 1])
