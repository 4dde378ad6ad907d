"""What may be written at places of the quickstart, as it is and while it is being typed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from reodsl.ir.kinds import DECLARED, KINDS
from reodsl.language.modules import list_library, parse_cached
from reodsl.lsp.analysis import analyse, list_findings
from reodsl.lsp.complete import Completion, completions
from reodsl.lsp.hints import hints
from reodsl.lsp.meaning import meaning
from tests.lsp.quickstart import TEXT, at, opened


def offered(text: str) -> list[Completion]:
    """What is offered at the `|` of a text."""
    place = at(text, "|")
    return list(completions(opened(text.replace("|", "")), *place))


def labels(found: list[Completion]) -> set[str]:
    return {each.label for each in found}


def test_kinds_stand_at_the_top() -> None:
    found = labels(offered(TEXT + "\nexp|"))
    assert found == {*DECLARED, "param", "from"}


def test_settings_of_the_block_that_it_does_not_have_yet() -> None:
    found = offered(TEXT.replace("  epochs      = 1\n", "  |\n"))
    assert {"epochs", "kl", "advantage", "stages"} <= labels(found)
    assert not {"steps", "batch", "lr", "benchmarks"} & labels(found)
    epochs = next(each for each in found if each.label == "epochs")
    assert not epochs.best  # what it begins as has them
    assert not epochs.detail
    assert "passes over the batch of a step" in epochs.doc


def test_settings_of_another_method_are_not_offered_and_missing_ones_come_first() -> None:
    others = {
        name for name, field in KINDS["recipe"].fields.items() if field.methods and "ppo" not in field.methods
    }
    assert others
    assert not others & labels(offered(TEXT.replace("  epochs      = 1\n", "  |\n")))
    (source,) = (
        each for each in offered(TEXT + "\nmodel m { context = 8K tokens, | }") if each.label == "source"
    )
    assert (source.best, source.detail) == (True, "required")


def test_settings_of_a_nested_block_and_of_a_stage() -> None:
    assert "rollouts" in labels(offered(TEXT.replace("prompts = 32, rollouts = 8", "prompts = 32, r|")))
    assert "kl" in labels(offered(TEXT.replace("    steps   = 20 steps", "    k|")))
    assert labels(offered(TEXT.replace("table main   {", "table main { | ,"))) >= {"subset"}


@pytest.mark.parametrize(
    ("written", "value", "first", "library", "last"),
    [
        ("decay = ", "linear", {"constant", "linear"}, set(), {"five"}),
        ("eval        = ", "chain_suite", {"chain_suite"}, {"math_reg"}, {"chain_train", "seeds", "vanilla"}),
        # What a declaration can be made from.
        ("experiment vanilla    = ", "small", {"small", "ppo", "reo_exp"}, set(), {"outcome"}),
        ("reward = ", "outcome", {"outcome", "reo"}, {"laser"}, {"five", "small", "exp", "hub"}),
        (
            "checkpoint(",
            "overthinker",
            {"overthinker", "vanilla", "checkpoint"},
            {"qwen3_4b"},
            {"of", "five", "outcome"},
        ),
        (
            "checkpoint(",
            "shrink.stages",
            {"base", "vanilla", "overthinker"},
            {"qwen3_4b"},
            {"of", "chain_suite"},
        ),
        ("reo(at: ", "five", {"five", "exp", "greedy", "reached"}, set(), {"seeds", "outcome", "hub"}),
        (
            "data        = ",
            "chain_train",
            {"chain_train"},
            {"deepscaler"},
            {"five", "chain_suite", "outcome"},
        ),
    ],
)
def test_values_of_the_kind_come_first(
    written: str, value: str, first: set[str], library: set[str], last: set[str]
) -> None:
    """Those of the file come first, then those that an import brings, then all else."""
    ranks = {each.label: each.rank for each in offered(TEXT.replace(written + value, written + "|", 1))}
    for rank, wanted in enumerate((first, library, last)):
        assert {label: ranks.get(label) for label in wanted} == dict.fromkeys(wanted, rank)
    assert "eval" not in written or "small" not in ranks  # it would need itself


def test_names_inside_of_a_declaration() -> None:
    assert "cap" in labels(offered(TEXT.replace("max_tokens = cap", "max_tokens = c|")))
    assert {"base", "edge", "shrink_64"} <= labels(offered(TEXT.replace("lines = [base, ", "lines = [|, ")))


def test_arguments_of_functions_and_rewards() -> None:
    assert {"to", "n"} <= labels(offered(TEXT.replace("to: 128 tokens, n: n)", "|")))
    assert "alpha" in labels(offered(TEXT.replace("length_group_norm(alpha: 0.2)", "length_group_norm(|)")))


def test_modules_after_from_and_names_after_import() -> None:
    found = offered("from std.|\n" + TEXT)
    assert labels(found) >= {f"std.{name}" for name in list_library()}
    assert found[0].span.column == len("from ") + 1
    names = offered("from std.rewards import outcome, re|\n" + TEXT)
    assert {"reo", "outcome", "length_group_norm"} <= labels(names)
    assert names[0].span.column == len("from std.rewards import outcome, ") + 1
    assert offered("from std.nothing import |\n" + TEXT) == []


def test_files_beside_are_modules_and_those_outside_are_not_read(tmp_path: Path) -> None:
    spec = tmp_path / "in" / "spec.reo"
    for path, name in ((spec.with_name("common.reo"), "five"), (tmp_path / "secret.reo", "six")):
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"budgets {name} = exp(from: 1K tokens, to: 32K tokens, n: 5)\n")

    def here(text: str) -> set[str]:
        return labels(list(completions(analyse(spec, {spec: text}), 1, len(text) + 1)))

    assert ".common" in here("from .")
    assert here("from .common import ") == {"five"}
    assert here("from ..secret import ") == set()


@pytest.mark.parametrize(
    "text", ["# exp|\n", 'param t: text = "ex|"\n', "budgets fi|\n", "budgets a = shrink.st|\n"]
)
def test_nothing_in_comments_texts_new_names_and_members(text: str) -> None:
    assert offered(text) == []


def test_every_place_of_the_quickstart_has_an_answer() -> None:
    analysis = opened()
    for number, line in enumerate(TEXT.split("\n"), 1):
        for column in range(1, len(line) + 2, 7):
            names = [each.label for each in completions(analysis, number, column)]
            assert len(names) == len(set(names))


REWARD = """
reward own(at: budgets, cost: number in 0..1) {
  let mu = mean(len(z) for z in group)
  VALUE
  let later = 1
}
"""


def in_reward(value: str) -> list[Completion]:
    return offered(TEXT + REWARD.replace("VALUE", value))


@pytest.mark.parametrize("value", ["|", "correct(y) - |", "let a = |", "let a = mean(|"])
def test_a_reward_knows_its_scope(value: str) -> None:
    found = in_reward(value)
    first = {each.label for each in found if each.best}
    assert {"mu", "at", "cost", "y", "group", "ref", "x"} <= first
    assert "later" not in labels(found)  # it stands below
    assert {"correct", "len", "mean", "std", "trapezoid", "sigmoid"} <= labels(found)
    assert {"n", "five"} <= labels(found)  # a param's number, and budgets
    # Nothing else of the file is a number, and no function that makes data or models.
    assert not {"vanilla", "small", "chain_train", "hub", "checkpoint"} & labels(found)
    correct = next(each for each in found if each.label == "correct")
    assert "1 where it is right" in correct.doc


def test_what_can_be_run_over_in_a_reward() -> None:
    among = {"group", "ref", "batch", "history", "y", "truth", "answer"}
    assert labels(in_reward("mean(len(z) for z in |)")) == among
    in_track = in_reward("track a = mean(len(z) for z in |)")
    assert labels(in_track) == {"group", "ref", "steps", "monitor"}
    assert "the least length that 20% do not exceed" in next(
        each.doc for each in in_track if each.label == "monitor"
    )
    found = labels(in_reward("dense L in |"))
    assert {"at", "five"} <= found
    assert not {"mu", "group", "correct", "vanilla"} & found


def test_a_metric_is_for_tracks_below_it() -> None:
    above, track = "metric spread = std(len(z) for z in group)", "track usual = max(usual + |"
    assert "spread" in labels(in_reward(f"{above}\n  {track}"))
    assert "spread" not in labels(in_reward(f"{track}\n  {above}"))
    assert "spread" not in labels(in_reward(f"{above}\n  let a = |"))


@pytest.mark.parametrize("value", ["let |", "mean(len(z) for |", "dense |"])
def test_a_new_name_in_a_reward_is_the_users(value: str) -> None:
    assert not {"mu", "y", "correct"} & labels(in_reward(value))


def test_a_statement_of_a_reward_or_a_selection_may_be_a_let() -> None:
    assert "let" in labels(in_reward("|"))
    found = labels(offered(TEXT + "\nselection own {\n  |\n}\n"))
    assert {"let", "trace", "preferred", "where", "pick", "group", "len", "argmin"} <= found


@pytest.mark.parametrize("at_", range(0, len(REWARD.replace("VALUE", "correct(y) - cost * len(y) / mu")), 4))
def test_a_half_typed_reward_is_answered(at_: int) -> None:
    text = TEXT + REWARD.replace("VALUE", "correct(y) - cost * len(y) / mu")[:at_]
    analysis = opened(text)
    line, column = text.count("\n") + 1, len(text) - text.rfind("\n")
    completions(analysis, line, column)
    meaning(analysis, line, column)
    assert hints(analysis, 1, line)[0].text == " 4, 8, 16, 32, 64, 128 tokens"
    assert list_findings(analysis) is not None


def test_what_is_typed_again_costs_what_has_changed(calls: Callable[[Callable[[], object]], int]) -> None:
    """The library is parsed once in a server's life, so an answer after a key is of the file alone."""
    parse_cached.cache_clear()
    first = calls(lambda: completions(opened(TEXT), 10, 3))
    again = calls(lambda: completions(opened(TEXT + "# more\n"), 10, 3))
    assert again < 0.6 * first


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("std.|", {"models", "paper", "recipes"}),
        ("std.models.|", {"qwen3_4b", "deepseek_7b"}),
        ("vanilla.|", {"stages", "steps", "optim", "reward"}),
        ("vanilla.optim.|", {"lr", "decay"}),
        ("chain_suite.|", {"samples", "grid"}),
        ("nothing.|", set()),
        ("5.|", set()),
    ],
)
def test_what_follows_a_point(value: str, found: set[str]) -> None:
    offers = labels(offered(TEXT + f"\nexperiment mine = vanilla {{ steps = {value} }}\n"))
    assert offers >= found
    assert not {"vanilla", "exp", "true"} & offers
    assert bool(offers) == bool(found)


