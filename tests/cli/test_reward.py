"""`reodsl reward`: the tables that it prints, numbers worked out by hand, and what it needs to be told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.called import SPECS, call

OWN = """reward short(alpha: number = 0.5) {
  let longest = max(len(z) for z in group)
  correct(y) - alpha * len(y) / max(longest, 1 tokens)
}
"""
HAND = ("--length", "10,20", "--correct", "yes,no")
GROUP = ("--group", "group.json")
Said = Callable[..., str]


def write_group(forced: dict[int, list[bool]] | None = None, **more: object) -> None:
    """Write the responses of `HAND` as a file, with verdicts by cut and more of the group."""
    responses = [
        {
            "length": length,
            "correct": length == 10,
            "forced": {cut: each[i] for cut, each in (forced or {}).items()},
        }
        for i, length in enumerate((10, 20))
    ]
    Path("group.json").write_text(json.dumps({"responses": responses, **more}))


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.reo").write_text(OWN)
    Path("priced.reo").write_text("reward priced(cost: number) { correct(y) - cost }\n")
    Path("quickstart.reo").write_text((SPECS / "quickstart.reo").read_text())


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """What `reodsl reward …` prints; what it refuses with where `code` says so."""

    def run(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        assert call("reward", *arguments) == code
        out, err = capsys.readouterr()
        assert (out == "") == (code == 1), err
        return err if code else out

    return run


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("outcome", ("own.reo", *HAND)),
        ("dense", ("quickstart.reo", "reo_exp", *GROUP)),
        ("parts", ("own.reo", "std.rewards.hgpo", *HAND, "--given", "mode=0,1")),
    ],
)
def test_tables(
    name: str, arguments: tuple[str, ...], said: Said, golden: Callable[[str, str], None]
) -> None:
    write_group({4: [False, False], 8: [False, True], 16: [False, False]})
    golden(f"commands/reward_{name}.txt", said(*arguments))


def test_numbers_by_hand(said: Said) -> None:
    found = json.loads(said("own.reo", "short(alpha: 1)", *HAND, "--json"))
    one, two = found["responses"]
    assert one["lets"] == {"longest": 20.0}
    assert [each["sections"][0]["reward"] for each in (one, two)] == [0.5, -1.0]
    # Two values that differ are one deviation above and below their mean.
    assert [each["sections"][0]["advantage"] for each in (one, two)] == pytest.approx([1.0, -1.0])
    assert (one["sections"][0]["tokens"], one["sections"][0]["at"]) == (10, None)


def test_an_experiment_brings_its_settings(said: Said) -> None:
    amend = ("--amend", "vanilla.advantage.normalise=center")
    found = json.loads(said("quickstart.reo", "vanilla", *HAND, *amend, "--json"))
    assert (found["experiment"], found["advantage"]["normalise"]) == ("vanilla", "center")
    assert [each["sections"][0]["advantage"] for each in found["responses"]] == [0.5, -0.5]


def test_a_bound_cuts_advantages_and_is_told(said: Said) -> None:
    spec = Path("quickstart.reo").read_text()
    Path("bounded.reo").write_text(
        spec + "\nexperiment bounded = vanilla {\n  advantage { bound = 0.5 }\n}\n"
    )
    arguments = ("bounded.reo", "bounded", "--length", "4,8,8", "--correct", "yes,no,no")
    # Uncut: sqrt(2), and -sqrt(1/2) twice.
    assert "cut at -0.5 and 0.5" in said(*arguments)
    found = json.loads(said(*arguments, "--json"))
    assert found["advantage"]["bound"] == 0.5
    assert [each["sections"][0]["advantage"] for each in found["responses"]] == [0.5, -0.5, -0.5]


def test_parts_are_normalised_over_the_batch_where_all_tokens_earn_them(said: Said) -> None:
    """Both responses have z-scores 1 and -1 of each part; over 10 tokens of 2 and 20 of -2 their mean is -2/3."""
    parts = "reward both {{ z(correct(y)) + z(len(y) <= 10 tokens{on}) }}\n"
    made = (
        "from std.runs_miniature import vanilla\n"
        "experiment it = vanilla { reward = both, advantage { batch = true }, batch { rollouts = 2 } }\n"
    )
    Path("own.reo").write_text(made + parts.format(on=""))
    found = json.loads(said("own.reo", "it", *HAND, "--json"))["responses"]
    deviation = ((10 * (2 + 2 / 3) ** 2 + 20 * (-2 + 2 / 3) ** 2) / 30) ** 0.5
    assert [each["response_advantage"] for each in found] == pytest.approx(
        [(2 + 2 / 3) / deviation, (-2 + 2 / 3) / deviation]
    )
    assert "of a prefix" not in said("own.reo", "it", *HAND)
    Path("own.reo").write_text(made + parts.format(on=", on: prefix"))
    shown = said("own.reo", "it", *HAND)
    assert "of a prefix" in shown
    assert shown.endswith(
        "z-scored over the group (population deviation), before training z-scores them over all tokens of the step\n"
    )


def test_reference_and_splits_are_given(said: Said) -> None:
    harmonizing = "std.rewards.length_harmonizing(gamma: 2)"
    write_group(reference=[{"length": 30, "correct": True}, {"length": 50, "correct": False}])
    found = json.loads(said("own.reo", harmonizing, *GROUP, "--json"))
    # 40 tokens and an accuracy of one half: 40 / 10 - 1 + 2 * 0.5, and 40 / 20 - 1 - 2 * 0.5.
    assert [each["sections"][0]["reward"] for each in found["responses"]] == [4.0, 0.0]
    write_group(reference=[{"length": 30, "correct": True, "thinking": 20}])
    Path("thinks.reo").write_text("reward r { correct(y) - mean(thinking(z) for z in ref) / 40 tokens }\n")
    found = json.loads(said("thinks.reo", "r", *GROUP, "--json"))
    assert [each["sections"][0]["reward"] for each in found["responses"]] == [0.5, -0.5]
    write_group(reference=[{"length": 30, "correct": True}])
    refused = said("thinks.reo", "r", *GROUP, code=1)
    assert "reads `thinking(z)` of `ref`" in refused
    mrt = 'std.rewards.mrt(at: steps(separator: "\\n", keywords: ["wait"]), alpha: 1)'
    responses = [
        {"length": 10, "correct": True, "splits": [5, 10], "forced": {"0": False, "5": False}},
        {"length": 20, "correct": False, "forced": {"0": False}},
    ]
    Path("group.json").write_text(json.dumps({"responses": responses, "splits": [20]}))
    one, two = json.loads(said("own.reo", mrt, *GROUP, "--json"))["responses"]
    assert [section["reward"] for section in one["sections"]] == [1.0, 2.0]
    assert [section["tokens"] for section in two["sections"]] == [20]


def test_an_outcome_over_splits_says_where_they_are(said: Said) -> None:
    Path("own.reo").write_text("reward r(at: budgets) {\n  mean(correct(answer(y[:M])) for M in at)\n}\n")
    write_group({5: [False, True], 12: [True, True]})
    text = said("own.reo", "r(at: [5 tokens, 20 tokens])", *GROUP)
    assert "splits = 5, 20 tokens" in text
    # The first is wrong at 5 tokens and right at its end, the second right and then wrong.
    found = json.loads(said("own.reo", "r(at: [5 tokens, 20 tokens])", *GROUP, "--json"))
    assert [each["sections"][0]["reward"] for each in found["responses"]] == [0.5, 0.5]
    text = said("own.reo", "r(at: reached([5 tokens, 12 tokens, 20 tokens]))", *GROUP)
    assert "splits of response 1 = 5, 10 tokens\nsplits of response 2 = 5, 12, 20 tokens" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("own.reo", "short(alpha: 1)", *HAND, *GROUP), "--length and --correct and --group give two groups"),
        (("own.reo", "--length", "10,20,30", "--correct", "yes,no"), "--correct has 2 values for 3 responses"),
        (("own.reo", "--length", "10", "--correct", "maybe"), "'maybe' is neither yes nor no"),
        (("own.reo", "--length", "0", "--correct", "yes"), "responses.0.length: input should be greater than 0"),
        (("own.reo", "--group", "absent.json"), "absent.json"),
        (("own.reo", "--group", "odd.json"), "responses.0.correct: field required"),
        (("own.reo", "--group", "odd.json"), "responses.0.splits: value error, splits must rise"),
        (("own.reo", *GROUP), "`short` has no splits"),
        (("own.reo", "std.rewards.l1_exact", *HAND), "--given budget=…"),
        (("own.reo", "std.rewards.length_harmonizing(1)", *HAND), '"reference": […]` in a group file'),
        (("own.reo", 'std.rewards.mrt(at: steps(separator: ".", keywords: ["so"]))', *HAND), "ends of its reasoning"),
        (("own.reo",), "missing: --length and --correct"),
        (("own.reo", "shrot", *HAND), "did you mean `short`?"),
        (("priced.reo", *HAND), "write `priced(cost: …)`"),
        (("priced.reo", "priced()", *HAND), "write `priced(cost: …)`"),
        (("own.reo", "2", *HAND), "is neither a reward nor an experiment"),
        (("absent.reo", *HAND), "absent.reo"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said(arguments: tuple[str, ...], words: str, said: Said) -> None:
    write_group(splits=[4, 8])
    Path("odd.json").write_text('{"responses": [{"length": 10, "splits": [8, 4]}]}')
    told = said(*arguments, code=1)
    assert words in told
    assert told.count("error[") == 1


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (f'"length": 1{"0" * 309}', "length: input should be less than or equal to 9007199254740992"),
        (f'"length": 9, "thinking": 1{"0" * 309}', "thinking: input should be less"),
        (f'"length": 9, "forced": {{"{"9" * 9000}": true}}', "…"),
        ('"length": 9, "length": 7', "`length` is listed twice"),
        ('"length": 9, "bare": {"8": true, "08": false}', "a cut is listed twice"),
    ],
)
def test_a_group_file_has_numbers_that_are_exact_and_given_once(row: str, words: str, said: Said) -> None:
    Path("group.json").write_text(f'{{"responses": [{{{row}, "correct": true}}]}}')
    told = said("own.reo", *GROUP, code=1)
    assert words in told
    assert len(told) < 300


MOVING = """reward moving {
  track pressure = clip(step / 100 steps, 0, 1)
  track usual = mean(len(z) for z in steps(20 steps), empty: 40 tokens)
  correct(y) - pressure * len(y) / max(usual, 1 tokens)
}
reward priced_by_track {
  track price = clip(price + 0.5 * (mean(len(z) for z in steps(1 step), empty: 10 tokens) / 10 tokens - 1), 0, 1, start: 0.1)
  correct(y) - price
}
reward hungry {
  correct(y) * x.level / max(x.hardness, 1) + mode(y) - mean(correct(z) for z in ref) + 0.5 * python("style.py:score", y)
}
reward cutting {
  correct(answer(y[:4 tokens])) + correct(answer(y[:6 tokens])) + correct(y[:8 tokens])
}
"""


def test_a_reward_is_tried_after_steps_and_at_values_of_its_tracks(said: Said) -> None:
    Path("moving.reo").write_text(MOVING)

    def rewards(*more: str) -> list[float]:
        found = json.loads(said("moving.reo", "moving", *HAND, *more, "--json"))
        return [each["sections"][0]["reward"] for each in found["responses"]]

    # The mean length is 15: of two responses of 10 and 20 tokens the first is right.
    assert rewards() == [1, 0]
    assert rewards("--given", "step=50") == pytest.approx([1 - 0.5 * 10 / 15, -0.5 * 20 / 15])
    assert rewards("--given", "step=500") == pytest.approx([1 - 10 / 15, -20 / 15])
    assert rewards("--given", "step=50", "--given", "usual=40") == pytest.approx(
        [1 - 0.5 * 10 / 40, -0.5 * 20 / 40]
    )
    assert rewards("--given", "pressure=1", "--given", "usual=2") == [1 - 5, -10]
    text = said("moving.reo", "moving", *HAND, "--given", "step=50", "--given", "usual=40")
    assert "from this group alone after 50 steps" in text
    assert "track usual = 40, from --given" in text


def test_a_track_that_reads_itself_is_at_its_start_and_a_step_later(said: Said) -> None:
    """Of 10 and 20 tokens the mean is half as much again as 10."""
    Path("moving.reo").write_text(MOVING)

    def price(*given: str) -> tuple[float, str]:
        facts = json.loads(said("moving.reo", "priced_by_track", *HAND, *given, "--json"))
        assert facts["responses"][0]["sections"][0]["reward"] == pytest.approx(1 - facts["tracks"]["price"])
        return facts["tracks"]["price"], said("moving.reo", "priced_by_track", *HAND, *given)

    (first, at_first), (later, after) = price(), price("--given", "step=3")
    assert (first, later, price("--given", "price=0.7")[0]) == (0.1, pytest.approx(0.35), 0.7)
    assert "0, 1, start: 0.1) = 0.1, its start" in at_first
    assert "= 0.35, one step after its start, from this group alone" in after


@pytest.mark.parametrize(
    ("reward", "given", "words"),
    [
        ("moving", ("stpe=3",), ("`moving` reads no `stpe`", "did you mean `step`?")),
        ("moving", ("budget=3",), ("reads no `budget`", "it reads `pressure`, `step`, `usual`")),
        ("moving", ("step=3,4",), ("`step` has one value in a step", "write `--given step=3`")),
        ("moving", ("step=-1",), ("is a whole number of steps, not -1", "--given step=20")),
        ("moving", ("usual=3", "usual=4"), ("names `usual` twice",)),
        ("hungry", ("step=3",), ("`hungry` reads no `step`",)),
        ("cutting", ("level=3",), ("`cutting` reads no `level`", "it reads none")),
        (
            "hungry",
            (),
            (
                'reads `x.hardness`, and `x.level`, and `mode(y)`, and `python("style.py:score", y)`, and `ref`',
                "`--given hardness=…`; `--given level=…`; `--given mode=…`; `--given style.py:score=…`; ",
                '`"reference": […]` in a group file',
            ),
        ),
        ("hungry", ("level=1", "hardness=2", "mode=0"), ("`hungry` reads `python(", "and `ref`")),
        (
            "cutting",
            (),
            (
                "reads the forced answer at 4, 6 tokens, and the bare answer at 8 tokens",
                '`"forced": {"4": true}` of each response in a group file; `"bare": {"8": true}`',
            ),
        ),
    ],
)
def test_what_is_given_is_read_and_all_that_is_missing_is_named(
    reward: str, given: tuple[str, ...], words: tuple[str, ...], said: Said
) -> None:
    Path("moving.reo").write_text(MOVING)
    refused = said("moving.reo", reward, *HAND, *(f"--given={each}" for each in given), code=1)
    assert refused.count("error[E0123]") == 1
    for each in words:
        assert each in refused


def test_a_reward_that_is_no_number_is_shown_and_refused(capsys: pytest.CaptureFixture[str]) -> None:
    endless = ("--length", "10", "--correct", "no", "--given", "budget=1e308")
    assert call("reward", "own.reo", "std.rewards.l1_exact(alpha: 1000000)", *endless, "--json") == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["responses"][0]["sections"][0]["reward"] is None
    assert "error[E0920]" in err


CODED = """from std.miniature import overthinker, chain_suite
from std.recipes import ppo

