"""Write docs/METHODS.md from the docstrings of the library: `python docs/site/methods.py`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from reodsl.syntax import parse, read_source

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "stdlib"
PAGE = ROOT / "docs" / "METHODS.md"
HEAD = """\
# Methods

`reodsl new mine.reo --method NAME` writes a study that compares a method with vanilla RL on the miniature, and
`--model qwen3_4b` with Qwen3-4B. A method is data: no runner knows one by its name. To change it, edit the spec, or
start from a formula ([rewards](REWARDS.md)). This page is generated from the docstrings of the library
(`python docs/site/methods.py`).

## By name
"""
PAPER = """
## The paper's tables

[`specs/paper/`](../specs/paper) has the paper's models and sizes, and [`specs/miniature/`](../specs/miniature) the
same methods on a small model: only the model, data, lengths, batch, steps, learning rate and forcing differ. Three
rows need another arm, so they are arms of a study:

| row | budgets |
| --- | --- |
| REO-RL (Oracle) | `greedy(frontier)` |
| REO-RL (Q-Spec) | `question_min(rollouts)`: each question's shortest prefix that is right as often as the response |
| Task-Specific-Hard | the same budgets with `first_budget_alone` |

Q-Spec reads the rollouts of the named arms. A question without a budget is rewarded at the longest response, or
dropped with `unsolved: drop`. The paper has no `kl`; L1, ThinkPrune and HGPO have 0.001.
"""


class Method(NamedTuple):
    """A method of the library: its name, what it does, its source, and what to know of its values and differences."""

    name: str
    does: str
    source: str
    details: list[str]


def docstrings(module: str) -> dict[str, list[str]]:
    """Return the paragraphs of each docstring of a module by the name of what has it; the module's own by ''."""
    tree = parse(read_source(LIBRARY / f"{module}.reo", f"std/{module}.reo")).module
    docs = {"": tree.doc, **{item.name.name: item.doc for item in tree.items}}
    return {name: list(map(join, (doc or "").strip().split("\n\n"))) for name, doc in docs.items()}


def rows_of(module: str) -> list[list[str]]:
    """Return the items of the list in a module's docstring, each cut at its first two colons."""
    tree = parse(read_source(LIBRARY / f"{module}.reo", f"std/{module}.reo")).module
    items = (tree.doc or "").split("\n- ")[1:]
    return [join(item).split(": ", 2) for item in items]


def list_methods() -> list[Method]:
    """Return the experiments of `std.runs_miniature`, each with the docstring of its reward or selection."""
    text = (LIBRARY / "runs_miniature.reo").read_text("utf-8")
    does = docstrings("runs_miniature")
    parts = {module: docstrings(module) for module in ("methods", "rewards", "selections")}
    methods = []
    for name, source, *differs in rows_of("runs_miniature"):
        body = re.search(rf"^experiment {name} .*?^}}", text, re.M | re.S)
        assert body is not None, f"std.runs_miniature has no {name}"
        used = re.search(r"std\.(methods|rewards|selections)\.(\w+)", body[0])
        details = parts[used[1]][used[2]] if used and used[2] != "outcome" else []
        methods.append(Method(name, does[name][0], source, details + [_sentence(each) for each in differs]))
    return methods


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def join(text: str) -> str:
    """Return a paragraph on one line."""
    return " ".join(text.split())


def page_text() -> str:
    """Return the whole page."""
    methods = list_methods()
    head, _, others, _ = docstrings("methods")[""]
    rows = [f"| `--method {each.name}` | {each.does} | {each.source} |" for each in methods]
    parts = [HEAD, "| command | what it does | source |", "| --- | --- | --- |", *rows, PAPER]
    parts += ["## By settings or a formula\n", f"{others}\n", "| method | write |", "| --- | --- |"]
    parts += [f"| {method} | {': '.join(write)} |" for method, *write in rows_of("methods")]
    parts += ["", "## Values and differences\n", f"{head}\n"]
    for each in methods:
        if each.details:
            parts += [f"### {each.name}\n", *(f"{detail}\n" for detail in each.details)]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page_text(), "utf-8")
