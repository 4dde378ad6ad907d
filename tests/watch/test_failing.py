"""What Python of the user fails at is told by `run`, `watch` and the report: by reason, with what a failure counts as."""

from __future__ import annotations

import json
import re
from html import unescape
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from reodsl.cli.watch import Board, draw
from reodsl.numbers.unsettled import count_kinds, count_reasons, list_tables, say_failed
from reodsl.watch import RunningTask
from tests.bad_input.commands import SPEC
from tests.called import call

OWN = """
from reodsl.own import Question

def draw(random):
    number = random.randrange(10)
    if number > 3:
        raise ValueError(f"no draw {number}")
    return Question(question=f"{number}", answer=f"{number}")

def advantage(group):
    raise KeyError("no advantage")

def judge(answer):
    if len(answer.text) % 2:
        raise ValueError(answer.text)
    return True

def score(response):
    if len(response.text) % 2:
        raise ValueError(response.text[:9])
    return 1
"""
GRADED = (
    SPEC.replace("verifier = exact", 'verifier = python("own.py:judge")')
    .replace("reward      = outcome", "reward = mine")
    .replace(
        "experiment tiny", 'reward mine { correct(y) + 0.1 * python("own.py:score", y) }\nexperiment tiny'
    )
    .replace("from std.rewards   import outcome\n", "")
)
POOLED = SPEC.replace("from std.recipes   import ppo", "from std.recipes import simpo")
POOLED = POOLED.replace(
    "from std.rewards   import outcome\n", "from std.selections import shortest_against_longest\n"
)
POOLED = (
    POOLED[: POOLED.index("experiment tiny")].replace("verifier = exact", 'verifier = python("own.py:judge")')
    + """
experiment tiny = simpo {
  base = mite, max_tokens = 64 tokens, beta = 2, gamma = 1, steps = length, eval = quick
  data = shortest_against_longest(pool(checkpoint(mite), data: asked, samples: 6, max_tokens: 16 tokens))
  batch { prompts = 2 }
  optim { lr = 1e-3 }
}
"""
)
OF_ARMS = SPEC.replace(
    "  minibatches = 1", '  advantage { own = python("own.py:advantage") }\n  minibatches = 1'
)
OF_ARMS = (
    OF_ARMS.replace("experiment tiny", "recipe tiny")
    + """
study two {
  eval = quick
  arm base = checkpoint(mite)
  arm a = tiny {}
  arm b = tiny { max_prompt = 31 tokens }
}
"""
)
REFERRED = (
    GRADED.replace('own.py:judge")', 'own.py:judge"), answer = last_number')
    .replace(
        "correct(y) +",
        "track eased = mean(correct(z) for z in monitor, empty: 0)\n"
        "  correct(y) * (1 + mean(correct(z) for z in ref) + eased) +",
    )
    .replace(
        "  minibatches = 1",
        "  minibatches = 1\n  reference_samples = 3\n  monitor { questions = 4, samples = 8, every = 1 step }",
    )
    .replace(
        "  grid       =",
        "  wordings = [brief, free]\n  reference = checkpoint(mite)\n  reference_samples = 3\n  grid       =",
    )
    .replace(
        "suite quick {",
        'wording brief { question = "{question}", when = mean(correct(z) for z in ref) == 0 }\n'
        'wording free { question = "{question}" }\nsuite quick {',
    )
)
"""Verifiers and rewards fail at responses of the reference model, of a suite's reference and to a monitor set."""
DRAWN = SPEC.replace("source = generated(chain_easy,", 'source = generated(python("own.py:draw"),', 1)


