"""A toy that tells where Ray put it: its node and process, and the bundles that were kept for it."""

from __future__ import annotations

import json
import os

import ray
from ray.util import get_current_placement_group

from reodsl.graph.job import Job
from tests.execute import toys


def placed(job: Job) -> None:
    """Add a line to `places.jsonl`, then do what a toy does."""
    group = get_current_placement_group()
    line = {
        "task": job.task.id,
        "node": ray.get_runtime_context().get_node_id(),
        "bundles": [] if group is None else group.bundle_specs,
        "gpus": len(ray.get_gpu_ids()),
        "process": os.getpid(),
    }
    with (job.folder / "places.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    toys.toy(job)
