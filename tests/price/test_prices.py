"""Prices of whole specs: what there is more of costs more, what is not known is said, and limits are held."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reodsl import load
from reodsl.diagnostics import Problem
from reodsl.graph.lower import lower
from reodsl.ir import Origin, Spec
from reodsl.ir.base import locate
from reodsl.ir.cluster import Cluster, Hardware
from reodsl.ir.expression import Constant, Correct, ForcedAnswer, Infix, PriorSplit, TokenRun, Variable
from reodsl.ir.reward import Budgets, DenseReward, Metric, Part, Reward, Steps, Track
from reodsl.ir.training import Batch, FromModel, Lora, Loss, MovingAverage
from reodsl.price import History, Price, Prices, lower_placed, price, show
from reodsl.price.history import Facts, MeasuredTask
from reodsl.price.machine import HOST_RATE, devices_of, parts_of
from reodsl.price.memory import from_architecture
from reodsl.price.rollout import LengthDistribution, RolloutBatch, generation_seconds
from reodsl.price.show import refusals
from reodsl.price.tasks import _pass_flops, _pass_time, cuts_of
from reodsl.price.value import TERMS, to_json
from reodsl.rehearse.shrink import Size, StandIns, shrink
from runners.train.batch import CPU_TOKENS, GPU_TOKENS
from tests.graph import studies as make

GPU = Hardware(flops=1e12, bandwidth=1e10, interconnect=1e10)
CLUSTER = Cluster(name="lab", nodes=1, gpus_per_node=4, gpu="X1", memory_gib=8, hardware=GPU)


WIDE = make.DRAWN.model_copy(update={"hidden": 512})
"""A teacher's configuration, many times as large as the policy's."""


def on(spec: Spec, cluster: Cluster | None = CLUSTER, **study: Any) -> Spec:
    return spec.model_copy(update={"study": spec.study.model_copy(update={"cluster": cluster, **study})})


def priced(spec: Spec, history: History | None = None) -> Prices:
    return price(lower(spec), spec, history)


def one(reward: Any, **method: Any) -> Price:
    """The price of training with a reward, some of the method's settings changed."""
    stage = make.ppo(reward)
    changed = stage.method.model_copy(update=method)
    stage = stage.model_copy(update={"method": changed})
    spec = make.spec(make.arm("base", make.base()), make.arm("it", make.trained("it", stage)))
    return priced(on(spec)).tasks["it.train.s1"]


def test_every_task_has_a_price() -> None:
    spec = on(make.four())
    found = priced(spec)
    assert set(found.tasks) == {task.id for task in lower(spec).tasks}
    assert not found.unpriced(found.tasks)
    assert found.unit == "gpu_hours"
    train = found.tasks["reo_exp.train.s1"]
    # Answers are checked while responses are made.
    assert {term for term in TERMS if train.seconds[term] > 0} == set(TERMS) - {"verification"}
    assert {"trainer", "engine"} == set(train.memory)


def test_arms_that_differ_in_a_rate_alone_cost_the_same_and_with_another_optimizer_not() -> None:
    plain = make.ppo(make.outcome())
    optims = [
        plain.optim,
        *(plain.optim.model_copy(update=it) for it in ({"lr": 0.5}, {"algorithm": "muon"})),
    ]
    arms = [
        make.arm(f"a{n}", make.trained(f"e{n}", plain.model_copy(update={"optim": optim})))
        for n, optim in enumerate(optims)
    ]
    found = priced(on(make.spec(*arms))).tasks
    assert found["e0.train.s1"] == found["e1.train.s1"]
    assert found["e0.train.s1"].disk > found["e2.train.s1"].disk


def test_only_what_computes_takes_gpus() -> None:
    found = priced(on(make.four())).tasks
    paid = {name.split(".")[1] for name, each in found.items() if each.gpu_hours}
    assert paid == {"train", "eval"}


def test_hours_are_seconds_on_all_gpus() -> None:
    found = priced(on(make.four())).tasks["vanilla.train.s1"]
    assert found.gpu_hours == pytest.approx(4 * sum(found.seconds.values()) / 3600)
    assert sum(found.step_hours.values()) * found.steps == pytest.approx(
        found.gpu_hours - found.hours_of("start")
    )


