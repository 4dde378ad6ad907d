"""What the documents show is true: specs in them check, commands in them exist, links in them lead somewhere."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import reodsl
from reodsl.cli.main import cli
from reodsl.language import check_file
from reodsl.syntax.formatter import format_source
from reodsl.syntax.source import Source

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "docs" / "site" / "landing.md",
]
OTHERS = [ROOT / "CHANGELOG.md", ROOT / "editors/vscode/README.md", *(ROOT / "benchmarks").glob("*.md")]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
WRITTEN = re.compile(r"<!-- (?!registered)(\w+): begin -->.*?<!-- \1: end -->", re.S)
"""A part of a page that a program writes."""
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")
MOVES = runpy.run_path(str(ROOT / "docs" / "site" / "moved.py"))
GENERATED = {"REFERENCE.md", "METHODS.md", "JSON.md"}
WORDS = {
    "README.md": 650,
    "landing.md": 300,
    "START.md": 1000,
    "LANGUAGE.md": 1600,
    "EVALUATE.md": 1500,
    "REWARDS.md": 1900,
    "DATA.md": 1600,
    "COOKBOOK.md": 1500,
    "FAQ.md": 900,
    "GLOSSARY.md": 800,
    "CONTRIBUTING.md": 1600,
    "CLUSTERS.md": 2600,
    "COMPARISON.md": 900,
    "EVIDENCE.md": 1100,
    "GRADING.md": 2500,
    "LOG.md": 1900,
    "OWN_CODE.md": 1800,
    "PREREGISTERED.md": 520,
    "PRICE.md": 1700,
    "PROOFS.md": 2200,
    "RESULTS.md": 1600,
    "SECURITY.md": 1800,
    "SCIENCE.md": 2600,
    "STORE.md": 1900,
    "TOOLS.md": 900,
    "TRAINING.md": 2600,
}
"""The most words that a page may have by hand: these only go down."""


def count_words(page: Path) -> int:
    """Return a page's words by hand, as `wc -w` counts them."""
    return len(WRITTEN.sub("", page.read_text()).split())


def blocks(kind: str) -> list[tuple[str, str]]:
    return [
        (f"{page.name}:{number}", text)
        for page in PAGES
        for number, (found, text) in enumerate(BLOCK.findall(page.read_text()))
        if found == kind
    ]


def whole(where: str, text: str) -> str:
    """A block as a file: a block of LANGUAGE goes on from all before it, and of some pages from the page's first."""
    page, _, number = where.partition(":")
    before = [
        text
        for place, text in blocks("reo")
        if place.startswith(page) and int(place.split(":")[1]) < int(number)
    ]
    used = {"LANGUAGE.md": before, "COOKBOOK.md": before[:1], "REWARDS.md": before[:1]}.get(page, [])
    return "\n".join([*used, text])


@pytest.mark.parametrize(("where", "text"), blocks("reo"))
def test_a_spec_in_a_document_has_no_error(where: str, text: str, tmp_path: Path) -> None:
    spec = tmp_path / "shown.reo"
    spec.write_text(whole(where, text))
    errors = [found for found in check_file(spec).diagnostics if found.severity == "error"]
    assert not errors, (where, errors[0].message)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    return set(MOVES["slugs"](BLOCK.sub("", page.read_text())))


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(BLOCK.sub("", page.read_text())):
        if "://" not in target:
            found = (page.parent / target).resolve() if target else page
            assert found.exists(), f"{page.name} links to {target}"
            assert not anchor or anchor in anchors(found), f"{page.name} links to {target}#{anchor}"
            assert found.name not in MOVES["GONE"], f"{page.name} links to {target}, which moved"


@pytest.mark.parametrize(("old", "new"), MOVES["MOVED"].items())
def test_an_address_that_moved_leads_on(old: str, new: str) -> None:
    (page, _, before), (target, _, anchor) = old.partition("#"), new.partition("#")
    assert not anchor or anchor in anchors(ROOT / "docs" / target)
    assert before not in anchors(ROOT / "docs" / page), "an address of a heading is not one that moved"
    assert page not in MOVES["GONE"] or f"]({MOVES['MOVED'][page]})" in (ROOT / "docs" / page).read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_stays_within_its_words(page: Path) -> None:
    if page.name not in {*GENERATED, *MOVES["GONE"]}:
        assert count_words(page) <= WORDS[page.name]


def test_all_pages_by_hand_stay_within_their_words() -> None:
    # Programs write the pages of benchmarks/.
    pages = [
        page for page in (*PAGES, *OTHERS) if page.name not in GENERATED and page.parent.name != "benchmarks"
    ]
    assert sum(map(count_words, pages)) <= 39_230


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_in_a_line_is_a_line(page: Path) -> None:
    # Two in a row are an empty text in a table.
    for code in re.findall(r"`([^`]+)`", BLOCK.sub("", page.read_text()).replace("``", "")):
        assert code.count("\n") <= 1, f"{page.name} has a file in a sentence: {code[:80]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_exist(page: Path) -> None:
    context = click.Context(cli)
    known = set(cli.list_commands(context))
    for name in re.findall(r"(?:^|`)reodsl ([a-z]+)\b", page.read_text(), re.M):
        assert name in known, f"{page.name} speaks of `reodsl {name}`"


