"""What a manifest says of how a result was made."""

from __future__ import annotations

import json

import pytest

from reodsl.diagnostics import problem
from reodsl.graph.job import Job
from reodsl.store.manifest import PLACE, read_record, record
from tests.execute import toys
from tests.execute.bench import Bench
from tests.graph import studies as make


def test_a_manifest_names_what_generated_outside_the_process(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every attempt: what an earlier one had made is part of the result."""
    attempts: list[str] = []
    toy = toys.toy

    def served(job: Job) -> None:
        if job.task.id == "base.eval.s1":
            attempts.append(job.task.id)
            record(job.work / PLACE, "sglang", f"0.5.2{len(attempts)}")
            record(job.work / PLACE, "sglang", "")
            if len(attempts) == 1:
                raise problem("E0999", "this toy is broken", help="mend it")
        toy(job)

    monkeypatch.setattr(toys, "toy", served)
    spec = make.spec(make.arm("base", make.base()))
    assert "base.eval.s1" in bench.run(spec).failed
    keys = bench.run(spec).keys

    def versions(task: str) -> dict[str, str]:
        manifest = bench.store.path(keys[task]) / "manifest.json"
        return dict(json.loads(manifest.read_text())["made"]["versions"])

    assert versions("base.eval.s1")["sglang"] == "0.5.21 and 0.5.22"
    assert versions("base.eval.s1")["torch"]
    assert not any("sglang" in versions(task) for task in keys if task != "base.eval.s1")


def test_a_note_that_cannot_be_read_is_none(bench: Bench) -> None:
    place = bench.folder / "work"
    record(place, "sglang", "1")
    (place / "versions.json").write_text("{")
    assert read_record(place) == {}
