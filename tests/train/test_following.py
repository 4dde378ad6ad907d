"""A teacher that follows the policy: a plain loop over the weights of each step, small steps, shards, and resumption."""

from __future__ import annotations

import polars as pl
import pytest
import torch
from torch._C._distributed_c10d import HashStore
from transformers import AutoModelForCausalLM, AutoTokenizer

from reodsl.graph.job import Resources
from reodsl.ir.expression import TokenRun, Variable
from reodsl.ir.reward import Metric
from reodsl.ir.training import Lora, Loss, MovingAverage
from reodsl.ir.wording import Wording
from runners.models.tensors import TensorFiles
from runners.train.adapters import is_adapter, merge_state
from runners.train.checkpoint import load_trained_model
from runners.train.ranks import ALONE, join_ranks
from runners.train.sharding import full_tensor
from runners.train.update import Learner
from tests.devices.module import NAME
from tests.train.conftest import Stopped
from tests.train.test_train import OUTCOME, ppo, same

AVERAGE = MovingAverage(decay=0.6, every=2)
BELIEF = TokenRun(fn="mean", of="y", value=Variable(name="logprob(t, under: teacher)"))
READ = OUTCOME.model_copy(update={"metrics": (Metric(name="belief", value=BELIEF),)})


def following(steps=5, lora=None, save_every=0, **changes):
    """A stage whose divergence and metric read a model that follows after every second step."""
    stage = ppo(READ, steps=steps, lora=lora, save_every=save_every)
    more = {
        "kl": 0.5,
        "loss": Loss(estimator="k1"),
        "teacher_follows": AVERAGE,
        "epochs": 1,
        "minibatches": 1,
    }
    optim = stage.optim.model_copy(update={"lr": 2e-2 if lora else 5e-3})
    return stage.model_copy(update={"method": stage.method.model_copy(update=more | changes), "optim": optim})


def metrics(out):
    return pl.read_parquet(out / "metrics.parquet")


def slow_logprobs(folder, state, prompts, texts):
    """The log-probabilities of each response's tokens, one pass of `transformers` a response, in float64."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    model.load_state_dict(state)
    found = []
    for prompt, tokens in zip(prompts, texts, strict=True):
        with torch.no_grad():
            scores = model(input_ids=torch.tensor([prompt + tokens])).logits[0].log_softmax(-1)
        found.append(scores[len(prompt) - 1 : -1].gather(1, torch.tensor(tokens)[:, None])[:, 0])
    return found


def weights(folder):
    return AutoModelForCausalLM.from_pretrained(folder / "checkpoint", dtype=torch.float64).state_dict()


@pytest.mark.slow
@pytest.mark.parametrize("lora", [None, Lora(rank=4)], ids=["weights", "adapters"])
def test_what_is_read_is_a_plain_loop_over_the_weights_of_each_step(bench, lora):
    """The teacher's weights in float64 from the checkpoint after each step, and what `transformers` reads under them."""
    base, name = bench.root / "base", f"follows_{'adapters' if lora else 'weights'}"
    whole = bench.train(following(lora=lora, save_every=1), name, start="base", data="questions")
    told, rows = metrics(whole), pl.read_parquet(whole / "rollouts.parquet")
    questions = pl.read_parquet(bench.root / "questions" / "questions.parquet")
    words = AutoTokenizer.from_pretrained(base / "checkpoint")
    asked = {id: words(text)["input_ids"] for id, text in questions.select("id", "question").iter_rows()}
    policy = teacher = weights(base)
    for step in range(1, 6):
        prompts, texts = [], []
        for row in rows.filter(pl.col("step") == step).iter_rows(named=True):
            prompts.append(asked[row["question"]])
            ended = [words.eos_token_id] if row["finish"] == "stop" else []
            texts.append(words(row["text"])["input_ids"] + ended)
            assert len(texts[-1]) == row["tokens"]
        mine, theirs = (
            slow_logprobs(base / "checkpoint", each, prompts, texts) for each in (policy, teacher)
        )
        belief = torch.stack([each.mean() for each in theirs]).mean()
        assert told["metric_belief"][step - 1] == pytest.approx(float(belief), abs=2e-5)
        gap = torch.cat(mine) - torch.cat(theirs)
        assert told["kl"][step - 1] == pytest.approx(float(gap.mean()), abs=2e-5)
        assert (abs(told["kl"][step - 1]) < 1e-5) == (step == 1)
        shorter = bench.train(following(step, lora), f"{name}_{step}", start="base", data="questions")
        policy = weights(shorter)
        if step % 2 == 0:
            teacher = {key: 0.6 * each + 0.4 * policy[key] for key, each in teacher.items()}
    stored = TensorFiles([*(bench.root / f"{name}.work").glob("shards-*/0-of-1.safetensors")])
    kept = {key.removeprefix("teacher/"): key for key in stored.names if key.startswith("teacher/")}
    assert kept
    for key, place in kept.items():
        rows_kept = stored.rows(place, 0, stored.shape(place)[0])
        assert rows_kept.dtype == torch.float32
        torch.testing.assert_close(rows_kept.double(), teacher[key], atol=1e-6, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"lora": Lora(rank=4)},
        {"lag": 1},
        {
            "loss": Loss(estimator="reverse"),
            "teacher_wording": Wording(name="w", question="{question} hmm"),
            "teacher_follows": MovingAverage(every=1),
        },
    ],
    ids=["weights", "adapters", "lag", "wording"],
)
def test_an_interrupted_stage_ends_with_the_same_bytes(bench, changes, request):
    name, stage = f"again_{request.node.callspec.id}", following(4, save_every=1, **changes)
    whole = bench.train(stage, f"{name}_whole", start="base", data="questions")
    with pytest.raises(Stopped):
        bench.train(stage, name, start="base", data="questions", stop_at=3)
    same(whole, bench.train(stage, name, start="base", data="questions"))
    # The teacher of the next stage begins as that does.
    if not changes:
        after = bench.train(following(1), "follows_after", start=name, data="questions", index=1)
        assert metrics(after)["kl"][0] == pytest.approx(0, abs=1e-6)


