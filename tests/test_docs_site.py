"""The documents as a site: links lead to its pages, equations need no script, and no other machine is asked for anything."""

from __future__ import annotations

import importlib.util
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.browser import find, running

pytestmark = pytest.mark.slow

pytest.importorskip("zensical", reason="`make site` installs what builds the site")

AXE = importlib.util.find_spec("axe_playwright_python")
ROOT = Path(__file__).resolve().parent.parent
EVERYWHERE = """(function () {
  const found = [];
  const walk = (root) => root.querySelectorAll("*").forEach((each) => {
    if (each.shadowRoot) walk(each.shadowRoot);
    found.push(each);
  });
  walk(document);
  return found;
})()"""
"""All elements of a page, those of its search box too."""


@pytest.fixture(scope="module")
def build() -> Any:
    spec = importlib.util.spec_from_file_location("build_site", ROOT / "docs" / "site" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(build: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built; a warning fails it."""
    out = tmp_path_factory.mktemp("site")
    build.OUT = out / "site"
    with pytest.raises(SystemExit) as ended:
        build.main()
    assert ended.value.code == 0
    html: Path = out / "site" / "html"
    return html


def test_equations_become_mathml(build: Any) -> None:
    """Both ways of writing them; LaTeX within code stays as it is."""
    text = "a $`x_1`$ b `$` c\n\n```math\n\\frac{1}{2}\n```\n\n```text\n$`y`$\n```\n"
    made = build.with_equations(text)
    assert "<msub><mi>x</mi><mn>1</mn></msub>" in made
    assert "<mfrac><mrow><mn>1</mn></mrow><mrow><mn>2</mn></mrow></mfrac>" in made
    assert "```text\n$`y`$\n```" in made


def test_a_link_to_a_file_leads_to_a_page_with_it(build: Any) -> None:
    site = build.Site()
    page = site.page(
        "[a](../specs/quickstart.reo) [b](STORE.md#the-store) [c](https://x.org)", ROOT / "docs" / "LOG.md"
    )
    assert page == "[a](files/specs/quickstart.reo.md) [b](STORE.md#the-store) [c](https://x.org)"
    assert ROOT / "specs" / "quickstart.reo" in site.todo


def test_every_page_is_built_and_no_equation_is_left_over(site: Path) -> None:
    for page in (ROOT / "docs").glob("*.md"):
        assert page.stem == "REFERENCE" or (site / f"{page.stem}.html").exists(), page.name
    assert len(list((site / "diagnostics").glob("E*.html"))) > 100
    table = "benchmarks/tables/tuning_chain.parquet"
    assert (site / table).read_bytes() == (ROOT / table).read_bytes(), "what is no text is copied"
    science = (site / "SCIENCE.html").read_text()
    assert science.count("<math ") > 20
    assert not re.search(r"<m[a-z]+[^>]*>\\", science), "a command that the converter does not know"


def test_nothing_is_loaded_from_another_machine(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|link|img|iframe)[^>]+(?:src|href)="?(https?:[^" >]+)', page.read_text()
        )
        assert loaded == [], page.name


@pytest.mark.skipif(find() is None, reason="no Chromium here: apt-get install chromium")
def test_an_address_that_moved_leads_on(site: Path, tmp_path: Path) -> None:
    path = find()
    assert path is not None
    with running(path, tmp_path / "profile") as browser:
        browser.visit((site / "IMPORT.html").as_uri() + "#in-a-spec")
        for _ in range(50):
            if "EVALUATE" in (now := browser.value("location.href")):
                break
            time.sleep(0.1)
    assert now.endswith("/EVALUATE.html#imported-results-in-a-study")
    assert 'content="0; url=EVALUATE.html"' in (site / "IMPORT.html").read_text()


@pytest.mark.skipif(find() is None, reason="no Chromium here: apt-get install chromium")
def test_search_works_from_disk(site: Path, tmp_path: Path) -> None:
    path = find()
    assert path is not None
    with running(path, tmp_path / "profile") as browser:
        browser.open(site / "index.html")
        wait = "new Promise(done => setTimeout(done, 500))"
        browser.value(wait)
        browser.value("document.querySelector('.md-search__button').click()")
        links: list[str] = []
        for _ in range(40):
            browser.value(
                f"{EVERYWHERE}.filter(each => each.tagName == 'INPUT' && each.getRootNode() != document)"
                ".forEach(each => { each.value = 'trapezoid';"
                " each.dispatchEvent(new InputEvent('input', {bubbles: true})) })"
            )
            browser.value(wait)
            links = browser.value(
                f"{EVERYWHERE}.filter(each => each.tagName == 'A' && each.getRootNode() != document)"
                ".map(each => each.href)"
            )
            if any("SCIENCE.html" in link for link in links):
                break
        assert any("SCIENCE.html" in link for link in links), links
        assert [url for url in browser.asked() if not url.startswith(("file:", "data:", "about:"))] == []
        assert browser.complaints() == []


def test_the_reference_has_a_page_a_kind_and_diagnostics_lead_on(site: Path, build: Any) -> None:
    """Links into the reference lead to the page of their heading; each page of a code names the one before and after."""
    for name in ("suite", "optim", "exp", "std.paper", "rewards", "index"):
        assert (site / "reference" / f"{name}.html").exists(), name
    assert 'optim.html#optim"' in (site / "reference" / "recipe.html").read_text()
    assert 'reference/rewards.html#rewards"' in (site / "REWARDS.html").read_text()
    page = (site / "diagnostics" / "E0833.html").read_text()
    assert "<h1" in page
    assert "E0833: A served model" in page
    assert 'href="./E0834.html"' in page
    assert build.slug("exp(from: …, to: …, n: …)") == "expfrom-to-n"


def test_pictures_are_those_of_the_pages_own_scheme(site: Path) -> None:
    landing = (site / "index.html").read_text()
    for scheme in ("light", "dark"):
        assert f"quickstart-curves-{scheme}.svg#only-{scheme}" in landing
    for name in ("spec-to-report", "evaluation", "training-step", "imported-results", "smollm2-arms"):
        for scheme in ("light", "dark"):
            assert "prefers-color-scheme" not in (site / "docs" / f"{name}-{scheme}.svg").read_text()


@pytest.mark.skipif(find() is None or AXE is None, reason="needs Chromium and axe")
@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing_on_any_kind_of_page(site: Path, tmp_path: Path, dark: bool) -> None:
    """`REODSL_EVERY_PAGE=1` looks at every page. In dark only the colours are others, which three pages have all of."""
    path = find()
    assert path is not None
    assert AXE is not None
    assert AXE.origin is not None
    script = (Path(AXE.origin).parent / "axe.min.js").read_text("utf-8") + "; 0"
    coloured = ("index", "reference/suite", "LANGUAGE")
    names = (*coloured, "SCIENCE", "COMMANDS", "diagnostics/E0833", "diagnostics/index")
    pages = [site / f"{name}.html" for name in (coloured if dark else names)]
    if os.environ.get("REODSL_EVERY_PAGE"):
        # A page that is not there is the theme's own, and no link leads to it.
        pages = [each for each in sorted(site.rglob("*.html")) if each.name != "404.html"]
    options = "{resultTypes: ['violations']" + (", runOnly: ['color-contrast']}" if dark else "}")
    found = {}
    with running(path, tmp_path / "profile") as browser:
        browser.resize(1400, dark=dark)
        for page in pages:
            browser.open(page)
            browser.value(script)
            wrong = browser.value(
                f"axe.run(document, {options}).then((all) => all.violations.map((one) => "
                "[one.id, one.help, one.nodes.length, one.nodes[0].html.slice(0, 200)]))"
            )
            if wrong:
                found[page.name] = wrong
    assert found == {}
