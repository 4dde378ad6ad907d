"""One model spread over two processes of a real server, as `tensor_parallel` says, which gets weights and answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reodsl.graph.job import Resources
from runners.engine.open import open_engine
from runners.engine.protocol import TokenSampling
from runners.engine.sglang.engine import SGLangEngine
from tests.engine.engine_reference import STOP, engine_of, make_model, make_requests

GREEDY = TokenSampling(12, temperature=0.0, stop_ids=(STOP,))


@pytest.mark.sglang
@pytest.mark.heavy
@pytest.mark.usefixtures("python")
def test_a_model_in_two_parts_answers_as_a_whole_one(folder: Path, served_model: Any, tmp_path: Path) -> None:
    requests = make_requests(5, 2, seed=1)
    wide = open_engine(folder, replace(Resources(engine="sglang"), tensor_parallel=2), 100, tmp_path, 0.0)
    assert isinstance(wide, SGLangEngine)
    try:
        for version, model in enumerate((served_model, make_model("qwen3-gqa-tied", seed=5))):
            if version:
                wide.load_weights(model.state_dict(), version)
                assert wide.fleet.way == "tensor"
            told = [each.tokens for each in wide.generate(requests, GREEDY)]
            assert told == [each.tokens for each in engine_of(model).generate(requests, GREEDY)]
    finally:
        wide.close()
