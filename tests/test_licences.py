"""Licences: which fit beside Apache-2.0, however a package spells its own."""

from __future__ import annotations

import importlib.util
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
    assert licences.judged(component(words)) == (["3-Clause BSD License"], "")
    assert licences.judged(component({"id": "GPL-3.0-only"}))[1]
    assert "names no licence" in licences.judged(component())[1]
    assert licences.judged(component({"name": "NVIDIA"}, name="nvidia-cublas"))[1] == ""
