"""Which Python a spec may run: found without being run, part of results' keys, asked for once for each content."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from pydantic import TypeAdapter

import reodsl
from reodsl.diagnostics import Problem
from reodsl.graph.lower import lower
from reodsl.ir.expression import Expression, LimitedPythonTerm
from reodsl.store import consent as code_module
from reodsl.store.consent import (
    allow,
    consent_folder,
    content_of,
    is_allowed,
    is_changed,
    read_code,
    report_unapproved,
)
from reodsl.store.external import Fingerprints, resolve_sources
from runners.own.function import opened
from runners.sandbox import lacking
from tests.bad_input.commands import SPEC, Place, refused
from tests.own.library import install

confined = pytest.mark.skipif(lacking() is not None, reason=f"NOT CONFINED HERE: {lacking()}")
OWN = SPEC.replace("verifier = exact", 'verifier = python("mine/checks.py:check")')
REWARDED = (
    OWN.replace("reward      = outcome", "reward      = mine")
    .replace("from std.rewards   import outcome\n", "")
    .replace("param length", 'reward mine { correct(y) + 0.5 * python("style.py:score", y) }\n\nparam length')
)
SCORE = (
    "def score(responses):\n    return [len(set(each.text.split())) / each.tokens for each in responses]\n"
)
TRAP = """open("left.txt", "w").close()


def check(answer):
    return answer.text == answer.reference
"""
GOOD = "def check(answer):\n    return answer.text == answer.reference\n"


def test_only_run_would_run_it(place: Place) -> None:
    place.write(REWARDED)
    place.write(TRAP, "mine/checks.py")
    place.write(TRAP.replace("check", "score").replace("answer", "response"), "style.py")
    for command in ("check", "plan", "graph"):
        place.call(command, "tiny.reo")
    place.call("diff", "tiny.reo", "tiny.reo")
    place.call("why", "tiny.reo", "tiny.train.s1")
    assert place.files() == {"tiny.reo", "mine/checks.py", "style.py"}


def test_run_asks_for_new_content_and_says_what_to_type(place: Place, refusal: Callable[..., None]) -> None:
    place.write(OWN)
    file = place.write(GOOD, "mine/checks.py")
    checksum = read_code("mine/checks.py:check", place.folder).checksum
    refused(place.run(), "E0746", str(Path("mine/checks.py")), f"sha256:{checksum}", "--allow-python")
    assert not (place.folder / ".reodsl").exists()
    refusal("own/E0746.txt", place.run().err)
    file.write_text(GOOD + "\n")
    changed = read_code("mine/checks.py:check", place.folder).checksum
    assert f"has the content sha256:{changed}; before, it had sha256:{checksum}" in place.run().err


@confined
def test_a_rehearsal_asks_for_the_same_code_and_runs_it(place: Place) -> None:
    """Its verdicts are by chance, on top of those of the spec's own verifier."""
    place.write(OWN)
    place.write(GOOD.replace("check", "grade"), "mine/checks.py")
    rehearse = ("rehearse", "tiny.reo", "--quiet", "--allow-python")
    refused(
        place.call(*rehearse),
        "E0743",
        "mine/checks.py",
        "it has no top-level function `check`",
        "def check(answer)",
    )
    place.write(GOOD, "mine/checks.py")
    told = place.call(*rehearse)
    assert told.code == 0, told.err
    assert "tasks done" in told.out


def test_what_is_allowed_is_remembered_privately(place: Place) -> None:
    place.write(GOOD, "checks.py")
    code = read_code("checks.py:check", place.folder)
    assert not is_allowed(code)
    allow(code)
    assert is_allowed(code)
    (kept,) = consent_folder("python").iterdir()
    assert (kept.name, kept.stat().st_mode & 0o777) == (code.checksum, 0o600)
    assert kept.parent.stat().st_mode & 0o777 == 0o700
    place.write(GOOD + "\n", "checks.py")
    assert not is_allowed(read_code("checks.py:check", place.folder))


def test_a_link_in_the_list_counts_for_nothing(place: Place) -> None:
    place.write(GOOD, "checks.py")
    code = read_code("checks.py:check", place.folder)
    consent_folder("python").mkdir(parents=True)
    (consent_folder("python") / code.checksum).symlink_to(place.folder / "checks.py")
    assert not is_allowed(code)
    allow(code)
    assert not is_allowed(code)


