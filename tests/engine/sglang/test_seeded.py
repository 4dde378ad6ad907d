"""A real server without deterministic kernels: what it draws follows the requests' seeds, whatever runs beside them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from reodsl.graph.job import Resources
from runners.engine.open import open_engine
from runners.engine.protocol import Generation, Request, TokenSampling
from runners.engine.sglang.engine import SGLangEngine
from runners.engine.sglang.messages import Draft
from runners.engine.sglang.rounds import PendingRequest, PrefixCacheStats, RequestLoop
from tests.engine.engine_reference import STOP, make_requests
from tests.engine.sglang.conftest import LONGEST

pytestmark = [pytest.mark.sglang, pytest.mark.heavy]

KINDS = (
    TokenSampling(24, stop_ids=(STOP,)),
    TokenSampling(24, temperature=0.0, stop_ids=(STOP,)),
    TokenSampling(24, temperature=0.7, top_p=0.8, top_k=9, stop_ids=(STOP,)),
)


@pytest.fixture(scope="module")
def seeded(python: Path, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SGLangEngine]:
    """The engine as a cluster with `determinism = seeded` has it."""
    aside = tmp_path_factory.mktemp("seeded")
    made = open_engine(folder, Resources(engine="sglang", determinism="seeded"), LONGEST, aside, 0.0)
    assert isinstance(made, SGLangEngine)
    yield made
    made.close()


def tokens(responses: list[Generation]) -> list[tuple[int, ...]]:
    return [response.tokens for response in responses]


def test_a_seed_gives_the_same_tokens_again_and_another_seed_others(seeded: SGLangEngine) -> None:
    requests = make_requests(6, 2, seed=2)
    others = [Request(request.prompt, request.seed + 1) for request in requests]
    whole = KINDS[0]
    assert tokens(seeded.generate(requests, whole)) == tokens(seeded.generate(requests, whole))
    assert tokens(seeded.generate(others, whole)) != tokens(seeded.generate(requests, whole))


@pytest.mark.parametrize("sampling", KINDS, ids=["whole", "greedy", "cut"])
def test_it_draws_what_a_server_with_exact_kernels_draws(
    engine: SGLangEngine, seeded: SGLangEngine, sampling: TokenSampling
) -> None:
    """On one thread of a processor the kernels are the same, so that what is left to differ is how draws are made."""
    requests = make_requests(6, 2, seed=9)
    assert tokens(seeded.generate(requests, sampling)) == tokens(engine.generate(requests, sampling))


def test_rows_of_a_batch_are_drawn_by_their_own_kind(seeded: SGLangEngine) -> None:
    """Requests of all three kinds at once, against each kind alone."""
    requests = make_requests(6, 2, seed=12)
    alone = [tokens(seeded.generate(requests, sampling)) for sampling in KINDS]
    works = [
        PendingRequest(index, request, 0, Draft(request, sampling))
        for index, (request, sampling) in enumerate(itertools.product(requests, KINDS))
    ]
    asyncio.run(RequestLoop(works, seeded.fleet.servers, 64, None, PrefixCacheStats()).run())
    together = [work.response.tokens for work in works if work.response is not None]
    assert [together[at :: len(KINDS)] for at in range(len(KINDS))] == alone
