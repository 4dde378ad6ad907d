"""Whose runners are taken: those of this package, unless a person names another; none for being installed."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from reodsl.diagnostics import Problem
from reodsl.plan.registry import Registry, load_registry


@dataclass
class Shipped:
    name: str


@dataclass
class Point:
    dist: Shipped
    value: str = "theirs:REGISTRY"

    def load(self) -> Registry:
        return Registry({"data": self.dist.name}, lambda *asked: (), lambda run: None)  # type: ignore[arg-type,return-value]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[Point]:
    points: list[Point] = []
    monkeypatch.setattr("reodsl.plan.registry.metadata.entry_points", lambda group: tuple(points))
    monkeypatch.delenv("REODSL_RUNNERS", raising=False)
    return points


def test_ours_are_taken_whatever_stands_before_them(installed: list[Point]) -> None:
    installed += [Point(Shipped("aaa-attack")), Point(Shipped("reodsl")), Point(Shipped("zzz"))]
    assert load_registry().runners == {"data": "reodsl"}


def test_others_are_taken_by_name_alone(installed: list[Point], monkeypatch: pytest.MonkeyPatch) -> None:
    installed += [Point(Shipped("Other_Runners"))]
    with pytest.raises(Problem) as caught:
        load_registry()
    (found,) = caught.value.diagnostics
    assert found.code == "E0121"
    assert "other-runners" in found.notes[0]
    monkeypatch.setenv("REODSL_RUNNERS", "other-runners")
    assert load_registry().runners == {"data": "Other_Runners"}
    monkeypatch.setenv("REODSL_RUNNERS", "nobody")
    with pytest.raises(Problem, match="`nobody` provides no runners"):
        load_registry()