def test_names_of_the_library_that_fit_bring_their_import() -> None:
    text = "from std.recipes import ppo\nsuite s { benchmarks = [a|] }\n"
    found = {each.label: each for each in offered(text)}
    aime = found["aime24"]
    assert aime.import_edit is not None
    assert (aime.detail, aime.import_edit.text, aime.import_edit.span.line) == (
        "benchmark of std.suites", "from std.suites import aime24\n", 2,
    )  # fmt: skip
    assert "qwen3_4b" not in found
    known = {
        each.label: each
        for each in offered(text.replace("import ppo", "import ppo\nfrom std.suites import aime24"))
    }
    assert known["aime24"].import_edit is None
    assert known["aime24"].best
    assert known["amc23"].import_edit.text == ", amc23"


def test_snippets_of_declarations_compile_into_what_they_need(tmp_path: Path) -> None:
    """Each has its required settings, and names nothing that its kind does not have."""
    snippets = {each.label: each.snippet for each in offered(TEXT + "\nm|") if each.snippet}
    assert {"model", "suite", "cluster", "benchmark"} <= set(snippets)
    for kind, snippet in snippets.items():
        text = re.sub(r"\$\{\d+:(.*)\}", r"\1", snippet).replace("$0", "")
        assert text.startswith(f"{kind} name {{\n")
        found = {each.code for each in list_findings(analyse(tmp_path / "s.reo", {tmp_path / "s.reo": text}))}
        assert not found & {"E0101", "E0203", "E0304"}, (kind, text, found)


def test_tracks_and_metrics_of_the_reward_follow_its_name() -> None:
    lines = "track warm = min(1, step / 100 steps)\n  metric far = len(y)\n  let a = 1\n  correct(y) * a"
    text = f"{TEXT}\nreward r {{\n  {lines}\n}}\nexperiment mine = vanilla {{\n  reward = r\n  kl = reward.|\n}}\n"
    assert labels(offered(text)) == {"warm", "far"}