@pytest.fixture
def place(tmp_path: Path, undrawn: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The exit code of a command, and all it says in lines of any length."""
    capsys.readouterr()
    code = call(*arguments)
    return code, " ".join("".join(capsys.readouterr()).split())


def words_of(page: Path) -> str:
    """The words of a page."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page.read_text())).split())


def run(capsys: pytest.CaptureFixture[str], text: str) -> tuple[int, str]:
    Path("tiny.reo").write_text(text)
    return told(capsys, "run", "tiny.reo", "--local", "--allow-python")


@pytest.mark.slow
def test_failures_at_responses(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = run(capsys, GRADED)
    assert code == 0, said
    _, seen = told(capsys, "watch", "--once")
    (page,) = place.glob("runs/*/report.html")
    shown = words_of(page)
    judged, paid = (
        rf"\d+ times: {start}: `own.py:{name}` failed: ValueError: .{{,60}}, line {line}"
        for start, name, line in (("failed", "judge", 15), ("reward", "score", 20))
    )
    for place_said in (said, seen, shown):
        assert re.search(judged, place_said)
        assert re.search(paid, place_said)
        assert (
            "a response at which the reward's Python fails is paid the least reward of its step" in place_said
        )
        assert "count as wrong" in place_said
    state = json.loads(told(capsys, "watch", "--json")[1])
    failing = {each["task"]: each["failing"] for each in state["tasks"]}
    assert sum(each["times"] for each in failing["tiny.train.s1"] if each["why"].startswith("reward: ")) > 1
    assert f"{failing['base.eval.s1'][0]['times']} times: {failing['base.eval.s1'][0]['why']}" in said
    assert failing["report"] == []


def test_failures_of_a_running_task_are_under_the_tasks() -> None:
    board = Board(
        "two", 3, running={"a": RunningTask("a", 0.0, failing=[("failed: it broke", 7), ("timeout", 1)])}
    )
    console = Console(file=StringIO(), width=200)
    console.print(draw(board, console))
    said = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
    assert "a: 1 answer exceeded the verifier's time limit and 7 answers made the verifier fail; " in said
    assert said.endswith("count as wrong; 7 times: failed: it broke; 1 time: timeout")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "kinds"),
    [(POOLED, [".pool"]), (REFERRED, ["tiny.reference", "quick.reference"])],
    ids=["pool", "reference"],
)
def test_failures_among_samples_that_are_read(
    place: Path, capsys: pytest.CaptureFixture[str], text: str, kinds: list[str]
) -> None:
    """`run`, `watch` and the report tell of the responses of a pool, and of the references of a training and a suite."""
    code, said = run(capsys, text)
    assert code == 0, said
    tasks = json.loads(told(capsys, "watch", "--json")[1])["tasks"]
    seen = told(capsys, "watch", "--once")[1]
    (page,) = place.glob("runs/*/report.html")
    shown, times = words_of(page), 0
    for kind in kinds:
        ((task, (why,)),) = [(each["task"], each["failing"]) for each in tasks if kind in each["task"]]
        times += why["times"]
        line = f"{why['times']} time{'s' * (why['times'] > 1)}: {' '.join(why['why'].split())}"
        assert f"--> {task} = note: {line}" in said
        assert line in seen
        assert task in shown
    assert re.search(
        rf"{times} answers? made the verifier fail in the samples of [^;]*; they count as wrong. "
        rf"{times} times?: failed: `own.py:judge` failed: ValueError: .{{,60}}, line 15",
        shown,
    )


@pytest.mark.slow
def test_failures_at_responses_to_a_monitor_set(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are in the training's count beside those of its own responses."""
    code, said = run(capsys, REFERRED)
    assert code == 0, said
    (store,) = place.glob(".reodsl")
    (monitor,) = store.glob("objects/*/*/monitor.parquet")
    counts = count_kinds(count_reasons(list_tables(monitor.parent)))
    assert count_kinds(count_reasons([monitor]))["verifier_failures"] > 0
    assert count_kinds(count_reasons([monitor]))["verifier_failures"] < counts["verifier_failures"]
    (page,) = place.glob("runs/*/report.html")
    for place_said in (said, told(capsys, "watch", "--once")[1], words_of(page)):
        assert say_failed(counts) in place_said


@pytest.mark.slow
def test_tasks_that_fail(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Several that fail for one reason are told together, in the report too, which has what did not fail."""
    code, said = run(capsys, OF_ARMS)
    why = "`own.py:advantage` failed: KeyError: 'no advantage'"
    assert code == 1
    assert said.count(f"error[E0744]: {why}") == 1
    assert "in a.train.s1, b.train.s1" in said
    code, seen = told(capsys, "watch", "--once")
    assert f"failed a.train.s1, b.train.s1 E0744: {why}" in seen
    code, drawn = told(capsys, "report", "two", "--out", "shown")
    assert code == 0
    assert f"failed: a.train.s1, b.train.s1: E0744: {why}" in drawn
    assert f"Failed: a.train.s1, b.train.s1: E0744: {why}." in words_of(Path("shown/report.html"))


@pytest.mark.slow
def test_a_task_of_questions_that_fails(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The report has it too: beside what could be evaluated without it, and alone."""
    code, said = run(capsys, DRAWN)
    assert code == 1
    why = re.search(
        r"E0744: `own.py:draw` failed: ValueError: no draw \d", told(capsys, "watch", "--once")[1]
    )
    assert why is not None
    assert why[0].removeprefix("E0744: ") in said
    assert "raise ValueError" in said
    code, drawn = told(capsys, "report", "tiny", "--out", "shown")
    assert code == 0
    assert f"failed: asked.data: {why[0]}" in drawn
    assert f"Failed: asked.data: {why[0]}" in words_of(Path("shown/report.html"))
    code, said = run(capsys, DRAWN.replace("generated(chain_easy,", 'generated(python("own.py:draw"),'))
    assert code == 1
    code, drawn = told(capsys, "report", "tiny")
    assert code == 1
    assert "error[E0957]" in drawn
    assert re.search(
        r"failed: asked.data, held.data: E0744: `own.py:draw` failed: ValueError: no draw \d", drawn
    )