def test_content_that_changed_since_the_start_does_not_run(place: Place) -> None:
    place.write(GOOD, "checks.py")
    code = read_code("checks.py:check", place.folder)
    assert opened("checks.py:check", place.folder, {code.checksum}) == code
    place.write(GOOD + "\n", "checks.py")
    with pytest.raises(Problem, match="has changed since this run started"):
        opened("checks.py:check", place.folder, {code.checksum})


def test_a_result_depends_on_content_and_function_and_on_no_place_or_limit(place: Place) -> None:
    def content(function: str, **limits: float) -> object:
        said = {"kind": "python", "function": function, "batch": 64, **limits}
        return content_of(said, place.folder)

    for name, text in {"a.py": GOOD, "b.py": GOOD, "c.py": GOOD + "\n"}.items():
        place.write(text, name)
    assert content("a.py:check") == content("b.py:check") == content("a.py:check", seconds=3.0, memory=1.0)
    assert content("a.py:check") != content("c.py:check")
    assert content("a.py:check") != content("a.py:grade")
    assert content("a.py:check") != content("a.py:check", batch=8)


def test_a_term_with_limits_of_its_own_is_the_same_term_but_for_how_many_it_gets_at_a_time(
    place: Place,
) -> None:
    place.write(GOOD, "a.py")
    plain = {"op": "python", "function": "a.py:check", "of": "y"}
    limited = {**plain, "op": "limited_python", "batch": 64, "seconds": 3.0, "memory": 1.0}
    assert content_of(plain, place.folder) == content_of(limited, place.folder)
    fewer = content_of({**limited, "batch": 8}, place.folder)
    assert fewer != content_of(plain, place.folder)
    # What is stored can be read again.
    node = TypeAdapter(Expression).validate_python(fewer)
    assert isinstance(node, LimitedPythonTerm)
    assert node.limits == {"batch": 8, "seconds": 10.0, "memory": 2.0}


ROLES = {
    "checks.py": {
        "asked.data": False,
        "tidy_sums.train.s1": True,
        "base.eval.s1": True,
        "tidy_sums.eval.s1": True,
    },
    "style.py": {
        "asked.data": False,
        "tidy_sums.train.s1": True,
        "base.eval.s1": False,
        "tidy_sums.eval.s1": False,
    },
    "tasks.py": {
        "asked.data": True,
        "tidy_sums.train.s1": False,
        "base.eval.s1": False,
        "tidy_sums.eval.s1": False,
    },
}


@pytest.mark.parametrize("file", ROLES)
def test_a_file_that_changes_between_two_runs_is_new_work_for_what_it_judged_or_made(
    place: Place, file: str
) -> None:
    for path in (Path(__file__).resolve().parents[2] / "specs" / "own").iterdir():
        if path.is_file():
            place.write(path.read_bytes(), path.name)
    spec = reodsl.load("sums.reo").spec

    def identities() -> dict[str, object]:
        prints = Fingerprints(place.folder / "none")
        return {
            task.id: resolve_sources(task, task.payload, place.folder, prints)
            for task in lower(spec).tasks
            if task.id in ROLES[file]
        }

    before = identities()
    assert before.keys() == ROLES[file].keys()
    (place.folder / file).write_text((place.folder / file).read_text() + "\n")
    after = identities()
    assert {name: before[name] != after[name] for name in before} == ROLES[file]


def link_out(folder: Path) -> None:
    (folder.parent / "outside.py").write_text(GOOD)
    (folder / "checks.py").symlink_to(folder.parent / "outside.py")


BAD: dict[str, Callable[[Path], None]] = {
    "the file does not exist": lambda folder: None,
    "the path leads out of the spec's folder": link_out,
    "it is a pipe": lambda folder: os.mkfifo(folder / "checks.py"),
    "it is a folder": lambda folder: (folder / "checks.py").mkdir(),
    "larger than 1,048,576 bytes": lambda folder: (folder / "checks.py").write_text("#" * 2**21) and None,
}


def test_leave_is_for_the_content_that_was_shown(place: Place) -> None:
    """A file that was changed since then is shown and refused again, and goes the next time."""
    place.write(OWN)
    file = place.write(GOOD, "mine/checks.py")
    shown = read_code("mine/checks.py:check", place.folder).checksum
    assert shown in place.run().err
    file.write_text(GOOD + "\n")
    changed = read_code("mine/checks.py:check", place.folder).checksum
    both = (f"has the content sha256:{changed}; before, it had sha256:{shown}", "--allow-python")
    refused(place.run("--allow-python"), "E0746", str(Path("mine/checks.py")), *both)
    assert not (place.folder / ".reodsl").exists()
    file.write_text(GOOD)
    refused(place.run("--allow-python"), "E0746", str(Path("mine/checks.py")), f"sha256:{shown}")
    code = read_code("mine/checks.py:check", place.folder)
    assert not is_changed(code)
    assert not is_allowed(code)


