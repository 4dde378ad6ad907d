"""A verdict is read from JSON as it was written, under the names that arms have now."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reodsl.numbers.verdict import Common, Verdict
from reodsl.numbers.verdict_file import from_json, to_json
from tests.numbers.test_verdict import judged


def read(verdict: Verdict, *names: Any) -> Verdict:
    return from_json(json.loads(json.dumps(to_json(verdict), allow_nan=False)), *names)


@pytest.mark.parametrize("seeds", [1, 3])
def test_what_is_read_is_what_was_written(seeds: int) -> None:
    verdict = judged(seeds, common={frozenset(("one", "twin")): Common(5, 9)})
    assert read(verdict) == verdict
    assert any(pair.common == Common(5, 9) for pair in read(verdict).pairs)


def test_arms_have_the_names_of_now_everywhere() -> None:
    verdict = read(judged(3), {"one": "first", "vanilla": "plain"})
    assert set(verdict.arms) == {"base", "plain", "first", "twin"}
    assert verdict.baseline == "plain"
    pairs = (*verdict.pairs, *verdict.tied, *verdict.against_baseline)
    assert {arm for pair in pairs for arm in (pair.one, pair.two)} == set(verdict.arms)
    assert set(verdict.leaders) <= set(verdict.arms)


@pytest.mark.parametrize("data", [None, [], {}, {"arms": 3}, {"tied": [{}]}, "text"])
def test_anything_else_is_no_verdict(data: Any) -> None:
    with pytest.raises(ValueError, match="this is no verdict"):
        from_json(data)


def test_a_verdict_with_another_key_is_no_verdict() -> None:
    with pytest.raises(ValueError, match="this is no verdict"):
        from_json(to_json(judged(1)) | {"new": 1})
