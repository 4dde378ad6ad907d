"""Charts are drawn by processes that end with their work, and it is told where one ends without it."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reodsl.diagnostics import Problem
from reodsl.report import drawing
from reodsl.report.material import Material
from reodsl.report.run import write_report

SIGNATURES = {"png": b"\x89PNG\r\n\x1a\n", "pdf": b"%PDF-"}


def bars(words: str) -> dict[str, Any]:
    """A chart with these words above it."""
    encoding = {"x": {"field": "a", "type": "quantitative"}}
    return {"title": words, "data": {"values": [{"a": 1}]}, "mark": "bar", "encoding": encoding}


@pytest.mark.slow
@pytest.mark.parametrize(("large", "form"), [(1, "png"), (10_000, "pdf")])
def test_pictures_come_in_order_however_many_processes_draw_them(
    monkeypatch: pytest.MonkeyPatch, large: int, form: drawing.Form
) -> None:
    monkeypatch.setattr(drawing, "_BATCH_BYTES", large)
    # What no SVG may hold ended the drawer: a name of a file of others, with an escape.
    names = ["first", "zweitens – “β”", "\x1b\b[31m\ud800 \\u001b"]
    pictures = list(drawing.pictures(map(bars, names), form))
    for name, picture in zip([*names[:2], "\ufffd\ufffd[31m? \\u001b"], pictures, strict=True):
        assert name in picture.svg.decode()
        assert picture.image.startswith(SIGNATURES[form])
        if form == "pdf":
            # As large as on a page of 72 points an inch, with the fonts that it needs.
            wide, high = (
                float(re.search(rf' {side}="([0-9.]+)"', picture.svg.decode())[1])
                for side in ("width", "height")
            )
            assert f"/MediaBox [0 0 {0.75 * wide:g} {0.75 * high:g}]".encode() in picture.image
            assert b"/FontFile" in picture.image


def test_no_charts_start_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "_DRAWER", Path("/nowhere"))
    assert list(drawing.pictures([])) == []


@pytest.mark.slow
def test_this_process_never_has_v8() -> None:
    code = f"""
import sys
from reodsl.report import drawing
from reodsl.report.material import Material
from reodsl.report.run import write_report
assert "vegaEmbed" in drawing.vega_script()
assert len(list(drawing.pictures([{bars("one")!r}]))) == 1
assert "vl_convert" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_report_starts_v8_once(material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, blocks = [], 2 * ((1).to_bytes(8, "big") + b"0")
    monkeypatch.setattr(drawing, "_ask_drawer", lambda lines, form: started.append(form) or blocks)
    drawing.vega_script.cache_clear()
    write_report(material, tmp_path)
    assert started == ["script"]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("killed", "import os; os.kill(os.getpid(), 9)"),
        ("failed", "raise ValueError('Vega-Lite to Vega conversion failed')"),
    ],
)
def test_a_process_that_ends_without_pictures_is_told(
    name: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Callable[..., None]
) -> None:
    (tmp_path / "drawer.py").write_text(code)
    monkeypatch.setattr(drawing, "_DRAWER", tmp_path / "drawer.py")
    with pytest.raises(Problem) as caught:
        list(drawing.pictures([bars("one")]))
    refusal(f"report/E0985-{name}.txt", caught.value)


def test_a_limit_of_address_space_is_told(
    monkeypatch: pytest.MonkeyPatch, refusal: Callable[..., None]
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (8 << 30, resource.RLIM_INFINITY))
    with pytest.raises(Problem) as caught:
        drawing.require_space()
    refusal("report/E0985.txt", caught.value)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY,) * 2)
    drawing.require_space()