def test_plain_rewards_force_nothing_and_dense_ones_check_more() -> None:
    plain, dense = one(make.outcome()), one(make.budgets(2, 4))
    assert (plain.forced, plain.seconds["forcing"]) == (0, 0)
    assert dense.forced > 0
    assert dense.verified > plain.verified
    assert dense.generated == plain.generated


@settings(max_examples=30)
@given(st.integers(1, 64), st.integers(2, 16), st.integers(1, 4))
def test_more_of_anything_costs_more(prompts: int, rollouts: int, epochs: int) -> None:
    before = one(make.budgets(4), batch=Batch(prompts=prompts, rollouts=rollouts), epochs=epochs)
    for change in (
        {"batch": Batch(prompts=prompts + 1, rollouts=rollouts), "epochs": epochs},
        {"batch": Batch(prompts=prompts, rollouts=rollouts + 1), "epochs": epochs},
        {"batch": Batch(prompts=prompts, rollouts=rollouts), "epochs": epochs + 1},
    ):
        after = one(make.budgets(4), **change)
        assert after.total_seconds > before.total_seconds
        assert after.trained > before.trained


def test_without_a_prefix_cache_every_prefix_is_read_again() -> None:
    bare = CLUSTER.model_copy(update={"hardware": GPU.model_copy(update={"prefix_cache": False})})
    kept, again = (priced(on(make.four(), cluster)).tasks["reo_exp.train.s1"] for cluster in (CLUSTER, bare))
    assert kept.read_again == 0
    assert again.read_again > 0
    assert again.seconds["forcing"] > kept.seconds["forcing"]
    assert again.forced == kept.forced


@pytest.mark.parametrize(("placement", "gigabytes"), [("colocated", 18.4), ("apart", 2.65)])
def test_weights_are_sent_at_the_measured_rate_or_at_half_of_what_links_do(
    placement: str, gigabytes: float
) -> None:
    """Both ways share a link: one of 2 GB a second sends 1 GB. Handles on one's own GPUs are faster than NCCL."""
    fast, slower = (
        priced(
            on(
                make.four(),
                CLUSTER.model_copy(
                    update={"placement": placement, "hardware": GPU.model_copy(update={"interconnect": link})}
                ),
            )
        )
        .tasks["vanilla.train.s1"]
        .sync
        for link in (1e12, 2e9)
    )
    assert slower == pytest.approx(gigabytes * fast)


def test_attention_has_a_share_of_the_peak_of_its_own() -> None:
    """Left out it is that of the other products; half of it takes as much again for attention alone."""
    whole, attention, found = 3e12, 1e12, []
    for share in (None, GPU.mfu_train, GPU.mfu_train / 2):
        hardware = GPU.model_copy(update={"mfu_attention": share})
        devices = devices_of(CLUSTER.model_copy(update={"hardware": hardware}))
        assert devices is not None
        found.append(_pass_time(whole, attention, devices))
    same, equal, slower = found
    assert same == equal
    assert slower == pytest.approx(equal * 4 / 3)


def test_nodes_wait_for_their_network() -> None:
    """By hand: a step of one micro-batch gathers the weights three times in bfloat16 and adds up float32 gradients.

    They are gathered to score, forward and back. With a copy on each node only gradients travel, there and back.
    """
    spec = make.spec(
        make.arm("base", make.base()), make.arm("it", make.trained("it", make.ppo(make.outcome())))
    )
    sizes, found = from_architecture(make.DRAWN), {}
    for sharding in ("cluster", "node"):
        for network in (None, 1.0, 1e15):
            changes = {
                "nodes": 2,
                "sharding": sharding,
                "hardware": GPU.model_copy(update={"network": network}),
            }
            tasks = priced(on(spec, CLUSTER.model_copy(update=changes))).tasks
            found[sharding, network] = tasks["it.train.s1"]
    slow = {word: found[word, 1.0] for word in ("cluster", "node")}
    for word, sent in (("cluster", 3 * 2 + 4), ("node", 2 * 4)):
        each = (slow[word].seconds["training"] - slow[word].sync) / slow[word].steps
        assert each == pytest.approx(sent * sizes.parameters / 2, rel=1e-6), word
        assert found[word, None].seconds == found[word, 1e15].seconds
    assert found["node", None].memory["trainer"] > found["cluster", None].memory["trainer"]


