"""Models placed on two processes, and what each of them asked memory for meanwhile; the first leaves what was found."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from reodsl.graph.job import Job
from reodsl.ir.training import Optimizer
from runners.models.folder import load_model, save
from runners.models.tokenizer import word_tokenizer
from runners.train.checkpoint import TrainingState, load_state, load_trained_model, save_state
from runners.train.optimizers import build_optimizers, optimizer_state
from runners.train.ranks import Ranks
from runners.train.sharding import full_state, shard, to_local

CPU = torch.device("cpu")


def most_bytes(folder: Path, work: Callable[[], Any]) -> tuple[int, Any]:
    """The most memory that tensors took at once beyond what was there before, and what the work gave.

    The folder's files are mapped, not read, and told of with all their bytes: such pages are the system's, and left out.
    """
    # What other threads ask for is not told of.
    os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"
    gc.collect()
    mapped = {path.stat().st_size for path in folder.rglob("*.safetensors")}
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        made = work()
    held = most = 0
    for event in found.profiler.kineto_results.events():
        if event.name() == "[memory]" and abs(event.nbytes()) not in mapped:
            held += event.nbytes()
            most = max(most, held)
    return most, made


def place_all(job: Job, ranks: Ranks) -> None:
    """Every folder of `job.folder` placed in both ways; what differs between them, and the most bytes of each."""
    found = {}
    for folder in sorted(job.folder.glob("model-*")):
        most, (model, _) = most_bytes(
            folder, lambda at=folder: load_trained_model(at, CPU, torch.float32, ranks)
        )
        plain, theirs = most_bytes(folder, lambda at=folder: whole(at, ranks))
        apart = [
            name
            for (name, p), (other, q) in zip(
                (*model.named_parameters(remove_duplicate=False), *model.named_buffers()),
                (*theirs.named_parameters(remove_duplicate=False), *theirs.named_buffers()),
                strict=True,
            )
            if name != other
            or p.dtype != q.dtype
            or not torch.equal(to_local(p.detach()), to_local(q.detach()))
        ]
        own = sum(to_local(p).nbytes for p in model.parameters())
        tied = model.lm_head.weight is model.model.embed_tokens.weight
        state = full_state(model, ranks, CPU, torch.float32)
        if ranks.is_rank_zero:
            save(model, word_tokenizer(("a", "b")), job.out / folder.name, state)
        told = {"most": most, "plain": plain, "own": own, "apart": apart, "tied": tied}
        found[folder.name] = ranks.all_gather_objects(told)
    if ranks.is_rank_zero:
        (job.out / "found.json").write_text(json.dumps(found))


def whole(folder: Path, ranks: Ranks) -> Any:
    """Read whole by each process, then cut."""
    model = load_model(folder)
    shard(model, ranks, torch.float32)
    return model


def resume(job: Job, ranks: Ranks) -> None:
    """A standing with moments is saved and taken on: the most bytes of taking on what two left, and what one left."""
    rule = Optimizer(algorithm="adamw", lr=1e-3)
    (folder,) = job.folder.glob("model-*")
    found = {}
    for name, saves in (("sharded", ranks), ("whole", Ranks())):
        work = job.folder / f"work-{name}"
        if name == "sharded" or ranks.is_rank_zero:
            work.mkdir(exist_ok=True)
            model, _ = load_trained_model(folder, CPU, torch.float32, saves)
            optimizers = build_optimizers(model, rule)
            for at, p in enumerate(model.parameters()):
                p.grad = torch.full_like(p, 0.1 * (at + 1))
            optimizers[0].step()
            save_state(work, model, optimizers, TrainingState([{"loss": 1.0}], [{"seconds": 1.0}]), saves)
            if name == "sharded":
                before = state(model, optimizers)
            del model, optimizers
        ranks.barrier()
        again, _ = load_trained_model(folder, CPU, torch.float32, ranks)
        others = build_optimizers(again, rule)
        most, standing = most_bytes(work, lambda to=(work, again, others): load_state(*to, ranks))
        after = state(again, others)
        assert standing.steps == 1
        assert before.keys() == after.keys()
        assert all(torch.equal(before[key], after[key]) for key in before), name
        found[name] = ranks.all_gather_objects(
            {"most": most, "own": sum(to_local(p).nbytes for p in again.parameters())}
        )
    if ranks.is_rank_zero:
        (job.out / "found.json").write_text(json.dumps(found))


def state(model: Any, optimizers: Any) -> dict[str, torch.Tensor]:
    named = dict(model.named_parameters()) | optimizer_state(model, optimizers)
    return {name: to_local(value.detach()).clone() for name, value in named.items()}
