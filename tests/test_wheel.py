"""A built wheel, installed alone by pip without a network, works outside the checkout, as does what builds it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from reodsl.diagnostics.model import EXTRAS, missing_extra
from reodsl.diagnostics.render import page
from tests.bad_input.commands import SPEC

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the source archive, and of the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT]
    subprocess.run(build, check=True, capture_output=True)
    return folder


def install(built: Path, folder: Path) -> Path:
    """An environment with the wheel alone, and where it has its packages."""
    (wheel,) = built.glob("reodsl-*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    pip = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check"]
    alone = ["--python", folder / "bin" / "python", "install", "-q", "--no-index", "--no-deps", wheel]
    subprocess.run([*pip, *alone], check=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    return site


@pytest.fixture(scope="module")
def core(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packages of an environment with the wheel and what it asks for without any extra."""
    site = install(built, tmp_path_factory.mktemp("core"))
    (wheel,) = metadata.distributions(path=[str(site)])
    wanted, seen = [wheel], set[str]()
    while wanted:
        found = wanted.pop()
        asked = map(Requirement, found.requires or ())
        names = {each.name for each in asked if each.marker is None or each.marker.evaluate({"extra": ""})}
        wanted += map(metadata.distribution, names - seen)
        seen |= names
        for file in found.files or () if found is not wheel else ():
            source = Path(str(found.locate_file(file)))
            if ".." not in file.parts and file.suffix != ".pyc" and source.exists():
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, site / file)
    return site


@pytest.fixture(scope="module")
def whole(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packages of an environment with the wheel, and the packages of this one, of which the checkout is none."""
    site = install(built, tmp_path_factory.mktemp("run"))
    (site / "below.pth").write_text("\n".join(each for each in sys.path if each.endswith("site-packages")))
    return site


def called(site: Path, cwd: Path) -> dict[str, Any]:
    """How a command of an environment is called: with nothing of this one, of the checkout or of the user."""
    path = f"{site.parents[2] / 'bin'}{os.pathsep}{os.defpath}"
    return {"cwd": cwd, "env": {"PATH": path, "HOME": str(cwd), "OMP_NUM_THREADS": "1"}, "text": True}


def run(site: Path, cwd: Path, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """What `reodsl` does in an environment."""
    command = site.parents[2] / "bin" / "reodsl"
    return subprocess.run([command, *arguments], capture_output=True, **called(site, cwd), **more)


@pytest.mark.parametrize("name", ["core", "whole"])
def test_the_wheel_alone_checks_plans_and_explains(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    site: Path = request.getfixturevalue(name)
    code = "from reodsl.plan.registry import load_registry as load; load(); import runners; print(runners.__file__)"
    python = [site.parents[2] / "bin" / "python", "-P", "-c", code]
    done = subprocess.run(python, capture_output=True, **called(site, tmp_path))
    assert done.stdout == f"{site / 'runners' / '__init__.py'}\n"
    assert run(site, tmp_path, "new", "--quickstart").returncode == 0
    shutil.copytree(ROOT / "specs" / "paper", tmp_path / "paper")
    done = run(site, tmp_path, "check", "quickstart.reo", *sorted(map(str, tmp_path.glob("paper/*.reo"))))
    assert done.returncode == 0, done.stderr
    assert run(site, tmp_path, "fmt", "--check", "quickstart.reo").returncode == 0
    done = run(site, tmp_path, "plan", "quickstart.reo")
    assert (done.returncode, done.stderr) == (2, "")
    assert "Plan: 23 run." in done.stdout
    for topic in ("training", "E0402"):
        assert run(site, tmp_path, "explain", topic).stdout == page(topic)
    edge = "std.paper.qwen3_4b"
    done = run(
        site, tmp_path, "budgets", f"greedy({edge}, to: 32K tokens, n: 5)", "--frontier", edge, "--json"
    )
    assert '"approximation_error"' in done.stdout, done.stderr


def test_the_quickstart_begins_and_has_a_report(whole: Path, tmp_path: Path) -> None:
    """Until a model is made, and some steps of its training; then it is interrupted, and the report draws them."""
    run(whole, tmp_path, "new", "--quickstart")
    command = [whole.parents[2] / "bin" / "reodsl", "run", "quickstart.reo", "--local"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, **called(whole, tmp_path)) as started:
        assert started.stderr is not None
        lines = []
        for line in started.stderr:
            lines.append(line)
            if re.search("at +overthinker.train.clean.s1 ", line):
                started.send_signal(signal.SIGINT)
    assert any(re.search("done +chain_model.model.s1 ", line) for line in lines), lines
    assert started.returncode == 130
    done = run(whole, tmp_path, "report", "quickstart")
    assert done.returncode == 0, done.stderr
    assert "drawn up to the last step so far: overthinker.train.clean.s1" in done.stderr
    (report,) = tmp_path.glob("runs/quickstart-*/report.html")
    assert "<html" in report.read_text()


@pytest.mark.heavy
def test_the_quickstart_runs_where_pip_installed_it(built: Path, tmp_path: Path) -> None:
    """As START says it: `pip install '.[run]'`, then two commands. It needs a package index and some minutes."""
    site, folder = install(built, tmp_path / "venv"), tmp_path / "work"
    folder.mkdir()
    versions = tmp_path / "versions.txt"
    listed = (ROOT / "constraints" / "cpu.txt").read_text()
    versions.write_text("\n".join(re.findall(r"^[A-Za-z0-9_.-]+==[^ ;\\]+", listed, re.MULTILINE)))
    (wheel,) = built.glob("reodsl-*.whl")
    pip = [sys.executable, "-m", "pip", "--python", tmp_path / "venv" / "bin" / "python", "install", "-q"]
    done = subprocess.run([*pip, "-c", versions, f"{wheel}[run]"], capture_output=True, text=True)
    if "No matching distribution" in done.stderr:
        pytest.skip("no package index has what the wheel needs")
    assert done.returncode == 0, done.stderr
    for command in (("new", "--quickstart"), ("run", "quickstart.reo")):
        done = run(site, folder, *command)
        assert done.returncode == 0, done.stderr
    (report,) = folder.glob("runs/quickstart-*/report.html")
    assert "<html" in report.read_text()
    assert run(site, folder, "plan", "quickstart.reo").returncode == 0


def test_the_core_is_small(core: Path) -> None:
    """Under 40 MB with what pip compiles, which is about as large as the sources."""
    files = [path for path in core.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    compiled = sum(path.stat().st_size for path in files if path.suffix == ".py")
    assert sum(path.stat().st_size for path in files) + 1.3 * compiled < 40e6


def test_the_core_alone_serves_editors(core: Path, tmp_path: Path) -> None:
    asked = (
        ("initialize", 1, {"processId": None, "rootUri": None, "capabilities": {}}),
        ("shutdown", 2, None),
        ("exit", None, None),
    )
    sent = ""
    for method, number, params in asked:
        told = {"jsonrpc": "2.0", "method": method, "params": params, **({"id": number} if number else {})}
        body = json.dumps(told)
        sent += f"Content-Length: {len(body)}\r\n\r\n{body}"
    done = run(core, tmp_path, "lsp", input=sent)
    assert "textDocumentSync" in done.stdout, done.stderr


def test_without_an_extra_the_command_says_how_to_get_it(
    core: Path, tmp_path: Path, refusal: Callable[..., None]
) -> None:
    (tmp_path / "curves.csv").write_text("model,benchmark,budget,accuracy\n")
    done = run(core, tmp_path, "frontier", "curves.csv")
    assert done.returncode == 1
    refusal("commands/E0121.txt", done.stderr)
    (tmp_path / "tiny.reo").write_text(SPEC)
    done = run(core, tmp_path, "run", "tiny.reo")
    assert done.returncode == 1
    assert "error[E0121]: polars, ray, torch and transformers are not installed" in done.stderr
    assert "pip install 'reodsl[run]'" in done.stderr
    assert not (tmp_path / ".reodsl").exists()
    code = "import reodsl; reodsl.load('tiny.reo').run(quiet=True)"
    python = [core.parents[2] / "bin" / "python", "-P", "-c", code]
    assert (
        "pip install 'reodsl[run]'"
        in subprocess.run(python, capture_output=True, **called(core, tmp_path)).stderr
    )


def test_every_extra_is_known_by_its_modules() -> None:
    """What an extra asks for is what `missing_extra` names it by. Others are named where they are used."""
    optional = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    modules = {"vl-convert-python": "vl_convert"}
    for extra, named in EXTRAS.items():
        asked = (Requirement(each).name for each in optional[extra])
        assert {modules.get(name, name.replace("-", "_")) for name in asked if name != "reodsl"} == set(named)
    assert missing_extra(ModuleNotFoundError("x", name="torch.nn")) is not None
    assert missing_extra(ModuleNotFoundError("x", name="reodsl.nothing")) is None


def test_the_metadata_says_what_an_index_shows(core: Path) -> None:
    (found,) = metadata.distributions(name="reodsl", path=[str(core)])
    said = found.metadata
    assert said["License-Expression"] == "Apache-2.0"
    assert any(each.startswith("Paper, https://") for each in said.get_all("Project-URL", []))
    assert {"Typing :: Typed", "Programming Language :: Python :: 3.11"} <= {*said.get_all("Classifier", [])}
    assert said["Keywords"]
    assert (core / "reodsl" / "py.typed").exists()
    assert said["Description-Content-Type"] == "text/markdown"
    (lexer,) = (each for each in found.entry_points if each.group == "pygments.lexers")
    assert lexer.load().name == "reodsl"


def test_the_source_archive_is_the_whole_repository(built: Path) -> None:
    """What git tracks, and nothing else but the metadata: tests, documents and benchmarks included."""
    (archive,) = built.glob("reodsl-*.tar.gz")
    with tarfile.open(archive) as packed:
        there = {name.partition("/")[2] for name in packed.getnames()}
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    tracked = {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}
    assert tracked <= there
    assert "PKG-INFO" in there
