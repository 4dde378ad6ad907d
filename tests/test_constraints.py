"""The lists of versions: the CUDA one is the CPU's and what a CUDA build of torch adds, each version named once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "constraints"
ADDED = re.compile(r"(nvidia|cuda)-|triton$")


def pins(profile: str) -> dict[str, str]:
    """Versions by canonical name; fails on a line that is no pin, and on a package named twice."""
    found: dict[str, str] = {}
    for line in (FOLDER / f"{profile}.txt").read_text().splitlines():
        if line.startswith("#") or not line:
            continue
        name, version = line.split("==")
        canonical = re.sub(r"[-_.]+", "-", name).lower()
        assert canonical not in found
        found[canonical] = version
    return found


def test_the_cuda_profile_is_the_cpus_and_cudas_libraries() -> None:
    cpu, cuda = pins("cpu"), pins("cuda")
    assert {name: cuda.get(name) for name in cpu} == cpu
    added = set(cuda) - set(cpu)
    assert {"triton", "nvidia-nccl-cu13", "nvidia-cudnn-cu13", "cuda-toolkit"} <= added
    assert all(ADDED.match(name) for name in added)


@pytest.mark.parametrize("profile", ["sglang-cpu", "sglang-cuda"])
def test_an_environment_of_servers_is_named_whole(profile: str) -> None:
    found = pins(profile)
    assert {"torch", "transformers", "tokenizers", "numpy"} <= set(found)
    assert found["sglang"] == "0.5.23"
