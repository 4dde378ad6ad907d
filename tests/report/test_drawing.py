"""Charts are drawn by processes that end with their work, and it is told where one ends without it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reodsl.diagnostics import Problem
from reodsl.report import drawing

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def bars(words: str) -> dict[str, Any]:
    """A chart with these words above it."""
    encoding = {"x": {"field": "a", "type": "quantitative"}}
    return {"title": words, "data": {"values": [{"a": 1}]}, "mark": "bar", "encoding": encoding}


@pytest.mark.parametrize("large", [1, 10_000])
def test_pictures_come_in_order_however_many_processes_draw_them(
    monkeypatch: pytest.MonkeyPatch, large: int
) -> None:
    monkeypatch.setattr(drawing, "_LARGE", large)
    # What no SVG may hold ended the drawer: a name of a file of others, with an escape.
    names = ["first", "zweitens – “β”", "\x1b\b[31m\ud800 \\u001b"]
    pictures = list(drawing.pictures(map(bars, names)))
    for name, picture in zip([*names[:2], "\ufffd\ufffd[31m? \\u001b"], pictures, strict=True):
        assert name in picture.svg.decode()
        assert picture.png.startswith(SIGNATURE)


def test_no_charts_start_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "_DRAWER", Path("/nowhere"))
    assert list(drawing.pictures([])) == []


def test_this_process_never_has_v8() -> None:
    code = f"""
import sys
from reodsl.report import drawing
assert "vegaEmbed" in drawing.vega_script()
assert len(list(drawing.pictures([{bars("one")!r}]))) == 1
assert "vl_convert" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


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
