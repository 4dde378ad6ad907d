"""Servers that do not come up, really started: what their problems say."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reodsl.diagnostics import Problem
from reodsl.diagnostics.render import render
from runners.engine.sglang.engine import SGLangEngine
from runners.engine.sglang.server import Server

pytestmark = pytest.mark.sglang


def made_like(engine: SGLangEngine, python: Path, log: Path, **settings: object) -> Server:
    return Server(replace(engine.settings, **settings), python, log)  # type: ignore[arg-type]


def test_a_server_that_never_gets_healthy(
    engine: SGLangEngine, python: Path, tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    server = made_like(engine, python, tmp_path / "log", patience=0.2)
    with pytest.raises(Problem) as caught:
        server.start()
    assert not server.alive
    told = caught.value.diagnostics[0]
    # What its log says so early differs.
    golden("engine/E0821-healthy.txt", render([replace(told, notes=())], {}).replace(str(tmp_path), "PLACE"))


@pytest.mark.heavy
def test_an_unknown_architecture(engine: SGLangEngine, python: Path, folder: Path, tmp_path: Path) -> None:
    strange = tmp_path / "strange"
    shutil.copytree(folder, strange)
    config = json.loads((strange / "config.json").read_text())
    (strange / "config.json").write_text(json.dumps(config | {"architectures": ["Strange9ForCausalLM"]}))
    server = made_like(engine, python, tmp_path / "log", model=strange)
    with pytest.raises(Problem) as caught:
        server.start()
    assert not server.alive
    assert caught.value.diagnostics[0].code == "E0801"


@pytest.mark.heavy
def test_a_port_that_is_taken_is_left_for_another(
    engine: SGLangEngine, python: Path, tmp_path: Path, taken_port: int
) -> None:
    server = made_like(engine, python, tmp_path / "log")
    try:
        server.begin(taken_port)
        address = server.start()
        assert not address.url.endswith(f":{taken_port}")
        assert server.alive
    finally:
        server.stop()
