"""`accept`: a result that stands although what makes it changed, who is told of it, and what makes no sense."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from reodsl.store import Store
from tests.called import QUICKSTART as SPEC
from tests.called import beside_quickstart, call
from tests.cli.test_run import facts
from tests.execute import toys

ROOT = Path(__file__).resolve().parent.parent.parent

TASK, REASON = "vanilla.train.s1", "the difference is below what is measured"
AMENDED = ("--amend", "vanilla.optim.lr=4e-4")
ACCEPT = ("accept", SPEC, TASK, *AMENDED, "--because", REASON)


@pytest.fixture
def place(quickstart_ran: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder where the quickstart ran with toys; the present folder for the test."""
    shutil.copytree(quickstart_ran, tmp_path, symlinks=True, dirs_exist_ok=True)
    beside_quickstart(tmp_path, toys.RUNNERS, monkeypatch)
    return tmp_path


def to_run(capsys: pytest.CaptureFixture[str], *more: str) -> set[str]:
    tasks = facts(capsys, "plan", SPEC, *more)["tasks"]
    return {task["id"] for task in tasks if task["verdict"] != "reuse"}


def key_of(capsys: pytest.CaptureFixture[str], task: str, *more: str) -> str:
    return str(facts(capsys, "why", SPEC, task, *more)["key"])


