"""The cost of a plan grows with its arms, not with their square: counted in function calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.scale import study
from reodsl.graph.lower import lower
from reodsl.language import compile_file
from reodsl.plan.render import to_text
from reodsl.plan.verdict import Keys, make_plan
from reodsl.price import price
from reodsl.store.store import Store


def plan(path: Path) -> str:
    compiled = compile_file(str(path))
    assert compiled.spec is not None
    graph = lower(compiled.spec)
    store = Store(path.parent / "none")
    made = make_plan(compiled.spec, graph, store, Keys(store, path.parent))
    return to_text(made, prices=price(graph, compiled.spec))


@pytest.mark.slow
def test_planning_twice_as_many_arms_takes_about_twice_the_work(
    tmp_path: Path, calls: Callable[[Callable[[], object]], int]
) -> None:
    plans = {arms: tmp_path / f"many{arms}.reo" for arms in (4, 20, 40, 80)}
    counted = {}
    for arms, path in plans.items():
        path.write_text(study(arms))
        # The first fills caches.
        counted[arms] = calls(lambda path=path: plan(path))  # type: ignore[misc]
    first, second = counted[40] - counted[20], counted[80] - counted[40]
    assert second < 2.2 * first
    assert second / 40 < 20_000


def test_a_long_plan_shows_its_start_and_how_many_tasks_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "many.reo"
    path.write_text(study(60))
    lines = plan(path).splitlines()
    shown = [line for line in lines if line.startswith("  + ")]
    (left_out,) = [line for line in lines if line.endswith(" more tasks to do (--all shows them)")]
    assert len(shown) == 100
    compiled = compile_file(str(path)).spec
    assert compiled is not None
    assert len(shown) + int(left_out.split()[0]) == len(lower(compiled).tasks)
