"""The outline, and hints beside the text: units of lets, numbers behind names, budgets and the weights of a reward."""

from __future__ import annotations

from pathlib import Path

from reodsl.lsp.analysis import analyse
from reodsl.lsp.hints import OutlineSymbol, hints, symbols
from reodsl.numbers.budgets import Schedule, trapezoid
from tests.lsp.quickstart import PATH, TEXT, opened


def shown(text: str) -> dict[str, str]:
    """What stands before each hint on its line, and the hint."""
    lines = text.split("\n")
    return {
        lines[each.line - 1][: each.column - 1].strip(): each.text for each in hints(opened(text), 1, 999)
    }


def test_budgets_weights_and_numbers_of_the_quickstart() -> None:
    found = shown(TEXT)
    budgets = (4, 8, 16, 32, 64)
    weights = ", ".join(f"{each:g}" for each in trapezoid(Schedule(budgets, 128)))
    assert weights == "4, 6, 12, 24, 48, 32"  # as the README's plan has them
    assert found == {
        "budgets five = exp(from: 4 tokens, to: 128 tokens, n: n)": " 4, 8, 16, 32, 64, 128 tokens",
        "experiment reo_exp    = small { reward = reo(at: five)": f" = weights {weights}",
        # A stage for each value.
        "rollout { max_tokens = cap": " = 64 tokens, 32 tokens",
    }


def test_thousands_of_tokens_are_1024_each_and_others_1000() -> None:
    text = TEXT.replace("max_prompt  = 32 tokens", "max_prompt = 2K tokens\n  limit = 4K gpu_hours")
    found = shown(text)
    assert found["max_prompt = 2K tokens"] == " = 2,048 tokens"
    assert found["limit = 4K gpu_hours"] == " = 4,000 gpu_hours"


def test_a_param_shows_its_number_where_it_is_used() -> None:
    text = TEXT.replace("param seeds", "param taken: steps = 40 steps\nparam seeds", 1)
    text = text.replace("steps       = 40 steps", "steps = taken")
    assert shown(text)["steps = taken"] == " = 40 steps"


def test_lets_of_a_reward_have_units(tmp_path: Path) -> None:
    path = tmp_path / "own.reo"
    text = (
        "reward own(longest: tokens in 1 token..1K tokens) {\n"
        "  let mu = mean(len(z) for z in group)\n"
        "  let share = mu / longest\n"
        "  let area = mu * longest\n"
        "  correct(y) - share + 0 * area / (longest * longest)\n"
        "}\n"
    )
    found = hints(analyse(path, {path: text}), 1, 99)
    assert [(each.line, each.column, each.text) for each in found] == [
        (2, len("  let mu") + 1, ": tokens"),
        (4, len("  let area") + 1, ": tokens^2"),
    ]


def test_only_the_lines_that_are_asked_for() -> None:
    every = hints(opened(), 1, 999)
    (line,) = {each.line for each in every if "weights" in each.text}
    assert [each.text for each in hints(opened(), line, line)] == [" = weights 4, 6, 12, 24, 48, 32"]


def test_a_text_with_mistakes_has_what_can_be_known() -> None:
    broken = TEXT.replace("reward = outcome }", "reward = outcom }", 1)
    assert " 4, 8, 16, 32, 64, 128 tokens" in shown(broken).values()
    assert hints(opened("budgets b = exp("), 1, 9) == ()


def test_the_outline_holds_declarations_within_declarations() -> None:
    main = analyse(PATH, {PATH: TEXT}).program.main
    assert main is not None
    found = {each.name: each for each in symbols(main.module.items)}
    assert (found["n"].kind, found["small"].kind) == ("param", "recipe")
    study = found["quickstart"]
    assert isinstance(study, OutlineSymbol)
    assert [each.name for each in study.children][:2] == ["base", "vanilla"]
    report = study.children[-1]
    assert (report.name, [each.name for each in report.children]) == ("report", ["main", "curves"])
    assert study.span.line <= study.name_span.line <= study.children[0].span.line <= study.span.end_line
