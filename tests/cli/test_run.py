"""`run`, `plan`, `graph`, `ls`, `why` and `gc` on a real spec, with toy runners in the place of the real ones."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from reodsl.cli import stopping
from reodsl.diagnostics import error, warning
from reodsl.plan import registry
from runners.execute import execute
from tests.called import QUICKSTART as SPEC
from tests.called import beside_quickstart, call
from tests.execute import toys

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the quickstart in it, to be run with toys; the present folder for the test."""
    beside_quickstart(tmp_path, toys.RUNNERS, monkeypatch)
    return tmp_path


@pytest.fixture
def ran(quickstart_ran: Path, place: Path) -> Path:
    """The same folder where the quickstart ran."""
    shutil.copytree(quickstart_ran, place, symlinks=True, dirs_exist_ok=True)
    return place


def started(place: Path) -> list[str]:
    found = toys.log(place)
    (place / "log.txt").unlink(missing_ok=True)
    return found


def facts(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    call(*arguments, "--json")
    return json.loads(capsys.readouterr().out)


def test_a_run_ends_with_the_place_of_its_report(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("run", SPEC, "--local") == 0
    out = capsys.readouterr()
    last = out.out.strip().splitlines()[-1]
    page = Path(last.removeprefix("report: "))
    assert page.read_text().startswith("report.html")
    assert page.parent.name.startswith("quickstart-")
    arm = page.parent / "arms" / "reo_exp.s1"
    assert {path.name for path in arm.iterdir()} >= {
        "samples.parquet",
        "forced.parquet",
        "checkpoint",
        "stages",
    }
    assert re.search(r"^\[0/(\d+)\] plan +\1 tasks to run  about \d(.*\n)+\[0/\1\] start ", out.err)
    assert "reo_exp.train.s1" in out.err
    assert "Traceback" not in out.err


def test_damage_that_a_second_run_finds_is_told_and_made_good(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call("run", SPEC, "--local")
    weights = next(place.glob(".reodsl/objects/*/*/checkpoint/model.safetensors"))
    text = weights.read_text()
    weights.chmod(0o644)
    weights.write_text(text[:-2] + "?\n")
    capsys.readouterr()
    assert call("run", SPEC, "--local") == 0
    out = capsys.readouterr()
    assert "Nothing to do" not in out.out
    assert "damaged" in out.err
    assert "done" in out.err
    assert not list(place.glob(".reodsl/work/*"))
    capsys.readouterr()
    assert call("ls", "--verify", "--store", str(place / ".reodsl")) == 0


def test_a_second_run_does_nothing_and_still_says_where(
    ran: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert call("run", SPEC, "--local") == 0
    out = capsys.readouterr()
    assert started(ran) == []
    assert "Nothing to do" in out.out
    assert "report: runs/quickstart-" in out.out
    assert out.err == ""


def test_comments_and_order_and_units_rerun_nothing(ran: Path) -> None:
    text = (ran / SPEC).read_text()
    (ran / SPEC).write_text("# a comment\n" + text.replace("128 tokens", "128"))
    assert call("run", SPEC, "--local", "--quiet") == 0
    assert started(ran) == []


def moved_down(text: str, first: str, second: str) -> str:
    """The text with the block that begins with `first` moved behind the one that begins with `second`."""
    blocks = text.split("\n\n")
    one = next(block for block in blocks if block.startswith(first))
    blocks.remove(one)
    blocks.insert(1 + next(i for i, block in enumerate(blocks) if block.startswith(second)), one)
    return "\n\n".join(blocks)


REWRITTEN = {
    "a declaration moves": lambda text: moved_down(text, "experiment vanilla", "experiment shrink"),
    "settings change places": lambda text: text.replace(
        "  minibatches = 2\n  epochs      = 1\n", "  epochs      = 1\n  minibatches = 2\n"
    ),
    "a length in thousands": lambda text: text.replace("128 tokens", "0.125K tokens"),
    "a rate with other digits": lambda text: text.replace("lr = 5e-4", "lr = 0.00050"),
    "a comment and blank lines": lambda text: text.replace("study quickstart", "# why\n\n\nstudy quickstart"),
    "a budget schedule of another name": lambda text: text.replace("five", "few"),
    "a recipe of another name": lambda text: text.replace("recipe small", "recipe s").replace("= small {", "= s {"),
    "another docstring": lambda text: text.replace("trained four ways", "trained in four ways"),
    "an experiment of another name": lambda text: text.replace("experiment shrink", "experiment narrow")
    .replace("= shrink\n", "= narrow\n").replace("shrink.stages", "narrow.stages"),
}  # fmt: skip


@pytest.mark.parametrize("how", REWRITTEN)
def test_other_words_for_the_same_rerun_nothing(ran: Path, how: str) -> None:
    text = (ran / SPEC).read_text()
    changed = REWRITTEN[how](text)
    assert changed != text
    (ran / SPEC).write_text(changed)
    assert call("run", SPEC, "--local", "--quiet") == 0
    # The report shows docstrings and names of experiments.
    assert started(ran) == (
        ["report"] if how in ("another docstring", "an experiment of another name") else []
    )


def test_what_was_touched_and_not_changed_reruns_nothing(place: Path) -> None:
    """The date of a spec and of the data that it reads, and a copy of that data under another name."""
    for name in ("a.jsonl", "b.jsonl"):
        (place / name).write_text(
            "".join(f'{{"question": "{n} + {n}", "answer": "{2 * n}"}}\n' for n in range(64))
        )
    text = (place / SPEC).read_text()
    filed = 'data chain_filed { source = file("a.jsonl"), verifier = exact }\n\nrecipe small'
    text = text.replace("recipe small", filed).replace(
        "data        = chain_train", "data        = chain_filed"
    )
    (place / SPEC).write_text(text)
    assert call("run", SPEC, "--local", "--quiet") == 0
    assert "chain_filed.data" in started(place)
    os.utime(place / SPEC, (0, 0))
    os.utime(place / "a.jsonl", (0, 0))
    assert call("run", SPEC, "--local", "--quiet") == 0
    assert started(place) == []
    (place / SPEC).write_text(text.replace("a.jsonl", "b.jsonl"))
    assert call("run", SPEC, "--local", "--quiet") == 0
    assert started(place) == ["report"]
    (place / "b.jsonl").write_text((place / "a.jsonl").read_text().replace("0 + 0", "0 - 0"))
    assert call("run", SPEC, "--local", "--quiet") == 0
    assert {"chain_filed.data", "vanilla.train.s1"} <= set(started(place))


def test_another_place_is_the_same_spec(place: Path, tmp_path: Path) -> None:
    call("run", SPEC, "--local", "--quiet", "--store", "store")
    started(place)
    (tmp_path / "moved").mkdir()
    (tmp_path / "moved" / "renamed.reo").write_text((place / SPEC).read_text())
    assert call("run", "moved/renamed.reo", "--local", "--quiet", "--store", "store") == 0
    assert started(tmp_path / "moved") == []


def test_an_amended_setting_is_planned_with_old_and_new(
    ran: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = facts(capsys, "plan", SPEC, "--amend", "reo_exp.optim.lr=1e-6")
    rerun = {task["id"]: task["reason"] for task in plan["tasks"] if task["verdict"] != "reuse"}
    assert set(rerun) == {"reo_exp.train.s1", "reo_exp.eval.s1", "score.s1", "report"}
    assert rerun["reo_exp.train.s1"] == "optim.lr 0.0005 -> 1e-6"
    assert [change["target"] for change in plan["changes"]] == ["reo_exp.optim.lr"]
    call("run", SPEC, "--local", "--quiet", "--amend", "reo_exp.optim.lr=1e-6")
    assert set(started(ran)) == set(rerun)


def test_plan_exits_with_2_when_there_is_work_and_0_when_there_is_none(place: Path) -> None:
    assert call("plan", SPEC) == 2
    assert not (place / ".reodsl").exists()
    call("run", SPEC, "--local", "--quiet")
    assert call("plan", SPEC) == 0


def test_what_is_missing_is_named_before_anything_starts(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = registry.Registry(
        toys.RUNNERS, lambda *asked: (error("E0850", "no weights"), error("E0971", "no GPU")), execute
    )
    monkeypatch.setattr("reodsl.run.load_registry", lambda: lacking)
    assert call("run", SPEC, "--local") == 1
    err = capsys.readouterr().err
    assert "no weights" in err
    assert "no GPU" in err
    assert started(place) == []
    assert not (place / ".reodsl").exists()


@pytest.mark.parametrize("quiet", [False, True])
def test_what_is_other_than_the_spec_says_is_told_and_the_run_goes_on(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, quiet: bool
) -> None:
    other = registry.Registry(
        toys.RUNNERS, lambda *asked: (warning("W0971", "the GPUs there are A100"),), execute
    )
    monkeypatch.setattr("reodsl.run.load_registry", lambda: other)
    assert call("run", SPEC, "--local", *(("--quiet",) if quiet else ())) == 0
    assert ("warning[W0971]: the GPUs there are A100" in capsys.readouterr().err) != quiet


def test_a_failed_task_is_told_and_the_rest_is_kept(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "knobs.json").write_text('{"reo_exp.train.s1": {"fail": "problem"}}')
    assert call("run", SPEC, "--local") == 1
    out = capsys.readouterr()
    assert "error[E0999]: this toy is broken" in out.err
    assert "= help: mend it" in out.err
    assert "1 failed, 3 not tried" in out.err
    assert "report:" not in out.out
    (place / "knobs.json").unlink()
    started(place)
    assert call("run", SPEC, "--local", "--quiet") == 0
    assert set(started(place)) == {"reo_exp.train.s1", "reo_exp.eval.s1", "score.s1", "report"}


def test_run_as_json(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = facts(capsys, "run", SPEC, "--local")
    assert found["status"] == "finished"
    assert {task["status"] for task in found["tasks"]} == {"done"}
    assert Path(found["report"]).is_file()
    again = facts(capsys, "run", SPEC, "--local")
    assert {task["status"] for task in again["tasks"]} == {"reused"}


def test_a_store_that_is_no_store_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("run", SPEC, "--local", "--store", ".") == 1
    assert "error[E0952]" in capsys.readouterr().err
    assert started(place) == []


def test_ls_shows_runs_and_results(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("ls") == 1
    assert "E0952" in capsys.readouterr().err
    call("run", SPEC, "--local", "--quiet")
    (run,) = facts(capsys, "ls")["runs"]
    assert (run["study"], run["status"]) == ("quickstart", "finished")
    results = facts(capsys, "ls", "quickstart", "reo_exp.*")["results"]
    assert [result["task"] for result in results] == ["reo_exp.train.s1", "reo_exp.eval.s1"]
    assert call("ls", "--verify") == 0
    file = Path(results[0]["path"]) / "metrics.parquet"
    file.chmod(0o644)
    file.write_text(file.read_text().upper())
    assert call("ls", "--verify") == 1
    assert call("ls", "bogus") == 1


def test_runs_that_had_nothing_to_do_are_counted_with_the_one_they_repeat(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for more in ((), (), ("--set", "n=3"), (), ("--out", "elsewhere")):
        call("run", SPEC, "--local", "--quiet", *more)
    runs = facts(capsys, "ls")["runs"]
    last = runs[-1]["name"]
    assert [run["repeats"] for run in runs] == [None, last, None, last, None]
    assert call("ls") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [
        run["name"].partition(".")[0] for run in runs if run["repeats"] is None
    ]
    assert [line.partition("report.html")[2] for line in lines] == [
        "",
        "",
        "  (repeated 2 times, last just now)",
    ]


def test_why_names_every_change_and_both_sides(ran: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (
        "why", SPEC, "reo_exp.train", "--amend", "reo_exp.optim.lr=1e-6", "--amend", "reo_exp.epochs=2",
    )  # fmt: skip
    found = facts(capsys, *arguments)
    assert {change["name"]: (change["old"], change["new"]) for change in found["changes"]} == {
        "optim.lr": (5e-4, 1e-6),
        "epochs": (1, 2),
    }
    assert found["readers"] == ["reo_exp.eval.s1", "report"]
    assert call("why", SPEC, "bogus") == 1
    assert "E0954" in capsys.readouterr().err
    assert call("why", SPEC, "zzz") == 1
    told = " ".join(capsys.readouterr().err.split())
    count = len(facts(capsys, "graph", SPEC)["tasks"])
    assert f"and {count - 12} more (`reodsl graph SPEC`)" in told
    assert call("why", SPEC) == 1
    assert "no task is named" in capsys.readouterr().err


def test_graph_as_text_dot_and_json(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = facts(capsys, "graph", SPEC)
    assert graph["tasks"][-1]["id"] == "report"
    call("graph", SPEC, "--dot")
    assert '"reo_exp.train.s1" -> "reo_exp.eval.s1";' in capsys.readouterr().out
    call("graph", SPEC)
    assert f"{len(graph['tasks'])} tasks" in capsys.readouterr().out


def test_gc_lists_and_then_removes(ran: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("gc", "--dry-run") == 0
    call("run", SPEC, "--local", "--quiet", "--amend", "reo_exp.optim.lr=1e-6")
    assert call("gc", "--dry-run") == 2
    assert call("gc") == 1  # not without a yes, where nobody can be asked
    assert call("gc", "--yes") == 0
    started(ran)
    assert call("run", SPEC, "--local", "--quiet", "--amend", "reo_exp.optim.lr=1e-6") == 0
    assert started(ran) == []


SCRIPT = """
import sys
sys.path[:0] = {paths!r}
from tests.execute import toys
from reodsl import run
from reodsl.cli import main, stopping
from reodsl.plan.registry import Registry
from runners.execute import execute
run.load_registry = lambda: Registry(toys.RUNNERS, lambda *asked: (), execute)
stopping.GRACE_SECONDS = {seconds!r}
main.entry()
"""


def process(place: Path, *arguments: str, seconds: float = stopping.GRACE_SECONDS) -> subprocess.Popen[str]:
    """A command with toys in a process of its own."""
    paths = [str(ROOT)]
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(paths=paths, seconds=seconds), *arguments],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def wait_for(run: subprocess.Popen[str], place: Path, task: str) -> None:
    while task not in toys.log(place):
        assert run.poll() is None, run.communicate()[1]
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "words"),
    [(signal.SIGINT, 130, "stopped"), (signal.SIGTERM, 143, "stopped"), (signal.SIGKILL, -9, "")],
)
def test_a_stopped_run_goes_on_and_ends_with_the_same_bytes(
    place: Path, number: signal.Signals, code: int, words: str
) -> None:
    (place / "knobs.json").write_text('{"reo_exp.train.s1": {"pause": true}}')
    run = process(place, "run", SPEC, "--local", "--store", "store")
    wait_for(run, place, "reo_exp.train.s1")
    time.sleep(0.2)
    run.send_signal(number)
    _, err = run.communicate(timeout=120)
    assert run.returncode == code
    assert words in err
    assert "Traceback" not in err
    done = toys.log(place, "end")
    (place / "go").touch()
    assert call("run", SPEC, "--local", "--quiet", "--store", "store") == 0
    assert call("run", SPEC, "--local", "--quiet", "--store", "whole") == 0
    assert len(toys.log(place, "end")) == 2 * len({*toys.log(place)})
    assert len(done) < len({*toys.log(place)})
    assert contents(place / "store") == contents(place / "whole")
    assert not any((place / "store" / "tmp").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "hang", "codes"),
    [
        ("--local", "native", {-signal.SIGKILL}),
        ("--local", "deaf", {-signal.SIGKILL}),
        ("--local", "thread", {130}),
        ("on Ray", "native", {-signal.SIGKILL}),
        pytest.param("on Ray", "deaf", {-signal.SIGKILL}, marks=pytest.mark.heavy),
        pytest.param("on Ray", "thread", {130}, marks=pytest.mark.heavy),
    ],
)
def test_a_stopped_run_ends_whatever_hangs_in_it(place: Path, where: str, hang: str, codes: set[int]) -> None:
    (place / "knobs.json").write_text(json.dumps({"reo_exp.train.s1": {"hang": hang}}))
    options = [where] if where == "--local" else []
    run = process(place, "run", SPEC, *options, "--store", "store", seconds=3.0)
    wait_for(run, place, "reo_exp.train.s1")
    # Ray ends with an error of its own where a task that is stopped ends in that moment by itself.
    before = None
    while before != (before := toys.log(place, "end")):
        time.sleep(1.5)
    run.send_signal(signal.SIGINT)
    # A busy machine may need more than its seconds to say so.
    _, err = run.communicate(timeout=40)
    assert run.returncode in (codes if options else {130, -signal.SIGKILL}), err
    assert ("killed" if run.returncode < 0 else "stopped") in err
    assert "Traceback" not in err
    (place / "go").touch()
    assert call("run", SPEC, "--local", "--quiet", "--store", "store") == 0
    assert call("run", SPEC, "--local", "--quiet", "--store", "whole") == 0
    assert contents(place / "store") == contents(place / "whole")


@pytest.mark.slow
def test_another_interrupt_ends_a_run_at_once(place: Path) -> None:
    (place / "knobs.json").write_text('{"reo_exp.train.s1": {"hang": "native"}}')
    run = process(place, "run", SPEC, "--local", "--store", "store")
    wait_for(run, place, "reo_exp.train.s1")
    time.sleep(0.2)
    began = time.monotonic()
    run.send_signal(signal.SIGINT)
    time.sleep(stopping.REPEAT_SECONDS + 0.2)
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=2 * stopping.GRACE_SECONDS)
    # The first one alone would have it killed then.
    assert time.monotonic() - began < stopping.GRACE_SECONDS
    assert run.returncode == -signal.SIGKILL
    assert "finished work is kept" in err


def contents(store: Path) -> dict[str, bytes]:
    files = (path for path in (store / "objects").rglob("*") if path.is_file())
    return {str(path.relative_to(store)): path.read_bytes() for path in files if path.name != "manifest.json"}


@pytest.mark.slow
def test_two_runs_at_once_do_every_task_once(place: Path) -> None:
    (place / "knobs.json").write_text('{"*": {"sleep": 0.01}}')
    both = [process(place, "run", SPEC, "--local", "--store", "store", "--out", f"out{n}") for n in range(2)]
    for run in both:
        _, err = run.communicate(timeout=60)
        assert run.returncode == 0, err
    assert sorted(toys.log(place)) == sorted(set(toys.log(place)))
    assert (place / "out0" / "report.html").read_bytes() == (place / "out1" / "report.html").read_bytes()


def test_a_reader_that_has_seen_enough_is_no_error(place: Path) -> None:
    run = process(place, "graph", SPEC, "--json")
    assert run.stdout is not None
    assert run.stderr is not None
    run.stdout.read(10)
    run.stdout.close()
    assert run.stderr.read() == ""
    run.wait(timeout=120)
