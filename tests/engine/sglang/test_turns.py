"""An engine and a trainer in turn on the same devices: what a real server is told, in which order, and what it answers."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch

from reodsl.graph.job import Resources
from runners.engine.open import open_engine
from runners.engine.protocol import ForcingPlan, Generation, TokenSampling
from runners.engine.sglang.control import ServerGroupClient
from runners.engine.sglang.engine import SGLangEngine
from runners.engine.sglang.server import Server
from runners.models.folder import save
from runners.models.tokenizer import word_tokenizer
from runners.train.batch import TrainBatch
from runners.train.stages import batch_loss
from runners.train.update import Learner, optimizer_step
from tests.engine.engine_reference import STOP, VOCAB, engine_of, make_requests

pytestmark = pytest.mark.sglang

GREEDY = TokenSampling(24, temperature=0.0, stop_ids=(STOP,))
WHOLE = TokenSampling(24, stop_ids=(STOP,))
ANSWER = TokenSampling(4, temperature=0.0, stop_ids=(STOP,))
CUTS = (0, 5, 9)

GIVEN_BACK = ["/pause_generation abort", "/flush_cache", "/release_memory_occupation kv_cache weights"]
TAKEN = ["/resume_memory_occupation kv_cache", "/continue_generation"]
SENT = ["/begin_weight_update", "/update_weights_from_tensor", "/end_weight_update"]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What servers are told besides requests, in order."""
    found: list[str] = []
    ask = ServerGroupClient.ask

    def recorded(
        own: ServerGroupClient,
        path: str,
        message: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *others: Any,
        **more: Any,
    ) -> None:
        # One for all servers, or one for each.
        one = message if isinstance(message, Mapping) else message[0]
        words = [path.partition("?")[0], *one.get("tags", ()), one.get("mode", "")]
        found.append(" ".join(word for word in words if word))
        ask(own, path, message, *others, **more)

    monkeypatch.setattr(ServerGroupClient, "ask", recorded)
    return found


@pytest.fixture
def served(engine: SGLangEngine, served_model: Any) -> Iterator[SGLangEngine]:
    """The session's engine with the first weights, and left so."""
    engine.load_weights(served_model.state_dict(), 50)
    yield engine
    engine.load_weights(served_model.state_dict(), 60)


def rollouts(engine: Any, sampling: TokenSampling) -> tuple[list[Generation], list[list[tuple[int, ...]]]]:
    """Responses, and answers forced at cuts of them."""
    requests = make_requests(6, 2, seed=3)
    responses = engine.generate(requests, sampling, ForcingPlan(lambda _, __: CUTS, (11, 3), ANSWER))
    forced = engine.force(requests, responses, [CUTS] * len(requests), (11, 3), ANSWER)
    return responses, [[one.tokens for one in own] for own in forced]


def trained(model: Any, responses: list[Generation]) -> Any:
    """The model after a step on what was sampled, and nothing left of the step's gradients."""
    moved = copy.deepcopy(model)
    learner = Learner.of(moved, [torch.optim.SGD(moved.parameters(), lr=1.0)], 0.0)
    one = responses[0].tokens
    batch = TrainBatch.of([(5, 6)], [one])
    batch = replace(batch, weights=batch.weights / len(one))
    optimizer_step(learner, batch, batch_loss, 1.0, "the step")
    learner.weights()
    assert all(p.grad is None for p in moved.parameters())
    return moved


def test_memory_is_given_back_and_taken_again_around_new_weights(
    served: SGLangEngine, served_model: Any, told: list[str]
) -> None:
    """Weights before they are sent, keys and values after; and the answers are those of the new weights."""
    before, answers = rollouts(served, GREEDY)
    assert answers == rollouts(engine_of(served_model), GREEDY)[1]
    served.release()
    assert told == GIVEN_BACK
    told.clear()
    moved = trained(served_model, before)
    served.load_weights(moved.state_dict(), 51)
    assert told == ["/resume_memory_occupation weights", *SENT, *TAKEN]
    after, answers = rollouts(served, GREEDY)
    wanted, forced = rollouts(engine_of(moved), GREEDY)
    assert [r.tokens for r in after] == [r.tokens for r in wanted] != [r.tokens for r in before]
    assert answers == forced
    assert {r.weight_versions for r in after} == {(51,)}
    found = np.concatenate([r.logprobs for r in after]) - np.concatenate([r.logprobs for r in wanted])
    assert np.abs(found).max() < 1e-4


def test_a_request_of_someone_else_is_ended_before_memory_goes(
    served: SGLangEngine, server: Server, served_model: Any
) -> None:
    """A server that gave its memory back with a request open would end."""
    assert server.process is not None
    pid, address = server.process.pid, served.fleet.servers[0]
    message = {
        "input_ids": [5, 6],
        "sampling_params": {"max_new_tokens": 140, "ignore_eos": True},
        "stream": True,
    }
    with (
        httpx.Client(headers=address.headers, trust_env=False, timeout=60) as client,
        client.stream("POST", f"{address.url}/generate", json=message) as stream,
    ):
        lines = stream.iter_lines()
        assert next(lines).startswith("data: {")
        served.release()
        assert [line for line in lines if line][-1] == "data: [DONE]"
    served.load_weights(served_model.state_dict(), 52)
    assert (server.alive, server.process.pid) == (True, pid)
    assert rollouts(served, GREEDY)[1] == rollouts(engine_of(served_model), GREEDY)[1]


@pytest.mark.heavy
def test_answers_are_those_of_a_fresh_server_with_the_new_weights(
    served: SGLangEngine, served_model: Any, tmp_path: Path
) -> None:
    """Tokens and forced answers exactly; the last bits of log-probabilities depend on
    what else is read at the same time, which is a matter of time.
    """
    before, _ = rollouts(served, WHOLE)
    moved = trained(served_model, before)
    save(moved, word_tokenizer([f"w{i}" for i in range(5, VOCAB)]), tmp_path / "moved")
    fresh = open_engine(tmp_path / "moved", Resources(engine="sglang"), 160, tmp_path / "logs")
    try:
        responses, wanted = rollouts(fresh, WHOLE)
    finally:
        fresh.close()
    served.release()
    served.load_weights(moved.state_dict(), 53)
    found, answers = rollouts(served, WHOLE)
    assert [r.tokens for r in found] == [r.tokens for r in responses]
    apart = np.concatenate([r.logprobs for r in found]) - np.concatenate([r.logprobs for r in responses])
    assert np.abs(apart).max() < 1e-5
    assert answers == wanted
