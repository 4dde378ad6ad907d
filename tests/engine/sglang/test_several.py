"""Two real servers behind one engine: the answers of one, weights to both, and one killed while both answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reodsl.graph.job import Resources
from runners.engine.open import open_engine
from runners.engine.protocol import ForcingPlan, TokenSampling
from runners.engine.sglang.engine import SGLangEngine
from runners.engine.sglang.server import Server
from tests.engine.engine_reference import STOP, engine_of, make_model, make_requests

pytestmark = [pytest.mark.sglang, pytest.mark.heavy]

GREEDY = TokenSampling(24, temperature=0.0, stop_ids=(STOP,))
WHOLE = TokenSampling(60)
FORCING = (11, 3)


def test_two_servers_answer_as_one(
    python: Path, served_model: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = make_requests(20, 4, seed=2)
    ahead = ForcingPlan(lambda _, __: (0, 27), FORCING, GREEDY)
    cuts = [[0, 27]] * len(requests)
    two = open_engine(folder, Resources(engine="sglang", engines=2), 160, tmp_path)
    assert isinstance(two, SGLangEngine)
    try:
        first, second = two.fleet.hosts
        assert isinstance(first, Server)
        assert isinstance(second, Server)
        with monkeypatch.context() as alone:
            alone.setattr("runners.engine.sglang.engine._assign_servers", lambda asked, *_: [0] * len(asked))
            wanted = two.generate(requests, WHOLE, ahead)
            answers = two.force(requests, wanted, cuts, FORCING, GREEDY)
        other = make_model("qwen3-gqa-tied", seed=7)
        two.load_weights(other.state_dict(), 7)
        found = two.generate(make_requests(6, 1, seed=1), GREEDY)
        assert {one.weight_versions for one in found} == {(7,)}
        assert {work.server for work in two._made.values()} == {0, 1}
        plain = engine_of(other).generate(make_requests(6, 1, seed=1), GREEDY)
        assert [one.tokens for one in found] == [one.tokens for one in plain]

        two.load_weights(served_model.state_dict(), 1)
        found = two.generate(requests, WHOLE, ahead)
        assert two.force(requests, found, cuts, FORCING, GREEDY) == answers
        again = two.generate(requests, WHOLE)
        assert {work.server for work in two._made.values()} == {0, 1}
        assert [one.tokens for one in again] == [one.tokens for one in wanted]
        assert {one.weight_versions for one in again} == {(1,)}
    finally:
        two.close()
