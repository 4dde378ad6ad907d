"""`make audit`: whether any version in the lists has a known vulnerability, by pip-audit, and when that was looked up.

The index is asked for each version. Where it does not tell, this says so and is no failure.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lock import HERE, canonical, entries, pins


def versions(folder: Path) -> dict[str, dict[str, list[str]]]:
    """Return every version of the lists by package, each with the names of the lists that have it."""
    found: dict[str, dict[str, list[str]]] = {}
    for path in sorted(folder.glob("*.txt")):
        for pin in pins(entries(path.read_text())):
            name, version = pin.split("==")
            # A build of its own, as in `2.13.0+cpu`, is on no index.
            lists = found.setdefault(canonical(name), {}).setdefault(version.partition("+")[0], [])
            lists.append(path.stem)
    return found


def asked(found: dict[str, dict[str, list[str]]], command: list[str]) -> Iterator[dict[str, Any]]:
    """Yield what pip-audit says of each version; nothing of those that it could not ask for."""
    most = max(map(len, found.values()))
    for turn in range(most):
        # It takes one version of a package at a time.
        some = [f"{name}=={list(each)[turn]}" for name, each in found.items() if len(each) > turn]
        with tempfile.TemporaryDirectory() as folder:
            asked = Path(folder) / "versions.txt"
            asked.write_text("\n".join(some) + "\n")
            told = subprocess.run(
                [*command, "-r", str(asked), "--disable-pip", "--no-deps", "--progress-spinner", "off", "-f", "json"],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                check=False,
            )  # fmt: skip
        try:
            yield from json.loads(told.stdout)["dependencies"]
        except (ValueError, KeyError):
            continue


def main() -> None:
    """Print when was looked, how many versions the index told of, and what is known of any; 1 where something is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lists", type=Path, default=HERE, help="the folder of the lists")
    parser.add_argument(
        "--with", dest="program", nargs="+", default=[sys.executable, "-P", "-m", "pip_audit"]
    )
    args = parser.parse_args()
    found = versions(args.lists)
    told = [each for each in asked(found, args.program) if "skip_reason" not in each]
    total, now = sum(map(len, found.values())), datetime.now(UTC)
    print(f"{now:%Y-%m-%d %H:%M} UTC: {len(told)} of {total} versions of the lists were looked up")
    if not told:
        print("The package index tells no vulnerabilities here, so nothing is known of any version.")
    known = [each for each in told if each["vulns"]]
    for each in known:
        lists = ", ".join(found[canonical(each["name"])][each["version"]])
        print(f"{each['name']} {each['version']} (in {lists}):")
        for fault in each["vulns"]:
            names = ", ".join([fault["id"], *fault.get("aliases", [])])
            print(f"  {names}; mended in {', '.join(fault['fix_versions']) or 'no version'}")
    raise SystemExit(bool(known))


if __name__ == "__main__":
    main()