data asked {
  source   = file("questions.jsonl")
  verifier = python("checks.py:check")
}

reward coded {
  let own = python("style.py:score", y, seconds: 1 seconds)
  correct(y) + 0.5 * own - mean(python("style.py:score", z, seconds: 1 seconds) for z in group)
}

experiment it = ppo {
  base        = checkpoint(overthinker)
  data        = asked
  reward      = coded
  batch       { prompts = 2, rollouts = 2 }
  rollout     { max_tokens = 32 tokens }
  max_prompt  = 32 tokens
  minibatches = 1
  epochs      = 1
  steps       = 2 steps
  optim       { lr = 1e-3 }
  eval        = chain_suite
}
"""


@pytest.mark.parametrize("what", ["coded", "it"])
def test_values_stand_for_code_and_verdicts_that_nobody_is_asked_for(what: str, said: Said) -> None:
    """Neither file is there: a reward is tried on what is given."""
    Path("coded.reo").write_text(CODED)
    found = json.loads(said("coded.reo", what, *HAND, "--given", "style.py:score=0.8,0.2", "--json"))
    rewards = [each["sections"][0]["reward"] for each in found["responses"]]
    assert rewards == pytest.approx([1 + 0.5 * 0.8 - 0.5, 0.5 * 0.2 - 0.5])
    assert found["responses"][1]["given"] == {"style.py:score": 0.2}
    told = said("coded.reo", what, *HAND, code=1)
    assert 'reads `python("style.py:score", y)`' in told
    assert "give `--given style.py:score=…`" in told