def _two_nodes(network: float | None, flops: float = GPU.flops, **changes: Any) -> Spec:
    """Return a training on two nodes with such a network between them."""
    alone = make.trained("it", make.ppo(make.outcome()), start=FromModel(model=make.model()))
    hardware = GPU.model_copy(update={"network": network, "flops": flops})
    spec = make.spec(make.arm("it", alone))
    return on(spec, CLUSTER.model_copy(update={"nodes": 2, "hardware": hardware, **changes}))


def _words(spec: Spec) -> set[str]:
    """Return the sharding of the clusters that a spec's trainings run on."""
    return {
        task.cluster.sharding for task in lower_placed(spec).tasks if task.kind == "train" and task.cluster
    }


def test_nodes_have_copies_below_the_network_at_which_these_save_a_hundredth() -> None:
    """By hand: a step computes for c seconds, takes r in all else, and sends s bytes from each node.

    Copies send less, for which computing has the time. So they are cheaper where r + c < 0.99 (r + s / network).
    """
    slow = 1e5
    free = priced(_two_nodes(1e15, slow)).tasks["it.train.s1"]
    computing = (free.seconds["training"] - free.sync) / free.steps
    others = 3600 * free.hours_a_step / free.gpus - computing
    sent = (3 * 2 + 4) * from_architecture(make.DRAWN).parameters / 2
    crossover = sent / ((others + computing) / 0.99 - others)
    assert 0.8 * sent / crossover < computing
    assert _words(_two_nodes(crossover * 0.999, slow)) == {"node"}
    assert _words(_two_nodes(crossover * 1.001, slow)) == {"cluster"}


def test_a_written_sharding_and_an_unknown_network_leave_nothing_to_choose() -> None:
    for word in ("cluster", "node"):
        assert _words(_two_nodes(1.0, sharding=word)) == {word}
    assert _words(_two_nodes(None)) == {"auto"}
    assert parts_of(_two_nodes(None).study.cluster or CLUSTER) == 8
    # On one node there is nothing to send.
    assert _words(_two_nodes(1.0, nodes=1)) == {"cluster"}


def test_copies_that_have_no_room_are_not_chosen() -> None:
    peaks = {
        word: priced(_two_nodes(1.0, sharding=word)).tasks["it.train.s1"].memory
        for word in ("node", "cluster")
    }
    most = {word: max(each.values()) for word, each in peaks.items()}
    assert most["cluster"] < most["node"]
    for room, word in ((most["node"] * 1.001, "node"), (most["node"] * 0.999, "cluster")):
        spec = _two_nodes(1.0, memory_gib=room / 2**30)
        assert _words(spec) == {word}


def test_a_rehearsal_has_the_sharding_of_the_run() -> None:
    """Its own steps are too small to tell, so it takes the word of the whole."""
    for network, word in ((1.0, "node"), (1e15, "cluster")):
        small = shrink(_two_nodes(network), Size(), StandIns())
        assert small.study.cluster is not None
        assert small.study.cluster.sharding == word
        assert _words(small) == {word}


def test_drawing_from_a_cut_distribution_sorts_the_vocabulary() -> None:
    """On GPUs: 360 bytes a word and token in place of 186, and 80 for the likeliest."""
    changes = ({"temperature": 0.0}, {}, {"top_p": 0.9}, {"top_k": 20})
    prices = [
        one(make.outcome(), rollout=make.Sampling(max_tokens=16, **each)).seconds["generation"]
        for each in changes
    ]
    greedy, whole, cut, top = prices
    assert cut == top
    assert (cut - greedy) / (whole - greedy) == pytest.approx((360 - 80) / (186 - 80))


def test_the_first_servers_of_a_cluster_compile_their_kernels() -> None:
    """As long as nothing has run there: 116 s more for the first task that generates, and for no other."""
    tasks = priced(on(make.four(), engine="sglang")).tasks
    starts = [each.seconds["start"] for each in tasks.values() if "generation" in each.seconds]
    assert starts[0] == pytest.approx(starts[1] + 116)
    assert len(set(starts[1:])) == 1


