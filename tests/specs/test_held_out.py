"""Held out means held out: of every spec on a small model, no benchmark's question is in anything that is trained on."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path

import pytest

from reodsl.graph.lower import lower
from reodsl.graph.task import Graph
from reodsl.ir import canonical_json
from reodsl.ir.data import Data
from reodsl.language import compile_file
from runners.data.load import load_data

ROOT = Path(__file__).resolve().parents[2]
SPECS = [
    ROOT / "specs" / "quickstart.reo",
    *sorted((ROOT / "specs" / "miniature").glob("*.reo")),
    ROOT / "specs" / "smollm2_reo_exp.reo",
]


@cache
def asked(declared: str) -> frozenset[str]:
    """What the real questions of a declaration ask: the numbers with their signs, in their order."""
    data = Data.model_validate_json(declared)
    questions = load_data(data, ROOT)["question"]
    return frozenset(" ".join(numbers(question)) for question in questions)


def numbers(question: str) -> list[str]:
    """The start and the operations of a chain, after its `<q>`; or the terms and signs of a sum."""
    chain = question.split("<q> ")
    if len(chain) == 2:
        return re.findall(r"[+-]?\d", chain[1])
    (expression,) = re.findall(r"-?\d+(?: [-+] -?\d+)+", question)
    return str(expression).split()


def trained_on(graph: Graph, task_id: str) -> set[str]:
    """Every `data` task that this one or any before it learns from, samples for a pool, or finds budgets of questions on.

    Budgets of the Oracle are found on a frontier of the benchmarks: that is the paper's method.
    """
    found = set[str]()
    for source in graph[task_id].inputs.values():
        if graph[source].kind == "data":
            found.add(source)
        elif graph[source].kind != "frontier":
            found |= trained_on(graph, source)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("path", SPECS, ids=[path.stem for path in SPECS])
def test_no_question_of_a_benchmark_is_trained_on(path: Path) -> None:
    # A file of two studies has one of its own name.
    spec = compile_file(path).spec or compile_file(path, target=path.stem).spec
    assert spec is not None
    graph = lower(spec)
    pairs = set[tuple[str, str]]()
    for task in graph.tasks:
        if task.kind == "evaluate":
            judged = [source for role, source in task.inputs.items() if role.startswith("data:")]
            before = trained_on(graph, task.inputs["start"])
            pairs |= {(source, one) for source in before for one in judged}
    assert pairs
    if path.stem == "smollm2_reo_exp" and importlib.util.find_spec("reasoning_gym") is None:
        pytest.skip("reasoning-gym is not installed")
    tables = {name: canonical_json(graph[name].payload["data"]) for pair in pairs for name in pair}
    for source, one in pairs:
        shared = asked(tables[source]) & asked(tables[one])
        assert not shared, f"{len(shared)} of `{one}` are in `{source}`"
