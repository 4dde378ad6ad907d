"""A built wheel, installed by pip without a network, works outside the checkout: its library, its command and a real run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from reodsl.diagnostics.model import EXTRAS, missing_extra
from tests.bad_input.commands import SPEC

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but the wheel's contents and its command, as pip lays them out."""
    built = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(built), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (wheel,) = built.glob("reodsl-*.whl")
    site = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "install", "--no-index", "--no-deps", "--target", str(site), str(wheel)],
        check=True,
        capture_output=True,
    )
    return site


@pytest.fixture(scope="module")
def bare(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Folders to import from: the wheel, and what its core depends on without any extra."""
    core = tmp_path_factory.mktemp("core")
    wanted, seen = ["reodsl"], set[str]()
    while wanted:
        name = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        found = metadata.distribution(name)
        if name == "reodsl":
            (found,) = metadata.distributions(path=[str(installed)])
        asked = (Requirement(each) for each in found.requires or ())
        wanted += [each.name for each in asked if each.marker is None or each.marker.evaluate({"extra": ""})]
        if name != "reodsl":
            copy(found, core)
    return [installed, core]


def copy(found: metadata.Distribution, to: Path) -> None:
    """An installed distribution's files, without what Python compiled of them."""
    for file in found.files or ():
        source = Path(str(found.locate_file(file)))
        if ".." not in file.parts and file.suffix != ".pyc" and source.exists():
            target = to / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def alone(bare: list[Path], cwd: Path, *args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """The command where nothing but the core is installed."""
    return subprocess.run(
        [sys.executable, "-S", "-P", "-m", "reodsl", *args],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, bare)), "PYTHONDONTWRITEBYTECODE": "1"},
        input=stdin,
        capture_output=True,
    )


