"""What a rehearsal on a cluster has reached, by notes: of a run that reached all, of one that fell short, and of none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reodsl.ir import Spec
from reodsl.ir.base import values_of
from reodsl.ir.training import Ppo
from reodsl.rehearse import Phase, list_reached
from reodsl.store.live import LOSE, note, read_notes, take
from tests.rehearse.test_shrink import compiled

TRAINERS = [{"role": "trainer", "gpus": 1.0, "node": "a"}] * 2
PLACES = [*TRAINERS, {"role": "engine", "gpus": 2.0, "node": "b"}]
NAMES = ["placement", "weights", "lag", "a server lost", "a node lost"]


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
    ("weights", {"version": 1, "way": "broadcast"}),
    ("lost", {"version": 1}),
    ("began", {"by": "b 2"}),
    ("weights", {"by": "b 2", "version": 1, "way": "broadcast"}),
    ("step", {"task": "x.train", "done": 2}),
    ("node lost", {"node": "a", "task": "x.train"}),
    ("node back", {"node": "a again"}),
    ("step", {"task": "x.train", "done": 3}),
)


def by_name(phases: tuple[Phase, ...]) -> dict[str, tuple[bool | None, str]]:
    assert [phase.name for phase in phases] == NAMES
    return {phase.name: (phase.reached, " ".join(phase.words)) for phase in phases}


def test_a_run_that_reached_all(spec: Spec) -> None:
    found = by_name(list_reached(spec, told(*RUN), 1.0, True))
    assert {reached for reached, _ in found.values()} == {True}
    assert found["placement"][1] == "x.train and 1 more: 2 trainers of 1 GPU on a, 1 engine of 2 GPUs on b"
    assert found["weights"][1] == "the weights of step 1 reached 2 servers by broadcast"
    assert found["a node lost"][1].endswith("waited for another and went on at step 3")


@pytest.mark.parametrize(
    ("left_out", "phase"),
    [
        ("placed", "placement"),
        ("weights", "weights"),
        ("lost", "a server lost"),
        ("began", "a server lost"),
        ("node lost", "a node lost"),
        ("node back", "a node lost"),
        ("step", "a node lost"),
    ],
)
def test_a_phase_without_its_notes_is_not_reached(spec: Spec, left_out: str, phase: str) -> None:
    found = by_name(list_reached(spec, told(*(each for each in RUN if each[0] != left_out)), 1.0, True))
    assert found[phase][0] is False


def test_responses_as_old_as_their_weights_are_no_lag(spec: Spec) -> None:
    assert by_name(list_reached(spec, told(*RUN), 0.0, True))["lag"][0] is False


def test_what_a_spec_or_a_cluster_does_not_have_is_left_out(spec: Spec) -> None:
    plain = compiled("specs/qwen3_4b_reo_exp.reo", amends={"qwen3_4b_reo_exp.engine": "embedded"})
    found = by_name(list_reached(plain, told(*RUN), 0.0, False))
    assert [name for name, (reached, _) in found.items() if reached is None] == NAMES[1:]


def test_notes_of_all_processes_come_in_the_order_of_time_and_a_file_is_taken_once(tmp_path: Path) -> None:
    note(tmp_path, "began")
    (tmp_path / "other-1.jsonl").write_text('{"did": "earlier", "at": 0.0}\n{"did": "cut o')
    assert [each["did"] for each in read_notes(tmp_path)] == ["earlier", "began"]
    (tmp_path / LOSE).touch()
    assert [take(tmp_path, LOSE), take(tmp_path, LOSE)] == [True, False]
