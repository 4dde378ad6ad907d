"""Run records, what they keep alive, and what clean-up removes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from reodsl.diagnostics import Problem
from reodsl.graph.lower import lower
from reodsl.graph.task import VERSIONS
from reodsl.ir import Spec, digest
from reodsl.store import runs
from reodsl.store.files import let_go
from reodsl.store.runs import pick, select, slug
from reodsl.store.sweep import find_garbage, size, sweep
from tests.execute.bench import Bench
from tests.graph import studies as make
from tests.store.holder import other_process_holds


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def recorded(bench: Bench, spec: Spec) -> runs.RunRecord:
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
    assert find_garbage(bench.store) == ()
    smaller = make.spec(make.arm("base", make.base()))
    last = recorded(bench, smaller)
    items = find_garbage(bench.store)
    assert {item.kind for item in items} == {"result", "record"}
    assert find_garbage(bench.store, keep=2) == ()
    sweep(bench.store, items)
    assert set(bench.store) == set(last.tasks.values())
    assert find_garbage(bench.store) == ()
    bench.started()
    bench.run(smaller)
    assert bench.started() == []


def test_what_a_run_in_flight_uses_stays(bench: Bench) -> None:
    spec = make.four()
    record = runs.begin(bench.store.open(), spec, digest(spec))
    record.tasks = bench.run(spec).keys
    runs.save(bench.store, record)  # this process is alive, and so is its run
    recorded(bench, make.spec(make.arm("base", make.base())))
    assert find_garbage(bench.store) == ()


def test_a_run_whose_process_is_gone_is_dead_though_its_number_lives(bench: Bench) -> None:
    """Processes in containers often have the number of one before."""
    spec = make.four()
    record = killed(bench, spec)
    assert record.process == os.getpid()
    assert not runs.alive(bench.store, record)
    recorded(bench, spec)
    assert [item.name for item in find_garbage(bench.store)] == [record.name]


@pytest.mark.parametrize("status", ["running", "interrupted", "failed"])
def test_what_a_run_has_not_come_to_yet_stays(bench: Bench, status: runs.Status) -> None:
    """It will take up the results of the finished run before it, and nothing but that one names them all."""
    spec = make.four()
    recorded(bench, make.spec(make.arm("base", make.base())))
    recorded(bench, spec)
    record = runs.begin(bench.store, spec, digest(spec))
    if status != "running":
        runs.end(bench.store, record, status)
    items = find_garbage(bench.store)
    sweep(bench.store, items)
    bench.started()
    bench.run(spec)
    assert bench.started() == []
    runs.end(bench.store, record, "finished")
    recorded(bench, spec)
    assert record.name in {item.name for item in find_garbage(bench.store)}


def killed(bench: Bench, spec: Spec, tasks: int = 3) -> runs.RunRecord:
    """The record that is left of a run that died after some tasks."""
    record = runs.begin(bench.store.open(), spec, digest(spec))
    writer = runs.Writer(bench.store, record)
    for task, key in list(bench.run(spec).keys.items())[:tasks]:
        writer.add(task, key)
    let_go(bench.store.root / "runs" / f"{record.name}.lock")
    return record


def test_what_a_run_has_is_on_the_disk_as_it_goes(bench: Bench) -> None:
    record = killed(bench, make.four())
    (found,) = runs.records(bench.store)
    assert len(found.tasks) == 3
    assert found.tasks == record.tasks
    with (bench.store.root / "runs" / f"{record.name}.tasks").open("a") as file:
        file.write("0123 cut.off")
    (found,) = runs.records(bench.store)
    assert found.tasks == record.tasks
    runs.end(bench.store, record, "interrupted")
    assert runs.records(bench.store) == (record,)
    assert {path.suffix for path in (bench.store.root / "runs").iterdir()} == {".json", ".spec"}


def working(bench: Bench, key: str) -> Path:
    """A file in the work folder of a key."""
    folder = bench.store.work(key * 64)
    folder.mkdir(parents=True)
    return folder / "state"


LEFT = ("tmp/{key}.1.ab/half", "tmp/probe.1.ab", "live/{key}.json", "live/.{key}.json.1", ".fingerprints.json.1.ab",
        "runs/.x.json.1.ab", "runs/x.lock", "runs/y.spec", "errors/.{key}.txt.1.ab", "work/{done}/state")  # fmt: skip


def test_a_run_that_begins_removes_what_killed_ones_left(bench: Bench) -> None:
    """Unless another is going, which may be at it."""
    first = recorded(bench, make.four())
    names = {"key": "a" * 64, "done": first.tasks["report"]}
    left = [bench.store.root / name.format(**names) for name in LEFT]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    working(bench, "b").write_text("to go on from")
    going = runs.begin(bench.store, make.four(), "0" * 64)
    assert not any(path.exists() for path in left)
    assert (bench.store.root / "work" / ("b" * 64) / "state").exists()
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    other = runs.begin(bench.store, make.four(), "1" * 64)
    assert all(path.exists() for path in left)
    for record in (going, other):
        runs.end(bench.store, record, "finished")


def test_what_a_worker_is_still_at_is_left_alone(bench: Bench) -> None:
    """Its run was killed, and it will be gone in a moment."""
    store = bench.store.open()
    (store.begin("a" * 64) / "half").write_text("x")
    with other_process_holds(store.root / "locks" / ("a" * 64)):
        runs.end(store, runs.begin(store, make.four(), "0" * 64), "finished")
        assert [path.name for path in (store.root / "tmp").glob("*/half")] == ["half"]
    runs.end(store, runs.begin(store, make.four(), "0" * 64), "finished")
    assert not list((store.root / "tmp").iterdir())


def test_work_that_an_interrupted_run_goes_on_from_stays(bench: Bench) -> None:
    killed(bench, make.four())
    working(bench, "b").write_text("hours of it")
    os.utime(working(bench, "c").parent, (0, 0))  # of some run long ago
    leftover = [item.name for item in find_garbage(bench.store) if item.kind == "leftover"]
    assert leftover == [f"work/{'c' * 64}"]
    runs.end(bench.store, runs.begin(bench.store, make.four(), "0" * 64), "finished")
    assert {item.name for item in find_garbage(bench.store)} >= {f"work/{'b' * 64}", f"work/{'c' * 64}"}


def test_what_a_run_took_up_since_the_list_was_made_stays(bench: Bench) -> None:
    spec = make.four()
    recorded(bench, spec)
    recorded(bench, make.spec(make.arm("base", make.base())))
    items = find_garbage(bench.store)
    record = runs.begin(bench.store, spec, digest(spec))
    writer = runs.Writer(bench.store, record)
    keys = bench.run(spec).keys
    for task, key in keys.items():
        writer.add(task, key)
    sweep(bench.store, items)
    assert set(keys.values()) <= set(bench.store)
    runs.end(bench.store, record, "finished")


def test_leftovers_of_killed_runs_go(bench: Bench) -> None:
    recorded(bench, make.four())
    (bench.store.begin("a" * 64) / "half").write_text("x" * 10)
    bench.store.work("b" * 64).mkdir()
    (bench.store.work("b" * 64) / "state").write_text("x" * 10)
    items = find_garbage(bench.store)
    assert sorted(item.kind for item in items) == ["leftover", "leftover"]
    assert sweep(bench.store, items) == 20
    assert find_garbage(bench.store) == ()


def test_what_goes_while_a_list_is_made_is_left_out(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process ends a task, and takes its work along, between the names of a folder and a look at what they are."""
    recorded(bench, make.four())
    gone, old = working(bench, "b"), working(bench, "c")
    for file in (gone, old):
        file.write_text("x")
        os.utime(file.parent, (0, 0))
    at = Path.stat

    def late(path: Path, **how: bool) -> os.stat_result:
        if path in (gone, gone.parent):
            raise FileNotFoundError(path)
        return at(path, **how)

    monkeypatch.setattr(Path, "stat", late)
    assert [item.name for item in find_garbage(bench.store)] == [f"work/{'c' * 64}"]
    assert size(gone.parent) == 0


