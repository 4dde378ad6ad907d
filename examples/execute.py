"""Run a notebook's cells in order, in this process, and put what they show into the file: `python examples/execute.py`.

Charts are put in as pictures, which show everywhere; paths of this machine are left out. No kernel and no display is needed.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).resolve().with_name("first_study.ipynb")


def read(path: Path = NOTEBOOK) -> dict[str, Any]:
    """A notebook as its file has it."""
    notebook: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return notebook


def tags(cell: dict[str, Any]) -> list[str]:
    """The tags of a cell, such as `trains`."""
    found: list[str] = cell["metadata"].get("tags", [])
    return found


def execute(notebook: dict[str, Any], names: dict[str, Any], skip: Callable[[dict[str, Any]], bool]) -> None:
    """Run every cell of code but those of `skip`, with `names` as its globals; what a cell shows becomes its outputs."""
    count = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code" or skip(cell):
            continue
        count += 1
        cell["execution_count"] = count
        cell["outputs"] = _outputs("".join(cell["source"]), names, count)


def _outputs(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """What a cell writes, and the value of its last expression."""
    parsed = ast.parse(source)
    last = parsed.body.pop() if parsed.body and isinstance(parsed.body[-1], ast.Expr) else None
    written = io.StringIO()
    value = None
    with contextlib.redirect_stdout(written):
        exec(compile(parsed, "cell", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if written.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(written.getvalue())})
    if value is not None:
        shown = {"data": _shown(value), "metadata": {}, "execution_count": count}
        outputs.append({"output_type": "execute_result", **shown})
    return outputs


def _shown(value: Any) -> dict[str, Any]:
    """A value by the kinds of content that a notebook shows it in."""
    if type(value).__module__.startswith("altair."):
        picture = io.BytesIO()
        value.save(picture, format="png", scale_factor=1.5)
        about = value.to_dict().get("description", "a chart")
        return {"image/png": base64.b64encode(picture.getvalue()).decode(), "text/plain": _lines(about)}
    shown: dict[str, Any] = {"text/plain": _lines(repr(value))}
    if hasattr(value, "_repr_html_"):
        shown["text/html"] = _lines(value._repr_html_())
    return shown


def _lines(text: str) -> list[str]:
    here = text.replace(str(NOTEBOOK.parent) + os.sep, "").replace(str(NOTEBOOK.parent.parent), "..")
    return here.splitlines(keepends=True)


def main() -> None:
    """Run the whole notebook in its folder, and write it back with its outputs."""
    notebook = read()
    os.chdir(NOTEBOOK.parent)
    execute(notebook, {"__name__": "__main__"}, skip=lambda cell: False)
    text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    NOTEBOOK.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