def shown_commands() -> list[tuple[str, str]]:
    """Every line of a shell block that calls the project's command, without its comment; lines that go on are joined."""
    return [
        (where, line.split("#")[0].removeprefix("$ ").strip())
        for kind in ("sh", "bash", "console")
        for where, text in blocks(kind)
        for line in text.replace("\\\n", " ").splitlines()
        if line.removeprefix("$ ").startswith("reodsl ")
    ]


@pytest.mark.parametrize(("where", "line"), shown_commands())
def test_options_of_commands_exist(where: str, line: str) -> None:
    command = cli.get_command(click.Context(cli), line.split()[1])
    if line.split()[1].startswith("-"):
        return
    assert command is not None, where
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)} | {"--help"}
    for option in re.findall(r"(?<=\s)(--?[a-z][a-z-]*)", line.split("&&")[0]):
        assert option in known, f"{where}: `{line}`"


@pytest.mark.parametrize("trained", [False, pytest.param(True, marks=pytest.mark.heavy)])
def test_the_language_page_shows_what_is_printed(
    trained: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block of the page in its turn: the first is a mistake, those of `reo` build the file, and commands read it."""
    monkeypatch.chdir(tmp_path)
    spec = Path("specs", "brief.reo")
    spec.parent.mkdir()
    text, printed, compared = "", "", 0
    for kind, block in BLOCK.findall((ROOT / "docs" / "LANGUAGE.md").read_text()):
        if kind == "reo":
            text = f"{text}\n{block}" if text else block
            spec.write_text(text)
            assert format_source(Source("brief.reo", text)).text == text
        elif kind == "sh" and (trained or "reodsl run" not in block):
            printed = CliRunner().invoke(cli, shlex.split(block)[1:]).output
        elif not spec.exists():
            spec.write_text(block)
        elif kind == "text" and printed:
            compared += 1
            if "Plan:" in printed:
                # What is a change after a run is new without it, as is the model that `make run` trained.
                for mark, task in re.findall(r"^  ([+~]) (\S+)", block, re.M):
                    assert f"{mark if trained else '+'} {task} " in printed
            elif "report.html" in printed:
                # Another processor has other numbers.
                assert block.splitlines()[1] in printed
            else:
                assert {line.rstrip() for line in block.splitlines()} <= {
                    line.rstrip() for line in printed.splitlines()
                }
            printed = ""
    assert compared == 4 + trained
    assert "experiment mine" in text.splitlines()[12], "the line that the second plan names"


TASKS = (
    *(
        "EVALUATE.md#a-model-served-by-vllm-or-sglang",
        "LANGUAGE.md#1-write-a-reward",
        "FAQ.md#what-does-it-cost",
    ),
    *("FAQ.md#resume-a-run", "COOKBOOK.md#compare-two-methods", "CLUSTERS.md#slurm-and-kubernetes"),
    *("CLUSTERS.md#one-gpu-with-lora", "EVALUATE.md#logs-of-other-tools", "DATA.md#change-the-prompt"),
    "FAQ.md#why-did-a-task-run-again",
)
"""What users look for, by the headings that answer it."""


def test_the_page_of_prices_shows_what_is_printed(tmp_path: Path) -> None:
    found = dict(reversed(BLOCK.findall((ROOT / "docs" / "PRICE.md").read_text())))
    command = shlex.split(found["sh"])[1:]
    printed = CliRunner().invoke(cli, [*command, "--store", str(tmp_path)]).output
    assert set(found["text"].splitlines()) <= set(printed.splitlines())


@pytest.mark.parametrize("heading", TASKS)
def test_what_users_look_for_is_one_click_from_the_readme(heading: str) -> None:
    page, _, anchor = heading.partition("#")
    assert f"](docs/{page}" in (ROOT / "README.md").read_text()
    assert anchor in anchors(ROOT / "docs" / page)


def test_a_recipe_of_the_cookbook_is_short() -> None:
    recipes = (ROOT / "docs" / "COOKBOOK.md").read_text().split("\n## ")[1:]
    assert len(recipes) == 10
    for recipe in recipes:
        assert len(recipe.split()) <= 120, recipe.splitlines()[0]


@pytest.mark.parametrize(("where", "text"), blocks("python"))
def test_python_in_a_document_is_python(where: str, text: str) -> None:
    compile(text, where, "exec")


@pytest.mark.parametrize(("where", "text"), blocks("reo"))
def test_a_spec_in_a_document_is_laid_out_as_fmt_does(where: str, text: str) -> None:
    assert format_source(Source(where, text)).text == text


def test_every_document_is_in_the_navigation_of_the_site() -> None:
    navigation = (ROOT / "docs" / "site" / "zensical.toml").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name in {"REFERENCE.md", *MOVES["GONE"]} or f'"{page.name}"' in navigation, (
            f"add {page.name} to `nav` in docs/site/zensical.toml"
        )


@pytest.mark.parametrize("script", ["methods", "outputs"])
def test_a_generated_page_is_what_its_script_writes(script: str, request: pytest.FixtureRequest) -> None:
    made = runpy.run_path(str(ROOT / "docs" / "site" / f"{script}.py"))
    if request.config.getoption("--update-goldens"):
        made["PAGE"].write_text(made["page_text"]())
    assert made["PAGE"].read_text() == made["page_text"](), f"run: python docs/site/{script}.py"


def test_the_citation_has_the_version() -> None:
    assert f"\nversion: {reodsl.__version__}\n" in (ROOT / "CITATION.cff").read_text()