@pytest.fixture
def begun(place: Place, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """What the records of runs say of Python; the runs end there."""
    python: list[dict[str, str]] = []

    def begin(store: object, spec: object, digest: str, codes: dict[str, str]) -> None:
        python.append(codes)
        raise SystemExit(3)

    monkeypatch.setattr("reodsl.store.runs.begin", begin)
    place.write(REWARDED)
    place.write(GOOD, "mine/checks.py")
    place.write(SCORE, "style.py")
    return python


def checksums(folder: Path) -> dict[str, str]:
    return {name: read_code(name, folder).checksum for name in ("mine/checks.py:check", "style.py:score")}


def test_each_run_with_the_option_names_what_it_allows(place: Place, begun: list[dict[str, str]]) -> None:
    """A file that nobody showed runs named; one that changed since it ran is refused, and named the next time."""
    for option in ("--quiet", "--json", "--quiet"):
        told = place.call("run", "tiny.reo", "--local", option, "--allow-python")
        assert told.code == 3, told.err
        for name, checksum in checksums(place.folder).items():
            assert f"allowed  {name.partition(':')[0]}  sha256:{checksum}\n" in told.err
        assert begun.pop() == checksums(place.folder)
    before = checksums(place.folder)["style.py:score"]
    place.write(f"{SCORE}\n", "style.py")
    after = checksums(place.folder)["style.py:score"]
    both = f"style.py has the content sha256:{after}; before, it had sha256:{before}"
    told = place.run("--allow-python")
    refused(told, "E0746", "style.py", both)
    assert "mine/checks.py" not in told.err
    assert not begun
    assert f"style.py  sha256:{after}" in place.run("--allow-python").err
    assert "allowed" not in place.run().err


@pytest.mark.parametrize("answer", ["y", "n", ""])
def test_a_terminal_is_asked_about_new_and_changed_files(
    place: Place, begun: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    for stream in (sys.stdin, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    asked: list[str] = []
    monkeypatch.setattr("click.confirm", lambda text, err: bool(asked.append(text)) or answer == "y")
    for text in (SCORE, f"{SCORE}\n"):
        place.write(text, "style.py")
        told = place.run()
        assert f"new      style.py  sha256:{checksums(place.folder)['style.py:score']}\n" in told.err
        assert (told.code, len(begun)) == ((3, 1) if answer == "y" else (1, 0))
        assert ("E0746" in told.err) == (answer != "y")
        assert len(asked) == 1
        begun.clear()
        asked.clear()


@pytest.mark.parametrize("words", BAD)
def test_a_file_that_cannot_be_read_is_refused_before_anything_starts(
    place: Place, words: str, refusal: Callable[..., None]
) -> None:
    place.write(OWN.replace("mine/checks.py", "checks.py"))
    BAD[words](place.folder)
    planned = place.call("plan", "tiny.reo")
    refused(replace(planned, out=""), "E0743", "checks.py", words)
    told = place.run("--allow-python")
    refused(told, "E0743", "checks.py", words)
    if words == "the file does not exist":
        refusal("own/E0743.txt", told.err)


def test_only_what_a_package_offers_can_be_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Problem, match="no installed package offers it"):
        read_code("os:system", place.folder)
    site = place.folder / "site"
    (site / "lengths-1.5.dist-info").mkdir(parents=True)
    (site / "lengths-1.5.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: lengths\nVersion: 1.5\n"
    )
    (site / "lengths-1.5.dist-info" / "entry_points.txt").write_text(
        "[reodsl.python]\nmine = lengths.inner.checks:check\n"
    )
    (site / "lengths" / "inner").mkdir(parents=True)
    for name in ("__init__.py", "inner/__init__.py"):
        (site / "lengths" / name).write_text("raise RuntimeError('imported')\n")
    (site / "lengths" / "inner" / "checks.py").write_text(GOOD)
    monkeypatch.syspath_prepend(str(site))
    code = read_code("lengths.inner.checks:check", place.folder)
    assert (code.module, code.source.decode()) == ("lengths.inner.checks", GOOD)
    assert code.more_files == 2
    newer = (site / "lengths-1.5.dist-info" / "METADATA").read_text().replace("1.5", "1.6")
    (site / "lengths-1.5.dist-info" / "METADATA").write_text(newer)
    assert code.checksum != read_code("lengths.inner.checks:check", place.folder).checksum
    place.write(GOOD, "checks.py")
    assert code.checksum != read_code("checks.py:check", place.folder).checksum


def test_all_python_of_a_package_is_the_functions_content(
    site: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module that is named only imports from the others."""
    install(site, "from sums.taskset import check\n")
    folder = site / "sums"
    (folder / "servers").mkdir(parents=True)
    (site / "sums.py").rename(folder / "__init__.py")
    for name in ("taskset.py", "servers/tool.py"):
        (folder / name).write_text("A = 1\n")
    code = read_code("sums:check", place.folder)
    assert (code.path, code.more_files) == (folder / "__init__.py", 2)
    (unasked,) = report_unapproved([code])
    assert "with 2 more of its package, has the content" in unasked.notes[0]
    allow(code)
    assert not list(report_unapproved([code]))
    seen = {code.checksum}
    changes: list[Callable[[], object]] = [
        lambda: (folder / "taskset.py").write_text("A = 2\n"),
        lambda: (folder / "servers" / "tool.py").write_text("A = 2\n"),
        lambda: (folder / "servers" / "tool.py").rename(folder / "tool.py"),
        lambda: (folder / "more.py").touch(),
    ]
    for change in changes:
        change()
        changed = read_code("sums:check", place.folder)
        assert changed.checksum not in seen
        assert list(report_unapproved([changed]))
        seen.add(changed.checksum)
    (folder / "data.txt").write_text("no Python")
    assert read_code("sums:check", place.folder).checksum in seen
    for name, most in (("MOST_FILES", 2), ("LARGEST_PACKAGE", 7)):
        with monkeypatch.context() as patch:
            patch.setattr(code_module, name, most)
            with pytest.raises(Problem, match="4 Python files") as caught:
                read_code("sums:check", place.folder)
        assert caught.value.diagnostics[0].code == "E0743"


@confined
@pytest.mark.heavy
def test_the_spec_with_code_of_its_own_runs_and_runs_again_where_that_changes(place: Place) -> None:
    for path in (Path(__file__).resolve().parents[2] / "specs" / "own").iterdir():
        if path.is_file():
            place.write(path.read_bytes(), path.name)
    run = ("run", "sums.reo", "--local", "--quiet")
    refused(place.call(*run), "E0746", "tasks.py", "style.py", "checks.py")
    told = place.call(*run, "--allow-python")
    assert told.code == 0, told.err
    assert "Nothing to do" in place.call("run", "sums.reo", "--local").out
    (table,) = place.folder.rglob(".reodsl/**/rollouts.parquet")
    rewards = pl.read_parquet(table)["reward"]
    assert 0 < rewards.max() <= 2.2
    assert rewards.n_unique() > 2

    def work() -> set[str]:
        plan = reodsl.load("sums.reo").plan()
        return {task.removesuffix(".s1") for task, verdict in plan.items() if verdict != "reuse"}

    def edited(name: str) -> set[str]:
        path = place.folder / name
        before = path.read_bytes()
        path.write_bytes(before + b"\n")
        there = work()
        path.write_bytes(before)
        return there

    after = {"base.eval", "tidy_sums.train", "tidy_sums.eval", "report"}
    assert edited("tasks.py") == {"asked.data", "held.data", *after}
    assert edited("checks.py") == after
    assert edited("style.py") == after - {"base.eval"}
    spec = (place.folder / "sums.reo").read_text()
    (place.folder / "checks.py").rename(place.folder / "other.py")
    place.write(spec.replace("checks.py", "other.py"), "sums.reo")
    assert work() == {"report"}
    place.write(spec.replace("seconds: 20 seconds", "seconds: 30 seconds"), "sums.reo")
    place.write("def check(answer):\n    return answer.nothing\n", "checks.py")
    refused(place.call(*run, "--allow-python"), "E0746", "checks.py")
    refused(place.call(*run, "--allow-python"), "E0744", "checks.py:2", "AttributeError")
    # A term's own limits are those of its process.
    term = 'python("style.py:score", y)'
    assert term in spec
    place.write(spec.replace(term, 'python("style.py:score", y, seconds: 0.05 seconds)'), "sums.reo")
    place.write(
        (Path(__file__).resolve().parents[2] / "specs" / "own" / "checks.py").read_bytes(), "checks.py"
    )
    place.write("def score(response):\n    while True:\n        pass\n", "style.py")
    refused(place.call(*run, "--allow-python"), "E0746", "style.py")
    told = place.call(*run, "--allow-python")
    refused(told, "E0744", "style.py:", "more than its 0.05 s", 'python("style.py:score", y, batch: 32')


TRAINED = """
import torch


def loss(tokens):
    ratio = (tokens.logprobs - tokens.old).exp()
    within = ratio.clamp(1 - tokens.low, 1 + tokens.high)
    return -torch.minimum(ratio * tokens.advantages, within * tokens.advantages)
"""
SCORED = """
def advantage(group):
    rewards = [each for (each,) in group.rewards]
    mean = sum(rewards) / len(rewards)
    deviation = (sum((each - mean) ** 2 for each in rewards) / len(rewards)) ** 0.5
    return [(each - mean) / deviation if deviation > 1e-9 else 0.0 for each in rewards]
"""
PAID = (
    SPEC.replace("reward      = outcome", "reward      = short")
    .replace("from std.rewards   import outcome\n", "")
    .replace("rollouts = 2", "rollouts = 8")
    .replace("param length", "reward short { correct(y) - len(y) / 16 tokens }\n\nparam length")
)
DOORS = PAID.replace(
    "  batch ",
    '  loss        = python("mine.py:loss")\n  advantage   = python("scored.py:advantage")\n  batch ',
)


def weights(place: Place) -> set[bytes]:
    return {path.read_bytes() for path in place.folder.rglob(".reodsl/**/checkpoint/model.safetensors")}


@pytest.mark.slow
@confined
def test_a_loss_and_an_advantage_that_repeat_the_settings_train_to_the_same_bytes(place: Place) -> None:
    place.write(PAID)
    assert place.run().code == 0
    before = weights(place)
    assert len(before) == 2
    place.write(DOORS)
    place.write(TRAINED, "mine.py")
    place.write(SCORED, "scored.py")
    refused(place.run(), "E0746", "scored.py", "`scored.py`, `mine.py`", "it is a loss, and runs unconfined")
    rehearsed = place.call("rehearse", "tiny.reo", "--quiet", "--allow-python")
    assert rehearsed.code == 0, rehearsed.err
    assert place.run("--allow-python").code == 0
    assert weights(place) == before
    assert "Nothing to do" in place.call("run", "tiny.reo", "--local").out
    place.write(TRAINED + "\n", "mine.py")
    assert {task for task, verdict in reodsl.load("tiny.reo").plan().items() if verdict != "reuse"} == {
        "tiny.train.s1",
        "tiny.eval.s1",
        "report",
    }


@confined
@pytest.mark.parametrize(
    ("name", "text", "code", "words"),
    [
        ("mine.py", "def lost(tokens):\n    return 0\n", "E0743", "it has `lost`"),
        ("mine.py", "def loss(logprobs, old):\n    return 0\n", "E0743", "instead of `tokens`"),
        ("mine.py", TRAINED.replace("tokens.old", "tokens.older"), "E0744", "has no attribute 'older'"),
        ("mine.py", TRAINED.replace("return -", "return -0 *"), "E0744", "no gradient reaches"),
        ("scored.py", SCORED.replace("> 1e-9", "> 0 or 1 / 0"), "E0744", "ZeroDivisionError"),
        (
            "scored.py",
            SCORED.replace("return [", "return [0.0 for _ in '']\n    ["),
            "E0744",
            "gave 0 values",
        ),
    ],
)
def test_what_is_wrong_with_them_is_told_before_anything_is_sampled(
    place: Place, name: str, text: str, code: str, words: str
) -> None:
    place.write(DOORS)
    place.write(TRAINED, "mine.py")
    place.write(SCORED, "scored.py")
    place.write(text, name)
    refused(place.run("--allow-python"), code, name, words)
    assert not [*place.folder.rglob(".reodsl/**/rollouts/*.parquet")]


def test_a_file_that_may_run_in_the_sandbox_may_not_run_outside(place: Place) -> None:
    place.write(TRAINED, "mine.py")
    code = read_code("mine.py:loss", place.folder)
    allow(code)
    assert is_allowed(code)
    assert not is_allowed(replace(code, free=True))
    allow(replace(code, free=True))
    assert [*report_unapproved([code, replace(code, free=True)])] == []
