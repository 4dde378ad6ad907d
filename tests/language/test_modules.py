"""Imports: the library, files below the spec, circles drawn, and nothing outside of the spec's folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reodsl.diagnostics.render import render
from reodsl.language import check_file
from reodsl.language.modules import list_library

Golden = Callable[[str, str], None]


def write(files: dict[str, str], root: Path) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_relative_imports_read_files_beside_and_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(
        {
            "spec.reo": "from .lib.deep import six\nfrom .common import five\nbudgets all = five\nbudgets more = six\n",
            "common.reo": "budgets five = exp(from: 1K tokens, to: 32K tokens, n: 5)\n",
            "lib/deep.reo": "from ..common import five as base\nbudgets six = base\n",
        },
        tmp_path,
    )
    result = check_file("spec.reo")
    assert result.diagnostics == ()
    assert set(result.sources) == {"spec.reo", "common.reo", "lib/deep.reo"}


def test_a_circle_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    monkeypatch.chdir(tmp_path)
    write(
        {
            "spec.reo": "from .a import x\nbudgets b = x\n",
            "a.reo": "from .b import y\nbudgets x = y\n",
            "b.reo": "from .a import x\nbudgets y = x\n",
        },
        tmp_path,
    )
    result = check_file("spec.reo")
    assert [each.code for each in result.diagnostics] == ["E0206"]
    assert result.diagnostics[0].notes == ("a.reo → b.reo → a.reo",)
    golden("language/E0206.txt", render(result.diagnostics, result.sources))


def test_a_file_that_imports_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write({"spec.reo": "from .spec import b\n"}, tmp_path)
    assert [each.code for each in check_file("spec.reo").diagnostics] == ["E0206"]


@pytest.mark.parametrize("module", ["....etc", "..secret", ".inside.link", ".link", "...", ".."])
def test_nothing_outside_the_folder_is_read(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "project"
    write({"spec.reo": f"from {module} import x\n", "inside/a.reo": "param x: int = 1\n"}, root)
    write({"secret.reo": "param x: int = 1\n", "folder/link.reo": "param x: int = 1\n"}, tmp_path)
    (root / "link.reo").symlink_to(tmp_path / "secret.reo")
    (root / "inside" / "link.reo").symlink_to(tmp_path / "folder" / "link.reo")
    monkeypatch.chdir(root)
    result = check_file("spec.reo")
    assert [each.code for each in result.diagnostics] in (["E0207"], ["E0204"])
    assert set(result.sources) == {"spec.reo"}


def test_an_escape_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    root = tmp_path / "project"
    write({"spec.reo": "from ....etc import passwd\n"}, root)
    monkeypatch.chdir(root)
    result = check_file("spec.reo")
    golden("language/E0207.txt", render(result.diagnostics, result.sources))


def test_a_long_chain_of_files_ends_in_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = {f"f{n}.reo": f"from .f{n + 1} import x\nbudgets x = x\n" for n in range(200)}
    write({**files, "spec.reo": "from .f0 import x\n"}, tmp_path)
    assert "E0206" in {each.code for each in check_file("spec.reo").diagnostics}


@pytest.mark.parametrize("module", list_library())
def test_every_module_of_the_library_is_sound(module: str) -> None:
    from reodsl.language.modules import LIBRARY

    found = check_file(LIBRARY.joinpath(*module.split(".")).with_suffix(".reo")).diagnostics
    assert [each for each in found if each.severity != "note"] == []


def test_a_file_beside_this_one_needs_its_dot(tmp_path: Path) -> None:
    (tmp_path / "common.reo").write_text("budgets two = [64 tokens, 128 tokens]\n")
    (tmp_path / "spec.reo").write_text("from common import two\nbudgets own = two\n")
    (found,) = check_file(tmp_path / "spec.reo").diagnostics
    assert (found.code, found.help) == ("E0204", "write `.common`: the dot is this folder")
    (tmp_path / "spec.reo").write_text("from .common import two\nbudgets own = two\n")
    assert not [each for each in check_file(tmp_path / "spec.reo").diagnostics if each.severity == "error"]
