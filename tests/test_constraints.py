"""The lists of versions: hashes, what is listed where, and what has to be equal in two of them."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "constraints"
PROFILES = (
    "core", "cpu", "cuda", "dev", "docs", "gym", "trackers", "inspect", "peer", "sbom", "smollm2",
    "torch-cpu", "uv", "sglang-cpu", "sglang-cuda",
)  # fmt: skip
ATTENTION = {"flash-attn-4", "quack-kernels", "apache-tvm-ffi", "torch-c-dlpack-ext", "einops"}
ADDED = re.compile(rf"(nvidia|cuda)-|(triton|liger-kernel|{'|'.join(ATTENTION)})$")


def entries(profile: str) -> list[str]:
    """The requirements of a list, each with the lines of its hashes."""
    text = "\n".join(
        line for line in (FOLDER / f"{profile}.txt").read_text().splitlines() if not line.startswith("#")
    )
    return [each for each in re.split(r"\n(?=\S)", text) if each.strip()]


def pins(profile: str) -> dict[str, str]:
    """Versions by canonical name; fails on a line that is not a pin, and on a package named twice."""
    found: dict[str, str] = {}
    for entry in entries(profile):
        name, version = re.split(r"[\s;\\]", entry, maxsplit=1)[0].split("==")
        canonical = re.sub(r"[-_.]+", "-", name).lower()
        assert canonical not in found
        found[canonical] = version
    return found


@pytest.mark.parametrize("profile", PROFILES)
def test_every_version_has_the_hashes_of_its_files(profile: str) -> None:
    for entry in entries(profile):
        first, *hashes = (line.strip().removesuffix(" \\") for line in entry.strip().splitlines())
        assert "==" in first
        assert hashes
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes)


def test_what_the_project_asks_for_is_listed() -> None:
    """A dependency that is added is installed: `make lock` was run."""
    project = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert extras["run"][0] == "reodsl[report]"
    for profile, wanted in {
        "cpu": [*project["dependencies"], *extras["report"], *extras["run"][1:], "hatchling", "editables"],
        "dev": extras["dev"],
        "docs": extras["docs"],
        "gym": extras["gym"],
    }.items():
        there = {**pins("cpu"), **pins(profile)}
        names = {re.sub(r"[-_.]+", "-", re.split(r"[<>=\[ ]", each)[0]).lower() for each in wanted}
        assert names <= set(there), profile


def test_the_core_is_a_part_of_what_runs_in_the_same_versions() -> None:
    project = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text())["project"]
    wanted = {re.split(r"[<>=\[ ]", each)[0] for each in (*project["dependencies"], "hatchling", "editables")}
    assert wanted <= pins("core").keys()
    assert set(entries("core")) < set(entries("cpu"))


def test_nothing_slows_the_start_of_ray() -> None:
    """It imports jsonschema, which imports a parser of addresses where one is installed: seconds for every process."""
    for profile in ("cpu", "cuda", "dev", "docs", "gym", "trackers", "inspect", "peer"):
        assert "rfc3987-syntax" not in pins(profile), profile


@pytest.mark.parametrize(
    ("profile", "other"),
    [(name, set()) for name in ("dev", "docs", "gym", "peer")]
    + [("trackers", {"pillow"}), ("inspect", {"fsspec"})],
)
def test_what_is_installed_besides_is_listed_once(profile: str, other: set[str]) -> None:
    """But for what an environment over the project's own has in another version."""
    both = set(pins(profile)) & set(pins("cpu"))
    assert both == other
    assert all(pins(profile)[name] != pins("cpu")[name] for name in both)


def test_every_list_is_looked_at() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == {*PROFILES, "axe"}


def test_the_cuda_profile_is_the_cpus_and_cudas_libraries() -> None:
    """But for torch, which is the one of the servers."""
    cpu, cuda = pins("cpu"), pins("cuda")
    assert {name: cuda.get(name) for name in cpu} == cpu | {"torch": cuda["torch"]}
    added = set(cuda) - set(cpu)
    assert {"triton", "liger-kernel", "nvidia-nccl-cu13", "nvidia-cudnn-cu13", "cuda-toolkit"} <= added
    assert all(ADDED.match(name) for name in added)
    # Servers have its newest release, and torch calls it as it was.
    assert added >= ATTENTION | {"nvidia-cutlass-dsl-libs-cu13"}
    assert cuda["flash-attn-4"] == "4.0.0b17"


