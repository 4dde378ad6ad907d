"""Environments of `verifiers`: their tasks asked, their rewards paid, in the same confined processes as own code.

The library is heavy, so a stand-in with the part of its interface that is read stands for it; where it is installed, the
same environment runs on it.
"""

from __future__ import annotations

import socket
from pathlib import Path

import polars as pl
import pytest

from reodsl.diagnostics import Problem
from reodsl.graph.job import Resources
from reodsl.ir.data import Data, Generated, Python, Whole
from reodsl.language import compile_file
from reodsl.store.consent import read_code
from runners.data.load import join_sources, read_sources
from runners.own.environment import Environment, Unsuited
from runners.own.function import OwnFunction
from runners.sandbox import lacking
from runners.verify import Claim, answer_row, open_verifier
from tests.bad_input.commands import Place
from tests.own.library import HERE, install

confined = pytest.mark.skipif(lacking() is not None, reason=f"NOT CONFINED HERE: {lacking()}")
ENVIRONMENT = """
import verifiers.v1 as vf

__all__ = ["Sums"]


class Data(vf.TaskData):
    answer: str = ""


class SumTask(vf.Task{of_task}):
    @vf.reward(weight=0.75)
    async def exact(self, task, trace) -> float:
        return float(trace.last_reply.strip() == task.answer)

    @vf.reward(weight=0.25)
    def short(self, trace) -> float:
        return float(len(trace.last_reply) < 5)

    @classmethod
    def data_type(cls):
        return Data


class Sums(vf.Taskset{of_taskset}):
    kind = SumTask

    def load(self):
        for a in range(10):
            for b in range(1, 10):
                yield SumTask(Data(prompt=f"{{a}} a +{{b}} ?", answer=str((a + b) % 10)), self.config.task)
"""
STAND_IN = ENVIRONMENT.format(of_task="", of_taskset="")
REAL = ENVIRONMENT.format(of_task="[Data, vf.State]", of_taskset="[SumTask, vf.TasksetConfig]")


def function(role: str) -> OwnFunction:
    return OwnFunction(
        read_code("sums_env:verifiers", Path()),
        role,
        batch=64,
        seconds=60,
        memory_mib=2048,
        confined=lacking() is None,
    )


def test_only_packages_that_ask_for_the_library_can_be_named(site: Path) -> None:
    install(site, "raise RuntimeError('imported')\n", library=False)
    code = read_code("sums_env:verifiers", Path())
    assert (code.module, code.version, code.function) == ("sums_env", "1.5", "verifiers")
    metadata = site / "sums_env-1.5.dist-info" / "METADATA"
    for other in ("Requires-Dist: verifiers-monitor", "Requires-Dist: numpy", ""):
        metadata.write_text(f"Metadata-Version: 2.1\nName: sums-env\nVersion: 1.5\n{other}\n")
        with pytest.raises(Problem, match="no installed package offers it"):
            read_code("sums_env:verifiers", Path())
    for name in ("os:verifiers", "json:verifiers", "sums_env:other"):
        with pytest.raises(Problem, match="no installed package offers it"):
            read_code(name, Path())


def asked_and_graded(folder: Path) -> None:
    """Questions, verdicts and rewards, as a run has them."""
    chosen = Python(function="sums_env:verifiers", seconds=60.0)
    resources = Resources(python=frozenset({read_code(chosen.function, folder).checksum}))
    data = Data(
        name="d",
        sources=(Generated(task=chosen, count=12, seed=3, split="held_out"),),
        verifier=chosen,
        answer=(Whole(),),
    )
    table = join_sources(data, read_sources(data, folder, resources))
    assert table.height == 12
    question, reference, meta = table.select("question", "answer", "meta").row(0)
    a, _, b, _ = question.split()
    assert int(reference) == (int(a) + int(b)) % 10
    texts = [reference, f"<think> long </think> {reference}", "11", "no idea"]
    answers = [Claim(text, reference, meta, question) for text in texts]
    verifier = open_verifier(chosen, 0.0, folder, resources)
    assert [verdict.correct for verdict in verifier.grade(answers)] == [True, True, False, False]
    verifier.close()
    score = function("reward")
    rows = [{**answer_row(answer), "answer": "", "correct": False, "tokens": 1} for answer in answers]
    assert score.call(rows) == [1.0, 1.0, 0.25, 0.0]
    score.close()


@confined
def test_an_environment_asks_and_grades(site: Path, tmp_path: Path) -> None:
    install(site, STAND_IN, library=True)
    asked_and_graded(tmp_path)


