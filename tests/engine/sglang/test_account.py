"""Servers that run already: what they run with against what a run needs, before anything is sent to them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from reodsl.diagnostics import Problem
from reodsl.diagnostics.render import render
from reodsl.graph.job import Resources
from runners.engine.open import open_engine
from runners.engine.sglang.account import Needs, Unusable, account_of, given, lacks, refusals, unfit
from runners.engine.sglang.interpreter import ADDRESS
from runners.engine.sglang.server import FORCED, Address
from runners.engine.sglang.settings import KEY, LAUNCHER
from runners.models.folder import save
from runners.models.tokenizer import word_tokenizer
from tests.engine.engine_reference import VOCAB, make_model
from tests.engine.sglang.told import MODEL, SETTINGS, answer, fitting_account

PLACE = Address("http://10.0.0.7:30000", "")
FITS = Needs(160)


def flags(needs: Needs, **settings: Any) -> list[str]:
    return [lack.flag for lack in lacks(fitting_account(**settings), needs)]


def test_what_fits_is_used() -> None:
    assert unfit(PLACE, fitting_account(), FITS) is None
    # Older versions and others may tell less.
    assert not list(lacks(replace(fitting_account(), settings={}, model={}), FITS))


@pytest.mark.parametrize(
    "changes",
    [
        {"probe": ["yes", "no"]},
        {"probe": [{"meta_info": {"output_top_logprobs": [[]]}}]},
        {"probe": [{"meta_info": {"output_token_sampling_mask": 7}}]},
        {"model": {"architectures": 7}},
    ],
)
def test_answers_of_another_form_are_told_as_such(changes: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["Qwen3ForCausalLM"]}))
    found = unfit(PLACE, replace(fitting_account(), **changes), replace(FITS, model=tmp_path))
    assert found is not None
    assert (found.code, "something else than an SGLang server" in found.message) == ("E0828", True)


def test_a_sequence_must_fit_its_context_and_its_caches() -> None:
    assert flags(Needs(161)) == ["--context-length 169"]
    assert flags(FITS, max_total_num_tokens=167) == [
        "--max-total-tokens 168, or a larger --mem-fraction-static"
    ]
    # Started without one, it has the model's own.
    assert flags(Needs(100_000), context_length=None) == []


@pytest.mark.parametrize(
    ("setting", "flag"),
    [
        ({"enable_deterministic_inference": False}, "--enable-deterministic-inference"),
        ({"disable_radix_cache": True}, "no --disable-radix-cache"),
        ({"speculative_algorithm": "EAGLE"}, "no --speculative-algorithm"),
        ({"tp_size": 2}, "--tp-size 1"),
        ({"pp_size": 2}, "--pp-size 1"),
        ({"dp_size": 8}, "--dp-size 1"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_each_setting_that_does_not_fit_names_its_flag(setting: dict[str, Any], flag: str) -> None:
    assert flags(FITS, **setting) == [flag]


def test_a_server_has_as_many_processes_as_the_spec_says() -> None:
    assert flags(replace(FITS, ranks=4)) == ["--tp-size 4"]
    assert flags(replace(FITS, ranks=4), tp_size=4) == []


def test_a_model_of_another_architecture_or_size_is_refused(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder, layers in ((ours, 28), (theirs, 36)):
        folder.mkdir()
        config = {"architectures": ["Qwen3ForCausalLM"], "hidden_size": 1024, "num_hidden_layers": layers}
        (folder / "config.json").write_text(json.dumps(config))
    needs = replace(FITS, model=ours)
    assert flags(needs) == []
    assert flags(needs, model_path=str(ours)) == []
    (found,) = lacks(fitting_account(model_path=str(theirs)), needs)
    assert found.words == "its model has `num_hidden_layers` 36; the run's has 28"
    assert found.flag == f"--model-path {ours}"
    other = replace(fitting_account(), model=MODEL | {"architectures": ["LlamaForCausalLM"]})
    (found,) = lacks(other, needs)
    assert found.words == "it serves `LlamaForCausalLM`; the run's model is `Qwen3ForCausalLM`"


@pytest.mark.parametrize(
    ("answers", "flag"),
    [
        ([answer(-0.01), answer(-5.3)], "SGLANG_RETURN_ORIGINAL_LOGPROB=1 in its environment"),
        (
            [answer(), answer(mask=40)],
            f"`python -P {LAUNCHER}` and --sampling-mask-max-tokens 1073741824",
        ),
        ([], f"`python -P {LAUNCHER}` and --sampling-mask-max-tokens 1073741824"),
    ],
    ids=["tempered", "whole masks", "refused"],
)
def test_what_shows_in_answers_alone_is_refused(answers: list[dict[str, Any]], flag: str) -> None:
    assert [lack.flag for lack in lacks(replace(fitting_account(), probe=answers), FITS)] == [flag]


def test_all_that_does_not_fit_is_told_at_once(golden: Callable[[str, str], None]) -> None:
    told = fitting_account(
        context_length=4096, enable_deterministic_inference=False, disable_radix_cache=True
    )
    found = unfit(
        PLACE, replace(told, probe=[answer(-0.01, 40), answer(-5.3, 9)]), Needs(35_000, model=Path())
    )
    assert found is not None
    golden("engine/E0830.txt", render([found], {}).replace(str(LAUNCHER.parents[3]), "PLACE"))


@pytest.fixture
def told() -> dict[str, Any]:
    """What the server below answers, by path."""
    return {
        "/model_info": MODEL,
        "/server_info": dict(SETTINGS),
        "/generate": [answer(), answer()],
        "/update_weights_from_disk": {"success": True},
    }


@pytest.fixture
def asked() -> list[tuple[str, str | None]]:
    """What it was asked, with which key."""
    return []


@pytest.fixture
def server(
    told: dict[str, Any], asked: list[tuple[str, str | None]], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Address]:
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            asked.append((self.path, self.headers.get("Authorization")))
            self.send_response(200 if self.path in told else 404)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(told.get(self.path)).encode())

        def log_message(self, *_: object) -> None:
            """Nothing is written."""

    http = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=http.serve_forever, args=(0.02,))
    thread.start()
    address = Address(f"http://127.0.0.1:{http.server_port}", "k")
    monkeypatch.setenv(ADDRESS, f" {address.url}/ ,")
    monkeypatch.setenv(KEY, "k")
    yield address
    http.shutdown()
    thread.join()
    http.server_close()


def test_given_servers_are_asked_and_not_changed(
    server: Address, told: dict[str, Any], asked: list[tuple[str, str | None]]
) -> None:
    assert given() == [server]
    assert account_of(server) == fitting_account()
    assert account_of(server).version == "0.5.23"
    assert not list(refusals(FITS))
    assert {path for path, _ in asked} == {"/model_info", "/server_info", "/generate"}
    assert {key for _, key in asked} == {"Bearer k"}
    assert [each.code for each in refusals(Needs(161))] == ["E0830"]
    # One that does not take the probe is none of ours, and one that is not SGLang cannot be used at all.
    del told["/generate"]
    (found,) = refusals(FITS)
    assert "launcher" in found.notes[0]
    told["/server_info"] = ["something", "else"]
    assert [each.code for each in refusals(FITS)] == ["E0828"]


def test_nothing_at_an_address_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("http://127.0.0.1:9", "nonsense", "http://[::1"):
        with pytest.raises(Unusable):
            account_of(Address(url, ""))
    monkeypatch.setenv(ADDRESS, "http://127.0.0.1:9,http://127.0.0.1:10")
    assert [(each.code, str(each.where)) for each in refusals(FITS)] == [
        ("E0828", "http://127.0.0.1:9"),
        ("E0828", "http://127.0.0.1:10"),
    ]


def test_an_engine_gets_no_weights_to_a_server_that_does_not_fit(
    server: Address, told: dict[str, Any], asked: list[tuple[str, str | None]], tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    save(make_model("qwen3-gqa-tied"), word_tokenizer([f"w{i}" for i in range(5, VOCAB)]), folder)
    with pytest.raises(Problem) as caught:
        open_engine(folder, Resources(engine="sglang"), 200, tmp_path / "aside")
    assert [each.code for each in caught.value.diagnostics] == ["E0830"]
    assert "/update_weights_from_disk" not in {path for path, _ in asked}
    open_engine(folder, Resources(engine="sglang"), 160, tmp_path / "aside").close()
    # What comes after is whether it cuts responses itself.
    assert [path for path, _ in asked][-2:] == ["/update_weights_from_disk", FORCED]
    told["/update_weights_from_disk"] = {"success": False, "message": "no such folder"}
    with pytest.raises(Problem) as caught:
        open_engine(folder, Resources(engine="sglang"), 160, tmp_path / "aside")
    assert caught.value.diagnostics[0].code == "E0828"
    assert "no such folder" in caught.value.diagnostics[0].message
