"""One real SGLang server for all tests that need one; without SGLang they are skipped, or fail where they must not be."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reodsl.graph.job import Resources
from runners.engine.open import open_engine
from runners.engine.sglang.engine import SGLangEngine
from runners.engine.sglang.server import Server
from runners.engine.sglang.settings import find_interpreter
from runners.models.folder import save
from runners.models.tokenizer import word_tokenizer
from tests.engine.engine_reference import VOCAB, make_model, train

LONGEST = 160


@pytest.fixture(scope="session")
def python() -> Path:
    """A Python with SGLang."""
    found = find_interpreter()
    if found is None:
        told = "SGLang is not installed here: run `make sglang`"
        if os.environ.get("REODSL_REQUIRE_SGLANG"):
            pytest.fail(told)
        pytest.skip(told)
    return found


@pytest.fixture(scope="session")
def served_model() -> Any:
    """A model with sharp distributions, as training leaves them."""
    return train(make_model("qwen3-gqa-tied"), 120)


@pytest.fixture(scope="session")
def folder(served_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That model as a checkpoint."""
    place = tmp_path_factory.mktemp("served") / "checkpoint"
    save(served_model, word_tokenizer([f"w{i}" for i in range(5, VOCAB)]), place)
    return place


@pytest.fixture(scope="session")
def engine(python: Path, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SGLangEngine]:
    """The engine as training opens it, on one server for the whole session, with a key such as one in 64 is."""
    aside = tmp_path_factory.mktemp("sglang")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "token_urlsafe", lambda length: "-" + "k" * length)
        made = open_engine(folder, Resources(engine="sglang"), LONGEST, aside, 0.0)
    assert isinstance(made, SGLangEngine)
    yield made
    made.close()


@pytest.fixture
def server(engine: SGLangEngine) -> Server:
    """The process behind the engine."""
    host = engine.fleet.hosts[0]
    assert isinstance(host, Server)
    return host


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port that something else listens on."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]
