"""What words of the quickstart mean, and where they were defined."""

from __future__ import annotations

import pytest

from reodsl.lsp.analysis import analyse
from reodsl.lsp.meaning import meaning
from tests.lsp.quickstart import PATH, TEXT, at, opened

HERE = str(PATH)


@pytest.mark.parametrize(
    ("words", "offset", "says", "where"),
    [
        (
            "lr = 5e-4",
            0,
            ["learning rate", "above 0 and at most 1", "`0.0005`", "replaces `5e-6`"],
            "std/recipes.reo",
        ),
        (
            "max_tokens = 128",
            0,
            ["number of tokens", "required", "`128 tokens`", "`32K tokens`"],
            "std/recipes.reo",
        ),
        ("decay_from = 50%", 0, ["default `0.0`", "share of the steps"], HERE),
        ("= small { reward = outcome }", 2, ["**recipe** `small`"], HERE),
        (
            "eval        = chain_suite",
            15,
            ["**suite** `chain_suite`", "Held-out questions"],
            "std/miniature.reo",
        ),
        ("import outcome, reo", 7, ["**reward** `outcome`"], "std/rewards.reo"),
        ("from std.rewards", 10, ["**std.rewards**", "Rewards of the paper"], "std/rewards.reo"),
        ("reo(at: five)", 0, ["**reward** `reo`(at: budgets)", "trapezoid"], "std/rewards.reo"),
        ("reo(at: five)", 4, ["at: budgets"], "std/rewards.reo"),
        ("reo(at: five)", 8, ["**budgets** `five`", "4, 8, 16, 32, 64, to 128 tokens"], HERE),
        ("replicate = seeds", 12, ["**param** `seeds`", "[int] = [1]"], HERE),
        ("= cap }", 2, ["**variable** `cap`"], HERE),
        ("halve(from", 0, ["**halve**"], None),
        ("halve(from", 6, ["**from**", "number of tokens"], None),
        ("decay = linear", 8, ["`linear`: after the warm-up"], None),
        ("study quickstart", 0, ["**study**: Arms that are evaluated alike"], None),
        ("arm shrink_64", 0, ["**arm**: A checkpoint with a name"], None),
    ],
)
def test_a_word_means_and_was_defined(words: str, offset: int, says: list[str], where: str | None) -> None:
    found = meaning(opened(), *at(TEXT, words, offset))
    assert found is not None
    for each in says:
        assert each in found.text
    assert (found.definition.path if found.definition else None) == where


def test_an_arm_is_made_from_the_experiment_and_then_meant_by_its_name() -> None:
    behind = meaning(opened(), *at(TEXT, "arm vanilla    = vanilla", 17))
    assert behind is not None
    assert behind.definition is not None
    assert (behind.definition.line, behind.definition.column) == at(TEXT, "experiment vanilla ", 11)
    used = meaning(opened(), *at(TEXT, "lines = [base, vanilla", 9))
    assert used is not None
    assert used.definition is not None
    assert (used.definition.line, used.definition.column) == at(TEXT, "arm base ", 4)


@pytest.mark.parametrize(("words", "offset"), [("# budgets below", 4), ("5e-4", 1), ("\nbudgets five", 0)])
def test_where_no_word_is_nothing_is_said(words: str, offset: int) -> None:
    assert meaning(opened(), *at(TEXT, words, offset)) is None


def test_a_setting_is_explained_in_a_file_that_does_not_parse() -> None:
    text = TEXT.replace("steps       = 40 steps", "steps       = 40 steps )")
    found = meaning(opened(text), *at(text, "lr = 5e-4"))
    assert found is not None
    assert "learning rate" in found.text


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("len(y)", "its length in tokens"),
        ("correct(y)", "1 where it is right"),
        ("mean(len", "over the responses to the question"),
        ("group)", "over the responses to the question"),
        ("y) -", "the response"),
        ("sigmoid(", "functions of numbers"),
    ],
)
def test_words_of_a_reward_are_explained(word: str, says: str) -> None:
    text = "reward r {\n  correct(y) - sigmoid(len(y) / mean(len(z) for z in group))\n}\n"
    line = text.split("\n")[1]
    found = meaning(analyse(PATH, {PATH: text}), 2, line.index(word) + 1)
    assert found is not None
    assert says in found.text


def test_a_reward_shows_its_formula() -> None:
    found = meaning(opened(), *at(TEXT, "reo(at: five)", 0))
    assert found is not None
    assert "```reo\n{" in found.text
    assert "trapezoid(L) * correct(answer(y[:L]))" in found.text
    assert found.text.count("weighted by the trapezoid rule") == 1
    plain = meaning(opened(), *at(TEXT, "= small { reward = outcome }", 2))
    assert plain is not None
    assert "```" not in plain.text


def test_named_arguments_of_a_reward_and_their_words_are_explained() -> None:
    text = TEXT + (
        "\nreward newer {\n"
        "  track price = clip(price + mean(len(z) for z in steps(1 step), empty: 9 tokens) / 9 tokens, 0, 1, start: 0)\n"
        "  let sure = mean(prob(t, under: teacher) for t in y)\n"
        "  z(sure - price) + z(thinking(y) / 40 tokens, on: thinking)\n}\n"
    )
    for words, offset, says in (
        ("empty: 9", 0, "empty: 1K tokens"),
        ("start: 0)", 0, "its own value at the step before"),
        ("under: teacher", 0, "log-probabilities under the stage's `teacher`"),
        ("under: teacher", 7, "log-probabilities under the stage's `teacher`"),
        ("on: thinking", 0, "each part is normalised over the group"),
        ("z(sure", 0, "each part is normalised over the group"),
    ):
        found = meaning(opened(text), *at(text, words, offset))
        assert found is not None
        assert says in found.text
    # `z` is also the variable of statistics, which hundreds of forms have.
    found = meaning(opened(text), *at(text, "z(sure", 0))
    assert found is not None
    assert found.text.count("\n- ") == 1


def test_a_setting_without_a_name_for_its_value_says_what_it_is() -> None:
    found = meaning(opened(), *at(TEXT, "base        = checkpoint", 0))
    assert found is not None
    assert "value: a checkpoint (" in found.text