def test_a_selector_follows_what_was_made_of_what(bench: Bench) -> None:
    record = recorded(bench, make.four())

    def names(selector: str) -> set[str]:
        return set(select(bench.store, record, selector))

    assert names("reo_exp.*") == {"reo_exp.train.s1", "reo_exp.eval.s1"}
    assert names("reo_exp.train.s1+") == {"reo_exp.train.s1", "reo_exp.eval.s1", "score.s1", "report"}
    assert {"tiny.model.s1", "overthinker.train.s1"} < names("+reo_exp.train.s1")
    assert "vanilla.train.s1" not in names("+reo_exp.train.s1")
    assert names("+report") == {task.id for task in lower(make.four()).tasks}
    assert names("reo_exp") == names("reo_exp.*")
    assert names("reo_exp+") == names("reo_exp.train.s1+")
    assert names("reo_exp.train+") == names("reo_exp.train.s1+")
    assert names("+score") == names("+score.s1")
    assert names("*.eval") == {name for name in record.tasks if ".eval." in name}
    with pytest.raises(Problem) as caught:
        names("bogus")
    assert caught.value.diagnostics[0].code == "E0954"


def test_an_arm_that_shares_all_its_work_is_selected_by_its_name(bench: Bench) -> None:
    vanilla = make.trained("vanilla", make.ppo(make.outcome()))
    record = recorded(
        bench,
        make.spec(make.arm("base", make.base()), make.arm("vanilla", vanilla), make.arm("twin", vanilla)),
    )
    assert not any(name.startswith("twin") for name in record.tasks)
    assert set(select(bench.store, record, "twin")) == {"vanilla.train.s1", "vanilla.eval.s1"}
    assert set(select(bench.store, record, "twin+")) == set(select(bench.store, record, "vanilla+"))


