"""Words that read a number of a response: a new one goes through its two rows, from a spec to a step of training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reodsl.diagnostics.model import Diagnostic
from reodsl.ir.expression import READINGS, Attribute, Reading
from reodsl.ir.reward import Reward
from reodsl.ir.reward_text import expression_text
from reodsl.language import compile_file
from reodsl.language.chosen_reward import choose_reward
from reodsl.language.reference import REWARD_WORDS, list_readings
from reodsl.language.reward import typing
from reodsl.language.reward.body import varies
from runners.grade import Thinking
from runners.rewards.vectorise import vectorise, vectorise_metrics
from runners.train.rollouts import ANSWERS, READERS
from tests.called import call
from tests.train.test_rollouts import QUESTION, RESPONSES, ScriptedEngine, sampler

WAITS = "reward waits {\n correct(y) - 0.1 * waits(y)\n}\n"


def findings(text: str, folder: Path) -> list[Diagnostic]:
    path = folder / "spec.reo"
    path.write_text(text)
    return list(compile_file(path).diagnostics)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A word for how often a response says `wait`, in no file of the language."""
    monkeypatch.setitem(READINGS, "waits", Reading("how often it waits"))
    monkeypatch.setitem(READERS, "waits", lambda response, text: float(text().count("wait")))
    monkeypatch.setattr(typing, "RESPONSE", (*typing.RESPONSE, "waits"))


@pytest.mark.usefixtures("waits")
def test_a_new_word_is_typed_told_and_read_of_each_response(tmp_path: Path) -> None:
    value = Attribute(of="y", field="waits")
    assert [each.code for each in findings(WAITS, tmp_path)] == ["E0215"]
    (hidden,) = [
        each for each in findings(WAITS.replace("waits(y)", "x.waits"), tmp_path) if each.code == "E0301"
    ]
    assert "write `waits(y)`" in str(hidden.help)
    (elsewhere,) = [
        each
        for each in findings("measure m {\n mean(waits(z) for z in arm)\n}\n", tmp_path)
        if each.code == "E0301"
    ]
    assert "a measure does not know `waits`" in elsewhere.message
    assert expression_text(value) == "waits(y)"
    assert ("`waits(y)`", "how often it waits") in list_readings("a reward", "y")
    assert varies(value, {})
    engine = ScriptedEngine(RESPONSES, {})
    made = sampler(engine, Reward(name="r", outcome=value), (20,))
    inputs = made.reward_inputs([QUESTION] * 2, engine.generate([], None))
    assert inputs.features["waits"].tolist() == [[0, 1]]
    made.queue.close()


@pytest.mark.usefixtures("waits")
def test_a_new_word_is_given_by_hand(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("waits.reo").write_text(WAITS)
    hand = ("reward", "waits.reo", "waits", "--length", "10,20", "--correct", "yes,no")
    assert call(*hand) == 1
    assert "reads `waits(y)`" in capsys.readouterr().err
    assert call(*hand, "--given", "waits=2,3", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [each["sections"][0]["reward"] for each in told["responses"]] == [0.8, pytest.approx(-0.3)]


def test_a_reward_reads_whether_a_response_ended(tmp_path: Path) -> None:
    engine = ScriptedEngine(RESPONSES, {})
    made = sampler(engine, Reward(name="r", outcome=Attribute(of="y", field="ended")), (20,))
    one, other = engine.generate([], None)
    inputs = made.reward_inputs([QUESTION] * 2, [one, other.as_unfinished()])
    assert inputs.features["ended"].tolist() == [[1, 0]]
    made.queue.close()
    spec = "reward r {\n correct(y) if ended(y) else 0\n}\n"
    assert [each.code for each in findings(spec, tmp_path)] == ["E0215"]


TEXTS = """reward told(scale: number = 10, none: number = -1) {
 let length = number(y, "so.*?([0-9]+)", empty: none)
 metric waits = matches(thinking(y), "wait")
 metric answers = answered(y)
 correct(y) - length / scale + (0.5 if matches(answer(y), "^8$") else 0)
}
"""


def test_a_reward_reads_texts_and_whether_there_is_an_answer(tmp_path: Path) -> None:
    """The first waits after its thinking; the second has no box; the last has no number, and thinks to its end."""
    path = tmp_path / "spec.reo"
    path.write_text(TEXTS)
    rule = choose_reward(str(path), "told").reward
    assert rule is not None
    assert expression_text(rule.lets[0].value) == 'number(y, "so.*?([0-9]+)", empty: -1)'
    assert expression_text(rule.metrics[0].value) == 'matches(thinking(y), "wait")'
    told = ["a b so wait \\boxed{ 8 } <eos>", "wait a so 7 <eos>", "a wait"]
    made = sampler(ScriptedEngine(told, {}), rule, (20,), rollouts=3, marks=Thinking(close="so"))
    found = made.sample([QUESTION], 0).inputs
    assert vectorise(rule, found, None, None).ravel().tolist() == pytest.approx([0 - 0.8 + 0.5, -0.7, 0.1])
    logged = vectorise_metrics(rule, found, None, None)
    assert {name: values.ravel().tolist() for name, values in logged.items()} == {
        "waits": [0, 1, 1],
        "answers": [1, 0, 0],
    }


def test_every_word_that_a_reward_knows_has_its_number_and_a_line() -> None:
    known = {name for name, each in READINGS.items() if "a reward" in each.bodies and not each.text}
    assert known == {*READERS, *ANSWERS, "mode", "thinking"}
    assert {name for name, each in READINGS.items() if each.graded and not each.text} == set(ANSWERS)
    # Responses of `ref` have `reference_features`, in which `READERS` puts nothing.
    assert {name for name, each in READINGS.items() if each.sampled} == {"thinking"}
    assert set(list_readings("a reward", "y")) <= set(REWARD_WORDS)