def test_an_accepted_result_and_what_was_made_of_it_are_up_to_date(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    after = {"vanilla.train.s1", "vanilla.eval.s1", "edge.frontier.s1", "score.s1", "report"}
    assert to_run(capsys, *AMENDED) == after
    assert call(*ACCEPT) == 0
    out = capsys.readouterr().out
    assert "optim.lr 0.0005 -> 0.0004" in out
    assert "1 task left to run" in out
    assert to_run(capsys, *AMENDED) == {"report"}
    assert call("run", SPEC, "--local", "--quiet", *AMENDED) == 0
    assert toys.log(place) == ["report"]
    assert to_run(capsys) == set()  # the old settings are as up to date as before


def test_the_content_is_the_same_and_both_keys_hold_it_whole(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = key_of(capsys, TASK)
    done = facts(capsys, *ACCEPT)
    assert done["result"] == old
    assert done["key"] == key_of(capsys, TASK, *AMENDED) != old
    store = Store(place / ".reodsl")
    assert store.damage(old) == store.damage(done["key"]) == ()
    first, second = store.get(old), store.get(done["key"])
    assert first is not None
    assert second is not None
    assert first.files == second.files
    assert store.material(done["key"]) != store.material(old)


def test_why_and_ls_and_plan_tell_of_it(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = key_of(capsys, TASK)
    call(*ACCEPT)
    capsys.readouterr()
    call("why", SPEC, TASK, *AMENDED)
    text = capsys.readouterr().out
    assert f"from {old[:8]}: {REASON}" in text
    assert "optim.lr 0.0005 -> 0.0004" in text
    (kept,) = facts(capsys, "why", SPEC, TASK, *AMENDED)["accepted"]
    assert (kept["result"], kept["because"]) == (old, REASON)
    call("plan", SPEC, "--all", *AMENDED)
    assert f"accepted: {REASON}" in capsys.readouterr().out
    call("run", SPEC, "--local", "--quiet", *AMENDED)
    capsys.readouterr()
    call("ls", "quickstart", TASK)
    assert f"accepted: {REASON}" in capsys.readouterr().out
    (result,) = facts(capsys, "ls", "quickstart", TASK)["results"]
    assert result["accepted"] == [kept]
    (other,) = facts(capsys, "ls", "quickstart", "reo_exp.train.s1")["results"]
    assert other["accepted"] == []


def test_the_report_is_drawn_anew_and_is_told(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Though nothing else that it shows has changed: here only the code of a task, which no spec says."""
    from reodsl.graph import task as tasks

    before = key_of(capsys, "report")
    was = tasks.VERSIONS["data"]
    raised = f"its code changed, version {was} -> {was + 1}"
    tasks.VERSIONS["data"] += 1
    try:
        assert call("accept", SPEC, "chain_train.data", "--because", REASON) == 0
        assert raised in capsys.readouterr().out
        assert call("why", SPEC, "chain_first_traces.data") == 0
        assert capsys.readouterr().out.count(raised) == 1
        for name in ("chain_first_traces", "chain_second_traces", "chain_easy_questions"):
            assert call("accept", SPEC, f"{name}.data", "--because", "as well") == 0
        for name in ("chain_medium_questions", "chain_hard_questions"):
            assert call("accept", SPEC, f"{name}.data", "--because", "as well") == 0
        assert to_run(capsys) == {"report"}
        call("run", SPEC, "--local", "--quiet")
        assert toys.log(place) == ["report"]
        report = facts(capsys, "why", SPEC, "report")
    finally:
        tasks.VERSIONS["data"] -= 1
    assert report["key"] != before
    told = {item["task"]: item["because"] for item in report["material"]["payload"]["accepted"]}
    assert len(told) == 6
    assert told["chain_train.data"] == REASON


def test_a_result_that_was_accepted_twice_tells_both_reasons(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call(*ACCEPT)
    call("run", SPEC, "--local", "--quiet", *AMENDED)
    again = ("--amend", "vanilla.optim.lr=3e-4")
    assert call("accept", SPEC, TASK, *again, "--because", "nor is this one") == 0
    kept = facts(capsys, "why", SPEC, TASK, *again)["accepted"]
    assert [item["because"] for item in kept] == [REASON, "nor is this one"]
    assert kept[1]["changes"] == ["optim.lr 0.0004 -> 0.0003"]


def test_a_reason_cannot_write_over_the_terminal(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A store may be shared, and its reasons somebody else's."""
    reason = "see \x1b[2J\x1b]0;title\x07 below"
    assert call(*ACCEPT[:-1], reason) == 0
    capsys.readouterr()
    for command in (("why", SPEC, TASK, *AMENDED), ("plan", SPEC, "--all", *AMENDED)):
        call(*command)
        assert "see \\u{1b}[2J\\u{1b}]0;title\\u{7} below" in capsys.readouterr().out
    call("run", SPEC, "--local", "--quiet", *AMENDED)
    capsys.readouterr()
    call("ls", "quickstart", TASK)
    assert "see \\u{1b}[2J" in capsys.readouterr().out


def test_clean_up_leaves_what_was_accepted_for_the_next_run(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call(*ACCEPT)
    assert call("gc", "--dry-run") == 0
    call("gc", "--yes")
    assert to_run(capsys, *AMENDED) == {"report"}


def test_a_damaged_accepted_result_is_computed(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = facts(capsys, *ACCEPT)["key"]
    file = Store(place / ".reodsl").path(key) / "metrics.parquet"
    file.unlink()
    call("run", SPEC, "--local", "--quiet", *AMENDED)
    assert TASK in toys.log(place)
    assert facts(capsys, "why", SPEC, TASK, *AMENDED)["accepted"] == []


def test_another_result_may_be_named(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = key_of(capsys, "reo_exp.train.s1")
    done = facts(capsys, *ACCEPT, "--result", other[:12])
    assert done["result"] == other
    assert any("reward" in change for change in done["changes"])


NONSENSE = [
    (("accept", SPEC, TASK, "--because", REASON), "it has a result and would not run"),
    ((*ACCEPT[:-1], "  "), "no reason is given"),
    (("accept", SPEC, "vanilla.eval.s1", *AMENDED, "--because", "x"), "no results yet: vanilla.train.s1"),
    (("accept", SPEC, "report", *AMENDED, "--because", "x"), "a report shows the present results"),
    ((*ACCEPT, "--result", "zzzz"), "no result begins with `zzzz`"),
    ((*ACCEPT, "--result", ""), "no result begins with ``"),
    ((*ACCEPT, "--target", "bogus"), "bogus"),
    (("accept", SPEC, "bogus", "--because", "x"), "no task is called `bogus`"),
]


def test_what_makes_no_sense_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = set(Store(place / ".reodsl"))
    for arguments, words in NONSENSE:
        assert call(*arguments) == 1, words
        err = capsys.readouterr().err
        assert words in err
        assert "= help: " in err, words
        assert set(Store(place / ".reodsl")) == before


def test_a_result_of_another_kind_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = key_of(capsys, "vanilla.eval.s1")
    assert call(*ACCEPT, "--result", key) == 1
    assert "is of kind `evaluate`, and the task is of kind `train`" in capsys.readouterr().err


@pytest.mark.parametrize("how", ["flip", "gone"])
def test_a_damaged_or_missing_result_is_refused(
    place: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    store = Store(place / ".reodsl")
    key = key_of(capsys, TASK)
    if how == "gone":
        store.remove(key)
    else:
        file = store.path(key) / "metrics.parquet"
        file.chmod(0o644)
        file.write_text(file.read_text().upper())
    assert call(*ACCEPT) == 1
    expected = (
        "its earlier result was removed" if how == "gone" else "metrics.parquet differs from its checksum"
    )
    assert expected in capsys.readouterr().err
    assert TASK in to_run(capsys, *AMENDED)


def test_a_task_that_never_had_a_result_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        (place / SPEC)
        .read_text()
        .replace("  frontier edge", "  arm new = vanilla { steps = 3 steps }\n  frontier edge")
    )
    (place / SPEC).write_text(text)
    assert call("accept", SPEC, "new.train.s1", "--because", "x") == 1
    assert "it has no earlier result" in capsys.readouterr().err


def test_what_another_process_is_making_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.store.holder import other_process_holds

    key = key_of(capsys, TASK, *AMENDED)
    with other_process_holds(place / ".reodsl" / "locks" / key):
        assert call(*ACCEPT) == 1
    assert "another process computes its result" in capsys.readouterr().err
    assert call(*ACCEPT) == 0


@pytest.mark.usefixtures("place")
def test_lets_have_the_names_of_the_spec(capsys: pytest.CaptureFixture[str]) -> None:
    """`diff`, `why`, `accept` and `reward` print a let by its name, which is no part of what a task is."""
    assert call("new", "own.reo") == 0
    spec = Path("own.reo")
    before = spec.read_text()
    assert call("run", "own.reo", "--local", "--quiet") == 0
    task = "mine.train.s1"

    def output(*arguments: str) -> str:
        capsys.readouterr()
        call(*arguments)
        return capsys.readouterr().out

    # Renamed, and before a let that is new, each has the name that it had then.
    spec.write_text(before.replace("longest", "furthest"))
    assert output("why", "own.reo", task).startswith(f"{task}: reuse")
    Path("other.reo").write_text(before)
    assert "furthest" not in output("diff", "other.reo", "own.reo")
    spec.write_text(
        before.replace("len(y) / longest", "len(y) / (half + longest)").replace(
            "  correct(y)", "  let half = longest / 2\n  correct(y)"
        )
    )
    change = "reward correct(y) - 0.1 * len(y) / longest -> correct(y) - 0.1 * len(y) / (half + longest)"
    for arguments in (("why", "own.reo", task), ("accept", "own.reo", task, "--because", REASON)):
        lines = output(*arguments)
        assert change in lines
        assert "let1" not in lines
        assert "let2" not in lines
        assert "longest = max(len(z) for z in group) -> " in lines
        assert "half = longest / 2" in lines
    assert "let half = longest / 2" in output("diff", "other.reo", "own.reo")
    assert "half = longest / 2" in output(
        "reward", "own.reo", "mine", "--length", "4,8", "--correct", "yes,no"
    )
