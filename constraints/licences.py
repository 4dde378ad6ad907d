"""`make sbom`: what each list and each environment here holds, as CycloneDX, and the licences of what is installed.

It fails on a licence that does not fit. Of what a list names and nobody has installed here, no licence is known.
This project is distributed under Apache-2.0, and what it needs is installed beside it, not shipped in it.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

FIT = frozenset(
    {
        "apache-2.0",
        "mit",
        "mit-0",
        "mit-cmu",
        "bsd",
        "bsd-2-clause",
        "bsd-3-clause",
        "0bsd",
        "isc",
        "hpnd",
        "zlib",
        "unlicense",
    }
    | {
        "cc0-1.0",
        "psf-2.0",
        "python-2.0",
        "cnri-python",
        "bsl-1.0",
        "mpl-2.0",
        "ofl-1.1",
        "libpng-2.0",
        "bzip2-1.0.6",
    }
    | {"bsd-3-clause-open-mpi", "llvm-exception", "gcc-exception-3.1", "blueoak-1.0.0"}
)
"""SPDX names of licences that ask for notices at most, or for changes of their own files."""
SPELLED = {
    r"apache.*": "apache-2.0",
    r"3-clause bsd license": "bsd-3-clause",
    r"(the )?mit( licen[cs]e)?.*": "mit",
    r"(modified |new |revised )?(3-clause )?bsd.*|bsd[- ]3.*": "bsd-3-clause",
    r"mozilla public license 2\.0.*|mpl.*": "mpl-2.0",
    r"python software foundation.*|psf.*": "psf-2.0",
    r"isc.*": "isc",
    r"the unlicense.*": "unlicense",
    r"historical permission notice.*": "hpnd",
    r"zlib.*": "zlib",
}
"""Licences as packages spell them in words of their own."""
EXCEPTIONS = {
    r"(nvidia|cuda)-.*": "the maker's terms: installed by the user with a CUDA build of torch, and never passed on by us",
    r"reodsl": "this project",
    r"axe-playwright-python": "MIT by the file in it, which its metadata does not name; axe itself is MPL-2.0",
    r"openai-harmony|sentencepiece": "Apache-2.0 by the file in it or in its repository, which its metadata does not name",
    r"blobfile": "in the public domain",
    r"easydict|pycountry": "LGPL: SGLang imports it as it is; the user installs it from the index, and we pass nothing on",
    r"zss": "BSD-3-Clause by the file in it, which its metadata does not name",
}
"""Packages whose licence does not count here, and why."""


PLACES = "import json, sys; print(json.dumps(sys.path))"
"""Prints where a Python looks for packages."""


def terms(component: dict[str, Any], places: list[str]) -> list[str]:
    """The licences that a component names, as it names them; of a text its first line. It is installed in `places`."""
    found = []
    for each in component.get("licenses", []):
        licence = each.get("license", {})
        named = each.get("expression") or licence.get("id") or licence.get("name") or ""
        if named.startswith("declared license of"):
            # The package's own words, which are a name or the whole text.
            named = str(licence.get("text", {}).get("content", ""))
        if not named.startswith("declared license file"):
            found.append(named.strip().splitlines()[0] if named.strip() else "")
    return [each for each in dict.fromkeys(found) if each] or _in_metadata(str(component["name"]), places)


def _in_metadata(name: str, places: list[str]) -> list[str]:
    """What the package's metadata says in the field of old, which the bill leaves out where it is no SPDX name."""
    for each in distributions(name=name, path=places):
        return (each.metadata.get("License") or "").strip().splitlines()[:1]
    return []


def fits(term: str) -> bool:
    """Whether one licence, or an expression of several, fits: one side of an OR, and both of an AND."""
    term = term.strip()
    for word, every in ((" OR ", any), (" AND ", all)):
        parts = _split(term, word)
        if len(parts) > 1:
            return every(fits(part) for part in parts)
    if term.startswith("(") and term.endswith(")"):
        return fits(term[1:-1])
    if " WITH " in term:
        return all(fits(part) for part in term.split(" WITH "))
    # A classifier, as in `License :: OSI Approved :: MIT License`.
    plain = term.rsplit("::", 1)[-1].strip().lower()
    return plain in FIT or any(re.fullmatch(each, plain) and spdx in FIT for each, spdx in SPELLED.items())


def _split(term: str, word: str) -> list[str]:
    """The sides of an expression at a word that stands outside of brackets."""
    parts, depth, start = [], 0, 0
    for at, character in enumerate(term):
        depth += (character == "(") - (character == ")")
        if depth == 0 and term.startswith(word, at):
            parts.append(term[start:at])
            start = at + len(word)
    return [*parts, term[start:]]


def judged(component: dict[str, Any], places: list[str]) -> tuple[list[str], str]:
    """The licences of a component, and why they do not fit; empty where they do."""
    name, found = str(component["name"]), terms(component, places)
    if any(re.fullmatch(pattern, name) for pattern in EXCEPTIONS):
        return found, ""
    if not found:
        return found, "names no licence"
    # A package may say the same in an expression, in words and by a classifier: what is said most exactly counts.
    return found, "" if any(map(fits, found)) else "has a licence that is not among those that fit"


def bill(python: str, path: Path, *of: str) -> list[dict[str, Any]]:
    """Write the bill of an environment or a list, by a Python that has cyclonedx-bom; its components by name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [
        python,
        "-P",
        "-m",
        "cyclonedx_py",
        *of,
        "--output-reproducible",
        "--of",
        "JSON",
        "-o",
        str(path),
    ]
    subprocess.run(command, check=True)
    components: list[dict[str, Any]] = json.loads(path.read_text()).get("components", [])
    return sorted(components, key=lambda each: str(each["name"]).lower())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where lists/ and environments/ go")
    parser.add_argument("pythons", nargs="*", default=[sys.executable], help="those of the environments")
    parser.add_argument("--with", dest="python", default=sys.executable, help="one that has cyclonedx-bom")
    args = parser.parse_args()
    folder: Path = args.folder
    for each in sorted(Path(__file__).parent.glob("*.txt")):
        count = len(bill(args.python, folder / "lists" / f"{each.stem}.json", "requirements", str(each)))
        print(f"{each}: {count} packages")
    wrong = []
    for python in args.pythons:
        # The folder of the environment, as in `.venv/bin/python`.
        name = Path(python).parents[1].name.lstrip(".")
        path = folder / "environments" / f"{name}.json"
        shown = subprocess.run([python, "-P", "-c", PLACES], check=True, capture_output=True, text=True)
        lines = ["| package | version | licence |", "| --- | --- | --- |"]
        for each in bill(args.python, path, "environment", python):
            found, why = judged(each, json.loads(shown.stdout))
            lines.append(f"| {each['name']} | {each['version']} | {', '.join(found).replace('|', '/')} |")
            if why:
                wrong.append(f"{name}: {each['name']} {each['version']} {why}: {', '.join(found) or 'none'}")
        path.with_suffix(".md").write_text("\n".join(lines) + "\n")
        print(f"{python}: {len(lines) - 2} packages, {path}, {path.with_suffix('.md')}")
    if wrong:
        raise SystemExit(
            "\n".join(
                [*wrong, "Find another package, or name an exception and why in constraints/licences.py."]
            )
        )


if __name__ == "__main__":
    main()
