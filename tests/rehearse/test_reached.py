"""What a rehearsal on a cluster has reached, by notes: of a run that reached all, of one that fell short, and of none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reodsl.ir import Spec
from reodsl.ir.base import values_of
from reodsl.ir.training import Ppo
from reodsl.rehearse import Phase, list_reached
from reodsl.store.live import note, read_notes
from tests.rehearse.test_shrink import compiled

TRAINERS = [{"role": "trainer", "gpus": 1.0, "node": "a"}] * 2
PLACES = [*TRAINERS, {"role": "engine", "gpus": 2.0, "node": "b"}]
NAMES = ["placement", "weights", "lag"]


@pytest.fixture(scope="module")
def spec() -> Spec:
    """The flagship, whose engine is SGLang, with a lag."""
    found = compiled("specs/qwen3_4b_reo_exp.reo", amends={"qwen3_4b_reo_exp.lag": "1"})
    assert values_of(found.study, Ppo)[0].lag == 1
    return found


def told(*did: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Notes, a second after each other."""
    return [{"did": name, "at": float(at), "by": "b 1", **facts} for at, (name, facts) in enumerate(did)]


RUN = (
    ("placed", {"task": "x.train", "places": PLACES}),
    ("placed", {"task": "y.train", "places": PLACES}),
    ("placed", {"task": "data", "places": [{"role": "worker", "gpus": 0.0, "node": "a"}]}),
)


def by_name(phases: tuple[Phase, ...]) -> dict[str, tuple[bool | None, str]]:
    assert [phase.name for phase in phases] == NAMES
    return {phase.name: (phase.reached, " ".join(phase.words)) for phase in phases}


def test_a_run_that_reached_all(spec: Spec) -> None:
    found = by_name(list_reached(spec, told(*RUN), [0, 2, 1, 0], 1.0))
    assert {reached for reached, _ in found.values()} == {True}
    assert found["placement"][1] == "x.train and 1 more: 2 trainers of 1 GPU on a, 1 engine of 2 GPUs on b"
    assert found["weights"][1] == "responses were sampled by the weights of steps 1 and 2"


def test_a_run_that_fell_short(spec: Spec) -> None:
    """Without a GPU, with the first weights alone, and responses as old as their weights."""
    found = by_name(list_reached(spec, told(RUN[2]), [0, 0], 0.0))
    assert {reached for reached, _ in found.values()} == {False}


def test_what_a_spec_does_not_have_is_left_out() -> None:
    plain = compiled("specs/qwen3_4b_reo_exp.reo")
    found = by_name(list_reached(plain, told(*RUN), [0, 1], 0.0))
    assert [name for name, (reached, _) in found.items() if reached is None] == ["lag"]


def test_notes_of_all_processes_come_in_the_order_of_time(tmp_path: Path) -> None:
    note(tmp_path, "began")
    (tmp_path / "other-1.jsonl").write_text('{"did": "earlier", "at": 0.0}\n{"did": "cut o')
    assert [each["did"] for each in read_notes(tmp_path)] == ["earlier", "began"]