def run(site: Path, cwd: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """The command that pip installed, with what the wheel needs from this environment and nothing of the checkout."""
    return subprocess.run(
        [str(site / "bin" / "reodsl"), *args],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
    )


def places(site: Path, cwd: Path) -> list[str]:
    """Where a process outside the checkout finds both packages, the runners by their entry point."""
    code = (
        "from reodsl.plan.registry import load_registry; load_registry();"
        "import reodsl, runners; print(reodsl.__file__, runners.__file__, sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_the_wheel_holds_the_standard_library_and_both_packages(installed: Path) -> None:
    here = {path.name for path in ROOT.joinpath("stdlib").rglob("*.reo")}
    assert here
    assert {path.name for path in (installed / "reodsl" / "stdlib").rglob("*.reo")} == here
    assert (installed / "runners" / "registry.py").exists()
    grammar = Path("reodsl") / "syntax" / "grammar.lark"
    assert (installed / grammar).read_bytes() == (ROOT / grammar).read_bytes()


def test_a_spec_checks_and_is_planned_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    spec = tmp_path / "mine.reo"
    spec.write_text((ROOT / "specs" / "quickstart.reo").read_text())
    assert places(installed, tmp_path) == [
        str(installed / package / "__init__.py") for package in ("reodsl", "runners")
    ]
    done = run(installed, tmp_path, "check", "mine.reo")
    assert done.returncode == 0, done.stderr
    assert "mine.reo: ok" in done.stdout
    done = run(installed, tmp_path, "plan", "mine.reo")
    assert done.returncode == 2, done.stderr
    assert re.search(r"^Plan: \d+ run\.", done.stdout, re.MULTILINE)


@pytest.mark.heavy
def test_a_spec_runs_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    """A model is made, trained and evaluated, and the report drawn; then there is nothing to do."""
    (tmp_path / "tiny.reo").write_text(SPEC)
    done = run(installed, tmp_path, "run", "tiny.reo", "--local", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["status"] == "finished"
    assert "<html" in (tmp_path / told["report"]).read_text()
    done = run(installed, tmp_path, "plan", "tiny.reo")
    assert done.returncode == 0, done.stderr


@pytest.mark.heavy
def test_the_quickstart_runs_in_an_environment_with_the_wheel_alone(tmp_path: Path) -> None:
    """As the README says it: `pip install 'reodsl[run]'`, then two commands. It needs a package index and some minutes."""
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("reodsl-*.whl")
    venv, folder = tmp_path / "venv", tmp_path / "work"
    folder.mkdir()
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    versions = tmp_path / "versions.txt"
    listed = (ROOT / "constraints" / "cpu.txt").read_text()
    versions.write_text("\n".join(re.findall(r"^[A-Za-z0-9_.-]+==[^ ;\\]+", listed, re.MULTILINE)))
    install = [venv / "bin" / "python", "-m", "pip", "install", "-q", "-c", versions, f"{wheel}[run]"]
    done = subprocess.run(list(map(str, install)), capture_output=True, text=True)
    if "No matching distribution" in done.stderr:
        pytest.skip("no package index has what the wheel needs")
    assert done.returncode == 0, done.stderr
    # Nothing of this environment, and no store or setting of the user's.
    env = {
        "PATH": f"{venv / 'bin'}{os.pathsep}{os.defpath}",
        "HOME": str(folder),
        "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
    }
    for command in (("new", "--quickstart"), ("run", "quickstart.reo")):
        done = subprocess.run(["reodsl", *command], cwd=folder, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    (page,) = folder.glob("runs/quickstart-*/report.html")
    assert "<html" in page.read_text()
    again = subprocess.run(
        ["reodsl", "run", "quickstart.reo"], cwd=folder, env=env, capture_output=True, text=True
    )
    assert "Nothing to do: every result is there." in again.stdout + again.stderr


def test_the_core_is_small(bare: list[Path]) -> None:
    """Under 40 MB with what pip compiles, which is about as large as the sources."""
    files = [
        path for folder in bare for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"
    ]
    compiled = sum(path.stat().st_size for path in files if path.suffix == ".py")
    assert sum(path.stat().st_size for path in files) + 1.3 * compiled < 40e6


def test_the_core_alone_checks_formats_and_plans(bare: list[Path], tmp_path: Path) -> None:
    done = alone(bare, tmp_path, "new", "--quickstart")
    assert done.returncode == 0, done.stderr
    shutil.copytree(ROOT / "specs" / "paper", tmp_path / "paper")
    done = alone(bare, tmp_path, "check", "quickstart.reo", *sorted(map(str, tmp_path.glob("paper/*.reo"))))
    assert done.returncode == 0, done.stderr
    assert alone(bare, tmp_path, "fmt", "--check", "quickstart.reo").returncode == 0
    done = alone(bare, tmp_path, "plan", "quickstart.reo")
    assert (done.returncode, done.stderr) == (2, b"")
    assert b"Plan: 23 run." in done.stdout
    done = alone(bare, tmp_path, "budgets", "greedy(std.paper.qwen3_4b, to: 32K tokens, n: 5)")
    assert done.returncode == 0, done.stderr


def test_the_core_alone_serves_editors(bare: list[Path], tmp_path: Path) -> None:
    asked = (
        ("initialize", 1, {"processId": None, "rootUri": None, "capabilities": {}}),
        ("shutdown", 2, None),
        ("exit", None, None),
    )
    sent = b""
    for method, number, params in asked:
        told = {"jsonrpc": "2.0", "method": method, "params": params, **({"id": number} if number else {})}
        body = json.dumps(told).encode()
        sent += b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    done = alone(bare, tmp_path, "lsp", stdin=sent)
    assert b"textDocumentSync" in done.stdout, done.stderr


def test_without_an_extra_the_command_says_how_to_get_it(
    bare: list[Path], tmp_path: Path, refusal: Callable[..., None]
) -> None:
    (tmp_path / "curves.csv").write_text("model,benchmark,budget,accuracy\n")
    done = alone(bare, tmp_path, "frontier", "curves.csv")
    assert done.returncode == 1
    refusal("commands/E0121.txt", done.stderr.decode())
    (tmp_path / "tiny.reo").write_text(SPEC)
    done = alone(bare, tmp_path, "run", "tiny.reo")
    assert done.returncode == 1
    assert b"error[E0121]: polars, ray, torch and transformers are not installed" in done.stderr
    assert b"pip install 'reodsl[run]'" in done.stderr
    assert not (tmp_path / ".reodsl").exists()
    code = "import reodsl; reodsl.load('tiny.reo').run(quiet=True)"
    shown = subprocess.run(
        [sys.executable, "-S", "-P", "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, bare))},
        capture_output=True,
        text=True,
    )
    assert "pip install 'reodsl[run]'" in shown.stderr


def test_every_extra_is_known_by_its_modules() -> None:
    """What an extra asks for is what `missing_extra` names it by. Others are named where they are used."""
    optional = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    modules = {"vl-convert-python": "vl_convert"}
    for extra, named in EXTRAS.items():
        asked = (Requirement(each).name for each in optional[extra])
        assert {modules.get(name, name.replace("-", "_")) for name in asked if name != "reodsl"} == set(named)
    assert missing_extra(ModuleNotFoundError("x", name="torch.nn")) is not None
    assert missing_extra(ModuleNotFoundError("x", name="reodsl.nothing")) is None


def test_the_metadata_says_what_an_index_shows(installed: Path) -> None:
    (found,) = metadata.distributions(path=[str(installed)])
    said = found.metadata
    assert said["License-Expression"] == "Apache-2.0"
    assert any(each.startswith("Paper, https://") for each in said.get_all("Project-URL", []))
    assert "Typing :: Typed" in said.get_all("Classifier", [])
    assert "Programming Language :: Python :: 3.11" in said.get_all("Classifier", [])
    assert said["Keywords"]
    assert (installed / "reodsl" / "py.typed").exists()
    assert said["Description-Content-Type"] == "text/markdown"
    (lexer,) = (each for each in found.entry_points if each.group == "pygments.lexers")
    assert lexer.load().name == "reodsl"


def test_the_source_archive_is_the_whole_repository(tmp_path: Path) -> None:
    """What git tracks, and nothing else but the metadata: tests, documents and benchmarks included."""
    subprocess.run(
        [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (archive,) = tmp_path.glob("reodsl-*.tar.gz")
    with tarfile.open(archive) as packed:
        there = {name.partition("/")[2] for name in packed.getnames()}
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    tracked = {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}
    assert tracked <= there
    assert "PKG-INFO" in there


def test_published_numbers_are_at_hand_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    edge = "std.paper.qwen3_4b"
    schedule = f"greedy({edge}, to: 32K tokens, n: 5)"
    done = run(installed, tmp_path, "budgets", schedule, "--frontier", edge, "--json")
    assert done.returncode == 0, done.stderr
    assert '"approximation_error"' in done.stdout
