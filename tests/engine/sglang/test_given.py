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
from runners.engine.sglang.given import Needs, list_given, refusals, settings_of
from runners.engine.sglang.server import FORCED, Address
from runners.engine.sglang.settings import ADDRESS, KEY, LAUNCHER
from runners.models.folder import save
from runners.models.tokenizer import word_tokenizer
from tests.engine.engine_reference import VOCAB, make_model

SETTINGS: dict[str, Any] = {
    "version": "0.5.23",
    "model_path": "/nowhere/checkpoint",
    "context_length": 168,
    "max_total_num_tokens": 131072,
    "enable_deterministic_inference": True,
    "disable_radix_cache": False,
    "speculative_algorithm": None,
    "sampling_mask_max_tokens": 1073741824,
    "tp_size": 1,
    "pp_size": 1,
    "dp_size": 1,
    "skip_tokenizer_init": True,
}
"""What a server of SGLang 0.5.23, started by this project's launcher on a CPU, answered: the parts that are read."""
FITS = Needs(160)


@pytest.fixture
def replies() -> dict[str, Any]:
    """What the server below answers, by path."""
    return {
        "/server_info": dict(SETTINGS),
        FORCED: {},
        "/update_weights_from_disk": {"success": True},
    }


@pytest.fixture
def asked() -> list[tuple[str, str | None]]:
    """What it was asked, with which key."""
    return []


@pytest.fixture
def server(
    replies: dict[str, Any], asked: list[tuple[str, str | None]], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Address]:
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            asked.append((self.path, self.headers.get("Authorization")))
            reply = replies.get(self.path)
            # The launcher's route takes no GET.
            self.send_response(404 if reply is None else 405 if self.path == FORCED else 200)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(reply).encode())

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


def flags(needs: Needs) -> str:
    """How the server has to be started for these needs; nothing where it fits."""
    return "".join((each.help or "") for each in refusals(needs)).partition(" (docs")[0]


def test_given_servers_are_asked_and_not_changed(
    server: Address, replies: dict[str, Any], asked: list[tuple[str, str | None]]
) -> None:
    assert list_given() == [server]
    assert settings_of(server, FITS) == SETTINGS
    assert not list(refusals(FITS))
    assert {path for path, _ in asked} == {"/server_info", FORCED}
    assert {key for _, key in asked} == {"Bearer k"}
    # Older versions and others may report less.
    replies["/server_info"] = {}
    assert not list(refusals(Needs(100_000)))
    del replies[FORCED]
    (found,) = refusals(FITS)
    assert found.code == "E0830"
    assert "launcher" in found.notes[0]


@pytest.mark.parametrize("reply", [["something", "else"], "words", None], ids=["a list", "a text", "404"])
def test_another_program_at_the_address_is_named(
    server: Address, replies: dict[str, Any], reply: Any
) -> None:
    replies["/server_info"] = reply
    (found,) = refusals(FITS)
    assert found.code == "E0828"


def test_nothing_at_an_address_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    urls = ["http://127.0.0.1:9", "nonsense", "http://[::1"]
    monkeypatch.setenv(ADDRESS, ",".join(urls))
    assert [(each.code, str(each.where)) for each in refusals(FITS)] == [("E0828", url) for url in urls]


@pytest.mark.parametrize(
    ("setting", "needs", "flag"),
    [
        ({}, Needs(161), "--context-length 169"),
        ({"max_total_num_tokens": 167}, FITS, "--max-total-tokens 168"),
        # Started without one, it has the model's own.
        ({"context_length": None}, Needs(130_000), ""),
        ({"kv_cache_dtype": "auto"}, FITS, ""),
        ({"kv_cache_dtype": "fp8_e4m3"}, FITS, "no --kv-cache-dtype"),
        ({"enable_deterministic_inference": False}, FITS, "--enable-deterministic-inference"),
        ({"disable_radix_cache": True}, FITS, "no --disable-radix-cache"),
        ({"speculative_algorithm": "EAGLE"}, FITS, "no --speculative-algorithm"),
        ({"sampling_mask_max_tokens": 64}, FITS, "--sampling-mask-max-tokens 1073741824"),
        ({"tp_size": 2}, FITS, "--tp-size 1"),
        ({"tp_size": 2}, Needs(160, ranks=None), ""),
        ({"tp_size": 4}, Needs(160, ranks=4), ""),
        ({}, Needs(160, ranks=4), "--tp-size 4"),
        ({"pp_size": 2}, FITS, "--pp-size 1"),
        ({"dp_size": 8}, FITS, "--dp-size 1"),
    ],
)
def test_each_setting_that_does_not_fit_names_its_flag(
    server: Address, replies: dict[str, Any], setting: dict[str, Any], needs: Needs, flag: str
) -> None:
    replies["/server_info"] |= setting
    assert flags(needs) == (f"start it again with {flag}" if flag else "")


def test_a_model_of_another_architecture_or_size_is_refused(
    server: Address, replies: dict[str, Any], tmp_path: Path
) -> None:
    ours, theirs, family = tmp_path / "ours", tmp_path / "theirs", tmp_path / "family"
    config = {"architectures": ["Qwen3ForCausalLM"], "hidden_size": 1024, "num_hidden_layers": 28}
    for folder, change in (
        (ours, {}),
        (theirs, {"num_hidden_layers": 36}),
        (family, {"architectures": ["LlamaForCausalLM"]}),
    ):
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config | change))
    needs = replace(FITS, model=ours)
    assert flags(needs) == ""
    replies["/server_info"]["model_path"] = str(ours)
    assert flags(needs) == ""
    for folder, words in (
        (theirs, "its model has `num_hidden_layers` 36; the run's has 28"),
        (family, "its model has `architectures` ['LlamaForCausalLM']; the run's has ['Qwen3ForCausalLM']"),
    ):
        replies["/server_info"]["model_path"] = str(folder)
        (found,) = refusals(needs)
        assert found.notes == (words,)
        assert f"--model-path {ours}" in (found.help or "")


def test_all_that_does_not_fit_is_reported_at_once(
    server: Address, replies: dict[str, Any], golden: Callable[[str, str], None]
) -> None:
    replies["/server_info"] |= {
        "context_length": 4096,
        "enable_deterministic_inference": False,
        "disable_radix_cache": True,
    }
    del replies[FORCED]
    text = render([*refusals(Needs(35_000))], {}).replace(str(LAUNCHER.parents[3]), "PLACE")
    golden("engine/E0830.txt", text.replace(server.url, "http://10.0.0.7:30000"))


def test_an_engine_gets_no_weights_to_a_server_that_does_not_fit(
    server: Address, replies: dict[str, Any], asked: list[tuple[str, str | None]], tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    save(make_model("qwen3-gqa-tied"), word_tokenizer([f"w{i}" for i in range(5, VOCAB)]), folder)
    with pytest.raises(Problem) as caught:
        open_engine(folder, Resources(engine="sglang"), 200, tmp_path / "aside")
    assert [each.code for each in caught.value.diagnostics] == ["E0830"]
    assert "/update_weights_from_disk" not in {path for path, _ in asked}
    open_engine(folder, Resources(engine="sglang"), 160, tmp_path / "aside").close()
    assert [path for path, _ in asked][-1] == "/update_weights_from_disk"
    replies["/update_weights_from_disk"] = {"success": False, "message": "no such folder"}
    with pytest.raises(Problem) as caught:
        open_engine(folder, Resources(engine="sglang"), 160, tmp_path / "aside")
    assert caught.value.diagnostics[0].code == "E0828"
    assert "no such folder" in caught.value.diagnostics[0].message
