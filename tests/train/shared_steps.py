"""Steps of every method on uneven sequences, as each of some processes takes them; the first leaves the weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file

from reodsl.graph.job import Job
from reodsl.ir.data import Python
from reodsl.ir.training import Loss, Optimizer, Sampling, Simpo
from reodsl.store.consent import read_code
from runners.engine.protocol import Generation, Insertion
from runners.machine.memory import explain_oom
from runners.train.agreement import Disagreement
from runners.train.batch import broadcast_batch
from runners.train.gather import batch_of, score
from runners.train.optimizers import build_optimizers
from runners.train.own_loss import UserLoss
from runners.train.ppo import update
from runners.train.ranks import Ranks
from runners.train.sharding import enable_activation_checkpointing, shard, to_local
from runners.train.stages import Trace, batch_of_traces, preference_step, sft_step
from runners.train.update import Learner
from tests.train.models import small_model
from tests.train.test_update import experience, method, responses_of, with_responses

# Lengths from 3 to 29, so that the processes have unlike numbers of tokens; then fewer rows than processes.
TRACES = [Trace((3, 4), tuple(2 + (7 * i + j) % 21 for j in range(1 + 9 * (i % 4)))) for i in range(7)]
BATCHES = [TRACES, TRACES[3:4], TRACES[:3]]
PAIRS = [(TRACES[1], TRACES[4]), (TRACES[3], TRACES[0]), (TRACES[2], TRACES[6])]
RULE = Simpo(batch=3, max_tokens=64, beta=2.0, gamma=0.5)
ADAM = Optimizer(algorithm="adamw", lr=1e-3, weight_decay=0.05, grad_norm=0.5)
MUON = Optimizer(algorithm="muon", lr=1e-3, grad_norm=0.5)
CASES = ("muon", "simpo", "ppo", "ppo_held", "ppo_own", "ppo_phases", "checkpointed")
"""Of what differs between processes: `checkpointed` is `sft` with less kept, and a temperature is within one process."""
MINIATURE = Path(__file__).resolve().parents[2] / "specs" / "miniature"
BOUND = 40
"""Tokens of a micro-batch: some hold one row, some several."""


def take_steps(case: str, ranks: Ranks, packed: bool | None = None) -> tuple[Learner, list[dict[str, float]]]:
    """Several steps of one case on a model of its own; `packed` as for `Learner.of`."""
    model = small_model(tied=case != "muon")
    found = experience(small_model(tied=case != "muon"), 0.7 if case == "ppo_tempered" else 1.0)
    phased = case == "ppo_phases"
    if phased:
        found = with_responses(found, map(end_thinking, responses_of(found)))
    if case == "checkpointed":
        enable_activation_checkpointing(model)
    scorer = shard(model, ranks, torch.float32) if ranks.mesh is not None else None
    rule = MUON if case == "muon" else ADAM
    learner = Learner.of(
        model, build_optimizers(model, rule), rule.grad_norm, ranks, scorer, BOUND, packed=packed
    )
    frozen = held(ranks, packed) if case == "ppo_held" else None
    rows = []
    for number in range(3):
        if case == "simpo":
            rows.append(preference_step(learner, PAIRS[: 3 - number], RULE, number))
        elif case.startswith("ppo"):
            rollout = Sampling(max_tokens=12, temperature=0.7 if case == "ppo_tempered" else 1.0)
            kl, entropy = (0.0, 0.0) if frozen is None else (0.3, 0.1)
            # Compared by sampled tokens, then by whole distributions.
            forms = (Loss(estimator="reverse"), Loss(estimator="jsd", top_k=3), Loss())
            form = forms[number] if frozen is not None else Loss(ending_tokens="policy" if phased else "read")
            ours = method(rollout=rollout, minibatches=4, kl=kl, entropy=entropy, loss=form)
            # What the first process has drawn, the others are handed.
            batch = broadcast_batch(
                ranks, batch_of(score(found, ours), ours.loss) if ranks.is_rank_zero else None
            )
            own = None
            if case == "ppo_own":
                ours = ours.model_copy(update={"loss": Loss(own=Python(function="topr.py:loss"))})
                own = UserLoss(read_code("topr.py:loss", MINIATURE), ours)
            rows.append(update(learner, batch, ours, 5, number, reference=frozen, user_loss=own))
        else:
            rows.append(sft_step(learner, BATCHES[number], number))
    return learner, rows


def end_thinking(response: Generation) -> Generation:
    """The same response with its thinking ended by force, after half of it and of its length's own number of tokens."""
    count = len(response.tokens)
    return response.with_inserted(Insertion(count // 2, tuple(range(2, 2 + count % 4))))


def held(ranks: Ranks, packed: bool | None) -> Learner:
    """Another model, shared out in the same way, that a divergence is measured from."""
    model = small_model(seed=1)
    scorer = shard(model, ranks, torch.float32) if ranks.mesh is not None else None
    return Learner.of(model, (), 0.0, ranks, scorer, BOUND, packed=packed)


def body(job: Job, ranks: Ranks) -> None:
    """All cases; weights and metrics of each go to `job.out`."""
    for case in CASES:
        learner, rows = take_steps(case, ranks)
        state = learner.weights()
        every = ranks.all_gather_objects(rows)
        assert all(row == every[0] for row in every), case
        if ranks.is_rank_zero:
            save_file({name: value.clone() for name, value in state.items()}, job.out / f"{case}.safetensors")
            (job.out / f"{case}.json").write_text(json.dumps(rows))
    disagree(learner, ranks)


def sum_once(job: Job, ranks: Ranks) -> None:
    """Between copies each layer's gradients, and those of the ends, travel once a step, whatever micro-batches it has."""
    learner, sums = descend(ranks, packed=False), []
    add_up = dist.all_reduce

    def count(tensor: torch.Tensor, *more: Any, group: Any = None, **words: Any) -> Any:
        if dist.get_process_group_ranks(group) == [ranks.shard[0], ranks.shard[0] + ranks.shard[1]]:
            sums.append(tensor.numel())
        return add_up(tensor, *more, group=group, **words)

    assert len(learner.assign_rows(batch_of_traces(TRACES))[0]) > 1
    dist.all_reduce = count
    try:
        sft_step(learner, TRACES, 1)
    finally:
        dist.all_reduce = add_up
    layers = len(learner.model.get_submodule("model").layers)
    # The norm's square is one number more.
    assert len([each for each in sums if each > 1]) == layers + 1, sums


def gradients(job: Job, ranks: Ranks) -> None:
    """The gradient of one step, padded and packed, of as many processes as there are."""
    for packed in (False, True):
        learner = descend(ranks, packed)
        state = {name: value.clone() for name, value in learner.weights().items()}
        if ranks.is_rank_zero:
            save_file(state, job.out / f"{'packed' if packed else 'padded'}.safetensors")


def descend(ranks: Ranks, packed: bool) -> Learner:
    """One step down the gradient of all traces, so that the weights show it."""
    model = small_model()
    scorer = shard(model, ranks, torch.float32) if ranks.mesh is not None else None
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    learner = Learner.of(model, [optimizer], 0.0, ranks, scorer, BOUND, packed=packed)
    sft_step(learner, TRACES, 0)
    return learner


def disagree(learner: Learner, ranks: Ranks) -> None:
    """An engine with other weights stops every process alike, before anything changes."""
    found, ours = experience(small_model(seed=1)), method(mismatch_limit=1.05)
    batch = broadcast_batch(ranks, batch_of(score(found, ours)) if ranks.is_rank_zero else None)
    before = [to_local(p.detach()).clone() for p in learner.model.parameters()]
    told = ""
    try:
        update(learner, batch, ours, 5, 0)
    except Disagreement as caught:
        told = str(caught)
    assert told
    assert ranks.all_gather_objects(told) == [told] * ranks.world
    for p, held in zip(learner.model.parameters(), before, strict=True):
        assert torch.equal(to_local(p.detach()), held)


def body_and_fail(job: Job, ranks: Ranks) -> None:
    """All cases, and then an error."""
    body(job, ranks)
    if ranks.shard[1] < ranks.world:
        sum_once(job, ranks)
    fail(job, ranks)


def fail(job: Job, ranks: Ranks) -> None:
    """The second process meets an error while the first waits for it."""
    if not ranks.is_rank_zero:
        raise ArithmeticError("no number comes of this")
    ranks.barrier()


def full(job: Job, ranks: Ranks) -> None:
    """The second process runs out of memory in a micro-batch, while the first one waits for its gradients."""
    with explain_oom(torch.device("cpu"), lambda: ("on a micro-batch", [], "")):
        if not ranks.is_rank_zero:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        ranks.barrier()
