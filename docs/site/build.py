"""`make site`: the documents as a site that needs no network, in build/site/html.

Pages are those of the repository. This file copies them to build/site/pages, makes the ones that come from code (commands,
diagnostics, files that pages link to), points links at them, turns LaTeX into MathML, and calls zensical, which fails on
a warning.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import latex2mathml.converter

from reodsl.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "site"
CONFIG = Path(__file__).with_name("zensical.toml")
DIAGNOSTICS = ROOT / "reodsl" / "diagnostics" / "pages"
WHOLE = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
"""Pages at the top of the repository; the README is the site's first."""
FENCE = re.compile(r"^```.*?^```[^\S\n]*$", re.M | re.S)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
PICTURE = re.compile(r'<picture>.*?<img src="([^"]+)" alt="([^"]*)">\s*</picture>', re.S)
LANGUAGES = {".py": "python", ".reo": "reo", ".json": "json", ".toml": "toml", ".yaml": "yaml", ".sh": "sh"}
COMMAND = "reodsl"
FAMILIES = {
    "E01": "Files and the command line",
    "E02": "Names and imports",
    "E03": "Types and settings",
    "E04": "Budgets and rewards",
    "E05": "Recipes, prompts and evaluation",
    "E06": "Studies and clusters",
    "E07": "Data and verifiers",
    "E08": "Runs",
    "E09": "Machines, stores and results",
    "N": "Notes",
    "W": "Warnings",
}


class Site:
    """The pages that are staged: each file of the repository that has one, and where it stands on the site."""

    def __init__(self) -> None:
        self.places: dict[Path, str] = {ROOT / name: name for name in WHOLE}
        self.places[ROOT / "README.md"] = "index.md"
        self.places |= {path: path.name for path in sorted((ROOT / "docs").glob("*.md"))}
        self.places |= {path: f"diagnostics/{path.name}" for path in sorted(DIAGNOSTICS.glob("*.md"))}
        self.places |= {
            path: f"benchmarks/{path.name}" for path in sorted((ROOT / "benchmarks").glob("*.md"))
        }
        self.todo = list(self.places)
        self.written: set[Path] = set()

    def place(self, path: Path) -> str:
        """Where a file or folder of the repository stands on the site; one that is linked gets a page."""
        if path not in self.places:
            name = path.relative_to(ROOT).as_posix()
            self.places[path] = name if path.suffix in (".png", ".svg") else f"files/{name}.md"
            self.todo.append(path)
        return self.places[path]

    def write(self) -> None:
        """Write every page, and then those that they link to."""
        while self.todo:
            path = self.todo.pop(0)
            if path in self.written:
                continue
            self.written.add(path)
            target = OUT / "pages" / self.places[path]
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix in (".png", ".svg"):
                shutil.copyfile(path, target)
            elif path.suffix == ".md":
                target.write_text(self.page(path.read_text(), path))
            elif path.is_dir():
                target.write_text(self.page(folder_page(path), path))
            else:
                target.write_text(file_page(path))

    def page(self, text: str, path: Path) -> str:
        """A page with its links pointed at the site, and its equations as MathML."""
        base = path if path.is_dir() else path.parent
        here = Path(self.places[path]).parent

        def point(match: re.Match[str]) -> str:
            mark, label, target = match.groups()
            name, _, anchor = target.partition("#")
            if "://" in target or target.startswith("mailto:") or not name:
                return match[0]
            place = os.path.relpath(self.place((base / name).resolve()), here)
            return f"{mark}[{label}]({place}{'#' + anchor if anchor else ''})"

        # A picture in light and dark is one image here, on a site that is light.
        text = PICTURE.sub(r"![\2](\1)", text)
        return outside_fences(with_equations(text), lambda part: LINK.sub(point, part))


def outside_fences(text: str, change: object) -> str:
    """Change the text between fenced blocks."""
    assert callable(change)
    parts, last = [], 0
    for fence in FENCE.finditer(text):
        parts += [change(text[last : fence.start()]), fence[0]]
        last = fence.end()
    return "".join([*parts, change(text[last:])])


def with_equations(text: str) -> str:
    """LaTeX, in the two ways that GitHub reads it too, as MathML: ```math blocks and $`…`$ in a line."""

    def block(match: re.Match[str]) -> str:
        return f'<div class="math">{latex2mathml.converter.convert(match[1].strip(), display="block")}</div>'

    def inline(match: re.Match[str]) -> str:
        return f'<span class="math">{latex2mathml.converter.convert(match[1])}</span>'

    text = re.sub(r"^```math\n(.*?)^```[^\S\n]*$", block, text, flags=re.M | re.S)
    return outside_fences(text, lambda part: re.sub(r"\$`(.+?)`\$", inline, part))


def fenced(text: str, language: str) -> str:
    """A block of code, whatever fences it holds."""
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall(r"`+", text)), 3)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}\n"


def file_page(path: Path) -> str:
    """A file of the repository that a page links to."""
    return f"# {path.relative_to(ROOT)}\n\n{fenced(path.read_text(), LANGUAGES.get(path.suffix, 'text'))}"


def folder_page(path: Path) -> str:
    """The files of a folder that pages link to."""
    names = sorted(each.name for each in path.iterdir() if each.is_file() and not each.name.startswith("."))
    return f"# {path.relative_to(ROOT)}\n\n" + "".join(f"- [{name}]({name})\n" for name in names)


def commands_page() -> str:
    """Every command with its own help."""
    context = click.Context(cli, info_name=COMMAND)
    parts = ["# Commands", "", "Each is what `--help` prints.", ""]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        with click.Context(command, parent=context, info_name=name, max_content_width=100) as inner:
            parts += [f"## {COMMAND} {name}", "", fenced(command.get_help(inner), "text")]
    return "\n".join(parts)


def diagnostics_page() -> str:
    """Every code with what it is about, by family."""
    parts = ["# Diagnostics", "", f"Each code has a page; `{COMMAND} explain CODE` prints the same.", ""]
    pages = sorted(DIAGNOSTICS.glob("*.md"))
    for family, title in FAMILIES.items():
        rows = [
            f"| [{page.stem}]({page.name}) | {page.read_text().splitlines()[0].lstrip('# ')} |"
            for page in pages
            if page.name.startswith(family)
        ]
        if rows:
            parts += [f"## {title}", "", "| code | |", "| --- | --- |", *rows, ""]
    return "\n".join(parts)


def main() -> None:
    shutil.rmtree(OUT, ignore_errors=True)
    (OUT / "pages" / "diagnostics").mkdir(parents=True)
    Site().write()
    (OUT / "pages" / "COMMANDS.md").write_text(commands_page())
    (OUT / "pages" / "diagnostics" / "index.md").write_text(diagnostics_page())
    for name in ("site.css", "iframe-worker.js"):
        shutil.copyfile(CONFIG.with_name(name), OUT / "pages" / name)
    shutil.copyfile(CONFIG, OUT / "zensical.toml")
    command = [
        sys.executable,
        "-P",
        "-m",
        "zensical",
        "build",
        "--clean",
        "--strict",
        "-f",
        str(OUT / "zensical.toml"),
    ]
    sys.exit(subprocess.run(command).returncode)


if __name__ == "__main__":
    main()