def test_as_many_tokens_run_at_once_as_the_trainer_runs() -> None:
    found = devices_of(CLUSTER), devices_of(None)
    assert [each.microbatch for each in found if each is not None] == [GPU_TOKENS, CPU_TOKENS]


def test_no_responses_take_less_than_one_does() -> None:
    lengths, sizes, devices = (
        LengthDistribution.of(10, 16),
        from_architecture(make.DRAWN),
        devices_of(CLUSTER),
    )
    assert devices is not None
    none, one = (
        generation_seconds(RolloutBatch(count, count, 4.0, lengths), sizes, devices) for count in (0.0, 1.0)
    )
    assert 0 <= none < one


def test_adapters_save_a_quarter_of_the_products_and_nothing_of_attention() -> None:
    """A product is made, made again, and led back to inputs and weights; with adapters the last is left out, on GPUs."""
    plain = make.ppo(make.outcome())
    stage = plain.model_copy(update={"lora": Lora(rank=4, alpha=8.0)})
    sizes, read = from_architecture(make.DRAWN), (100.0, 5000.0)
    products, attention = 2 * sizes.products * 100.0, sizes.attention_flops(5000.0)
    for devices, of_products in ((devices_of(CLUSTER), 2.25), (devices_of(None), 3.0)):
        each = _pass_flops(stage, sizes, read, devices, 2, 1)
        assert each == pytest.approx(((2 * of_products + 1) * products + 7 * attention, 7 * attention))
        assert _pass_flops(plain, sizes, read, devices, 2, 1) == pytest.approx(
            (7 * products + 7 * attention, 7 * attention)
        )


def test_a_weight_that_moves_costs_what_a_constant_does() -> None:
    """Although it begins at 0, where a constant would need no reference model."""
    follows = make.outcome().model_copy(update={"tracks": (Track(name="beta", value=Constant(value=0)),)})
    moving = {"kl": "reward.beta", "entropy": "reward.beta"}
    assert one(follows, **moving) == one(follows, kl=0.3, entropy=0.3) != one(follows)


def test_a_teacher_costs_its_passes() -> None:
    """One a step for sampled tokens; for whole distributions one an epoch, and the logits of both models."""
    plain, held = one(make.outcome()), one(make.outcome(), kl=1.0)
    whole = [
        one(make.outcome(), kl=1.0, epochs=epochs, loss=Loss(estimator="reverse"), teacher=taught)
        for epochs in (1, 2)
        for taught in (None, make.end(make.base()), FromModel(model=make.model("wide", WIDE)))
    ]
    assert plain.seconds["training"] < held.seconds["training"] < whole[0].seconds["training"]
    assert whole[0].seconds["training"] == whole[1].seconds["training"] < whole[2].seconds["training"]
    assert whole[3].seconds["training"] - whole[0].seconds["training"] == pytest.approx(
        whole[0].seconds["training"] - one(make.outcome(), epochs=0).seconds["training"], rel=0.2
    )
    few = one(make.outcome(), kl=1.0, epochs=2, loss=Loss(estimator="reverse", top_k=4))
    assert held.seconds["training"] < few.seconds["training"] < whole[3].seconds["training"]
    assert held.memory["trainer"] < whole[0].memory["trainer"] < whole[2].memory["trainer"]


def test_a_teacher_that_follows_costs_what_one_that_stays_does() -> None:
    """Where all weights are trained; what it needs beside adapters is told in `test_memory.py`."""
    assert one(make.outcome(), kl=1.0, teacher_follows=MovingAverage(every=1)) == one(make.outcome(), kl=1.0)


def test_whole_responses_alone_are_drawn_and_cut_ones_are_as_long_as_they_are() -> None:
    batch, rollout = Batch(prompts=4, rollouts=12), make.Sampling(max_tokens=64, solution=1)
    plain = one(make.outcome(), batch=batch, rollout=make.Sampling(max_tokens=64))
    cut = one(make.outcome(), batch=batch, rollout=rollout, cut_at=(0.25, 0.5, 0.75))
    fewer = one(make.outcome(), batch=Batch(prompts=4, rollouts=3), rollout=make.Sampling(max_tokens=64))
    assert cut.trained == pytest.approx(plain.trained * 2.5 / 4, rel=0.1)
    assert fewer.generated < cut.generated < fewer.generated * 1.2
    assert fewer.seconds["generation"] < cut.seconds["generation"]
    assert fewer.seconds["training"] < cut.seconds["training"] < plain.seconds["training"]


