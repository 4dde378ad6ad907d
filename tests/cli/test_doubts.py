"""Doubts that a run tells: those about what the library declares are not the user's to mend."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import reodsl
from reodsl.cli.run import Doubts, is_of_library
from reodsl.graph.job import Event, Progress
from reodsl.graph.lower import lower
from tests.called import SPECS

LEFT_OUT = {"traces": 6600.0, "left_out_too_long": 1592.0}


def ready(path: Path) -> Any:
    spec = reodsl.load(path).spec
    return SimpleNamespace(spec=spec, graph=lower(spec))


@pytest.fixture(scope="module")
def quickstart() -> Any:
    return ready(SPECS / "quickstart.reo")


def test_only_data_and_models_of_the_library_are_its_own(quickstart: Any) -> None:
    own = {task.id for task in quickstart.graph.tasks if is_of_library(quickstart, task.id)}
    assert {"overthinker.train.clean.s1", "overthinker.train.verbose.s1", "chain_train.data"} <= own
    assert not [each for each in own if re.search(r"vanilla|reo_exp|shrink|eval|report", each)]


def test_a_first_run_is_quiet_and_a_user_s_own_training_is_told(
    quickstart: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    event = Event("progress", "overthinker.train.verbose.s1", Progress(1, 200, LEFT_OUT))
    Doubts(quickstart, quiet=False).hear(event)
    assert capsys.readouterr().err == ""
    mine = tmp_path / "mine.reo"
    mine.write_text(
        "from std.miniature import chain_model, chain_first_traces, chain_suite\nfrom std.recipes import sft\n"
        "experiment mine = sft { base = chain_model, data = chain_first_traces, "
        "steps = 2 steps, max_tokens = 192 tokens, eval = chain_suite }\n"
    )
    Doubts(ready(mine), quiet=False).hear(Event("progress", "mine.train.s1", Progress(1, 2, LEFT_OUT)))
    assert "warning[W0807]: 1,592 of 8,192 traces are not trained on" in capsys.readouterr().err
