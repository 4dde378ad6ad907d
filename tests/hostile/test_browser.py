"""The report of a study whose every text is hostile, in a real browser: nothing of it runs, and the page works."""

from __future__ import annotations

from pathlib import Path

import pytest

from reodsl.report.figures import Gallery
from reodsl.report.material import read
from reodsl.report.page import page as page_of
from tests.hostile.browser import find, running
from tests.report.conftest import HOSTILE
from tests.report.synthetic import ARMS, world

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, out = tmp_path_factory.mktemp("hostile"), tmp_path_factory.mktemp("report")
    names = {plain: f"{plain}{HOSTILE}" for plain in ("study", *ARMS)}
    bad = world(folder, benchmarks=(f"easy{HOSTILE}",), rename=names, doc=HOSTILE, text=HOSTILE)
    (out / "report.html").write_text(page_of(read(bad.spec, bad.inputs), Gallery(), {}), "utf-8")
    return out / "report.html"


@pytest.mark.skipif(find() is None, reason="no Chromium here: apt-get install chromium")
def test_nothing_hostile_runs_in_a_real_browser(page: Path, tmp_path: Path) -> None:
    path = find()
    assert path is not None
    with running(path, tmp_path / "profile") as browser:
        browser.open(page)
        wait = "new Promise(done => setTimeout(done, {}))"
        browser.value(wait.format(1500))
        # Every fold opened, every button pressed: whatever a click could start has started.
        browser.value("document.querySelectorAll('details').forEach(each => each.open = true)")
        browser.value("document.querySelectorAll('button').forEach(each => each.click())")
        browser.value(wait.format(500))
        assert browser.value("typeof window.pwned") == "undefined"
        assert browser.value("document.querySelectorAll('img, iframe, object, embed, link').length") == 0
        assert browser.value("document.body.innerText.includes('<script>window.pwned=1</script>')")
        drawn = browser.value("document.querySelectorAll('.vega canvas, .vega svg').length")
        assert drawn > 3
        outside = [
            url for url in browser.asked() if not url.startswith(("file:", "data:", "blob:", "about:"))
        ]
        assert outside == []
        assert browser.complaints() == []


@pytest.mark.skipif(find() is None, reason="no Chromium here: apt-get install chromium")
def test_a_script_that_gets_into_the_page_is_not_run(page: Path, tmp_path: Path) -> None:
    """Were a text ever left as it is, the page's own policy would stop it: a browser that says nothing would be deaf."""
    path = find()
    assert path is not None
    text = page.read_text("utf-8")
    spoilt = tmp_path / "spoilt.html"
    spoilt.write_text(
        text.replace("<main>", "<main><script>window.pwned=1</script><img src=x onerror=window.pwned=1>"),
        "utf-8",
    )
    with running(path, tmp_path / "profile") as browser:
        browser.open(spoilt)
        browser.value("new Promise(done => setTimeout(done, 500))")
        assert browser.value("typeof window.pwned") == "undefined"
        assert any("Content Security Policy" in each for each in browser.complaints())
