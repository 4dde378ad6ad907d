"""What others see of a spec names no folder of this machine, and is the same study."""

from __future__ import annotations

from pathlib import Path

import pytest

from reodsl.ir import Spec
from reodsl.ir.base import values_of
from reodsl.ir.data import File
from reodsl.ir.model import Folder
from reodsl.language import compile_file
from reodsl.report.material import hide_folders
from tests.bad_input.commands import FROM_FOLDER
from tests.report.synthetic import study


def spec_of(folders: tuple[str, ...]) -> Spec:
    """A study whose arms start from models in these folders."""
    made = study((1,), ("easy",), {}, "")
    arms = []
    for number, folder in enumerate(folders):
        arm = made.arms[number]
        model = values_of(arm.checkpoint, Folder)[0]
        text = arm.model_dump_json().replace(f'"path":"{model.path}"', f'"path":"{folder}"')
        arms.append(type(arm).model_validate_json(text))
    return Spec(study=made.model_copy(update={"arms": tuple(arms)}))


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spec:
    """A spec that is called by its whole path, names others by theirs, and speaks of one in a comment."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    here = tmp_path / "home" / "proj"
    (here / "lib").mkdir(parents=True)
    (here / "lib" / "words.reo").write_text(
        f'# {here}/notes.txt\ndata other {{ source = file("/mnt/no/q.jsonl"), verifier = exact }}\n'
    )
    text = FROM_FOLDER.replace('folder("weights")', f'folder("{tmp_path}/models/mine")')
    text = text.replace("data asked", "from .lib.words import other\n\ndata asked")
    asked = f'file("{tmp_path}/disk [1]/q \\"1\\" & é.jsonl"), verifier'
    text = text.replace("generated(chain_easy, count: 4, seed: 1), verifier", asked)
    (here / "tiny.reo").write_text(text + f"# from {tmp_path}/home/else, not /no_think\n")
    spec = compile_file(here / "tiny.reo").spec
    assert spec is not None
    return spec


def test_absolute_paths_become_relative_everywhere(spec: Spec, tmp_path: Path) -> None:
    assert str(tmp_path) in spec.model_dump_json()
    shown = hide_folders(spec)
    assert str(tmp_path) not in shown.model_dump_json()
    assert "/mnt" not in shown.model_dump_json()
    assert (shown.path, shown.folder) == ("tiny.reo", ".")
    assert "lib/words.reo" in shown.sources
    assert [each.path for each in values_of(shown.study, Folder)] == ["mine"]
    assert {each.path for each in values_of(shown.study, File)} == {'q "1" & é.jsonl'}
    text = shown.sources["tiny.reo"]
    assert 'source = folder("mine")' in text
    assert r'file("q \"1\" & é.jsonl")' in text
    assert "# from ~/else, not /no_think" in text
    assert shown.sources["lib/words.reo"].splitlines()[0] == "# ./notes.txt"
    assert not any(each.path.startswith("/") for each in shown.origins.values())


def test_what_is_shown_compiles_again(spec: Spec, tmp_path: Path) -> None:
    shown = hide_folders(spec)
    again = tmp_path / "again"
    for path, text in shown.sources.items():
        if not path.startswith("std/"):
            (again / path).parent.mkdir(parents=True, exist_ok=True)
            (again / path).write_text(text)
    compiled = compile_file(again / "tiny.reo").spec
    assert compiled is not None
    assert compiled.study == shown.study


def test_paths_of_one_name_stay_apart() -> None:
    folders = ("/a/one/model", "/a/two/model/", "/tiny", "model", "/other/x")
    spec = spec_of(folders)
    shown = [each.path for each in values_of(hide_folders(spec).study, Folder)]
    assert shown == ["one/model", "two/model", "tiny", "model", "x"]


def test_a_spec_without_such_paths_is_the_same(tmp_path: Path) -> None:
    spec = Spec(study=spec_of(("m",)).study, path="specs/x.reo", sources={"specs/x.reo": "a/b /c"})
    assert hide_folders(spec) is spec
