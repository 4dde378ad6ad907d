"""What each training left out, in the report: by a selection, a longest length or a missing budget."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from reodsl.graph.lower import lower
from reodsl.ir.training import FromTraining, Ppo
from reodsl.language import compile_file
from reodsl.report.export import report_tables
from reodsl.report.figures import Gallery
from reodsl.report.material import Material, read
from reodsl.report.page import page
from reodsl.report.trained_amounts import data_section
from tests.report.synthetic import world

ROOT = Path(__file__).resolve().parents[2]


def material(folder: Path, facts: dict[str, dict[str, object]], seeds: tuple[int, ...] = (1,)) -> Material:
    """A finished study whose arms were trained on what selections picked, by role."""
    made = world(folder, seeds)
    places = dict(made.inputs)
    for number, (role, picked) in enumerate(facts.items()):
        places[role] = folder / f"select-{number}"
        places[role].mkdir()
        (places[role] / "select.json").write_text(json.dumps(picked))
    return read(made.spec, places)


def shown(found: Material) -> str:
    return re.sub(r"<[^>]+>", " ", "".join(map(str, data_section(found))))


def counted(questions: int, picked: int, lost: int) -> dict[str, object]:
    return {"questions": questions, "picked": picked, "lost": lost, "lost_by_pick": [lost]}


@pytest.mark.usefixtures("undrawn")
def test_what_was_lost_is_told(tmp_path: Path) -> None:
    found = material(tmp_path, {"select:group_norm:0@1": counted(4096, 3000, 1096)})
    words = shown(found)
    assert "A selection loses a question if it picks none of its responses." in words
    assert words.split()[-7:] == ["group_norm", "its", "selection", "4,096", "1,096", "26.8", "3,000"]
    assert "left out" not in words
    assert "".join(map(str, data_section(found))) in page(found, Gallery(), {})
    table = report_tables(found)["selections"]
    assert table.to_dicts() == [
        {"arm": "group_norm", "seed": 1, "stage": "rl", "by": "its selection", "questions": 4096}
        | {"picked": 3000, "dropped": 0, "lost": 1096}
    ]


def test_seeds_are_averaged_and_what_a_margin_left_out_is_told(tmp_path: Path) -> None:
    facts = {
        "select:group_norm:0@1": counted(100, 60, 20) | {"dropped": 20},
        "select:group_norm:0@2": counted(100, 64, 10) | {"dropped": 26},
        "select:shrink:0": counted(50, 50, 0),
    }
    found = material(tmp_path, facts, seeds=(1, 2))
    words = shown(found)
    assert "picks with the lowest margins are left out; means over seeds." in words
    told = "group_norm it 100 15 15.0 62 23 shrink it 50 0 0.0 50 0"
    assert " ".join(words.replace("its selection", "it").split()).endswith(told)
    assert report_tables(found)["selections"]["seed"].to_list() == [1, 2, None]


@pytest.mark.usefixtures("undrawn")
def test_without_a_selection_nothing_is_told(tmp_path: Path) -> None:
    found = material(tmp_path, {})
    assert data_section(found) == []
    assert "selections" not in report_tables(found)
    assert "<h3>Left out of training</h3>" not in page(found, Gallery(), {})


@pytest.mark.parametrize("name", ["sft_shortest", "simpo_dast"])
def test_the_report_reads_what_its_arms_were_trained_on(name: str) -> None:
    spec = compile_file(ROOT / "specs" / "miniature" / f"{name}.reo").spec
    assert spec is not None
    graph = lower(spec)
    chosen = {
        role: graph[task].kind for role, task in graph["report"].inputs.items() if role.startswith("select:")
    }
    assert set(chosen.values()) == {"select"}
    assert all(re.fullmatch(rf"select:{name}:0@1", role) for role in chosen)


@pytest.mark.usefixtures("undrawn")
def test_what_a_training_left_out_is_listed_with_its_setting(tmp_path: Path) -> None:
    made = world(tmp_path, (1,))
    role = next(name for name in made.inputs if name.startswith("train:group_norm"))
    facts = {"questions": 3, "left_out_too_long": 21, "left_out_without_budget": 0}
    (made.inputs[role] / "train.json").write_text(json.dumps(facts))
    found = read(made.spec, made.inputs)
    words = shown(found)
    checkpoint = next(arm.checkpoint for arm in made.spec.study.arms if arm.name == "group_norm")
    assert isinstance(checkpoint, FromTraining)
    method = checkpoint.experiment.stages[0].method
    assert isinstance(method, Ppo)
    limit = method.max_prompt
    assert " ".join(words.split()).endswith(f"group_norm max_prompt = {limit} tokens 24 21 87.5 3")