def test_a_selector_follows_what_was_made_anew_with_the_same_content(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The results after it were not made again, and name the key of the one before."""
    spec = make.four()
    first = recorded(bench, spec)
    monkeypatch.setitem(VERSIONS, "data", VERSIONS["data"] + 1)
    second = recorded(bench, spec)
    changed = {name for name in first.tasks if first.tasks[name] != second.tasks[name]}
    assert changed == {task.id for task in lower(spec).tasks if task.kind == "data"}
    found = select(bench.store, second, "chain.data+")
    assert {"chain.data", "vanilla.train.s1", "vanilla.eval.s1", "report"} < set(found)
    assert {"chain.data", "tiny.model.s1"} < set(select(bench.store, second, "+vanilla.train.s1"))


def test_a_run_is_found_by_study_name_or_digest(bench: Bench) -> None:
    first = recorded(bench, make.four())
    second = recorded(bench, make.four(seeds=(2,)))
    found = runs.records(bench.store)
    assert pick(found, "mini") == second
    assert pick(found, first.spec[:8]) == first
    assert pick(found, first.name) == first
    with pytest.raises(Problem):
        pick(found, "bogus")
    with pytest.raises(Problem, match="an empty name is not a run"):
        pick(found, "")


def test_a_run_is_found_by_the_folder_that_it_filled(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(bench, make.four())
    (kept,) = runs.records(bench.store)
    reports = [tmp_path / "runs" / name / "report.html" for name in ("mini-1", "mini-2")]
    found = tuple(replace(kept, report=str(path)) for path in reports)
    monkeypatch.chdir(tmp_path)
    for number, path in enumerate(reports):
        for name in (
            str(path.parent),
            f"runs/mini-{number + 1}",
            f"runs/mini-{number + 1}/",
            "runs/../" + str(path.relative_to(tmp_path)),
        ):
            assert pick(found, name) is found[number]
    with pytest.raises(Problem):
        pick(found, "runs")


def test_a_beginning_that_several_runs_share_is_no_name(bench: Bench) -> None:
    recorded(bench, make.four())
    (kept,) = runs.records(bench.store)
    names = [f"20260101T12000{i}" for i in range(7)]
    found = tuple(replace(kept, name=name, spec=f"{i}abc") for i, name in enumerate(names))
    with pytest.raises(Problem) as caught:
        pick(found, "2026")
    (told,) = caught.value.diagnostics
    assert (told.code, told.message) == ("E0954", "7 runs are called `2026…`")
    assert told.notes == (f"they are {', '.join(reversed(names[2:]))} and 2 more",)
    assert f"`{names[-1]}`" in (told.help or "")
    assert pick(found, "20260101T120003") is found[3]
    assert pick(found, "3a") is found[3]
    # Two runs of one spec are told apart by when they were: the newest is meant.
    same = (*found, replace(kept, name="20270101T000000", spec="3abc"))
    assert pick(same, "3a") is same[-1]
    # A whole name is one, though others begin with it.
    assert pick((*found, replace(kept, name=names[0] + "-2")), names[0]) is found[0]


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "", "x" * 500, "\n", "."])
def test_a_study_name_is_safe_in_a_path(name: str) -> None:
    found = slug(name)
    assert found
    assert len(found) <= 60
    assert "/" not in found
    assert "." not in found
