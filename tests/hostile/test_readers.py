"""A report in a real browser as different readers have it: narrow windows, keyboards, and arms that are switched on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reodsl.report.figures import Gallery
from reodsl.report.material import read
from reodsl.report.page import page
from tests.hostile.browser import Browser, find, running
from tests.report.synthetic import ARMS, world

pytestmark = pytest.mark.skipif(find() is None, reason="no Chromium here: apt-get install chromium")

READY = (
    "new Promise(done => { const look = () => "
    "document.documentElement.dataset.ready ? done() : setTimeout(look, 50); look(); })"
)
WAIT = "new Promise(done => setTimeout(done, {}))"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser with a report on three benchmarks open."""
    path, out = find(), tmp_path_factory.mktemp("report")
    assert path is not None
    one_seed = world(tmp_path_factory.mktemp("study"))
    (out / "report.html").write_text(page(read(one_seed.spec, one_seed.inputs), Gallery(), {}), "utf-8")
    with running(path, tmp_path_factory.mktemp("profile")) as found:
        found.open(out / "report.html")
        found.value(READY)
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("width", [1400, 1024, 390])
def test_the_table_of_results_is_whole(browser: Browser, width: int) -> None:
    browser.resize(width)
    browser.value(WAIT.format(200))
    assert browser.value("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    # Each number is inside its cell, and the average inside the window before anything is scrolled.
    cut = "[...document.querySelectorAll('table.results tbody td')].filter(c => c.scrollWidth > c.clientWidth + 1).length"
    assert browser.value(cut) == 0
    out = (
        "[...document.querySelectorAll('table.results tbody .fixed')]"
        ".filter(c => c.getBoundingClientRect().right > document.documentElement.clientWidth).length"
    )
    assert browser.value(out) == 0
    first = "document.querySelector('table.results tbody td').dataset.label"
    assert str(browser.value(first)).startswith("Average REG vs. vanilla")


def test_every_arm_can_be_switched_on(browser: Browser) -> None:
    group = "document.querySelector('#curves [data-group]')"
    assert set(
        browser.value(f"[...{group}.querySelectorAll('button[data-arm]')].map(b => b.dataset.arm)")
    ) == set(ARMS)
    lines = f"{group}.querySelector('figure:not([hidden]) .vega').querySelectorAll('.mark-line path[stroke]').length"
    off = f"{group}.querySelector('button[data-arm=reo_oracle][aria-pressed=false]')"
    before = browser.value(lines)
    browser.value(f"{off}.click()")
    browser.value(WAIT.format(400))
    assert browser.value(lines) > before
    browser.value(f"{group}.querySelector('button[data-all=off]').click()")
    browser.value(WAIT.format(400))
    assert browser.value(lines) < before


def test_a_number_leads_to_its_task(browser: Browser) -> None:
    browser.value("document.querySelector('table.results tbody td a.made').click()")
    browser.value(WAIT.format(200))
    assert browser.value("document.querySelector('tr:target').closest('details').open")
    assert browser.value(
        "document.querySelector('tr:target').textContent.includes('reodsl why specs/quickstart.reo')"
    )


def test_charts_describe_themselves(browser: Browser) -> None:
    told = browser.value(
        "[...document.querySelectorAll('[data-chart]')].map(c => c.getAttribute('aria-label'))"
    )
    assert all(len(each) > 40 for each in told), told
    assert any("vanilla from" in each for each in told)
    # One name a chart: what Vega says itself stands inside an image, and is not heard.
    assert browser.value(
        "[...document.querySelectorAll('[data-chart]')].every(c => c.getAttribute('role') === 'img')"
    )


def test_what_can_be_pressed_has_a_name_and_takes_the_keyboard(browser: Browser) -> None:
    nameless = (
        "[...document.querySelectorAll('button, a, summary')].filter(b => !b.textContent.trim()).length"
    )
    assert browser.value(nameless) == 0
    unreached = "[...document.querySelectorAll('button, a[href], summary, .scroll')].filter(b => b.tabIndex < 0).length"
    assert browser.value(unreached) == 0
    ids = "[...document.querySelectorAll('[id]')].map(each => each.id)"
    assert browser.value(f"new Set({ids}).size === {ids}.length")
    assert browser.complaints() == []
