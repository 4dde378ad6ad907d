"""Qwen3-4B REO-RL (Exp) on 16 x 8 H800: the price of a step against a calculation by hand, and what 4K GPU hours buy."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from reodsl.graph.lower import lower
from reodsl.language import compile_file
from reodsl.price import Prices, price
from reodsl.price.show import step

ROOT = Path(__file__).resolve().parents[2]
TASK = "qwen3_4b_reo_exp.train.s1"
SYNC = 128 * (2 * 4.022e9 / 18.4e9 + 0.18e-6 * 2048 * 10390) / 3600
"""Hours of a step in which engines read 8.04e9 bytes at 18.4e9 a second, and all wait until responses are a batch, at 0.18
microseconds a token: training has both besides its passes."""


@pytest.fixture(scope="module")
def prices() -> Prices:
    compiled = compile_file(ROOT / "specs" / "qwen3_4b_reo_exp.reo")
    assert compiled.spec is not None
    return price(lower(compiled.spec), compiled.spec)


def near(value: float) -> object:
    return pytest.approx(value, rel=0.1)


def test_generation_by_hand(prices: Prices) -> None:
    # 2048 responses on 128 engines, 16 each. Lengths are exponential with mean 10240, cut at 32768: a scale of 10750,
    # of which exp(-32768 / 10750) = 4.7%, about 97 responses, reach the cut, so the round has 32768 decode steps.
    # Each step reads 4.022e9 weights of 2 bytes: 8.04e9 bytes at 60% of 3.35e12 a second are 4.0 ms.
    weights = 32768 * 8.04e9 / 2.01e12  # 131 s
    # A token's keys and values are 36 layers x 2 x 8 heads x 128 x 2 bytes = 147456. A response reads them once for
    # every token after it: 150 prompt tokens x 10240, and half of the mean squared length, 1.87e8.
    cache = 16 * (150 * 10240 + 1.87e8 / 2) * 147456 / 2.01e12  # 112 s on average
    # The round waits for the engine that happens to have the most of it: drawn 200 times, 2.13 times the mean.
    draw = random.Random(1)

    def engine() -> float:
        lengths = [min(32768.0, draw.expovariate(1 / 10750)) for _ in range(16)]
        return sum(150 * length + length**2 / 2 for length in lengths)

    busiest = sum(max(engine() for _ in range(128)) for _ in range(200)) / 200
    cache *= busiest / (16 * (150 * 10240 + 1.87e8 / 2))
    # 186 bytes for each of 151936 words are moved to draw a token, of 16 x 10240 an engine.
    drawing = 16 * 10240 * 151936 * 186 / 2.01e12
    assert drawing == near(2.3)
    assert prices.tasks[TASK].step_hours["generation"] == near(128 * (weights + cache + drawing) / 3600)


def test_forcing_by_hand(prices: Prices) -> None:
    # Of 2048 responses exp(-L / 10750) pass each budget: 0.909, 0.827, 0.683, 0.467, 0.218 for 1K to 16K, 3.10 in all.
    answers = 2048 * 3.10
    # The forcing text is 84 letters, 28 tokens; the answer 20. Prefixes stay cached, and 50 answers an engine decode
    # together: 20 steps read the weights, and each of the tokens its prefix, 5.4K tokens on average over these answers.
    weights = 20 * 8.04e9 / 2.01e12
    prefix = 1024 * 0.909 + 2048 * 0.827 + 4096 * 0.683 + 8192 * 0.467 + 16384 * 0.218  # 13.0K over 3.10
    cache = 2048 / 128 * (prefix + 3.10 * 178) * 20 * 147456 / 2.01e12
    # Reading 28 tokens of text each is 2 FLOPs a weight, at half of 989.4e12 a second.
    read = answers / 128 * 28 * 2 * 4.022e9 / 494.7e12
    assert prices.tasks[TASK].step_hours["forcing"] == near(128 * (weights + cache + read) / 3600)
    per_step = prices.tasks[TASK].forced / prices.tasks[TASK].steps
    assert per_step == near(answers * (28 + 20))


def test_verification_by_hand(prices: Prices) -> None:
    # Every response and every forced answer, at 1400 a second, is far less than the 380 s in which responses are made.
    seconds = 2048 * (1 + 3.10) / 1400
    assert seconds == near(6.0)
    assert prices.tasks[TASK].step_hours["verification"] == 0.0


def test_checking_costs_what_it_takes_longer_than_responses_do() -> None:
    spec = compile_file(
        ROOT / "specs" / "qwen3_4b_reo_exp.reo", amends={"h800_16x8.hardware.verifications": "2"}
    ).spec
    assert spec is not None
    task = price(lower(spec), spec).tasks[TASK]
    making = task.step_hours["generation"] + task.step_hours["forcing"]
    assert task.step_hours["verification"] == near(128 * 2048 * (1 + 3.10) / 2 / 3600 - making)


@pytest.mark.parametrize("name", [TASK, "base.eval"])
def test_checking_hides_behind_whole_and_forced_answers(name: str) -> None:
    """What it takes longer than both is to the second what is left of one answer every hundred seconds."""
    spec = compile_file(
        ROOT / "specs" / "qwen3_4b_reo_exp.reo", amends={"h800_16x8.hardware.verifications": "0.01"}
    ).spec
    assert spec is not None
    found = price(lower(spec), spec).tasks[name]
    assert found.seconds["forcing"] > 0
    making = found.seconds["generation"] + found.seconds["forcing"]
    assert found.seconds["verification"] == pytest.approx(100 * found.verified - making, rel=1e-9)


def test_training_by_hand(prices: Prices) -> None:
    # Two passes over 2048 sequences of 150 + 10240 tokens, 6 FLOPs a weight and token, and 2 for the log-probabilities
    # that ratios divide by: SGLang's are computed in other kernels than the trainer's.
    weights = (2 * 6 + 2) * 4.022e9 * 2048 * 10390
    # Attention: 4 FLOPs x 36 layers x 4096 wide for each of the squared length / 2 pairs, seven times.
    attention = 7 * 4 * 36 * 4096 * 2048 * (150**2 + 2 * 150 * 10240 + 1.87e8) / 2
    # 28% and 23% of 128 GPUs of 989.4e12, of which ranks work 93%.
    seconds = (weights / 0.28 + attention / 0.23) / (0.93 * 128 * 989.4e12)
    assert prices.tasks[TASK].step_hours["training"] == near(128 * seconds / 3600 + SYNC)


def test_what_the_papers_hours_buy(prices: Prices) -> None:
    by_hand = 13.2 + 0.014 + 2.45  # the terms above
    total = sum(prices.tasks[TASK].step_hours.values())
    assert total == near(by_hand)
    assert int(4000 / total) == near(4000 / by_hand)
    first, second = step(prices, TASK, prices.tasks[TASK])
    assert first.startswith(f"A step of {TASK}: 16.2 gpu_hours on 16 x 8 H800 (generation 13.7")
    assert second == f"  4K gpu_hours buy {int(4000 / total)} of these steps; the spec has 240"


def test_memory_by_hand(prices: Prices) -> None:
    # 16 bytes a parameter over 128 GPUs, and a micro-batch of 48K tokens: 36 layers x 2560 kept, one layer's inside.
    state = 16 * 4.022e9 / 128
    inside = 8 * 2560 + 5.2 * 4096 + 1.6 * 1024 + 6 * 9728
    activations = 49152 * (36 * 2560 + inside) * 2
    # The output matrix and its gradient, and two layers, in bfloat16; a layer's gradient in float32.
    gathered = 2 * 2 * 151936 * 2560 + (2 * 2 + 4) * 100.9e6
    assert prices.tasks[TASK].memory["trainer"] == near(state + activations + gathered)
    # Weights, and 16 responses of 10.4K tokens; beside them 12 bytes a parameter over 128 GPUs, since gradients are not
    # kept between updates, and a GiB of weights on their way.
    kept = 12 * 4.022e9 / 128 + 2**30
    assert prices.tasks[TASK].memory["engine"] == near(8.04e9 + 16 * 10390 * 147456 + kept)
    # No training is beside those that only answer.
    assert prices.tasks["base.eval"].memory["engine"] < 0.85 * 80 * 2**30 + 1


def test_a_divergence_takes_a_frozen_model_and_a_pass_of_it(prices: Prices) -> None:
    compiled = compile_file(ROOT / "specs" / "qwen3_4b_reo_exp.reo", amends={"kl": "0.001"})
    assert compiled.spec is not None
    held = price(lower(compiled.spec), compiled.spec)
    # Float32 weights over 128 GPUs beside the rest; 8 passes in place of 7.
    more = held.tasks[TASK].memory["trainer"] - prices.tasks[TASK].memory["trainer"]
    assert more == pytest.approx(4 * 4022468096 / 128)
    one, two = (each.tasks[TASK].step_hours["training"] - SYNC for each in (prices, held))
    assert two == pytest.approx(8 / 7 * one, rel=0.01)


def test_a_bonus_for_entropy_takes_four_more_products_an_epoch(prices: Prices) -> None:
    compiled = compile_file(ROOT / "specs" / "qwen3_4b_reo_exp.reo", amends={"entropy": "0.01"})
    assert compiled.spec is not None
    rewarded = price(lower(compiled.spec), compiled.spec)
    one, two = (each.tasks[TASK].step_hours["training"] - SYNC for each in (prices, rewarded))
    # The logits of a forward pass, those of the backward pass again, and two products of that, in each of two epochs. A pass
    # has attention and the prompt besides, so that the logits are less than their share of the weights.
    logits = (two - one) / 8
    assert 0.5 * 151936 * 2560 / 4.022e9 < logits / (one / 7) < 151936 * 2560 / 4.022e9


def test_a_monitor_set_is_generated_and_graded_besides(tmp_path: Path) -> None:
    text = """from std.models import qwen3_4b
