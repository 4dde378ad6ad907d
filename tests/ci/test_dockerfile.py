"""The Dockerfile as far as it goes without a daemon: its instructions, what it copies, its shell, its profiles."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KNOWN = {"ARG", "FROM", "ENV", "RUN", "WORKDIR", "COPY", "USER", "ENTRYPOINT", "CMD"}


def instructions() -> list[tuple[str, str]]:
    """The instructions with what they say, comments left out and long lines joined."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    found = [line.split(maxsplit=1) for line in lines]
    return [(name, said) for name, said in found]


def all_of(name: str) -> list[str]:
    return [said for each, said in instructions() if each == name]


def test_it_begins_with_a_pinned_image_and_ends_as_a_plain_user() -> None:
    names = [name for name, _ in instructions()]
    assert set(names) <= KNOWN
    assert names[:2] == ["ARG", "FROM"]
    assert "latest" not in all_of("FROM")[0]
    # A tag alone could be moved by its publisher.
    assert re.fullmatch(r"BASE=python:3\.1[1-3]\.\d+-slim@sha256:[0-9a-f]{64}", all_of("ARG")[0])
    assert all_of("FROM") == ["${BASE}"]
    assert all_of("USER")[-1] != "root"
    last_user = max(at for at, name in enumerate(names) if name == "USER")
    assert "RUN" not in names[last_user:]
    assert all_of("ENTRYPOINT") == ['["reodsl"]']


def test_what_it_copies_is_there_and_not_ignored() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {source for said in all_of("COPY") for source in said.split()[:-1]}
    assert all((ROOT / source).exists() for source in copied)
    assert copied == kept


def test_the_wheel_and_the_make_target_need_no_more_than_it_copies() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text()
    included = re.findall(r'^"([\w/.]+)" = "reodsl/', pyproject, re.MULTILINE)
    copied = {source for said in all_of("COPY") for source in said.split()[:-1]}
    assert included
    assert all(Path(each).parts[0] in copied for each in included)


@pytest.mark.parametrize("profile", ["cpu", "cuda"])
def test_both_profiles_are_targets_of_make(profile: str) -> None:
    assert "PROFILE=cpu" in all_of("ARG")
    assert (ROOT / "constraints" / f"{profile}.txt").exists()
    (run,) = (said for said in all_of("RUN") if said.startswith("make"))
    nowhere = "make --dry-run VENV=/nowhere/.venv SGLANG=/nowhere/.venv-sglang "
    done = subprocess.run(
        ["sh", "-e", "-c", run.replace("make ", nowhere)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PROFILE": profile},
    )
    assert done.returncode == 0, done.stderr
    assert f"({profile} profile)" in done.stdout
    # Servers start in the image for GPUs: SGLang, its link to the runtime, and a compiler.
    (apt,) = (said for said in all_of("RUN") if said.startswith("apt-get"))
    assert '[ "${PROFILE}" = cuda ]; then apt-get install -y --no-install-recommends g++' in apt
    assert ("-r constraints/sglang-cuda.txt" in done.stdout) == (profile == "cuda")
    assert ("lib64/libcudart.so" in done.stdout) == (profile == "cuda")


@pytest.mark.parametrize("profile", ["cpu", "cuda"])
def test_its_steps_run_one_after_another(profile: str, tmp_path: Path) -> None:
    """Each as a script, where the commands that change a machine only say that they were called."""
    for name in ("apt-get", "make", "rm", "useradd", "mkdir", "chown", "chmod"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$1" "$2" >> "$LOG"\n')
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": str(tmp_path), "LOG": str(tmp_path / "log"), "PROFILE": profile}
    for script in all_of("RUN"):
        script = script.replace("/var/lib/apt/lists/*", "lists")
        subprocess.run(["/bin/sh", "-e", "-c", script], env=environment, check=True)
    gpus = profile == "cuda"
    assert (tmp_path / "log").read_text().splitlines() == [
        "apt-get update ",
        *["apt-get install -y"] * (1 + gpus),
        "rm -rf lists",
        f"make ready PROFILE={profile}",
        *["make sglang PROFILE=cuda"] * gpus,
        "useradd --create-home reo",
        "mkdir /work ",
        "chown reo /work",
    ]


@pytest.mark.parametrize("script", all_of("RUN"))
def test_its_shell_is_sound(script: str) -> None:
    assert subprocess.run(["sh", "-n", "-c", script], capture_output=True).returncode == 0
    if shutil.which("shellcheck"):
        done = subprocess.run(
            ["shellcheck", "-s", "sh", "-"], input=script, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout
