"""`reodsl budgets EXPRESSION`: a schedule's budgets and weights, and how well they integrate a frontier."""

from __future__ import annotations

import click

from reodsl.cli.options import frontier_of, name_place
from reodsl.cli.output import print_json, show


@click.command(
    epilog="""\b
Examples:
  reodsl budgets 'exp(from: 1K tokens, to: 32K tokens, n: 5)'
  reodsl budgets 'linear(to: 32K tokens, n: 5)' --frontier std.paper.qwen3_4b
  reodsl budgets 'greedy(std.paper.qwen3_4b, to: 32K tokens, n: 5)' --json
  reodsl budgets '[1K tokens, 4K tokens, 16K tokens, 32K tokens]'
""",
)
@click.argument("expression")
@click.option(
    "--frontier", metavar="NAME_OR_FILE", help="Also say how far the trapezoid rule is off on this frontier."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print l_max, budgets, weights (and approximation_error)."
)
def command(expression: str, frontier: str | None, as_json: bool) -> None:
    """Token budgets of a schedule, and their trapezoid weights.

    EXPRESSION is what a spec writes after `budgets NAME =`. The last entry of a list is the longest response.
    """
    from reodsl.language import evaluate_budgets
    from reodsl.numbers.greedy import describe_schedule

    result = evaluate_budgets(expression)
    show(result.diagnostics, result.sources)
    if result.schedule is None:
        raise SystemExit(1)
    with name_place(frontier):
        facts = describe_schedule(result.schedule, None if frontier is None else frontier_of(frontier).curves)
    if as_json:
        print_json(facts)
        return
    budgets = [*facts["budgets"], facts["l_max"]]
    width = max(len(f"{value:g}") for value in [*budgets, *facts["weights"]])
    row = "  ".join
    click.echo(
        "Budgets  "
        + row(f"{value:>{width}g}" for value in budgets)
        + "   tokens; the last is the longest response"
    )
    click.echo("Weights  " + row(f"{value:>{width}g}" for value in facts["weights"]) + "   trapezoid")
    if "approximation_error" in facts:
        click.echo(f"On the frontier the sum is off by {facts['approximation_error']:+.3%}")
