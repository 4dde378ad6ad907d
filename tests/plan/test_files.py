"""Files of questions as a plan reads them: numbers that are missing, references, and Python beside the spec."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.architecture import ARCHITECTURE
from tests.called import call

SPEC = """
from std.miniature import chain_suite, chain_words, chain_easy

data levelled { source = file("levels.jsonl", columns: columns(meta: ["level"])), verifier = exact }
data drawn    { source = generated(chain_easy, count: 9, seed: 1, split: held_out), verifier = exact }
benchmark own   { data = levelled }
benchmark other { data = drawn }

model mite {
  source = ARCHITECTURE
  context = 96 tokens
}

wording hard { question = "{question}", when = x.level > 3 }
wording long { question = "{question}", when = mean(len(z) for z in ref) > 12 tokens }
wording some { question = "{question}", share = 40% }
wording rest { question = "{question}" }

suite short      = chain_suite { samples = 1, max_tokens = 16 tokens, grid = [0 tokens, 16 tokens], reg_to = 16 tokens }
suite by_level   = short { benchmarks = [own], wordings = [hard, some, rest] }
suite by_length  = short { benchmarks = [other], wordings = [long, rest], reference = mite, reference_samples = 2 }

study small {
  arm one = mite { eval = by_level }
  arm two = mite { eval = by_length }
}
""".replace("ARCHITECTURE", ARCHITECTURE)
LEVELS = (1, 5, 4, 2, 9)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.reo").write_text(SPEC)
    leave(*({"level": level} for level in LEVELS))


def leave(*rows: dict[str, int]) -> None:
    """Writes the file of questions, each with these columns."""
    lines = (json.dumps({"question": f"{at} +1", "answer": "1"} | row) for at, row in enumerate(rows))
    Path("levels.jsonl").write_text("".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize("command", [("plan",), ("run", "--local")])
def test_a_question_without_the_number_is_told_before_anything_starts(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    leave({"level": 1}, {}, {"level": 4})
    assert call(*command, "small.reo") == 1
    told = capsys.readouterr().err
    assert "error[E0922]: the wording `hard` reads `x.level`, which 1 of 3 questions do not have" in told
    assert not Path(".reodsl").exists()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"level": "hard"}, "the wording `hard` reads `x.level`, which is text in 1 of 2 questions"),
        ({}, "the wording `hard` reads `x.level`, which 1 of 2 questions do not have"),
    ],
)
def test_a_training_is_told_of_rows_without_a_number_at_the_place_that_reads_it(
    row: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    leave({"level": 1}, row)
    trained = SPEC.replace("study small {", TRAINED + "study small {\n  arm three = trained")
    Path("small.reo").write_text(trained)
    assert call("plan", "small.reo") == 1
    told = capsys.readouterr().err
    for each in (message, message.replace("wording `hard`", "reward `paid`")):
        assert f"error[E0922]: {each}" in told
    assert "reward paid { correct(y) * x.level }" in told


TRAINED = """
from std.recipes import ppo
reward paid { correct(y) * x.level }
experiment trained = ppo {
  base = mite, data = levelled, reward = paid, max_prompt = 32 tokens, steps = 1 step, eval = by_length, minibatches = 1
  batch { prompts = 2, rollouts = 2 }
  rollout { max_tokens = 16 tokens, wordings = [hard, rest] }
  optim { lr = 1e-4 }
}

"""


def test_a_plan_reads_python_beside_the_spec(capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is priced for nothing: what does not parse ends the command, once."""
    own = TRAINED.replace("correct(y) * x.level", 'correct(y) + python("score.py:score", y)')
    Path("small.reo").write_text(SPEC.replace("study small {", own + "study small {\n  arm three = trained"))
    Path("score.py").write_text("def score(response:\n")
    assert call("plan", "small.reo") == 1
    told = capsys.readouterr().err
    assert told.count("error[") == told.count("error[E0743]") == 1
    assert "it does not parse" in told
    Path("score.py").write_text("def score(response: str) -> float:\n    return 1.0\n")
    assert call("plan", "small.reo") == 2


@pytest.mark.parametrize(
    ("reference", "settings", "refused"),
    [
        ("The least of all sides is the height of what was drawn above it.", "", True),
        ("The least of all sides is the height of what was drawn above it.", 'verifier = python("c.py:check")', False),
        ("The least of all sides is the height of what was drawn above it.", "verifier = exact", False),
        ("The least of all sides is the height of what was drawn above it.", "verifier = math", True),
        ("First add the two numbers as they were. The answer is 5", "", True),
        ("First add the two numbers as they were. The answer is 5", 'answer = after("The answer is")', False),
        ("assert f(1) == 2", "verifier = tests()", False),
        ("f(1) is the number that comes after 1, whatever that may be", "verifier = tests()", True),
    ],
)  # fmt: skip
def test_references_of_a_file_are_read_as_the_spec_says(
    reference: str, settings: str, refused: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    head, _, rest = SPEC.partition("data levelled")
    said = "\n".join(
        (head, 'data levelled { source = file("levels.jsonl")', settings, "}", rest.partition("\n")[2])
    )
    Path("small.reo").write_text(said.replace(", wordings = [hard, some, rest]", ""))
    Path("c.py").write_text("def check(answer: str) -> bool:\n    return True\n")
    Path("levels.jsonl").write_text(json.dumps({"question": "a", "answer": reference}) + "\n")
    assert call("plan", "small.reo") == (1 if refused else 2)
    assert ("error[E07" in capsys.readouterr().err) == refused