def test_models_that_are_asked_about_tokens_cost_their_passes() -> None:
    """What the engine knows is free; a teacher's pass is that of a frozen model, and each place of an answer is one more."""
    plain, held = one(make.outcome()), one(make.outcome(), kl=1.0)

    def asks(*names: str, **more: Any) -> Price:
        tokens = [TokenRun(fn="mean", of="y", value=Variable(name=name), **more) for name in names]
        metrics = tuple(Metric(name=f"m{at}", value=each) for at, each in enumerate(tokens))
        return one(make.outcome().model_copy(update={"metrics": metrics}))

    def more(price: Price) -> float:
        return price.seconds["training"] - plain.seconds["training"]

    teacher = "(t, under: teacher)"
    assert more(asks("prob(t)", "logprob(t)")) == 0
    assert more(asks(f"prob{teacher}")) == pytest.approx(more(held))
    assert asks(f"prob{teacher}").memory == held.memory
    # Entropies take logits of their own, and both models read the responses once each.
    assert more(held) < more(asks("entropy(t)")) == pytest.approx(more(asks(f"entropy{teacher}")))
    both = more(asks("entropy(t)", f"entropy{teacher}", f"prob{teacher}"))
    assert both == pytest.approx(2 * more(asks("entropy(t)")))
    first, whole = (more(asks("prob(t)", truth=True, cut=cut)) for cut in (Constant(value=0, unit=1), None))
    assert 0 < first < whole <= more(held) * 1.5


def test_devices_apart_share_the_work() -> None:
    apart = CLUSTER.model_copy(update={"placement": "apart", "rollout_share": 0.5})
    together, parted = (priced(on(make.four(), each)).tasks["vanilla.train.s1"] for each in (CLUSTER, apart))
    assert parted.gpus == together.gpus == 4
    assert parted.seconds["training"] > together.seconds["training"]


