"""The command line itself: exit codes, near names, and no traceback unless asked for."""

from __future__ import annotations

import io
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

import reodsl.cli
from reodsl.cli import main as command_line
from reodsl.cli.main import cli, main
from reodsl.diagnostics import problem


def test_help_lists_every_command_in_one_group_and_each_teaches_by_example(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    # Every line of the list is a whole sentence.
    assert "..." not in text.partition("Start:")[2]
    names = cli.list_commands(click.Context(cli))
    modules = (module.name for module in pkgutil.iter_modules(reodsl.cli.__path__))
    written = [each for name in modules for each in vars(import_module(f"reodsl.cli.{name}"))]
    assert sorted(names) == sorted(
        each.removesuffix("_command") for each in written if each.endswith("_command")
    )
    assert re.findall(r"^(\w+):$", text, re.M) == ["Options", "Start", "Run", "Look", "Share", "Store"]
    for name in names:
        assert text.count(f"\n  {name} ") == 1
        assert main([name, "--help"]) == 0
        assert f"  reodsl {name}" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["run", "watch"])
def test_a_long_command_says_something_before_its_imports(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = {}

    def load(module: str) -> object:
        said.setdefault(module, capsys.readouterr().err)
        return import_module(module)

    monkeypatch.setattr(command_line.importlib, "import_module", load)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    cli.resolve_command(click.Context(cli), [name, "x.reo"])
    assert said == {f"reodsl.cli.{name}": command_line._FIRST[name] + "\n"}


def test_an_unknown_command_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pln"]) == 1
    assert "did you mean `plan`?" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["main", "output", "place", "live", "../run", "__init__"])
def test_what_is_no_command_is_not_called(name: str) -> None:
    assert main([name]) == 1


def test_wrong_use_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan"]) == 1
    assert "Missing argument" in capsys.readouterr().err
    assert main(["run", "x.reo", "--bogus"]) == 1


def test_problems_and_defects_become_diagnostics(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, refusal: Callable[..., None]
) -> None:
    def raises(caught: BaseException) -> object:
        def call(**options: object) -> None:
            raise caught

        return call

    for caught, code, words in (
        (problem("E0950", "full", help="make room"), 1, "error[E0950]: full"),
        (
            RuntimeError("odd\nmore"),
            1,
            "error[E0990]: reodsl met an error it did not expect: RuntimeError: odd",
        ),
        (KeyboardInterrupt(), 130, "interrupted"),
    ):
        monkeypatch.setattr(command_line.cli, "main", raises(caught))
        assert main(["plan", "x.reo"]) == code
        err = capsys.readouterr().err
        if isinstance(caught, RuntimeError):
            refusal("commands/E0990.txt", err)
        assert words in err
        assert "Traceback" not in err
    monkeypatch.setattr(command_line.cli, "main", raises(RuntimeError("odd")))
    with pytest.raises(RuntimeError):
        main(["--debug", "plan", "x.reo"])


def test_a_command_imports_only_what_it_needs() -> None:
    code = (
        "import sys; from reodsl.cli.main import main; main(['explain', 'E0950']);"
        "print(*sorted(m for m in sys.modules if m.startswith('reodsl.cli.')), file=sys.stderr)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "reodsl.cli.specs" in out.stderr
    assert "reodsl.cli.run" not in out.stderr


def test_the_package_is_the_command_too() -> None:
    called = [sys.executable, "-m", "reodsl", "explain", "E0402"]
    out = subprocess.run(called, capture_output=True, text=True, check=True)
    assert out.stdout.startswith("# A budget past the longest response")


@pytest.mark.parametrize("module", ["click", "reodsl.cli.main", "reodsl.cli.specs", "reodsl.language"])
def test_an_interrupt_while_the_command_is_imported_shows_no_traceback(module: str, tmp_path: Path) -> None:
    code = f"""if True:
        import os, signal, sys

        class Interrupt:
            def find_spec(self, name, *rest):
                if name == {module!r}:
                    os.kill(os.getpid(), signal.SIGINT)

        sys.meta_path.insert(0, Interrupt())
        sys.argv = ["reodsl", "check", "a.reo"]
        from reodsl.__main__ import entry
        entry()
    """
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert (out.returncode, out.stdout, out.stderr.strip()) == (130, "", "interrupted")


def test_a_check_takes_no_longer_for_what_only_plans_need(tmp_path: Path) -> None:
    spec = tmp_path / "one.reo"
    spec.write_text("from std.miniature import overthinker\nstudy one { arm only = overthinker }\n")
    code = (
        f"import sys; from reodsl.cli.main import main; assert main(['check', {str(spec)!r}]) == 0;"
        "print(*sorted({name.partition('.')[0] for name in sys.modules} & {'numpy', 'polars'}))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split("\n")[-2:] == ["", ""]


@pytest.mark.parametrize(
    ("code", "meant"), [("402", "`E0402` or `W0402`"), ("E501", "`E0501`"), ("e0950x", None)]
)
def test_a_code_that_is_written_otherwise_is_recognised(
    code: str, meant: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", code]) == 1
    said = capsys.readouterr().err
    assert f"did you mean {meant}?" in said if meant else "to see all codes" in said


@pytest.mark.parametrize(
    ("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colour_is_for_a_terminal_that_wants_it(
    environment: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reodsl.cli.output import colourful

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stderr", SimpleNamespace(isatty=lambda: True))
    assert colourful() is coloured
    monkeypatch.setattr("sys.stderr", SimpleNamespace(isatty=lambda: False))
    assert not colourful()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that takes nothing")
@pytest.mark.parametrize("arguments", ["explain E0402", "explain", "graph SPEC --json"])
def test_an_output_that_takes_nothing_is_named(arguments: str) -> None:
    spec = Path(__file__).resolve().parents[2] / "specs" / "quickstart.reo"
    command = f"{sys.executable} -m reodsl.cli.main {arguments.replace('SPEC', str(spec))}"
    told = subprocess.run(f"{command} > /dev/full", shell=True, capture_output=True, text=True, timeout=60)
    assert told.returncode == 1
    assert "error[E0119]: the operating system refused: No space left on device" in told.stderr
    assert "--> standard output" in told.stderr
    assert "Traceback" not in told.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("explain E0402 >&-", 0),
        ("explain E9999 >&- 2>&-", 1),
        ("plan nowhere.reo --json >&-", 1),
        ("fmt - <&-", 1),
        ("new mine.reo <&- >&- 2>&-", 0),
    ],
)
def test_streams_that_are_closed_are_no_defect(tmp_path: Path, arguments: str, code: int) -> None:
    command = f"{sys.executable} -m reodsl.cli.main {arguments}"
    told = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert told.returncode == code
    assert "Traceback" not in told.stderr
    assert "E0990" not in told.stderr
    if "new" in arguments:
        assert main(["check", str(tmp_path / "mine.reo")]) == 0


def test_a_terminal_without_the_letters_shows_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding="latin-1"))
    command_line._open_streams()
    print("Größe … →", flush=True)
    assert shown.getvalue() == "Größe ".encode("latin-1") + rb"\u2026 \u2192" + b"\n"
