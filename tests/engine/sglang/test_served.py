"""An SGLang server of somebody else, evaluated over `/v1/completions`."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from reodsl.ir.model import Folder, ServedModel
from reodsl.store.manifest import read_record
from runners.engine.embedded import EmbeddedEngine
from runners.engine.protocol import ForcingPlan, Limits, Request, TokenSampling
from runners.engine.served import ServedEngine
from runners.engine.sglang.settings import LAUNCHER, Settings
from runners.models.folder import load_config
from tests.engine.engine_reference import VOCAB
from tests.engine.sglang.conftest import LONGEST

pytestmark = pytest.mark.sglang
PATIENCE = 600


@pytest.fixture(scope="module")
def address(python: Path, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that has its own tokenizer and a key."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = Settings(model=folder, context=LONGEST, token_bytes=256)
    words = [each for each in settings.arguments("127.0.0.1", port) if each != "--skip-tokenizer-init"]
    words += ["--served-model-name", "tiny", "--api-key", "s3cret"]
    log = tmp_path_factory.mktemp("plain") / "log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [python, "-P", LAUNCHER, *words],
            env=settings.environment(os.environ, ""),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        for _ in range(PATIENCE):
            assert server.poll() is None, log.read_text()[-3000:]
            try:
                if httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code == 200:
                    break
            except httpx.HTTPError:
                pass
            time.sleep(1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, 9)
        server.wait()


def test_it_answers_as_the_same_model_here(
    address: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Greedy responses and forced answers are the embedded engine's, token by token; seeds repeat what they drew."""
    monkeypatch.setenv("PLAIN_KEY", "s3cret")
    source = ServedModel(
        model="tiny", address=address, tokenizer=Folder(path="tok"), key="PLAIN_KEY", at_once=4
    )
    served = ServedEngine(source, lambda text: [], str, Limits(LONGEST, VOCAB), tmp_path, bool)
    here = EmbeddedEngine(load_config(folder), folder)
    requests = [Request(tuple(5 + (3 * at + each) % 40 for each in range(6)), at) for at in range(6)]
    greedy = TokenSampling(24, 0.0, stop_ids=(1,), logprobs=False)
    short, forcing = TokenSampling(3, 0.0, stop_ids=(1,), logprobs=False), (7, 8)
    cuts = [(0, 5, 16)] * len(requests)
    try:
        made = served.generate(requests, greedy, ForcingPlan(lambda at, response: cuts[at], forcing, short))
        wanted = here.generate(requests, greedy)
        assert [(each.tokens, each.finish) for each in made] == [
            (each.tokens, each.finish) for each in wanted
        ]
        asked = here.force(requests, wanted, cuts, forcing, short)
        assert served.force(requests, made, cuts, forcing, short) == asked
        drawn = TokenSampling(24, 1.0, stop_ids=(1,), logprobs=False)
        again = [served.generate(requests, drawn) for _ in range(2)]
        assert again[0] == again[1]
        assert len({each.tokens for each in again[0]}) > 1
        assert read_record(tmp_path) == {}
    finally:
        served.close()
