"""Servers as Ray actors: asked from a task of Ray's, killed under it, and gone after it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from reodsl.graph.job import Resources
from runners.engine.open import open_engine
from runners.engine.protocol import TokenSampling
from runners.engine.sglang.hosts import RayServer
from runners.machine.process import ProcessDied
from tests.engine.engine_reference import STOP, engine_of, make_model, make_requests

pytestmark = [pytest.mark.sglang, pytest.mark.heavy]

GREEDY = TokenSampling(12, temperature=0.0, stop_ids=(STOP,))
Tokens = list[tuple[int, ...]]


@pytest.fixture
def ray() -> Iterator[Any]:
    import ray

    from runners.execute.instance import start_ray

    with start_ray(None):
        yield ray


def answers(folder: Path, logs: Path) -> tuple[Tokens, Tokens, list[int]]:
    """In a Ray worker: greedy tokens of the checkpoint and of other weights; then its server is killed."""
    engine: Any = open_engine(folder, Resources(engine="sglang"), 100, logs)
    try:
        (host,) = engine.fleet.hosts
        assert isinstance(host, RayServer)
        requests = make_requests(5, 2, seed=1)
        first = [r.tokens for r in engine.generate(requests, GREEDY)]
        engine.load_weights(make_model("qwen3-gqa-tied", seed=5).state_dict(), 1)
        second = [r.tokens for r in engine.generate(requests, GREEDY)]
        launcher = next(p for p in psutil.process_iter(["cmdline"]) if _serves(p, folder))
        family = [launcher.pid, *(child.pid for child in launcher.children(recursive=True))]
        os.killpg(launcher.pid, signal.SIGKILL)
        with pytest.raises(ProcessDied, match="the SGLang server at"):
            engine.generate(requests, GREEDY)
    finally:
        engine.close()
    return first, second, family


def _serves(process: psutil.Process, folder: Path) -> bool:
    words = process.info["cmdline"] or []
    return any(word.endswith("launch.py") for word in words) and str(folder) in words


def test_a_task_of_rays_has_its_server_beside_it(
    python: Path, ray: Any, folder: Path, served_model: Any, tmp_path: Path
) -> None:
    first, second, family = ray.get(ray.remote(num_cpus=1)(answers).remote(folder, tmp_path))
    requests = make_requests(5, 2, seed=1)
    for found, model in ((first, served_model), (second, make_model("qwen3-gqa-tied", seed=5))):
        assert found == [r.tokens for r in engine_of(model).generate(requests, GREEDY)]
    assert len(family) >= 2
    _, alive = psutil.wait_procs(
        [psutil.Process(pid) for pid in family if psutil.pid_exists(pid)], timeout=20
    )
    assert not alive
