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
from typing import NamedTuple

import click
import latex2mathml.converter

from reodsl.cli.main import cli

sys.path.insert(0, str(Path(__file__).parent))
from moved import GONE, redirects, slug, slugs, write_moved_pages
from picture import split_schemes

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "site"
CONFIG = Path(__file__).with_name("zensical.toml")
DIAGNOSTICS = ROOT / "reodsl" / "diagnostics" / "pages"
WHOLE = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
"""Pages at the top of the repository."""
LANDING = Path(__file__).with_name("landing.md")
REFERENCE = ROOT / "docs" / "REFERENCE.md"
FENCE = re.compile(r"^```.*?^```[^\S\n]*$", re.M | re.S)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
PICTURE = re.compile(r'<picture>.*?srcset="([^"]+)".*?<img src="([^"]+)" alt="([^"]*)">\s*</picture>', re.S)
DRAWN = re.compile(r"!\[([^\[\]]*)\]\(([^()\s]+)\.svg\)")
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
        self.places[LANDING] = "index.md"
        self.places |= {
            path: path.name for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in GONE
        }
        self.places |= {path: f"diagnostics/{path.name}" for path in sorted(DIAGNOSTICS.glob("*.md"))}
        self.places |= {
            path: f"benchmarks/{path.name}" for path in sorted((ROOT / "benchmarks").glob("*.md"))
        }
        self.todo = [REFERENCE, *(each for each in self.places if each != REFERENCE)]
        self.written: set[Path] = set()
        self.reference: dict[str, ReferencePage] = {}
        self.anchors: dict[str, str] = {}

    def place(self, path: Path) -> str:
        """Where a file or folder of the repository stands on the site; one that is linked gets a page."""
        if path not in self.places:
            name = path.relative_to(ROOT).as_posix()
            self.places[path] = name if path.suffix == ".svg" or not is_text(path) else f"files/{name}.md"
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
            if not is_text(path):
                shutil.copyfile(path, target)
            elif path.suffix == ".svg":
                for scheme, drawn in split_schemes(path.read_text()).items():
                    target.with_stem(f"{target.stem}-{scheme}").write_text(drawn)
            elif path == REFERENCE:
                self.write_reference(path.read_text())
            elif path.suffix == ".md":
                text = path.read_text()
                if path.parent == DIAGNOSTICS:
                    text = text.replace("# ", f"# {path.stem}: ", 1)
                target.write_text(self.page(text, path))
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
            file = (base / name).resolve()
            if file == REFERENCE:
                page = self.anchors.get(anchor, "index.md")
                return f"{mark}[{label}]({os.path.relpath(f'reference/{page}', here)}{'#' + anchor if anchor else ''})"
            place = os.path.relpath(self.place(file), here)
            return f"{mark}[{label}]({place}{'#' + anchor if anchor else ''})"

        # The page's own switch chooses between the two of a picture, not what the browser prefers.
        text = PICTURE.sub(r"![\3](\2#only-light)![\3](\1#only-dark)", text)
        text = outside_fences(with_equations(text), lambda part: LINK.sub(point, part))
        return DRAWN.sub(r"![\1](\2-light.svg#only-light)![\1](\2-dark.svg#only-dark)", text)

    def write_reference(self, text: str) -> None:
        """Write the reference as a page for each section, and for each kind, function and module in one."""
        pages = split_reference(text)
        anchors = {slug: name for name, page in pages.items() for slug in slugs(page.text)}

        def point(match: re.Match[str]) -> str:
            return f"]({anchors[match[1]]}#{match[1]})" if match[1] in anchors else match[0]

        for name, page in pages.items():
            whole = page.text + "".join(f"- [{pages[each].title}]({each})\n" for each in page.inside)
            target = OUT / "pages" / "reference" / name
            target.parent.mkdir(exist_ok=True)
            target.write_text(re.sub(r"\]\(#([^()]+)\)", point, whole))
        self.reference, self.anchors = pages, anchors


class ReferencePage(NamedTuple):
    """A page of the reference: its title, its text, and the pages below it by their files."""

    title: str
    text: str
    inside: tuple[str, ...] = ()


def split_reference(text: str) -> dict[str, ReferencePage]:
    """Return the reference's pages by their files: the first, each section, and each part of one, in their order."""
    first, *sections = re.split(r"^## ", text, flags=re.M)
    pages: dict[str, ReferencePage] = {}
    tops = []
    for section in sections:
        head, *parts = re.split(r"^### ", section, flags=re.M)
        title = head.split("\n", 1)[0]
        top = f"{slug(title)}.md"
        tops.append(top)
        pages[top] = ReferencePage(title, f"# {head.strip()}\n\n")
        names = []
        for part in parts:
            heading = part.split("\n", 1)[0]
            stem = re.split(r"[(\s]", heading)[0]
            name = next(each for n in ("", "-2", "-3") if (each := f"{stem}{n}.md") not in pages)
            names.append(name)
            pages[name] = ReferencePage(stem, f"# {part.strip()}\n")
        pages[top] = pages[top]._replace(inside=tuple(names))
    return {"index.md": ReferencePage("Reference", f"{first.strip()}\n\n", tuple(tops)), **pages}


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


def is_text(path: Path) -> bool:
    """Return whether a page can show a file or folder: a picture or a table in Parquet is copied beside the pages."""
    return path.is_dir() or b"\0" not in path.read_bytes()


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
            parts += [f"## {title}", "", "| code | title |", "| --- | --- |", *rows, ""]
    return "\n".join(parts)


def with_navigation(config: str, reference: dict[str, ReferencePage]) -> str:
    """Return the configuration with the pages of diagnostics and of the reference in its navigation."""
    codes = sorted(page.stem for page in DIAGNOSTICS.glob("*.md"))
    families = [
        (title, [f'"diagnostics/{code}.md"' for code in codes if code.startswith(family)])
        for family, title in FAMILIES.items()
    ]
    sections = [
        (reference[top].title, [f'"reference/{each}"' for each in (top, *reference[top].inside)])
        for top in reference["index.md"].inside
    ]
    for place, index, groups in (
        ("REFERENCE", "reference/index.md", sections),
        ("DIAGNOSTICS", "diagnostics/index.md", families),
    ):
        rows = "".join(f'    {{ "{title}" = [{", ".join(pages)}] }},\n' for title, pages in groups if pages)
        config = config.replace(f'"{place}"', f'[\n    "{index}",\n{rows}  ]')
    return config


def main() -> None:
    shutil.rmtree(OUT, ignore_errors=True)
    (OUT / "pages" / "diagnostics").mkdir(parents=True)
    site = Site()
    site.write()
    (OUT / "pages" / "COMMANDS.md").write_text(commands_page())
    (OUT / "pages" / "diagnostics" / "index.md").write_text(diagnostics_page())
    for name in ("site.css", "labels.js", "iframe-worker.js"):
        shutil.copyfile(CONFIG.with_name(name), OUT / "pages" / name)
    (OUT / "pages" / "moved.js").write_text(redirects())
    (OUT / "zensical.toml").write_text(with_navigation(CONFIG.read_text(), site.reference))
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
    status = subprocess.run(command).returncode
    if status == 0:
        write_moved_pages(OUT / "html")
    sys.exit(status)


if __name__ == "__main__":
    main()
