"""`make lock`: from pyproject.toml to the lists of what is installed, every version with the hashes of its files.

Versions stay as they are listed; `--upgrade NAME …` takes the newest of some, `--upgrade-all` of all. The lists hold for
Linux on x86-64 and aarch64 and for macOS, with Python 3.11 and later: each version has the hashes of all its files.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
CUDA = re.compile(r"(nvidia|cuda)-|(triton|liger-kernel)$")
"""What a CUDA build of torch adds, and kernels for it."""
BUILD = ("hatchling>=1.27", "editables>=0.5")
"""What it takes to install a checkout, so that nothing is fetched for it besides."""
GROUPS = {"dev": ("dev",), "docs": ("docs",), "gym": ("gym",)}
"""Lists of what tests, the site of the documents, and tasks with verifiers of their own need besides."""
BESIDE = {
    "trackers": ("reodsl[trackio]", "reodsl[wandb]"),
    # soupsieve 3 needs a Python newer than 3.11.4.
    "inspect": ("inspect_ai>=0.3.285", "soupsieve<3"),
    "peer": ("trl==1.16.0",),
}
"""Environments over the project's own: what they have besides, with what that needs."""
OTHER = {"trackers": ("pillow",), "inspect": ("fsspec",)}
"""What such an environment has in another version than the project's own, which it hides."""
ALONE = ("sbom",)
"""Extras that have an environment to themselves, without what the project takes."""
WHOLE = ("sglang-cpu", "sglang-cuda", "smollm2", "axe", "uv")
"""Environments that are listed whole, where nothing is resolved: only their hashes are looked up."""
HEADS = {
    "core": "What checking, comparing and planning specs takes, without running any. Made by `make lock`.",
    "cpu": "What running takes, for CPUs. Made by `make lock`.",
    "cuda": "What running takes, for CUDA: that for CPUs, and the libraries of a CUDA build of torch. Made by `make lock`.",
    "sbom": "What `make sbom` takes, alone. Made by `make lock`.",
    "dev": "What working on the project takes besides. Made by `make lock`.",
    "docs": "What the site of the documents takes besides. Made by `make lock`.",
    "gym": "What tasks with verifiers of their own take besides. Made by `make lock`.",
    "trackers": "What `run --track` can send to, and what it takes besides. Made by `make lock`.",
    "inspect": "The library `inspect_ai` and what it takes besides. Made by `make lock`.",
    "peer": "What `make bench` measures against, and what it takes besides. Made by `make lock`.",
    "smollm2": "What `make smollm2` takes besides: weights that a package ships, and what reads them. "
    "What these import is not installed. Hashes by `make lock`.",
    "axe": "A package of which one script is read: what it imports is not installed. Hashes by `make lock`.",
    "uv": "What installs the rest. Hashes by `make lock`.",
    "sglang-cpu": "All of the environment that serves models with SGLang on a CPU. Hashes by `make lock`.",
    "sglang-cuda": "All of the environment that serves models with SGLang on CUDA. Hashes by `make lock`.",
}

Entries = dict[str, str]


def canonical(name: str) -> str:
    """A package's name as indexes have it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def entries(text: str) -> Entries:
    """The requirements of a list, each with its hashes, by the package's name."""
    found: Entries = {}
    for block in re.split(
        r"\n(?=\S)", "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    ):
        if block.strip():
            name = canonical(block.split("==")[0].strip())
            if name in found:
                raise SystemExit(
                    f"{name} has versions for different Pythons: bound it, so that one is for all"
                )
            found[name] = block.strip()
    return found


def pins(found: Entries) -> list[str]:
    """The versions alone, without hashes."""
    return [re.split(r"[\s;\\]", entry, maxsplit=1)[0] for entry in found.values()]


def listed(name: str) -> Entries:
    """A list as it is kept."""
    path = HERE / f"{name}.txt"
    return entries(path.read_text()) if path.exists() else {}


def compiled(wanted: list[str], constraints: list[str], *more: str) -> Entries:
    """What uv resolves, with hashes. Raises CalledProcessError with its own words on stderr."""
    with tempfile.TemporaryDirectory() as folder:
        asked, held, out = (Path(folder) / name for name in ("in.txt", "held.txt", "out.txt"))
        asked.write_text("\n".join(wanted) + "\n")
        held.write_text("\n".join(constraints) + "\n")
        command = [
            "uv",
            "pip",
            "compile",
            str(asked),
            "--universal",
            "--python-version",
            "3.11",
            "--generate-hashes",
        ]
        command += ["--no-header", "--no-annotate", "--quiet", "-c", str(held), "-o", str(out), *more]
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        return entries(out.read_text())


def resolved(extras: tuple[str, ...], constraints: list[str]) -> Entries:
    """What this project takes with some of its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *BUILD]
    for extra in extras:
        wanted += requirements(project["optional-dependencies"], extra)
    return compiled(wanted, constraints)


def requirements(optional: dict[str, list[str]], extra: str) -> list[str]:
    """What an extra asks for, with that of the extras it names in its turn."""
    wanted = []
    for each in optional[extra]:
        inner = re.fullmatch(r"reodsl\[(.+)\]", each)
        wanted += requirements(optional, inner[1]) if inner else [each]
    return wanted


def with_servers_torch(run: Entries) -> list[str]:
    """The versions of `run`, but with the torch that SGLang has on CUDA, and so with its NCCL.

    NCCL joins no group of two versions, and handles of GPU memory are pickled by torch.
    """
    (torch,) = pins({"torch": listed("sglang-cuda")["torch"]})
    return [*pins({name: run[name] for name in run if name != "torch" and not CUDA.match(name)}), torch]


def write(name: str, found: Entries) -> None:
    """Write a list, packages in order."""
    lines = [f"# {HEADS[name]}", *(found[package] for package in sorted(found))]
    (HERE / f"{name}.txt").write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--upgrade", nargs="+", default=[], metavar="NAME", help="take the newest version of these"
    )
    parser.add_argument("--upgrade-all", action="store_true", help="take the newest version of everything")
    args = parser.parse_args()
    kept = {name: entry for each in ("sbom", "cpu", *GROUPS) for name, entry in listed(each).items()}
    every = [kept, *map(listed, BESIDE)]
    new = {name for each in every for name in each} if args.upgrade_all else set(map(canonical, args.upgrade))
    constraints = pins({name: entry for name, entry in kept.items() if name not in new})
    run = resolved(("run",), constraints)
    write("cpu", {name: entry for name, entry in run.items() if not CUDA.match(name)})
    write("core", resolved((), pins(run)))
    write("cuda", resolved(("run", "cuda"), with_servers_torch(run)))
    for name, extras in GROUPS.items():
        # The same versions as in the list that it is installed with.
        held = [*constraints, *pins(run)]
        write(
            name, {each: entry for each, entry in resolved(("run", *extras), held).items() if each not in run}
        )
    optional = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for name, packages in BESIDE.items():
        same = {each: entry for each, entry in run.items() if each not in OTHER.get(name, ())}
        wanted = requirements({**optional, name: list(packages)}, name)
        held = pins({each: entry for each, entry in listed(name).items() if each not in new})
        over = compiled([*wanted, *pins(same)], held)
        write(name, {each: entry for each, entry in over.items() if each not in same})
    for name in ALONE:
        write(name, compiled(requirements(optional, name), constraints))
    for name in WHOLE:
        versions = pins(listed(name))
        write(name, compiled(versions, [], "--no-deps"))


if __name__ == "__main__":
    main()