def test_log_probabilities_of_the_trainers_own_take_a_pass_and_where_draws_are_tempered_and_cut_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In bfloat16 on GPUs they are always the trainer's own, unless the engine's are asked for."""
    monkeypatch.setitem(HOST_RATE, "batch", 0.0)  # type: ignore[arg-type]
    cut = make.Sampling(max_tokens=16, temperature=0.6, top_p=0.9)
    changes: list[dict[str, Any]] = [{"old_logprobs": "engine"}, {}, {"rollout": cut}]
    engines, own, twice = (one(make.outcome(), **more).seconds["training"] for more in changes)
    transfer = from_architecture(make.DRAWN).parameters * 2 / (GPU.interconnect / 2) * 2
    assert (own - transfer) / (engines - transfer) == pytest.approx(4 / 3)
    assert (twice - transfer) / (engines - transfer) == pytest.approx(5 / 3)


def one_after_the_other(own: Cluster | None) -> Spec:
    """Two experiments, the second from the first, which has a cluster for itself."""
    before = make.trained("before", make.sft()).model_copy(update={"cluster": own})
    after = make.trained("after", make.ppo(make.outcome()), start=make.end(before))
    return make.spec(make.arm("before", before), make.arm("after", after))


def test_an_experiment_on_a_part_of_the_cluster_costs_what_it_costs_there_alone() -> None:
    half = CLUSTER.model_copy(update={"name": "half", "gpus_per_node": 2})
    bare = one_after_the_other(None)
    mixed, whole, alone = (priced(each) for each in (on(one_after_the_other(half)), on(bare), on(bare, half)))
    assert mixed.tasks["before.train.s1"] == alone.tasks["before.train.s1"] != whole.tasks["before.train.s1"]
    for name in ("after.train.s1", "before.eval.s1", "after.eval.s1"):
        assert mixed.tasks[name] == whole.tasks[name] != alone.tasks[name]
    # The same work on half of the GPUs takes twice as long, but that two ranks wait less for each other than four.
    found = mixed.tasks["before.train.s1"]
    assert (found.devices, found.gpus, mixed.devices) == ("1 x 2 X1", 2, "1 x 4 X1")
    assert found.seconds["training"] == pytest.approx(
        2 * 0.98 / 0.99 * whole.tasks["before.train.s1"].seconds["training"]
    )
    assert (mixed.mixed, whole.mixed) == (True, False)


def test_a_gpu_that_is_too_small_is_that_of_the_tasks_own_cluster() -> None:
    spec = on(one_after_the_other(CLUSTER.model_copy(update={"nodes": 2, "memory_gib": 1e-6})))
    every = refusals(priced(spec), [task.id for task in lower(spec).tasks], spec)
    assert {(each.code, each.where) for each in every} == {("E0606", "2 x 4 X1")}
    assert all("before.train" in each.message for each in every)


def test_a_cluster_without_figures_has_no_price() -> None:
    found = priced(on(make.four(), CLUSTER.model_copy(update={"hardware": None})))
    assert "hardware" in str(found.tasks["vanilla.train.s1"].unpriced)


def test_a_model_without_sizes_has_no_price_unless_they_are_given() -> None:
    stage = make.sft()
    spec = on(make.spec(make.arm("a", make.trained("a", stage, start=make.downloaded()))))
    found = priced(spec).tasks["a.train.s1"]
    assert "dimensions" in str(found.unpriced)
    sizes = {"given": from_architecture(make.DRAWN)}
    assert price(lower(spec), spec, sizes=sizes).tasks["a.train.s1"].unpriced is None


def test_how_many_questions_there_are_is_declared_or_found() -> None:
    bench = make.Benchmark(name="easy", data=make.file_data("a.jsonl"))
    spec = on(
        make.spec(make.arm("base", make.base(), make.suite().model_copy(update={"benchmarks": (bench,)})))
    )
    assert "questions" in str(priced(spec).tasks["base.eval.s1"].unpriced)
    assert priced(spec, History(questions={"filed.data": 10})).tasks["base.eval.s1"].unpriced is None
    told = make.Benchmark(name="easy", data=make.file_data("a.jsonl").model_copy(update={"questions": 10}))
    spec = on(
        make.spec(make.arm("base", make.base(), make.suite().model_copy(update={"benchmarks": (told,)})))
    )
    assert priced(spec).tasks["base.eval.s1"].generated == pytest.approx(10 * 2 * 16 / 3)


def past(spec: Spec, task: str, length: float, **more: Any) -> MeasuredTask:
    found = lower(spec)[task]
    facts = Facts(length=length, prompt=4.0, questions=10, trained_share=0.5)
    return MeasuredTask(
        task, found.kind, found.payload, facts, 10.0, more.pop("terms", {}), "cuda", "X1 80GB", None, 4, 4
    )


def test_measured_lengths_replace_assumed_ones() -> None:
    spec = on(make.four())
    before = priced(spec).tasks["vanilla.train.s1"]
    after = priced(spec, History({"vanilla.train.s1": past(spec, "vanilla.train.s1", 12.0)})).tasks[
        "vanilla.train.s1"
    ]
    assert before.generated == pytest.approx(2 * 8 * 16 / 3)
    assert after.generated == pytest.approx(2 * 8 * 12)
    assert after.trained == pytest.approx(after.generated / 2)


def test_prompts_take_at_most_half_of_a_sequence_that_is_imitated() -> None:
    """A file's questions are taken to be longer than 8 of 16 tokens: a trace of half of them has one token left."""
    stage = make.sft(steps=3, data=make.file_data("questions.jsonl"))
    spec = on(make.spec(make.arm("a", make.trained("a", stage))))
    assert priced(spec).tasks["a.train.s1"].trained == 3 * 2 * 1


