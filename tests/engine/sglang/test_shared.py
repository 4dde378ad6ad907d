"""Results of tasks that share one real server, byte for byte those of tasks with a server each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from reodsl.graph.job import Job, Resources
from reodsl.graph.task import Task
from runners.engine.sglang.hosts import end_servers, keep_servers
from runners.engine.sglang.server import Server
from runners.evaluate import run
from runners.models.folder import build, save
from runners.models.tokenizer import word_tokenizer
from tests.evaluate.conftest import WORDS, payload
from tests.worked import work_of

pytestmark = [pytest.mark.sglang, pytest.mark.heavy]


@pytest.fixture
def keeping() -> Iterator[None]:
    keep_servers()
    yield
    end_servers()


def models(folder: Path) -> list[Path]:
    """Two checkpoints of one architecture."""
    tokenizer = word_tokenizer(WORDS)
    sizes = {"layers": 2, "hidden": 32, "heads": 2, "kv_heads": 1, "head_dim": 16, "intermediate": 48}
    for seed in (3, 4):
        made = build(len(tokenizer), seed, eos=1, pad=0, family="qwen3", context=96, init_std=0.3, **sizes)
        save(made, tokenizer, folder / f"model-{seed}" / "checkpoint")
    return [folder / "model-3", folder / "model-4"]


def test_tasks_that_share_a_server_give_the_bytes_of_those_that_do_not(
    python: Path, tmp_path: Path, keeping: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[Path] = []
    launch = Server._launch

    def counting(server: Server, *rest: Any) -> None:
        starts.append(server.settings.model)
        launch(server, *rest)

    monkeypatch.setattr(Server, "_launch", counting)
    rows = [{"id": f"q{i}", "question": f"{i} +{i + 1}", "answer": str(2 * i + 1)} for i in range(4)]
    (tmp_path / "data").mkdir()
    pl.DataFrame(rows).write_parquet(tmp_path / "data" / "questions.parquet")

    def done(start: Path, name: str, samples: int) -> dict[str, bytes]:
        place = tmp_path / name
        (place / "out").mkdir(parents=True)
        data = tmp_path / "data"
        inputs = {"start": start, "data:one": data, "data:two": data}
        task = Task("evaluate", "evaluate", work_of(payload(samples=samples)), {})
        run.evaluate(
            Job(
                task,
                inputs,
                place / "out",
                place / "work",
                tmp_path,
                lambda _: None,
                Resources(engine="sglang"),
            )
        )
        return {path.name: path.read_bytes() for path in sorted((place / "out").iterdir())}

    one, two = models(tmp_path)
    first, shared = done(one, "first", 3), done(two, "shared", 5)
    assert starts == [one / "checkpoint"]
    end_servers()
    alone = done(two, "alone", 5)
    assert starts[1:] == [two / "checkpoint"]
    assert shared == alone
    assert len(shared) == 5
    assert shared["samples.parquet"] != first["samples.parquet"]