from std.data import areal_boba_7b
from std.recipes import ppo
from std.suites import math_reg
reward brief {
  track usual = mean(len(z) for z in monitor)
  correct(y) * (1 if len(y) <= usual else 0.5)
}
experiment mine = ppo {
  base = qwen3_4b
  data = areal_boba_7b
  reward = brief
  steps = 50 steps
  eval = math_reg
  MONITOR
}
"""
    prices = []
    for every in (20, 60):
        path = tmp_path / "spec.reo"
        path.write_text(
            text.replace("MONITOR", f"monitor {{ questions = 64, samples = 8, every = {every} steps }}")
        )
        spec = compile_file(path, target="mine").spec
        assert spec is not None
        (task,) = [
            each for name, each in price(lower(spec), spec).tasks.items() if name.startswith("mine.train")
        ]
        prices.append(task)
    often, once = prices
    # After 0, 20 and 40 steps, and after 0: two times 512 responses more, beside 50 steps of 128 x 16.
    assert often.verified - once.verified == 2 * 512
    assert once.verified == 50 * 128 * 16 + 512
    assert often.generated / once.generated == pytest.approx(often.verified / once.verified)
    assert often.seconds["generation"] > once.seconds["generation"]


def test_preferences_against_the_start_take_it_and_a_pass_of_it() -> None:
    path = ROOT / "specs" / "miniature" / "dpo_shortest.reo"
    plain = compile_file(path, amends={"dpo_shortest.method": "simpo", "dpo_shortest.gamma": "1"}).spec
    against = compile_file(path).spec
    assert plain is not None
    assert against is not None
    one, two = (price(lower(spec), spec).tasks["dpo_shortest.train.s1"] for spec in (plain, against))
    assert two.seconds["training"] > 1.2 * one.seconds["training"]
    assert two.memory["trainer"] > one.memory["trainer"]


def test_disk_by_hand(prices: Prices) -> None:
    # An fp32 checkpoint, two fp32 moments, and a few bytes a rollout.
    assert prices.tasks[TASK].disk == near(4.022e9 * (4 + 8))


def test_evaluation_is_some_tenths_of_a_percent_a_step_of_it(prices: Prices) -> None:
    found = prices.tasks["base.eval"]
    responses = 32 * (30 + 30 + 40 + 272)
    assert found.generated == near(responses * 11 * 1024)
    assert found.gpu_hours < 0.02 * prices.tasks[TASK].gpu_hours


def test_sft_of_the_small_model_by_hand() -> None:
    """On the 16 x 8 of its table, in a study whose RL is on the 8 x 8 of another."""
    compiled = compile_file(ROOT / "specs" / "paper" / "deepseek_1_5b.reo")
    assert compiled.spec is not None
    tasks = price(lower(compiled.spec), compiled.spec).tasks
    # 28 layers of 2 x 1536 x 1536 + 2 x 1536 x 256 + 3 x 1536 x 8960 weights, and 1536 x 151936 of the output: 1.544e9.
    # A trace is as long as responses: a third of 24376, 8125 tokens, behind a prompt of 150. A step has 512.
    weights = 6 * 1.544e9 * 512 * 8275
    attention = 3 * 4 * 28 * 1536 * 512 * 8275**2 / 2
    # 28% and 23% of 128 GPUs of 989.4e12, of which ranks work 93%: 1.5 s a step.
    seconds = (weights / 0.28 + attention / 0.23) / (0.93 * 128 * 989.4e12)
    # Ten passes over about 135K traces, 512 a step.
    steps = 10 * 135_000 / 512
    found = tasks["sft_shortest.train.s1"]
    assert found.devices == "16 x 8 H800"
    assert found.steps == near(steps)
    assert found.seconds["training"] == near(steps * seconds)
    assert found.gpu_hours == near(128 * (60 + steps * seconds) / 3600)
    # What asks for its responses first has them sampled: RL on 64 GPUs. Others sample on their own 128.
    assert (tasks["harmonizing.reference.s1"].gpus, tasks["reo_exp.train.s1"].gpus) == (64, 64)
    assert (tasks["sft_tops.pool.0"].gpus, tasks["base.eval"].gpus) == (128, 128)


def test_exact_kernels_take_longer_by_what_sglang_gives(prices: Prices) -> None:
    path = ROOT / "specs" / "qwen3_4b_reo_exp.reo"
    exact = compile_file(path, amends={"h800_16x8.determinism": "exact"}).spec
    assert exact is not None
    assert exact.study.cluster is not None
    assert exact.study.cluster.determinism == "exact"
    graph = lower(exact)
    hours, seeded = (each.tasks[TASK].step_hours for each in (price(graph, exact), prices))
    for term in ("generation", "forcing"):
        # But for the drawing of tokens, which is the same.
        assert hours[term] / seeded[term] == pytest.approx(1.35, rel=0.005)
    for term in ("training", "verification"):
        assert hours[term] == seeded[term]
    # Results keep their keys.
    plain = compile_file(path).spec
    assert plain is not None
    assert [task.payload for task in graph.tasks[:-1]] == [task.payload for task in lower(plain).tasks[:-1]]
