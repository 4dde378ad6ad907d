"""A task that is resumed under the other `determinism`: its result and the report say that it was both."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reodsl.graph.job import Job, Resources
from reodsl.graph.task import Task
from reodsl.report.material import read_origin
from reodsl.report.provenance import collect_versions
from reodsl.store.manifest import PLACE
from reodsl.store.store import Store
from runners.engine.sglang.fleet import Fleet
from runners.engine.sglang.server import Address
from runners.engine.sglang.settings import Settings
from runners.execute.perform import Order, perform_order

KEY = "a" * 64
RUNNER = f"{__name__}:attempt"


class Standing:
    """In the place of a server that is there already."""

    near = True

    def begin(self) -> None:
        """It has begun."""

    def start(self) -> Address:
        return Address("http://127.0.0.1:1", "", "0.5.9")

    def stop(self) -> None:
        """Others end it."""


def attempt(job: Job) -> None:
    """Opens its servers as training does; the first attempt is ended in the middle."""
    settings = Settings(job.folder, 64, 64, determinism=job.resources.determinism)
    hosts: list[Any] = [Standing()]
    Fleet(hosts, settings, job.work / PLACE).close()
    mark = job.work / "begun"
    if not mark.exists():
        mark.touch()
        raise KeyboardInterrupt
    (job.out / "done").touch()


@pytest.mark.parametrize(
    ("second", "words"), [("seeded", "exact and seeded"), ("exact", "exact")], ids=["other", "same"]
)
def test_a_resumed_task_says_how_exactly_each_attempt_drew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: Any, words: str
) -> None:
    monkeypatch.setattr("runners.engine.sglang.fleet.tensor_shapes", lambda _: {})
    store = Store(tmp_path / ".reodsl").open()
    task = Task("a.train.s1", "train", {}, {})

    def order(determinism: Any) -> Order:
        resources = Resources(engine="sglang", determinism=determinism)
        return Order(task, RUNNER, KEY, {"payload": {}}, {}, store.root, tmp_path, resources)

    with pytest.raises(KeyboardInterrupt):
        perform_order(order("exact"), lambda _: None)
    assert store.get(KEY) is None
    assert perform_order(order(second), lambda _: None).status == "done"
    result = read_origin(store.path(KEY))
    assert (result.versions["determinism"], result.versions["sglang"]) == (words, "0.5.9")
    material: Any = SimpleNamespace(artifacts={"train:a@1": result})
    assert collect_versions(material, {})["determinism"] == words