def test_trainer_and_servers_have_one_torch_and_one_nccl_on_cuda() -> None:
    """NCCL refuses a group of two versions: every weight update would fall back to files."""
    trainer, server = pins("cuda"), pins("sglang-cuda")
    for name in ("torch", "triton", "nvidia-nccl-cu13"):
        assert trainer[name] == server[name], name


@pytest.mark.parametrize("profile", ["sglang-cpu", "sglang-cuda"])
def test_servers_compile_with_the_version_that_they_run(profile: str) -> None:
    """A compiler refuses headers of another CUDA, and kernels that it makes may not run on an older one."""
    found = pins(profile)
    toolkit = ("nvcc", "crt", "cccl", "runtime")
    every = [found[f"nvidia-cuda-{part}"] for part in toolkit] + [found["nvidia-nvvm"]]
    assert {version.rpartition(".")[0] for version in every} == {"13.0"}


@pytest.mark.parametrize("profile", ["sglang-cpu", "sglang-cuda"])
def test_an_environment_of_servers_is_named_whole(profile: str) -> None:
    found = pins(profile)
    assert {"torch", "transformers", "tokenizers", "numpy"} <= set(found)
    assert found["sglang"] == "0.5.23"


ENVIRONMENTS = re.findall(r"^(\w+) *:= \.venv-", (FOLDER.parent / "Makefile").read_text(), re.MULTILINE)
"""The Makefile's names of the environments besides the project's own."""


def installs(folder: Path, *more: str) -> list[str]:
    """What pip and uv install for a goal of the Makefile where nothing is installed; nothing is."""
    if shutil.which("make") is None:
        pytest.skip("needs make")
    told = subprocess.run(
        ["make", "-n", f"VENV={folder}", *(f"{each}={folder / each}" for each in ENVIRONMENTS), *more],
        check=True,
        capture_output=True,
        text=True,
        cwd=FOLDER.parent,
    ).stdout
    return re.findall(r"(?:-m pip .*? install -q|constraints/install.py \S+) (.*)", told)


@pytest.mark.parametrize("profile", ["cpu", "cuda"])
@pytest.mark.parametrize(
    "goal", ["run", "test", "lint", "sglang", "sbom", "site", "audit", "bench", "trackers", "inspect"]
)
def test_wheels_alone_are_installed_each_by_its_hash(goal: str, profile: str, tmp_path: Path) -> None:
    """But for the checkout, which is built by what the list has, in no environment of its own."""
    calls = installs(tmp_path, goal, f"PROFILE={profile}")
    ours = [call for call in calls if call.endswith("-e .")]
    assert ours == ([] if goal in ("sglang", "audit") else ["--no-deps --no-build-isolation -e ."])
    assert len(calls) > len(ours)
    assert calls.count("--no-deps --require-hashes --only-binary :all: -r constraints/uv.txt") == 1
    for call in set(calls) - set(ours):
        assert call.startswith("--no-deps --require-hashes --only-binary :all: -r constraints/"), call
        assert "-index" not in call


def test_another_index_is_asked_for_torch_alone(tmp_path: Path) -> None:
    """Beside a second index, anybody's package of a listed name would do on either."""
    calls = installs(tmp_path, "run", "PROFILE=cpu", "TORCH_INDEX=https://builds.example")
    (elsewhere,) = [call for call in calls if "-index" in call]
    torch = pins("cpu")["torch"]
    assert elsewhere == f"--no-deps --only-binary :all: --default-index https://builds.example torch=={torch}"


PIP_SETTINGS = """
:env:.cert='/etc/ssl/mine.crt'
global.cert='/etc/ssl/ours.crt'
global.extra-index-url='file:///a/simple\\nfile:///b/simple'
global.find-links='/one /two'
global.index-url='https://mirror.example/simple'
global.quiet='1'
wheel.index-url='https://nobody.example'
"""
ASKED = ("bin/python", "--no-deps", "torch")


