"""Licences: which fit beside Apache-2.0, however a package spells its own."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PATH = Path(__file__).resolve().parents[1] / "constraints" / "licences.py"


@pytest.fixture(scope="module")
def licences() -> Any:
    spec = importlib.util.spec_from_file_location("licences", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("term", "fits"),
    [
        ("MIT", True),
        ("Apache 2.0 License", True),
        ("License :: OSI Approved :: BSD License", True),
        ("Apache-2.0 OR BSD-3-Clause", True),
        ("MIT OR GPL-3.0-only", True),
        ("MIT AND GPL-3.0-only", False),
        ("(MIT OR GPL-2.0-only) AND MPL-2.0", True),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("GPL-3.0-only", False),
        ("License :: OSI Approved :: GNU Affero General Public License v3", False),
        ("LGPL-2.1-or-later", False),
        ("Proprietary", False),
    ],
)
def test_what_fits(licences: Any, term: str, fits: bool) -> None:
    assert licences.fits(term) is fits


def test_a_package_is_judged_by_what_it_names(licences: Any) -> None:
    def component(*named: dict[str, Any], name: str = "some") -> dict[str, Any]:
        return {"name": name, "version": "1", "licenses": [{"license": each} for each in named]}

    words = {"name": "declared license of 'some'", "text": {"content": "3-Clause BSD License\n\nCopyright"}}
    assert licences.judged(component(words), []) == (["3-Clause BSD License"], "")
    assert licences.judged(component({"id": "GPL-3.0-only"}), [])[1]
    assert "names no licence" in licences.judged(component(), [])[1]
    assert licences.judged(component({"name": "NVIDIA"}, name="nvidia-cublas"), [])[1] == ""


@pytest.mark.parametrize("name", ["zss", "blobfile"])
def test_a_package_whose_files_alone_name_its_licence_fits(licences: Any, name: str) -> None:
    component = {"name": name, "version": "1"}
    assert licences.judged(component, []) == ([], "")
    assert licences.judged(component | {"name": f"{name}-other"}, [])[1] == "names no licence"


def test_a_package_that_is_excepted_is_in_a_list(licences: Any) -> None:
    """Of a package that no list names any more, the exception goes."""
    listed = "\n".join(path.read_text() for path in PATH.parent.glob("*.txt"))
    for pattern in licences.EXCEPTIONS:
        assert pattern == "reodsl" or re.search(rf"(?m)^({pattern})==", listed), pattern


def test_an_old_field_of_metadata_is_read_where_the_package_is_installed(
    licences: Any, tmp_path: Path
) -> None:
    place = tmp_path / "some-1.dist-info"
    place.mkdir()
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: some\nVersion: 1\nLicense: MIT License\n")
    component = {"name": "some", "version": "1"}
    assert licences.judged(component, [str(tmp_path)]) == (["MIT License"], "")
    assert "names no licence" in licences.judged(component, [])[1]


def test_every_list_and_every_environment_has_a_bill(licences: Any, tmp_path: Path) -> None:
    """By a stand-in of cyclonedx, which says what it was asked for."""
    stand_in = tmp_path / "python"
    stand_in.write_text(
        f"#!{sys.executable}\nimport json, sys\n"
        "out = sys.argv[sys.argv.index('-o') + 1]\n"
        "named = {'name': sys.argv[sys.argv.index('cyclonedx_py') + 1], 'version': '1',"
        " 'licenses': [{'license': {'id': 'MIT'}}]}\n"
        "json.dump({'components': [named]}, open(out, 'w'))\n"
    )
    stand_in.chmod(0o755)
    environments = [tmp_path / name / "bin" / "python" for name in (".venv", ".venv-other")]
    for each in environments:
        each.parent.mkdir(parents=True)
        each.symlink_to(sys.executable)
    out = tmp_path / "out"
    command = [sys.executable, str(PATH), "--with", str(stand_in), str(out), *map(str, environments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lists = {path.stem for path in PATH.parent.glob("*.txt")}
    assert {path.stem for path in (out / "lists").iterdir()} == lists
    assert {path.name for path in (out / "environments").iterdir()} == {
        f"venv{more}.{ending}" for more in ("", "-other") for ending in ("json", "md")
    }
    assert "| environment | 1 | MIT |" in (out / "environments" / "venv.md").read_text()