def test_measured_seconds_replace_assumed_utilisation() -> None:
    spec, name = on(make.four()), "vanilla.train.s1"
    known = price_of(spec, name)
    terms = {"generation": 5 * known.seconds["generation"], "training": 7 * known.seconds["training"]}
    found = priced(spec, History({name: past(spec, name, 12.0, terms=terms)}))
    assert found.tasks[name].basis == "result"
    assert {term: found.tasks[name].seconds[term] for term in terms} == pytest.approx(terms)
    assert found.tasks["shrink.train.long.s1"] == priced(spec, History({})).tasks["shrink.train.long.s1"]


def test_an_evaluation_generates_on_all_gpus_where_training_parts_them_too() -> None:
    apart = CLUSTER.model_copy(update={"placement": "apart"})
    spec, name = on(make.four(), apart), "vanilla.eval.s1"
    there, together = priced(spec).tasks, priced(on(make.four())).tasks
    assert there[name] == together[name]
    assert (
        there["vanilla.train.s1"].seconds["generation"] > together["vanilla.train.s1"].seconds["generation"]
    )


def price_of(spec: Spec, task: str) -> Price:
    return priced(spec, History({task: replace(past(spec, task, 12.0), device="cpu")})).tasks[task]


def test_a_spec_that_costs_more_than_its_limit_is_refused() -> None:
    spec = on(make.four(), limit=1e-3)
    locate(spec.study, {"limit": Origin(path="a.reo", line=9)})
    found = priced(spec)
    names = tuple(found.tasks)
    (error,) = refusals(found, names, spec)
    assert (error.code, error.severity, error.where) == ("E0610", "error", "a.reo:9")
    assert "0.001 gpu_hours" in error.message
    assert refusals(found, (), spec) == ()
    assert refusals(replace(found, limit=found.hours(names)), names, spec) == ()
    assert refusals(replace(found, limit=None), names, spec) == ()


def test_a_refusal_says_how_many_steps_would_fit() -> None:
    spec = on(make.four())
    dear = make.four().study.arm("shrink").checkpoint.experiment.stages[0]  # type: ignore[union-attr]
    assert dear.steps == 7
    found = priced(spec)
    most = found.hours(found.tasks)
    task = found.tasks["shrink.train.long.s1"]
    lower_by = 3.5 * sum(task.step_hours.values())
    tasks = {name: replace(each, seconds={**each.seconds}) for name, each in found.tasks.items()}
    tasks["shrink.train.long.s1"] = replace(
        task, seconds={term: value * (1000 if term != "start" else 1) for term, value in task.seconds.items()}
    )
    grown = replace(found, tasks=tasks, limit=most + 1000 * lower_by)
    (error,) = refusals(grown, tuple(tasks), spec)
    assert error.help is not None
    steps = int(error.help.split()[0])
    fits = grown.hours(tasks) - (7 - steps) * sum(tasks["shrink.train.long.s1"].step_hours.values())
    assert fits <= grown.limit < fits + sum(tasks["shrink.train.long.s1"].step_hours.values())  # type: ignore[operator]


def test_a_role_that_does_not_fit_is_refused(refusal: Callable[..., None]) -> None:
    spec = on(make.four())
    found = priced(spec)
    assert refusals(found, tuple(found.tasks), spec) == ()
    small = on(make.four(), CLUSTER.model_copy(update={"memory_gib": 1e-6}))
    every = refusals(priced(small), tuple(found.tasks), small)
    assert {each.code for each in every} == {"E0606"}
    refusal("commands/E0606-task.txt", Problem(every[0]))


def test_memory_is_saved_by_what_a_stage_does_not_do_yet(tmp_path: Path) -> None:
    path = tmp_path / "spec.reo"
    path.write_text(
        "from std.runs_qwen3_4b import vanilla\nfrom std.clusters import h100_1x8\n"
        "cluster one = h100_1x8 { gpus_per_node = 1, memory = 24 GiB }\n"
        "experiment small = vanilla { cluster = one, lora { rank = 8 }, optim { on = host } }\n"
        "study s { cluster = one, arm a = small }\n"
    )
    spec = load(path).spec
    found = priced(spec)
    (error,) = refusals(found, ("small.train.s1",), spec)
    assert error.help == "spread it over more GPUs (`nodes`), or take a smaller model"


