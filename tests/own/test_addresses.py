"""Models and servers behind addresses: nobody is asked without leave, and none before `run`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import reodsl
from reodsl.graph.lower import lower
from reodsl.store.external import Fingerprints, resolve_sources
from tests.bad_input.commands import Place, refused

SERVED = """
from std.miniature import chain_model, chain_suite, chain_train
from std.recipes import ppo
from std.rewards import outcome

model behind = chain_model {
  source = served("tiny", address: "http://127.0.0.1:9/v1", tokenizer: folder("tok"), key: "SERVER_KEY", MORE)
}
study there { eval = chain_suite, ARM }
"""


def test_a_served_model_is_evaluated_with_leave_and_trained_never(
    place: Place, refusal: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(arm: str = "arm base = checkpoint(behind)", more: str = "at_once: 2") -> None:
        place.write(SERVED.replace("ARM", arm).replace("MORE", more))

    small = "rollout { max_tokens = 64 tokens }, max_prompt = 32 tokens, steps = 1 steps"
    write(f"arm mine = ppo {{ base = checkpoint(behind), data = chain_train, reward = outcome, {small} }}")
    told = place.call("check", "tiny.reo")
    refused(told, "E0311", "tiny.reo:9", "`mine` would train `behind`, which is a model behind an address")
    write()
    told = place.call("plan", "tiny.reo", "--json")
    price = json.loads(told.out)["price"]
    assert price["requests"] > 96 * 2 * 3
    assert price["sent_tokens"] > price["requests"]
    assert not price["unpriced"]
    told = place.run("--allow-served")
    assert set(told.findings()) == {"E0833", "E0803"}
    assert "`$SERVER_KEY` is not set" in told.err
    monkeypatch.setenv("SERVER_KEY", "s3cret")
    told = place.run()
    refusal("own/E0749-served.txt", told.err.split("\n\n")[0] + "\n")
    told = place.run("--allow-served")
    refused(told, "E0803", "tok", "the folder has no tokenizer.json")

    def keys() -> list[Any]:
        tasks = lower(reodsl.load("tiny.reo").spec).tasks
        folder, prints = place.folder, Fingerprints(place.folder / "none")
        return [
            resolve_sources(t, t.payload, folder, prints) for t in tasks if t.kind in ("model", "evaluate")
        ]

    before = keys()
    assert "127.0.0.1" not in json.dumps(before)
    assert "SERVER_KEY" not in json.dumps(before)
    write(more="at_once: 9, seconds: 5 seconds, retries: 1")
    assert keys() == before
    write(more='revision: "step-2"')
    assert keys() != before


ADDRESSES = {
    "http://server.example/v1": False,
    "http://127.0.0.1.example/v1": False,
    "http://127.0.0.1@server.example/v1": False,
    "https://me:secret@server.example/v1": False,
    "https://server.example/v1?key=1": False,
    "https://server.example/v1#": False,
    "file:///etc/passwd": False,
    "https://server.example/v1\n": False,
    "https://server.example:8443/a/v1/": True,
    "http://localhost:30000": True,
    "http://[::1]:30000/v1": True,
    "https://[2001:db8::1]/v1": True,
}


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_is_encrypted_or_of_this_machine_and_holds_no_secret(address: str, place: Place) -> None:
    text = SERVED.replace("ARM", "arm base = checkpoint(behind)").replace("MORE", "at_once: 2")
    place.write(text.replace("http://127.0.0.1:9/v1", address.replace("\n", "\\n")))
    told = place.call("check", "tiny.reo")
    assert (told.code == 0) is ADDRESSES[address], told
    assert ADDRESSES[address] or "https://HOST/PATH, or http:// on this machine" in told.err
