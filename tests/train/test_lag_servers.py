"""Rollouts beside training from servers that are stood in for: which weights they have, and one that dies."""

from __future__ import annotations

import hashlib

import polars as pl
import pytest

from reodsl.graph.job import Resources
from reodsl.ir.expression import Length
from reodsl.ir.reward import Reward
from runners.engine.protocol import Limits
from runners.engine.sglang import rounds, weights
from runners.engine.sglang.control import explain_loss
from runners.engine.sglang.engine import SGLangEngine
from runners.engine.sglang.server import Address
from runners.engine.sglang.settings import Settings
from runners.machine.process import ProcessDied
from runners.train import ppo_stage
from tests.engine.sglang.test_fleet import Told
from tests.train.conftest import Stopped
from tests.train.test_lag import lagging
from tests.train.test_train import same

APART = Resources(engine="sglang", disaggregated=True)
VOCABULARY = 20


class Stood:
    """Two servers: what weights each was sent, and tokens that are a function of seed, place and version."""

    def __init__(self, monkeypatch, dies_at=()):
        self.sent, self.versions, self.asked, self.dies_at = [], {}, 0, dies_at
        monkeypatch.setattr(ppo_stage, "open_engine", self.open)
        monkeypatch.setattr(weights, "broadcast", self.update)
        monkeypatch.setattr(rounds, "ask", self.reply)

    def open(self, folder, resources, longest, aside, *rest):
        settings = Settings(folder, context=96, token_bytes=64)
        hosts = [Told(Address(f"http://127.0.0.1:{port}", "")) for port in (1, 2)]
        self.engine = SGLangEngine(hosts, settings, Limits(96, VOCABULARY), aside)
        return self.engine

    def update(self, pieces, servers, ranks, version, aside):
        digest = hashlib.sha256()
        for _, tensor in pieces:
            digest.update(tensor.numpy().tobytes())
        self.sent.append((version, digest.hexdigest()))
        for server in servers:
            self.versions[server.url] = version

    async def reply(self, client, address, message, path="/generate"):
        self.asked += 1
        url = address.url
        if self.asked in self.dies_at:
            raise explain_loss(address, "gone")
        drawing, ids = message["sampling_params"], list(message["input_ids"])
        tokens = []
        for _ in range(drawing["max_new_tokens"]):
            said = f"{drawing['sampling_seed']} {len(ids)} {self.versions[url]}".encode()
            number = int.from_bytes(hashlib.sha256(said).digest()[:4], "big")
            # One token in eight ends a response.
            token = drawing["stop_token_ids"][0] if number % 8 == 0 else 3 + number % 9
            ids.append(token)
            tokens.append(token)
            if number % 8 == 0:
                break
        meta = {
            "output_token_logprobs": [[-2.0 - 0.01 * self.versions[url], token, None] for token in tokens],
            "weight_version": str(self.versions[url]),
        }
        return {"output_ids": tokens, "meta_info": meta}


@pytest.mark.slow
def test_a_stage_beside_servers_goes_on_to_the_same_bytes(bench, monkeypatch):
    """Stopped after two steps; and with a server that dies while the trainer changes its own weights."""
    stage, name = lagging(Reward(name="", outcome=Length(of="y")), save_every=1), "stood"
    servers = Stood(monkeypatch)
    whole = bench.train(stage, f"{name}_whole", start="base", data="questions", resources=APART)
    versions = pl.read_parquet(whole / "rollouts.parquet")
    oldest = versions.group_by("step").agg(pl.col("weight_versions").list.min().min()).sort("step")
    assert all(version < step for step, version in oldest.rows()[1:])
    assert [version for version, _ in servers.sent] == [0, 1, 2, 3]
    assert len({digest for _, digest in servers.sent}) == 4
    with pytest.raises(Stopped):
        bench.train(stage, name, start="base", data="questions", resources=APART, stop_at=2)
    same(whole, bench.train(stage, name, start="base", data="questions", resources=APART))

    dying = Stood(monkeypatch, dies_at=(30,))
    with pytest.raises(ProcessDied, match="ended: gone"):
        bench.train(stage, f"{name}_dying", start="base", data="questions", resources=APART)
    same(whole, bench.train(stage, f"{name}_dying", start="base", data="questions", resources=APART))
    # Steps that were saved are not made again, and the others by the same weights.
    assert set(dying.sent) == set(servers.sent[:4])