@pytest.mark.slow
def test_a_decay_of_0_renews_the_teacher(bench):
    """At each step it is the policy of the step before, from which nothing has moved before the update."""
    stage = following(3, teacher_follows=MovingAverage(every=1))
    told = metrics(bench.train(stage, "renewed", start="base", data="questions"))
    assert told["kl"].to_list() == pytest.approx([0] * 3, abs=1e-6)


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("lora", [None, Lora(rank=2)], ids=["weights", "adapters"])
def test_small_steps_are_not_lost_where_passes_are_in_bfloat16(bench, lora, sharded):
    """Two hundred of 0.5% of a difference of a thousandth, none of which a weight in bfloat16 would show."""
    folder, cpu = bench.root / "base" / "checkpoint", torch.device("cpu")
    with join_ranks(0, 1, HashStore(), cpu) as mine:
        ranks = mine if sharded else ALONE
        learners = []
        for own in (lora, None):
            model, scorer = load_trained_model(folder, cpu, torch.bfloat16, ranks, own, 3)
            learners.append(Learner.of(model, (), 0.0, ranks, scorer))
        policy, teacher = learners
        with torch.no_grad():
            for name, parameter in policy.model.named_parameters():
                if lora is None:
                    parameter.mul_(1.001)
                elif name.endswith("lora_B"):
                    parameter.add_(1e-3)
        before = {key: full_tensor(each).clone() for key, each in named(teacher)}
        for _ in range(200):
            teacher.update_ema(policy, 0.995)
        state = {key: full_tensor(each) for key, each in named(teacher)}
        if lora is None:
            goal = {key: each * 1.001 for key, each in before.items()}
        else:
            plain, _ = load_trained_model(folder, cpu, torch.float32, ALONE, lora, 3)
            with torch.no_grad():
                for name, parameter in plain.named_parameters():
                    if name.endswith("lora_B"):
                        parameter.add_(1e-3)
            goal = merge_state(plain)
        for key, start in before.items():
            want = start.double() + (1 - 0.995**200) * (goal[key].double() - start.double())
            torch.testing.assert_close(state[key].double(), want, rtol=2e-5, atol=1e-7)
            moved = not torch.equal(state[key], start)
            assert moved == (lora is None or key.endswith("_proj.weight"))
        weight = next(iter(before.values())).bfloat16()
        assert torch.equal(weight.lerp(weight * 1.001, 0.005), weight)


def named(learner):
    return [(key, each.detach()) for key, each in learner.model.named_parameters() if not is_adapter(key)]


@pytest.mark.heavy
@pytest.mark.parametrize("lora", [None, Lora(rank=4)], ids=["weights", "adapters"])
def test_two_processes_follow_as_one_does_and_go_on_to_the_same_bytes(bench, lora):
    name, two = f"follows_two_{'adapters' if lora else 'weights'}", Resources(trainers=2)
    stage = following(4, lora=lora, save_every=1)
    one = bench.train(stage, f"{name}_one", start="base", data="questions")
    whole = bench.train(stage, f"{name}_whole", start="base", data="questions", resources=two)
    for column in ("kl", "metric_belief"):
        assert metrics(one)[column].to_list() == pytest.approx(metrics(whole)[column].to_list(), abs=1e-4)
    with pytest.raises(Stopped):
        bench.train(stage, name, start="base", data="questions", resources=two, stop_at=3)
    same(whole, bench.train(stage, name, start="base", data="questions", resources=two))


@pytest.mark.slow
@pytest.mark.usefixtures("plain_cpu")
def test_a_step_on_the_host_of_a_device_moves_it_as_the_cpu_does(bench, other):
    """Interrupted there and carried on."""
    here = following(4, save_every=1).model_copy(update={"precision": "float32"})
    hosted = here.model_copy(update={"optim": here.optim.model_copy(update={"on": "host"})})
    want = bench.train(here, "follows_here", start="base", data="questions")
    options = {"start": "base", "data": "questions", "resources": Resources(device=other)}
    with pytest.raises(Stopped):
        bench.train(hosted, "follows_hosted", stop_at=3, **options)
    found = bench.train(hosted, "follows_hosted", **options)
    assert metrics(found)["kl"].to_list() == pytest.approx(metrics(want)["kl"].to_list(), abs=1e-3)
    if other == NAME:
        same(want, found)
