"""Packages for a machine without network: those of this environment, in one archive, of which it takes what it lacks.

`python -m benchmarks.carried pack` writes build/gpu-packages.tar.xz, of less than 64 MiB. `unpack` lays out what is not
installed there beside it, and prints that folder for PYTHONPATH.
"""

from __future__ import annotations

import sys
import tarfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

NAMES = (
    *("reodsl", "pydantic", "pydantic-core", "annotated-types", "typing-inspection", "typing-extensions"),
    *("polars", "polars-runtime-32", "transformers", "tokenizers", "safetensors", "huggingface-hub", "regex"),
    *("liger-kernel", "rich", "markdown-it-py", "mdurl", "pygments", "click", "lark", "humanize", "orjson"),
    *("psutil", "httpx", "httpcore", "h11", "anyio", "idna", "certifi", "tqdm", "pyyaml", "filelock"),
    *("packaging", "pytest", "pluggy", "iniconfig", "hypothesis", "sortedcontainers"),
)
"""What measurements import beside torch and NumPy, and pytest; of the project itself only that it has runners."""
ARCHIVE = Path(__file__).resolve().parents[1] / "build" / "gpu-packages.tar.xz"
MOST = 64 << 20
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


def pack(archive: Path, names: Sequence[str] = NAMES) -> int:
    """Write the files of installed packages, and return the archive's bytes. Raises SystemExit where these are too many."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:xz") as file:
        for name in names:
            try:
                found = metadata.distribution(name)
            except metadata.PackageNotFoundError:
                print(f"{name} is not installed here and stays away", file=sys.stderr)
                continue
            for path in found.files or ():
                if ".." not in path.parts and path.suffix not in (".pyc", ".pth"):
                    file.add(str(found.locate_file(path)), f"{VERSION}/{name}/{path}")
    size = archive.stat().st_size
    if size > MOST:
        raise SystemExit(f"{archive} has {size:,} bytes, and {MOST:,} can be carried")
    return size


def unpack(archive: Path, folder: Path) -> list[str]:
    """Lay out what is not installed here, and return its names. Raises SystemExit where it is for another Python."""
    lacking: list[str] = []
    with tarfile.open(archive) as file:
        for member in file:
            version, name, inner = member.name.split("/", 2)
            if version != VERSION:
                raise SystemExit(f"{archive} is for Python {version}, and this is {VERSION}")
            if name not in lacking and _is_installed(name):
                continue
            lacking += [name] * (name not in lacking)
            member.name = inner
            file.extract(member, folder, filter="data")
    return lacking


def _is_installed(name: str) -> bool:
    try:
        return bool(metadata.version(name))
    except metadata.PackageNotFoundError:
        return False


def main(arguments: Sequence[str] | None = None) -> None:
    """Pack, or unpack where there is an archive."""
    (word,) = sys.argv[1:] if arguments is None else arguments
    if word == "pack":
        print(f"{ARCHIVE}: {pack(ARCHIVE) / 2**20:.1f} MiB")
        return
    folder = ARCHIVE.with_name("gpu-packages")
    if ARCHIVE.is_file():
        print(f"carried: {', '.join(unpack(ARCHIVE, folder)) or 'nothing is missing'}", file=sys.stderr)
    print(folder)


if __name__ == "__main__":
    main()