@confined
@pytest.mark.heavy
@pytest.mark.skipif(not HERE, reason="NOT INSTALLED: verifiers")
def test_an_environment_asks_and_grades_with_the_library_itself(site: Path, tmp_path: Path) -> None:
    install(site, REAL, library=False)
    asked_and_graded(tmp_path)


BAD = {
    "2 tasksets": ('__all__ = ["Sums"]', '__all__ = ["Sums", "Others"]\nclass Others(vf.Taskset): pass'),
    "0 tasksets": ('__all__ = ["Sums"]', ""),
    "turns or agents": ('__all__ = ["Sums"]', '__all__ = ["Sums", "Mine"]\nclass Mine(vf.Env): pass'),
    "a container": ("class SumTask(vf.Task):", "class SumTask(vf.Task):\n    NEEDS_CONTAINER = True"),
    "no prompt": ('prompt=f"{a} a +{b} ?"', "prompt=None"),
    "several turns": ('prompt=f"{a} a +{b} ?"', 'prompt=[vf.AssistantMessage("x")]'),
    "has no tasks": ("range(10)", "range(0)"),
    "judged by a model": (
        "    @classmethod\n    def data_type",
        "    def plugged_judges(self): return [1]\n    @classmethod\n    def data_type",
    ),
}


@pytest.mark.parametrize("words", BAD)
def test_what_takes_more_than_one_turn_is_refused_by_name(site: Path, words: str) -> None:
    install(site, STAND_IN.replace(*BAD[words]), library=True)
    with pytest.raises(Unsuited, match=words):
        Environment("sums_env").questions([{"seed": 1, "draw": draw} for draw in range(2)])


ROW = {"text": "2", "meta": {"verifiers": {"prompt": "1 a +1 ?", "answer": "2"}}}


EXACT = "        return float(trace.last_reply.strip()"
WAITS = "        class Wait:\n            def __await__(self): yield %s\n        await Wait()\n" + EXACT


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("def short(self, trace)", "def short(self, trace, runtime)"), "needs a runtime"),
        (("@vf.reward", "@(lambda weight: lambda f: f)"), "no reward"),
        ((EXACT, WAITS % "1"), "waits"),
    ],
)
def test_rewards_that_do_not_fit(site: Path, change: tuple[str, str], words: str) -> None:
    install(site, STAND_IN.replace(*change), library=True)
    with pytest.raises(Unsuited, match=words):
        Environment("sums_env").score(ROW)


def test_a_reward_may_let_others_run(site: Path) -> None:
    install(site, STAND_IN.replace(EXACT, WAITS % "None"), library=True)
    assert Environment("sums_env").score(ROW) == 1.0


def test_questions_are_in_an_order_of_the_seed_and_come_round(site: Path) -> None:
    install(site, STAND_IN, library=True)
    environment = Environment("sums_env")
    drawn = {
        seed: [
            each["question"]
            for each in environment.questions([{"seed": seed, "draw": n} for n in range(100)])
        ]
        for seed in (1, 2)
    }
    assert drawn[1] != drawn[2]
    assert len(set(drawn[1][:90])) == 90
    assert drawn[1][90:] == drawn[1][:10]


def test_a_reward_of_several_parts_is_their_sum(site: Path) -> None:
    change = ("return float(len(trace.last_reply) < 5)", "return {'a': 1.0, 'b': 2.0}")
    install(site, STAND_IN.replace(*change), library=True)
    assert Environment("sums_env").score(ROW) == 0.75 + 0.25 * 3
    with pytest.raises(Unsuited, match="none of its tasks"):
        Environment("sums_env").score({"text": "2", "meta": {}})


@pytest.fixture
def layered(site: Path) -> Path:
    """The same environment in a package whose named module imports it, and its file there."""
    install(site, "from sums_env.taskset import Sums\n\n__all__ = ['Sums']\n", library=True)
    folder = site / "sums_env"
    folder.mkdir()
    (site / "sums_env.py").rename(folder / "__init__.py")
    (folder / "taskset.py").write_text(STAND_IN)
    return folder / "taskset.py"


@confined
@pytest.mark.parametrize(
    ("change", "words", "line"),
    [
        (("for a in range(10)", "for a in range(1 // 0)"), "ZeroDivisionError", "for a in range(1 // 0):"),
        (("for a in range(10)", "for a im range(10)"), "SyntaxError", "for a im range(10):"),
    ],
)
def test_a_fault_in_another_file_of_its_package_is_shown_there(
    layered: Path, change: tuple[str, str], words: str, line: str
) -> None:
    text = STAND_IN.replace(*change)
    layered.write_text(text)
    task = function("task")
    with pytest.raises(Problem, match=words) as caught:
        task.draw(1, range(2))
    task.close()
    (found,) = caught.value.diagnostics
    at = next(number for number, each in enumerate(text.splitlines(), 1) if each.strip() == line)
    assert (found.code, found.where, found.notes) == ("E0744", f"{layered}:{at}", (f"the line is: {line}",))


