"""The model card of a trained arm: the report's numbers, metadata that a hub reads, and nothing of this machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import huggingface_hub
import polars as pl
import pytest
import yaml

from reodsl.ir import Spec
from reodsl.ir.training import FromTraining
from reodsl.report.card import markdown, write_cards
from reodsl.report.formats import number
from reodsl.report.material import Material, read
from reodsl.report.run import write_report
from tests.report.synthetic import World, world

DOC = "A story.\n```\nthat ends blocks ` and --- more."


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> World:
    return world(tmp_path_factory.mktemp("study"), benchmarks=("easy", "hard"), doc=DOC)


def card(material: Material, folder: Path) -> str:
    write_cards(folder / "cards", material)
    return (folder / "cards" / "reo_exp.md").read_text()


def test_a_card_has_the_numbers_of_the_report(made: World, tmp_path: Path) -> None:
    material = read(made.spec, made.inputs)
    text = card(material, tmp_path)
    _, metadata, body = text.split("---\n", 2)
    head = yaml.safe_load(metadata)
    assert (head["pipeline_tag"], head["library_name"]) == ("text-generation", "transformers")
    assert "base_model" not in head
    scores = material.scores.filter((pl.col("arm") == "reo_exp") & pl.col("seed").is_null())
    for benchmark in ("easy", "hard"):
        (reg,) = scores.filter(pl.col("benchmark") == benchmark)["reg"]
        (row,) = (line for line in body.splitlines() if line.startswith(f"| {benchmark} |"))
        assert f"| {number(reg)} [" in row.replace("\\", "")
    assert body.count("\n| ") == 5  # a head, a rule and three places
    assert "REG vs. vanilla" in body
    assert "from std.recipes import ppo" in body
    # The spec's fence is longer than any in it.
    assert "````\n" in body
    huggingface_hub.ModelCard(text)
    assert markdown(["arm", "a & b"], [["x|y `z` <b>", "−1.0*"]]).split("\n")[2].count(" | ") == 1


def test_only_trained_arms_have_a_card(made: World, tmp_path: Path) -> None:
    material = read(made.spec, made.inputs)
    base, *others = material.study.arms
    assert isinstance(base.checkpoint, FromTraining)
    as_it_came = base.model_copy(update={"checkpoint": base.checkpoint.experiment.start})
    study = material.study.model_copy(update={"arms": (as_it_came, *others)})
    card(replace(material, spec=material.spec.model_copy(update={"study": study})), tmp_path)
    names = {path.stem for path in (tmp_path / "cards").iterdir()}
    assert names == {arm.name for arm in others}


def test_a_card_says_that_reg_is_approximate(made: World, tmp_path: Path) -> None:
    material = read(made.spec, made.inputs)
    score = material.study.score
    assert score is not None
    changed = material.study.model_copy(
        update={"score": score.model_copy(update={"misfits": ("it is of another model",)})}
    )
    text = card(replace(material, spec=material.spec.model_copy(update={"study": changed})), tmp_path)
    assert "REG is approximate (~): it is of another model." in text
    assert "| ~REG " in text


@pytest.mark.slow
def test_no_path_of_this_machine_is_in_a_report(made: World, tmp_path: Path) -> None:
    place = "/mnt/secret disk/of me"
    text = made.spec.model_dump_json().replace('"path":"tiny"', f'"path":"{place}/tiny"')
    text = text.replace("specs/quickstart.reo", f"{place}/quickstart.reo")
    spec = Spec.model_validate_json(text)
    source = f'model tiny {{ source = folder("{place}/tiny") }}\n# of {place}/quickstart.reo'
    spec = spec.model_copy(update={"sources": {spec.path: source}, "folder": place})
    write_report(read(spec, made.inputs), tmp_path)
    assert 'folder("tiny")' in (tmp_path / "cards" / "reo_exp.md").read_text()
    assert "reodsl run quickstart.reo" in (tmp_path / "report.html").read_text()
    written = (path for path in tmp_path.rglob("*") if path.is_file())
    assert not [path for path in written if b"secret disk" in path.read_bytes()]
