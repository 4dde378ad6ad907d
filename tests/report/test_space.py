"""Charts under a limit of address space: told, where V8 would end the process."""

from __future__ import annotations

import resource
from collections.abc import Callable

import pytest

from reodsl.diagnostics import Problem
from reodsl.report.drawing import require_space


def test_a_limit_of_address_space_is_told(
    monkeypatch: pytest.MonkeyPatch, refusal: Callable[..., None]
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (8 << 30, resource.RLIM_INFINITY))
    with pytest.raises(Problem) as caught:
        require_space()
    refusal("report/E0985.txt", caught.value)


def test_without_one_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY,) * 2)
    require_space()