@pytest.mark.parametrize(
    "inside", ["../secret.py", "taskset.txt", "/etc/passwd", "link.py", "nowhere.py", "a\0.py", 7]
)
def test_a_process_shows_no_line_of_a_file_outside_its_package(layered: Path, inside: object) -> None:
    secret = layered.parents[1] / "secret.py"
    for path in (secret, layered.with_suffix(".txt")):
        path.write_text("KEY = 'hunter2'\n")
    (layered.parent / "link.py").symlink_to(secret)
    said = {"status": "error", "message": "x", "line": 1, "inside": inside}
    with pytest.raises(Problem) as caught:
        function("task")._values(said, 1, bool)
    (found,) = caught.value.diagnostics
    assert found.where == f"{layered.with_name('__init__.py')}:1"
    assert "hunter2" not in str(found)


@confined
def test_a_reward_reads_no_file(site: Path) -> None:
    reads = "float(open('/etc/passwd').read())"
    install(site, STAND_IN.replace("float(len(trace.last_reply) < 5)", reads), library=True)
    row = {**ROW, "question": "", "reference": "2", "references": ["2"]}
    score = function("reward")
    with pytest.raises(Problem, match="Permission") as caught:
        score.call([{**row, "answer": "", "correct": True, "tokens": 1}])
    assert caught.value.diagnostics[0].code == "E0744"
    score.close()


TRAPS = """
import os
import socket

SEEN = []
for attempt in (
    lambda: open({secret!r}).read(),
    lambda: os.unlink({secret!r}),
    lambda: os.mkdir({made!r}),
    lambda: open({made!r}, "w").close(),
    lambda: os.listdir({folder!r})[0],
    lambda: socket.create_connection(("127.0.0.1", {port})),
):
    try:
        SEEN.append(str(attempt()))
    except OSError:
        pass
"""


@confined
def test_a_package_reads_and_changes_nothing_as_it_is_loaded(site: Path, tmp_path: Path) -> None:
    """Which it is before any copy is made: what it saw then would stand in its questions."""
    folder = tmp_path / "home"
    folder.mkdir()
    secret, made = folder / "secret", folder / "made"
    secret.write_text("hunter2")
    with socket.create_server(("127.0.0.1", 0)) as server:
        named = {"secret": str(secret), "made": str(made), "folder": str(folder)}
        traps = TRAPS.format(**named, port=server.getsockname()[1])
        text = STAND_IN.replace('prompt=f"', 'prompt=f"{SEEN} ')
        install(site, traps + text, library=True)
        task = function("task")
        questions = task.draw(1, range(3))
        task.close()
    assert [each["question"][:3] for each in questions] == ["[] "] * 3
    assert [path.name for path in folder.iterdir()] == ["secret"]


@pytest.mark.skipif(HERE, reason="verifiers is installed")
def test_an_environment_needs_the_library(site: Path) -> None:
    install(site, STAND_IN, library=False)
    with pytest.raises(ModuleNotFoundError, match="verifiers"):
        Environment("sums_env")


def test_an_environment_reads_whole_responses_unless_something_else_is_said(tmp_path: Path) -> None:
    spec = Path(__file__).resolve().parents[2] / "specs" / "own" / "sums.reo"
    text = spec.read_text().replace("checks.py:check", "sums_env:verifiers")
    (tmp_path / "spec.reo").write_text(text)
    built = compile_file(tmp_path / "spec.reo").spec
    assert built is not None
    assert built.study.arms[0].suite.benchmarks[0].data.answer == (Whole(),)


@confined
@pytest.mark.heavy
def test_a_spec_trains_on_an_environment(site: Path, place: Place) -> None:
    install(site, REAL if HERE else STAND_IN, library=not HERE)
    own = Path(__file__).resolve().parents[2] / "specs" / "own" / "sums.reo"
    names = ("tasks.py:make", "checks.py:check", "style.py:score")
    text = own.read_text()
    for name in names:
        text = text.replace(name, "sums_env:verifiers")
    place.write(text.replace("x.weight * ", ""), "sums.reo")
    run = ("run", "sums.reo", "--local", "--quiet")
    assert "E0746" in place.call(*run).err
    told = place.call(*run, "--allow-python")
    assert told.code == 0, told.err
    (table,) = place.folder.rglob(".reodsl/**/rollouts.parquet")
    assert pl.read_parquet(table)["reward"].max() > 0
