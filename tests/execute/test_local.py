"""Execution in one process: what runs, what is reused, what fails, and what an interruption leaves."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from reodsl.diagnostics import Problem
from reodsl.graph.job import Event
from reodsl.graph.lower import lower
from tests.execute.bench import Bench
from tests.graph import studies as make


def test_everything_runs_once_and_then_nothing(bench: Bench) -> None:
    spec = make.four()
    results = bench.run(spec)
    tasks = [task.id for task in lower(spec).tasks]
    assert sorted(bench.started()) == sorted(tasks)
    assert set(results.keys) == set(tasks)
    assert bench.run(spec).keys == results.keys
    assert bench.started() == []
    assert sorted(bench.of("reused")) == sorted(tasks)


def test_results_carry_their_material_and_no_way_to_change_them(bench: Bench) -> None:
    key = bench.run(make.four()).keys["reo_exp.train.s1"]
    folder = bench.store.path(key)
    material = json.loads((folder / "material.json").read_text())
    assert material["payload"]["seed"] == 1
    assert set(material["inputs"]) == {"start", "data"}
    assert (folder / "metrics.parquet").stat().st_mode & 0o222 == 0
    assert bench.store.damage(key) == ()
    assert not any((bench.store.root / "tmp").iterdir())
    assert not any((bench.store.root / "work").iterdir())


def test_a_renamed_experiment_reruns_nothing_but_what_shows_names(bench: Bench) -> None:
    def spec(name: str) -> object:
        return make.spec(make.arm("arm", make.trained(name, make.ppo(make.outcome()))))

    bench.run(spec("before"))  # type: ignore[arg-type]
    bench.started()
    bench.run(spec("after"))  # type: ignore[arg-type]
    assert bench.started() == ["report"]


def test_an_arm_added_to_a_study_runs_alone(bench: Bench) -> None:
    arms = [make.arm("base", make.base())]
    bench.run(make.spec(*arms))
    bench.started()
    arms.append(make.arm("new", make.trained("new", make.ppo(make.outcome()))))
    bench.run(make.spec(*arms))
    assert set(bench.started()) == {"new.train.s1", "new.eval.s1", "score.s1", "report"}


def test_an_input_made_anew_with_equal_content_stops_the_chain(bench: Bench, tmp_path: Path) -> None:
    """Early cut-off: a data file that moved, and one that got other content."""
    (tmp_path / "a.jsonl").write_text('{"question": "1", "answer": "2"}\n')
    (tmp_path / "b.jsonl").write_text('{"question": "1", "answer": "2"}\n')

    def spec(path: str) -> object:
        stage = make.sft(data=make.file_data(path))
        return make.spec(make.arm("base", make.trained("base", stage, start=make.downloaded())))

    (tmp_path / "weights").mkdir()
    bench.run(spec("a.jsonl"))  # type: ignore[arg-type]
    bench.started()
    bench.run(spec("b.jsonl"))  # type: ignore[arg-type]
    assert bench.started() == ["report"]
    (tmp_path / "b.jsonl").write_text('{"question": "1", "answer": "3"}\n')
    bench.run(spec("b.jsonl"))  # type: ignore[arg-type]
    assert "filed.data" in bench.started()


def test_a_failure_stops_what_reads_it_and_nothing_else(bench: Bench) -> None:
    bench.knobs(reo_exp__train__s1={"fail": "problem"})
    results = bench.run(make.four())
    assert [d.message for d in results.failed["reo_exp.train.s1"]] == ["this toy is broken"]
    assert set(results.blocked) == {"reo_exp.eval.s1", "score.s1", "report"}
    assert {"shrink_long.eval.s1", "edge.frontier.s1"} <= results.keys.keys()
    bench.knobs()
    bench.started()
    assert not bench.run(make.four()).failed
    assert set(bench.started()) == {"reo_exp.train.s1", "reo_exp.eval.s1", "score.s1", "report"}


@pytest.mark.parametrize(
    ("how", "name"), [("error", "E0990-task"), ("full", "E0950-space"), ("link", "E0990-result")]
)
def test_a_runner_that_breaks_leaves_a_diagnostic_and_no_result(
    bench: Bench, how: str, name: str, refusal: Callable[..., None]
) -> None:
    bench.knobs(base__eval__s1={"fail": how})
    results = bench.run(make.spec(make.arm("base", make.base())))
    place = str(bench.store.root)
    (key,) = {path.stem for path in (bench.store.root / "errors").iterdir()} or {"none"}
    told = Problem(*results.failed["base.eval.s1"])
    refusal(f"execute/{name}.txt", told, (place, "STORE"), (key, "KEY"), task="base.eval.s1")
    assert not any((bench.store.root / "tmp").iterdir())


def test_a_tokenizer_that_panics_where_nobody_tried_it_is_named(bench: Bench) -> None:
    bench.knobs(base__eval__s1={"fail": "panic"})
    results = bench.run(make.spec(make.arm("base", make.base())))
    (refusal,) = results.failed["base.eval.s1"]
    assert (refusal.code, refusal.where) == ("E0803", "base.eval.s1")
    assert "must be non-zero" in refusal.message


def test_nothing_more_is_computed_once_nothing_can_be_kept(bench: Bench) -> None:
    bench.knobs(overthinker__train__s1={"fail": "full"})
    results = bench.run(make.four(seeds=(1, 2)))
    assert [found.code for found in results.failed["overthinker.train.s1"]] == ["E0950"]
    assert len(results.failed) == 1
    everything = {task.id for task in lower(make.four(seeds=(1, 2))).tasks}
    assert everything == {*results.keys, *results.failed, *results.blocked}
    assert len(results.blocked) == len(set(results.blocked))
    bench.knobs()
    assert set(bench.run(make.four(seeds=(1, 2))).keys) == everything


def test_an_interrupted_task_goes_on_and_ends_with_the_same_bytes(bench: Bench, tmp_path: Path) -> None:
    whole = Bench(tmp_path / "whole")
    whole.folder.mkdir()
    expected = whole.run(make.four())

    def stop(event: Event) -> None:
        if event.kind == "progress" and event.task == "reo_exp.train.s1" and event.progress.done == 2:  # type: ignore[union-attr]
            raise KeyboardInterrupt

    bench.on_event = stop
    with pytest.raises(KeyboardInterrupt):
        bench.run(make.four())
    assert not any((bench.store.root / "tmp").iterdir())
    (state,) = (bench.store.root / "work").glob("*/state.json")
    assert json.loads(state.read_text())[1] == 2
    bench.on_event = lambda event: None
    results = bench.run(make.four())
    assert results.keys == expected.keys
    for key in results.keys.values():
        assert bench.store.get(key).digest == whole.store.get(key).digest  # type: ignore[union-attr]


def test_a_damaged_input_is_found_and_made_anew(bench: Bench) -> None:
    first = bench.run(make.four())
    weights = bench.store.path(first.keys["overthinker.train.s1"]) / "checkpoint" / "model.safetensors"
    weights.chmod(0o644)
    text = weights.read_text()
    weights.write_text(text.replace(text[-3], "z"))  # the same size
    bench.store.remove(first.keys["vanilla.train.s1"])
    bench.started()
    results = bench.run(make.four())
    assert bench.started() == ["overthinker.train.s1", "vanilla.train.s1"]
    assert bench.of("rebuilding") == ["overthinker.train.s1"]
    assert results.keys == first.keys
    assert all(bench.store.damage(key) == () for key in results.keys.values())


def test_a_damaged_report_is_found_though_nothing_reads_it(bench: Bench) -> None:
    key = bench.run(make.four()).keys["report"]
    page = bench.store.path(key) / "report.html"
    page.chmod(0o644)
    page.write_text(page.read_text().upper())
    bench.started()
    bench.run(make.four())
    assert bench.started() == ["report"]


def test_damage_to_what_the_report_shows_is_found_though_nothing_is_to_be_done(bench: Bench) -> None:
    """Samples and checkpoints are laid out beside the report."""
    first = bench.run(make.four())
    for task, file, found in (
        ("vanilla.eval.s1", "samples.parquet", True),
        ("reo_exp.train.s1", "metrics.parquet", True),
        ("reo_exp.train.s1", "checkpoint/model.safetensors", True),
        ("overthinker.train.s1", "checkpoint/model.safetensors", True),
    ):
        path = bench.store.path(first.keys[task]) / file
        text = path.read_text()
        path.chmod(0o644)
        path.write_text(text[:-1] + ("z" if text[-1] != "z" else "y"))
        bench.started()
        bench.events.clear()
        results = bench.run(make.four())
        assert bench.started() == ([task] if found else [])
        assert bench.of("rebuilding") == results.rebuilt == ([task] if found else [])
        assert results.keys == first.keys


def test_weights_that_were_not_changed_are_not_read_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be many gigabytes. A change of theirs is found though their time was set back; a bit that a disk lost is
    found by what starts from them, and by `ls --verify`.
    """
    first = bench.run(make.four())
    with monkeypatch.context() as alone:
        read: list[Path] = []
        alone.setattr("reodsl.store.external.hash_plain", lambda path: read.append(path))
        bench.run(make.four())
        assert not [path for path in read if path.suffix == ".safetensors"]
    key = first.keys["reo_exp.train.s1"]
    weights = bench.store.path(key) / "checkpoint" / "model.safetensors"
    before, text = weights.stat(), weights.read_text()
    weights.chmod(0o644)
    weights.write_text(text[:-1] + ("z" if text[-1] != "z" else "y"))
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    bench.started()
    bench.run(make.four())
    assert bench.started() == ["reo_exp.train.s1"]
    assert bench.store.damage(key) == ()


def test_a_truncated_result_is_made_anew(bench: Bench) -> None:
    key = bench.run(make.four()).keys["edge.frontier.s1"]
    file = bench.store.path(key) / "frontier.json"
    file.chmod(0o644)
    file.write_text("")
    bench.started()
    bench.run(make.four())
    assert bench.started() == ["edge.frontier.s1"]
