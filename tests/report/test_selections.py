"""Selections in the report: what each arm's training had of its pool, on the page and as a table."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from reodsl.graph.lower import lower
from reodsl.language import compile_file
from reodsl.report import selections
from reodsl.report.export import report_tables
from reodsl.report.figures import Gallery
from reodsl.report.material import Material, read
from reodsl.report.page import page
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
    return re.sub(r"<[^>]+>", " ", "".join(map(str, selections.section(found))))


def counted(questions: int, picked: int, lost: int) -> dict[str, object]:
    return {"questions": questions, "picked": picked, "lost": lost, "lost_by_pick": [lost]}


@pytest.mark.usefixtures("undrawn")
def test_what_was_lost_is_told(tmp_path: Path) -> None:
    found = material(tmp_path, {"select:group_norm:0@1": counted(4096, 3000, 1096)})
    words = shown(found)
    assert "A question is lost where none of its responses is picked." in words
    assert words.split()[-5:] == ["group_norm", "4,096", "1,096", "26.8", "3,000"]
    assert "left out" not in words
    assert "".join(map(str, selections.section(found))) in page(found, Gallery(), {})
    table = report_tables(found)["selections"]
    assert table.to_dicts() == [
        {"arm": "group_norm", "seed": 1, "stage": "rl", "questions": 4096}
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
    assert words.split()[-12:] == [
        "group_norm",
        "100",
        "15",
        "15.0",
        "62",
        "23",
        "shrink",
        "50",
        "0",
        "0.0",
        "50",
        "0",
    ]
    assert report_tables(found)["selections"]["seed"].to_list() == [1, 2, None]


@pytest.mark.usefixtures("undrawn")
def test_without_a_selection_nothing_is_told(tmp_path: Path) -> None:
    found = material(tmp_path, {})
    assert selections.section(found) == []
    assert "selections" not in report_tables(found)
    assert "<h3>Selections</h3>" not in page(found, Gallery(), {})


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