def test_the_json_is_plain_and_complete() -> None:
    found = json.loads(json.dumps(to_json(priced(on(make.four())).tasks["reo_exp.train.s1"])))
    assert found["gpu_hours"] == pytest.approx(4 * found["total_seconds"] / 3600)
    assert set(found["gpu_hours_per_step"]) == set(TERMS[1:])
    assert found["peak_memory_bytes"]["trainer"] > 0
    assert found["unpriced"] is None


def test_prices_on_this_machine_are_times() -> None:
    found = priced(on(make.four(), None))
    assert found.unit == "seconds"
    assert show.short(found, ["vanilla.train.s1"]).endswith("s")
    assert show.total(found, ["vanilla.train.s1"], []).endswith(" now, on one core")
    # Tasks without a device take time too.
    whole = sum(price.total_seconds for price in found.tasks.values())
    assert found.hours(found.tasks) == pytest.approx(whole / 3600)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.214, "0.214"), (40.4, "40.4"), (3918, "3.92K"), (60000, "60K"), (8.39e9, "8.39G")],
)
def test_counts_are_short(value: float, text: str) -> None:
    assert show.count(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "under 1s"), (59, "59s"), (60, "1m"), (150, "2m 30s"), (7260, "2h 1m"), (90000, "1d 1h")],
)
def test_times_are_short(seconds: float, text: str) -> None:
    assert show.duration(seconds) == text


def test_totals_tell_now_from_later() -> None:
    found = replace(priced(on(make.four())), limit=60_000.0)
    names = list(found.tasks)
    text = show.total(found, names[:-3], names[-3:])
    assert " gpu_hours now, at most " in text
    assert text.endswith(" of 60K")


def test_passes_end_a_stage_before_its_steps_do() -> None:
    def trained(passes: int | None, steps: int) -> Price:
        stage = make.sft(steps=steps).model_copy(update={"passes": passes})
        return priced(on(make.spec(make.arm("a", make.trained("a", stage))))).tasks["a.train.s1"]

    # Ten questions in batches of two are five steps a pass.
    assert trained(None, 100).steps == 100
    assert trained(3, 100).steps == 15
    assert trained(30, 100).steps == 100


def reward(value: Any, split: Any = None) -> Any:
    if split is None:
        return Reward(name="", outcome=value)
    return Reward(name="", dense=DenseReward(split=split, var="L", value=value))


AT = Variable(name="L")


@pytest.mark.parametrize(
    ("subject", "cuts"),
    [
        (make.outcome(), ()),
        (make.budgets(4, 8), (4, 8)),
        (make.oracle(), (4, 8)),
        (make.question_wise("base"), (4,)),
        (reward(ForcedAnswer(of="y", cut=Constant(value=12.0))), (12,)),
        (reward(ForcedAnswer(of="y", cut=Constant(value=99.0))), ()),
        (
            reward(
                ForcedAnswer(of="y", cut=Infix(fn="/", left=Constant(value=9.0), right=Constant(value=2.0)))
            ),
            (4,),
        ),
        (reward(Correct(of="y"), Budgets(budgets=(4,), l_max=16)), ()),
        (
            reward(
                Infix(
                    fn="-", left=ForcedAnswer(of="y", cut=AT), right=ForcedAnswer(of="y", cut=PriorSplit())
                ),
                Steps(separator="s", keywords=("k",), l_max=16),
            ),
            (2, 4, 6, 8, 10, 12, 14),
        ),
        (
            Reward(
                name="",
                parts=(
                    Part(value=Correct(of="y")),
                    Part(value=ForcedAnswer(of="y", cut=Constant(value=8.0))),
                ),
            ),
            (8,),
        ),
    ],
)
def test_where_a_reward_forces_answers(subject: Any, cuts: tuple[int, ...]) -> None:
    assert cuts_of(subject, 16) == cuts


def test_like_trainings_are_summed_up_once() -> None:
    found = priced(on(make.four(seeds=(1, 2, 3))))
    lines = show.summary(found, tuple(found.tasks))
    steps = [line for line in lines if line.startswith("A step of")]
    assert len(steps) == len(set(steps)) <= 3
    assert any(" and 2 more" in line for line in steps)
    assert sum(line.startswith("A step of") for line in show.summary(found, tuple(found.tasks), True)) >= 3
