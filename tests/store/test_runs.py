"""Run records, what they keep alive, and what clean-up removes."""

from __future__ import annotations

from pathlib import Path

import pytest
import studies as make
from bench import Bench

from reodsl.diagnostics import Problem
from reodsl.graph.lower import lower
from reodsl.ir import Spec, digest
from reodsl.store import runs
from reodsl.store.runs import slug
from reodsl.store.select import pick, select
from reodsl.store.sweep import refuse, sweep


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def recorded(bench: Bench, spec: Spec) -> runs.Record:
    record = runs.begin(bench.store.open(), spec, digest(spec))
    record.tasks = bench.run(spec).keys
    runs.end(bench.store, record, "finished")
    return record


def test_a_record_reads_back(bench: Bench) -> None:
    record = recorded(bench, make.four())
    assert runs.records(bench.store) == (record,)
    assert runs.previous("mini", "report", (record,)) == record.tasks["report"]
    assert runs.previous("mini", "nothing", (record,)) is None
    assert runs.previous("other", "report", (record,)) is None


def test_an_unreadable_record_is_passed_over(bench: Bench) -> None:
    record = recorded(bench, make.four())
    (bench.store.root / "runs" / "0.json").write_text('{"name": 1')
    (bench.store.root / "runs" / "1.json").write_text('{"unknown": 1}')
    assert runs.records(bench.store) == (record,)


def test_what_the_last_run_used_stays(bench: Bench) -> None:
    recorded(bench, make.four())
    assert refuse(bench.store) == ()
    smaller = make.spec(make.arm("base", make.base()))
    last = recorded(bench, smaller)
    items = refuse(bench.store)
    assert {item.kind for item in items} == {"result", "record"}
    assert refuse(bench.store, keep=2) == ()
    sweep(bench.store, items)
    assert set(bench.store) == set(last.tasks.values())
    assert refuse(bench.store) == ()
    bench.started()
    bench.run(smaller)
    assert bench.started() == []


def test_what_a_run_in_flight_uses_stays(bench: Bench) -> None:
    spec = make.four()
    record = runs.begin(bench.store.open(), spec, digest(spec))
    record.tasks = bench.run(spec).keys
    runs.save(bench.store, record)  # this process is alive, and so is its run
    recorded(bench, make.spec(make.arm("base", make.base())))
    assert refuse(bench.store) == ()


def test_leftovers_of_killed_runs_go(bench: Bench) -> None:
    recorded(bench, make.four())
    (bench.store.begin("a" * 64) / "half").write_text("x" * 10)
    bench.store.work("b" * 64).mkdir()
    (bench.store.work("b" * 64) / "state").write_text("x" * 10)
    items = refuse(bench.store)
    assert sorted(item.kind for item in items) == ["leftover", "leftover"]
    assert sweep(bench.store, items) == 20
    assert refuse(bench.store) == ()


def test_a_selector_follows_what_was_made_of_what(bench: Bench) -> None:
    record = recorded(bench, make.four())

    def names(selector: str) -> set[str]:
        return set(select(bench.store, record.tasks, selector))

    assert names("reo_exp.*") == {"reo_exp.train.s1", "reo_exp.eval.s1"}
    assert names("reo_exp.train.s1+") == {"reo_exp.train.s1", "reo_exp.eval.s1", "score.s1", "report"}
    assert {"tiny.model.s1", "overthinker.train.s1"} < names("+reo_exp.train.s1")
    assert "vanilla.train.s1" not in names("+reo_exp.train.s1")
    assert names("+report") == {task.id for task in lower(make.four()).tasks}
    with pytest.raises(Problem) as caught:
        names("bogus")
    assert caught.value.diagnostics[0].code == "E0954"


def test_a_run_is_found_by_study_name_or_digest(bench: Bench) -> None:
    first = recorded(bench, make.four())
    second = recorded(bench, make.four(seeds=(2,)))
    found = runs.records(bench.store)
    assert pick(found, "mini") == second
    assert pick(found, first.spec[:8]) == first
    assert pick(found, first.name) == first
    with pytest.raises(Problem):
        pick(found, "bogus")


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "", "x" * 500, "\n", "."])
def test_a_study_name_is_safe_in_a_path(name: str) -> None:
    found = slug(name)
    assert found
    assert len(found) <= 60
    assert "/" not in found
    assert "." not in found
