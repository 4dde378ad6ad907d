"""A judge behind an address: nobody is asked before `run`, and not without leave; what of it is part of a result."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import reodsl
from reodsl.diagnostics import Diagnostic
from reodsl.graph.lower import lower
from reodsl.ir import Spec
from reodsl.ir.base import values_of
from reodsl.ir.data import Chance, Data, Grading, Judge, Python
from reodsl.ir.data import Tests as ByTests
from reodsl.plan.registry import Machine
from reodsl.price import price
from reodsl.rehearse import Size, StandIns, shrink
from reodsl.report.provenance import answers_read
from reodsl.run import run
from reodsl.store.consent import Destination, allow, consent_folder, destinations, is_allowed
from reodsl.store.external import Fingerprints, resolve_sources
from tests.bad_input.commands import SPEC, Place, refused
from tests.judging import Served, served

VERIFIER = 'judge("big", address: "ADDRESS")'


@pytest.fixture
def server() -> Iterator[Served]:
    """A judge who finds an answer right or wrong by its digest."""

    def says(request: dict[str, Any]) -> str:
        answer = json.loads(request["messages"][1]["content"])["answer"]
        return "yes" if hashlib.sha256(answer.encode()).digest()[0] % 2 else "no"

    with served(says) as there:
        yield there


def written(place: Place, address: str, verifier: str = VERIFIER) -> Path:
    text = SPEC.replace("verifier = exact", f"verifier = {verifier.replace('ADDRESS', address)}")
    return place.write(text)


def test_only_run_would_ask_it(place: Place, server: Served) -> None:
    written(place, server.address)
    for command in ("check", "plan", "graph", "why"):
        told = place.call(command, "tiny.reo", *(["tiny.train.s1"] if command == "why" else []))
        assert told.code in (0, 2), told
    place.call("diff", "tiny.reo", "tiny.reo")
    assert server.requests == []
    assert place.files() == {"tiny.reo"}


def test_run_asks_for_leave_and_says_what_to_type(place: Place, refusal: Callable[..., None]) -> None:
    written(place, "https://judge.example/v1", VERIFIER.replace(")", ', key: "JUDGE_KEY")'))
    told = place.run("--allow-judge")
    refused(told, "E0747", "https://judge.example/v1", "$JUDGE_KEY", "is not set")
    assert not consent_folder("judges").exists()
    written(place, "http://127.0.0.1:9/v1")
    told = place.run()
    refused(told, "E0749", "http://127.0.0.1:9/v1", "--allow-judge", "without a key")
    refusal("own/E0749.txt", told.err)
    assert not (place.folder / ".reodsl").exists()


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


class Heard:
    """A listener that ends a run once it has heard what is wrong."""

    class Enough(Exception):
        """The end of the run."""

    codes: tuple[str, ...] = ()

    def check(self, findings: tuple[Diagnostic, ...]) -> None:
        self.codes = tuple(each.code for each in findings)
        raise self.Enough


def test_servers_that_run_already_take_weights_with_leave_alone(
    place: Place, refusal: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REODSL_SGLANG_ADDRESS", "http://127.0.0.1:9/, http://127.0.0.1:10")
    place.write(SPEC)
    assert "E0749" not in place.run().findings(), "the spec's engine is the embedded one"
    place.write(SPEC.replace("= ppo {", "= ppo { engine = sglang,"))
    told = place.run()
    refusal("own/E0749-weights.txt", told.err.split("\n\n")[0] + "\n")
    assert "E0749" not in place.run("--allow-weights").findings()
    ready = reodsl.load("tiny.reo")._ready().for_run()
    for notes, asks in ((None, True), (place.folder, False)):
        heard = Heard()
        with pytest.raises(Heard.Enough):
            run(ready, ready.plan(), Machine(notes=notes), place.folder / "out", heard)
        # Stand-ins serve in a rehearsal on a cluster, and no weights go to others.
        assert ("E0749" in heard.codes) is asks
    for address in ("http://127.0.0.1:9", "http://127.0.0.1:10"):
        allow(Destination("", address, None, "weights"))
        assert not is_allowed(Destination("", address, None)), "leave to be overwritten is none to ask"
    assert "E0749" not in place.run().findings()


ADDRESSES = {
    "http://judge.example/v1": False,
    "http://127.0.0.1.example/v1": False,
    "http://127.0.0.1@judge.example/v1": False,
    "https://me:secret@judge.example/v1": False,
    "https://judge.example/v1?key=1": False,
    "https://judge.example/v1#": False,
    "file:///etc/passwd": False,
    "https://judge.example/v1\n": False,
    "https://judge.example:8443/a/v1/": True,
    "http://localhost:30000": True,
    "http://[::1]:30000/v1": True,
    "https://[2001:db8::1]/v1": True,
}


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_is_encrypted_or_of_this_machine_and_holds_no_secret(address: str, place: Place) -> None:
    written(place, address.replace("\n", "\\n"))
    told = place.call("check", "tiny.reo")
    assert (told.code == 0) is ADDRESSES[address], told
    assert ADDRESSES[address] or "https://HOST/PATH, or http:// on this machine" in told.err


def judged(place: Place, **settings: str) -> Spec:
    written(
        place,
        "http://127.0.0.1:9/v1",
        VERIFIER[:-1] + "".join(f", {n}: {v}" for n, v in settings.items()) + ")",
    )
    return reodsl.load("tiny.reo").spec


def _judges(payload: Any) -> Iterator[dict[str, Any]]:
    if isinstance(payload, dict):
        if payload.get("kind") == "judge":
            yield payload
        for each in payload.values():
            yield from _judges(each)
    elif isinstance(payload, (list, tuple)):
        for each in payload:
            yield from _judges(each)


def test_a_result_depends_on_what_is_asked_and_not_on_where_or_how(place: Place) -> None:
    def keys(**settings: str) -> list[Any]:
        tasks = lower(judged(place, **settings)).tasks
        folder, prints = place.folder, Fingerprints(place.folder / "none")
        return [
            resolve_sources(task, task.payload, folder, prints)
            for task in tasks
            if task.kind in ("train", "evaluate")
        ]

    first = keys()
    judges = [each for payload in first for each in _judges(payload)]
    assert {Judge.model_validate(each).address for each in judges} == {"https://judge"}
    incidental = {
        "key": '"JUDGE_KEY"',
        "unclear": "wrong",
        "seconds": "1 seconds",
        "at_once": "2",
        "retries": "0",
        "most_tokens": "1M tokens",
        "expected": "9 seconds",
    }
    assert incidental.keys() | {"address"} == Judge.incidental
    for name, value in incidental.items():
        assert keys(**{name: value}) == first, name
    for name, value in {"prompt": '"It is short."', "meta": '["rubric"]', "max_tokens": "8 tokens"}.items():
        assert all(one != other for one, other in zip(keys(**{name: value}), first, strict=True)), name


def test_its_time_is_in_the_price(place: Place) -> None:
    def seconds(**settings: str) -> list[tuple[float, float]]:
        spec = judged(place, **settings)
        graph = lower(spec)
        prices = price(graph, spec).tasks
        found = [prices[task.id] for task in graph.tasks if task.kind in ("train", "evaluate")]
        return [(each.verified, each.seconds["verification"]) for each in found]

    for verified, time in seconds(at_once="4", expected="3 seconds"):
        assert verified > 0
        assert time == pytest.approx(verified * 3 / 4)


def test_the_report_says_whose_verdicts_they_are(place: Place) -> None:
    (words,) = answers_read(judged(place))
    assert words.endswith(
        "compared by the judge big (another's model: asked again it may say something else)"
    )


def test_runs_with_a_judge_at_another_address_can_be_compared(place: Place) -> None:
    def essence(**settings: Any) -> Any:
        said = {"model": "big", "address": "http://127.0.0.1:9/v1", **settings}
        return Grading(verifier=Judge(**said)).essence

    assert essence() == essence(address="https://judge.example/v1", key="JUDGE_KEY", unclear="wrong")
    assert essence() != essence(prompt="It is short.")
    code = Grading(verifier=Python(function="a.py:f"))
    assert code.essence == Grading(verifier=Python(function="a.py:f", seconds=3.0)).essence
    assert code.essence != Grading(verifier=Python(function="a.py:f", batch=3)).essence
    assert Grading(verifier=ByTests(seconds=1.0)).essence != Grading(verifier=ByTests(seconds=2.0)).essence


def test_a_rehearsal_asks_nobody(place: Place) -> None:
    small = shrink(judged(place), Size(), StandIns(), "embedded")
    assert {each.verifier for each in values_of(small, Data)} == {Chance(of="exact")}
    assert not destinations(task.payload for task in lower(small).tasks)


@pytest.mark.heavy
def test_a_run_asks_about_each_answer_once_and_a_second_run_about_none(place: Place, server: Served) -> None:
    written(place, server.address, 'judge("big", address: "ADDRESS"), answer = whole')
    told = place.run("--allow-judge")
    assert told.code == 0, told.err
    asked = [json.dumps(each) for each in server.asked()]
    assert asked
    for table in place.folder.rglob("samples.parquet"):
        for row in pl.read_parquet(table).iter_rows(named=True):
            said = row["answer"] and hashlib.sha256(row["answer"].encode()).digest()[0] % 2
            assert row["correct"] is bool(said)
    written(
        place,
        server.address.replace("127.0.0.1", "localhost"),
        'judge("big", address: "ADDRESS"), answer = whole',
    )
    plan = reodsl.load("tiny.reo").plan()
    assert {task for task, verdict in plan.items() if verdict != "reuse"} <= {"report"}
    assert place.run("--allow-judge").code == 0
    assert len(server.requests) == len(asked)


@pytest.mark.heavy
def test_a_run_that_the_judge_ended_goes_on_and_asks_for_no_verdict_twice(place: Place) -> None:
    given: list[str] = []
    broken = [True]

    def says(request: dict[str, Any]) -> Any:
        if broken[0] and len(given) >= 3:
            return 401, {"error": {"message": "no such key"}}
        given.append(request["messages"][1]["content"])
        return "yes" if len(given) % 2 else "no"

    with served(says) as server:
        written(place, server.address, 'judge("big", address: "ADDRESS", at_once: 1), answer = whole')
        told = place.run("--allow-judge")
        assert told.code == 1
        assert set(told.findings()) == {"E0747"}
        assert "asks for a key (HTTP 401: no such key)" in told.err
        assert len(given) == 3
        broken[0] = False
        assert place.run().code == 0
    # The same answer may be one of several tasks: each asks for itself.
    tables = [*place.folder.rglob("samples.parquet"), *place.folder.rglob("rollouts.parquet")]
    assert max(Counter(given).values()) <= len(tables)
    assert not [*place.folder.rglob("judged")]
