"""`reodsl report`: the report of a finished run again, with nothing run and nothing changed in the store."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from reodsl.cli.main import main
from tests.bad_input.commands import SPEC

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small spec that ran."""
    folder = tmp_path_factory.mktemp("ran")
    (folder / "tiny.reo").write_text(SPEC)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["run", "tiny.reo", "--local", "--quiet"]) == 0
    return folder


@pytest.fixture
def call(
    ran: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """Calls of commands in a copy of that folder."""
    shutil.copytree(ran, tmp_path, symlinks=True, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)

    def one(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(list(arguments))
        out, err = capsys.readouterr()
        return code, out, err

    return one


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_lost_report_is_drawn_again(ran: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folder that the run remembers, and to the same bytes, so that the others find it as it was."""
    monkeypatch.chdir(ran)

    def nothing() -> None:
        pytest.fail("a report runs nothing")

    monkeypatch.setattr("reodsl.run.load_registry", nothing)
    (page,) = Path("runs").glob("*/report.html")
    drawn, kept = contents(page.parent), contents(Path(".reodsl/objects"))
    page.unlink()
    (page.parent / "tables" / "main.csv").write_text("edited")
    code, out, err = call("report", "tiny")
    assert (code, out, err) == (0, f"report: {page.resolve()}\n", "")
    assert contents(page.parent) == drawn
    assert contents(Path(".reodsl/objects")) == kept
    assert not list(Path(".reodsl/tmp").iterdir())


@pytest.mark.slow
def test_a_report_somewhere_else_and_what_goes_to_others(
    call: Call, monkeypatch: pytest.MonkeyPatch, refusal: Callable[..., None]
) -> None:
    (page,) = Path("runs").glob("*/report.html")
    code, out, _ = call("report", "tiny", "--out", "else/where", "--pictures", "--json")
    found = json.loads(out)
    assert (code, found["study"], found["report"]) == (0, "tiny", "else/where/report.html")
    assert Path(found["report"]).read_bytes() == page.read_bytes()
    assert {path.name for path in Path("else/where").iterdir()} == {
        ".reodsl-run",
        "report.html",
        "tables",
        "cards",
        "charts",
        "spec.reo.json",
        "verdict.json",
    }
    code, out, err = call("export", "tiny", "--to", "inspect")
    assert (code, out, err) == (0, "exports/inspect: 2 files\n", "")
    card = Path("else/where/cards/tiny.md").read_text()
    assert "| few |" in card
    assert "param length: steps = 2 steps in 1 steps..9 steps" in card
    code, out, err = call("export", "tiny", "--to", "inspect", "--arm", "other")
    assert (code, out) == (1, "")
    (run,) = Path(".reodsl/runs").glob("*.spec")
    refusal("commands/E0954-arm.txt", err, (run.stem, "RUN"))


def test_a_copied_store_draws_beside_itself(ran: Path, call: Call) -> None:
    (page,) = ran.glob("runs/*/report.html")
    for copied in Path("runs").glob("*/report.html"):
        copied.unlink()
    kept = contents(ran)
    code, out, _ = call("report", "tiny")
    assert (code, out) == (0, f"report: {Path(page.relative_to(ran)).resolve()}\n")
    assert json.loads(call("ls", "--json")[1])["runs"][0]["report"] == str(
        Path(page.relative_to(ran)).resolve()
    )
    shutil.copytree(".reodsl", "far/away")
    (Path("far/away").resolve()).rename(Path("store").resolve())
    code, out, _ = call("report", "tiny", "--store", "store")
    assert (code, out) == (0, f"report: {Path(page.relative_to(ran)).resolve()}\n")
    assert contents(ran) == kept


def test_a_report_that_lies_elsewhere_stays_with_the_store_that_was_copied(call: Call) -> None:
    (record,) = Path(".reodsl/runs").glob("*.json")
    facts = json.loads(record.read_text())
    away = "/somewhere/else/report.html"
    record.write_text(json.dumps(facts | {"report": away}))
    assert json.loads(call("ls", "--json")[1])["runs"][0]["report"] is None
    record.write_text(json.dumps(facts | {"report": away, "store": str(Path(".reodsl").resolve())}))
    assert json.loads(call("ls", "--json")[1])["runs"][0]["report"] == away
    record.write_text(json.dumps({name: facts[name] for name in facts if name != "store"} | {"report": away}))
    assert json.loads(call("ls", "--json")[1])["runs"][0]["report"] == away


def test_what_cannot_be_drawn_is_refused(call: Call, refusal: Callable[..., None]) -> None:
    code, out, err = call("report", "other")
    assert (code, out) == (1, "")
    assert "error[E0954]: no run is called `other`" in err
    forced = Path().glob(".reodsl/objects/*/*/forced.parquet")
    made = {json.loads((path.parent / "manifest.json").read_bytes())["made"]["task"]: path for path in forced}
    made["tiny.eval.s1"].unlink()
    code, out, err = call("report", "tiny", "--out", "part")
    assert (code, out) == (0, "report: part/report.html\n")
    (run,) = Path(".reodsl/runs").glob("*.spec")
    refusal("runs/W0805.txt", err, (run.stem, "RUN"))
    for name in ("metrics.parquet", "curves.json"):
        for table in Path().glob(f".reodsl/objects/*/*/{name}"):
            table.unlink()
    code, out, err = call("report", "tiny", "--out", "else")
    assert (code, out) == (1, "")
    refusal("commands/E0957.txt", err, (run.stem, "RUN"))
    assert not Path("else").exists()
    next(Path().glob(".reodsl/runs/*.spec")).unlink()
    refusal("commands/E0967-kept.txt", call("report", "tiny")[2], (run.stem, "RUN"))
    Path("file").write_text("")
    refusal("commands/E0118.txt", call("report", "tiny", "--out", "file/below")[2])
