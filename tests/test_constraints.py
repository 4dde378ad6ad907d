"""The lists of versions: hashes, what is listed where, and what has to be equal in two of them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "constraints"
PROFILES = ("cpu", "cuda", "dev", "docs", "gym", "sbom", "smollm2", "torch-cpu", "sglang-cpu", "sglang-cuda")
ADDED = re.compile(r"(nvidia|cuda)-|(triton|liger-kernel)$")


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


def test_nothing_slows_the_start_of_ray() -> None:
    """It imports jsonschema, which imports a parser of addresses where one is installed: seconds for every process."""
    for profile in ("cpu", "cuda", "dev", "docs", "gym"):
        assert "rfc3987-syntax" not in pins(profile), profile


@pytest.mark.parametrize("profile", ["dev", "docs", "gym"])
def test_what_is_installed_besides_is_listed_once(profile: str) -> None:
    assert not set(pins(profile)) & set(pins("cpu"))


def test_the_cuda_profile_is_the_cpus_and_cudas_libraries() -> None:
    """But for torch, which is the one of the servers."""
    cpu, cuda = pins("cpu"), pins("cuda")
    assert {name: cuda.get(name) for name in cpu} == cpu | {"torch": cuda["torch"]}
    added = set(cuda) - set(cpu)
    assert {"triton", "liger-kernel", "nvidia-nccl-cu13", "nvidia-cudnn-cu13", "cuda-toolkit"} <= added
    assert all(ADDED.match(name) for name in added)


def test_trainer_and_servers_have_one_torch_and_one_nccl_on_cuda() -> None:
    """NCCL refuses a group of two versions: every weight update would fall back to files."""
    trainer, server = pins("cuda"), pins("sglang-cuda")
    for name in ("torch", "triton", "nvidia-nccl-cu13"):
        assert trainer[name] == server[name], name


@pytest.mark.parametrize("profile", ["sglang-cpu", "sglang-cuda"])
def test_an_environment_of_servers_is_named_whole(profile: str) -> None:
    found = pins(profile)
    assert {"torch", "transformers", "tokenizers", "numpy"} <= set(found)
    assert found["sglang"] == "0.5.23"