@pytest.mark.parametrize("more", [(), ("--default-index", "https://builds.example")])
def test_settings_of_pip_lead_uv_too(more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment's setting goes before a file's, and what is set for uv before both. A named index is alone."""
    program = runpy.run_path(str(FOLDER / "install.py"))
    listed = subprocess.CompletedProcess((), 0, PIP_SETTINGS.strip())
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: listed)
    monkeypatch.setattr(os, "environ", {"UV_FIND_LINKS": "/three"} if more else {"UV_DEFAULT_INDEX": "mine"})
    started: list[Any] = []
    monkeypatch.setattr(os, "execve", lambda *given: started.append(given))
    program["main"](*ASKED, *more)
    ((uv, command, variables),) = started
    assert Path(uv).name == "uv"
    assert command == [uv, "pip", "install", "-q", "--python", *ASKED, *more]
    assert variables == {
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "SSL_CERT_FILE": "/etc/ssl/mine.crt",
        "UV_DEFAULT_INDEX": "https://mirror.example/simple" if more else "mine",
    } | ({} if more else {"UV_INDEX": "file:///a/simple file:///b/simple", "UV_FIND_LINKS": "/one,/two"})


def test_every_environment_is_named_here() -> None:
    assert {"INSTALLER", "PEER", "SGLANG", "TRACKERS", "INSPECT", "BILL"} == set(ENVIRONMENTS)


def test_continuous_integration_lists_what_is_installed_and_its_licences_once_all_is_there() -> None:
    lines = (FOLDER.parent / ".ci" / "run").read_text().splitlines()
    assert lines.index("make sbom") > lines.index('wait "$sglang"')
    assert lines[-1].startswith("make audit || ")


AUDIT = """
import json, sys
place = sys.argv[sys.argv.index("-r") + 1]
told = []
for line in open(place):
    name, version = line.strip().split("==")
    told.append({"name": name, "version": version, "vulns": VULNS if (name, version) == ("torch", "2.14.1") else []})
    if name in SKIPPED:
        told[-1] = {"name": name, "skip_reason": "not on the index"}
print(json.dumps({"dependencies": told, "fixes": []}))
"""
FAULT = {"id": "PYSEC-1", "aliases": ["CVE-2026-1"], "fix_versions": ["2.15.0"]}


@pytest.mark.parametrize(
    ("stand_in", "code", "words"),
    [
        (
            AUDIT.replace("VULNS", repr([FAULT])).replace("SKIPPED", "('numpy',)"),
            1,
            "PYSEC-1, CVE-2026-1; mended in 2.15.0",
        ),
        (AUDIT.replace("VULNS", "[]").replace("SKIPPED", "()"), 0, ""),
        (
            AUDIT.replace("VULNS", "[]").replace("name in SKIPPED", "True"),
            0,
            "nothing is known of any version",
        ),
        ("raise SystemExit('no network')", 0, "nothing is known of any version"),
    ],
)
def test_known_vulnerabilities_are_named_with_the_date_and_no_data_is_no_failure(
    tmp_path: Path, stand_in: str, code: int, words: str
) -> None:
    (tmp_path / "audit.py").write_text(stand_in)
    command = [sys.executable, str(FOLDER / "audit.py"), "--with", sys.executable, str(tmp_path / "audit.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    first, *rest = done.stdout.splitlines()
    when = re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d UTC: (\d+) of (\d+) versions of the lists were looked up", first
    )
    assert when is not None, done
    every = {
        (name, version.partition("+")[0])
        for each in (*PROFILES, "axe")
        for name, version in pins(each).items()
    }
    assert int(when[2]) == len(every)
    asked = 0 if "nothing" in words else len([name for name, _ in every if not (code and name == "numpy")])
    assert int(when[1]) == asked
    assert done.returncode == code
    assert words in "\n".join(rest)
    assert bool(rest) == bool(words)
    if code:
        assert rest[0] == "torch 2.14.1 (in cuda, sglang-cuda):"


@pytest.mark.slow
def test_what_a_run_imports_is_compiled_when_it_is_installed() -> None:
    """`SELDOM` of the Makefile leaves out files that no run imports, and no package of a run."""
    makefile = (FOLDER.parent / "Makefile").read_text()
    seldom = re.compile(next(re.finditer(r"^SELDOM +=(.*)$", makefile, re.MULTILINE))[1].strip())
    modules = ("runners.registry", "runners.train.run", "runners.evaluate.run", "ray", "reodsl.report.run")
    shown = "import sys; print(*(m.__file__ for m in list(sys.modules.values()) if getattr(m, '__file__', None)), sep='\\n')"
    program = f"import {', '.join(modules)}; {shown}"
    told = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=FOLDER.parent
    )
    read = [name for name in told.stdout.splitlines() if name.endswith(".py")]
    left_out = [name for name in read if seldom.search(name)]
    assert len(read) > 2000
    assert len(left_out) < 0.02 * len(read), left_out
    for path in (
        "a/site-packages/transformers/models/bert/modeling_bert.py",
        "a/site-packages/numpy/tests/test_a.py",
    ):
        assert seldom.search(path)
    assert not seldom.search("home/tests/a/site-packages/torch/nn/functional.py")
