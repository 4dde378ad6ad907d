"""The page in a real browser, over a store whose every text is hostile: nothing of it runs, and all parts work."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from reodsl.store.runs import records
from reodsl.store.store import Store
from reodsl.view.api import Api
from reodsl.view.server import Viewer
from tests.hostile.browser import Browser, find
from tests.report.test_in_browser import browser as browser
from tests.report.test_in_browser import wait

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find() is None, reason="no Chromium here: apt-get install chromium"),
]

AXE = importlib.util.find_spec("axe_playwright_python")


@contextmanager
def serving(api: Api) -> Iterator[str]:
    """Serve a store while the block runs; the address is given."""
    with Viewer(api, "k" * 32) as viewer:
        thread = threading.Thread(target=viewer.serve_forever)
        thread.start()
        try:
            yield viewer.address
        finally:
            viewer.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def address(hostile_store: Store) -> Iterator[str]:
    with serving(Api(hostile_store)) as where:
        yield where


def visit(browser: Browser, address: str) -> None:
    browser.visit(address)
    wait(browser, "document.documentElement.dataset.ready !== undefined")


def text(browser: Browser) -> str:
    return str(browser.value("document.getElementById('main').innerText"))


def test_every_part_of_the_page_works_and_nothing_hostile_runs(
    browser: Browser, address: str, hostile_store: Store
) -> None:
    (record,) = records(hostile_store)
    visit(browser, address)
    assert "tiny" in text(browser)
    assert "finished" in text(browser)
    browser.value(
        "[...document.querySelectorAll('main a')].find((each) => each.innerText === 'tasks').click()"
    )
    wait(browser, "document.getElementById('main').innerText.includes('tiny.train.s1')")
    browser.value("document.querySelector('[data-tab=responses]').click()")
    wait(browser, "document.querySelectorAll('main tbody tr').length === 8")
    assert "8 responses; 1 to 8 shown." in text(browser)
    assert "<script>window.pwned=1</script>" in text(browser)
    right = browser.value("[...document.querySelectorAll('td.good')].length")
    browser.value(
        "(() => { const each = [...document.querySelectorAll('select')].find(s => s.innerText.includes('right or wrong'));"
        " each.value = 'right'; each.dispatchEvent(new Event('change')); })()"
    )
    wait(browser, f"document.querySelectorAll('main tbody tr').length === {right}")
    assert browser.value("location.hash.includes('correct=right')")

    link = f"{address}#run={record.name}&tab=responses&of=tiny%401&row=2&cut=8"
    visit(browser, link)
    wait(browser, "document.querySelector('.chip') !== null")
    assert browser.value("document.querySelector('output').textContent") == "cut after 8 tokens"
    before = browser.value("document.querySelector('.kept').textContent.length")
    query = {"run": record.name, "evaluation": "tiny@1", "row": "2"}
    shown = Api(hostile_store).calls["response"](query)
    (cut,) = (each for each in shown["cuts"] if each["budget"] == 8)
    kept = browser.value("document.querySelector('.kept').textContent")
    assert kept == shown["response"][: cut["characters"]]
    assert kept.startswith("𝑥")
    browser.value(
        "(() => { const c = document.getElementById('cut'); c.value = c.max; c.dispatchEvent(new Event('input')); })()"
    )
    assert browser.value("document.querySelector('.kept').textContent.length") > before
    assert browser.value("document.querySelector('output').textContent") == "whole response"
    assert not browser.value("location.hash.includes('cut=')")
    assert "window.pwned" in text(browser)

    assert browser.value("typeof window.pwned") == "undefined"
    assert browser.value("document.querySelectorAll('img, iframe, object, embed, main script').length") == 0
    assert [
        url for url in browser.asked() if not url.startswith((address.split("#")[0], "data:", "about:"))
    ] == []
    assert browser.complaints() == []


def press(browser: Browser, name: str) -> None:
    browser.value(
        f"document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {{ key: '{name}', bubbles: true }}))"
    )


def test_responses_are_turned_by_keys(browser: Browser, address: str, hostile_store: Store) -> None:
    (record,) = records(hostile_store)
    visit(browser, f"{address}#run={record.name}&tab=responses&order=longest")
    wait(browser, "document.querySelectorAll('main tbody tr').length === 8")
    listed = Api(hostile_store).calls["responses"]({"run": record.name, "order": "longest"})["responses"]
    browser.value("document.querySelector('main tbody a').focus(); document.activeElement.click()")
    head = "document.querySelector('.pane header')?.textContent"
    begun = browser.value("history.length")
    for press_key, at in (("", 0), ("j", 1), ("j", 2), ("k", 1)):
        if press_key:
            press(browser, press_key)
        wait(browser, f"document.querySelector('.turn').textContent.includes('{at + 1} of 8')")
        wait(browser, f"{head}.startsWith('{listed[at]['evaluation']}{listed[at]['tokens']} tokens')")
        # The focus is never lost: what is read next is there.
        assert browser.value("document.activeElement.tagName") == "H2"
    assert browser.value("history.length") == begun, "the responses that are turned are one entry"
    assert r"\(a<\frac{1}{2}" in text(browser)
    browser.value("document.querySelector('.back').click()")
    wait(browser, "document.activeElement.dataset.key === 'at-1'")
    # Words that only a response has, found as somebody types them.
    begun = browser.value("history.length")
    browser.value(
        "window.field = document.querySelector('[name=words]'); field.focus(); window.form = field.form"
    )
    for typed in ("fra", "frac{1", "FRAC{1}"):
        browser.value(f"field.value = '{typed}'; field.dispatchEvent(new Event('input'))")
        wait(browser, f"document.querySelector('td small mark')?.textContent === '{typed.lower()}'")
    assert browser.value("location.hash.includes('words=FRAC') && document.activeElement === field")
    assert browser.value("field.form === form && form.isConnected")
    assert browser.value("document.querySelectorAll('main tbody tr').length") == 8
    assert browser.value("history.length") == begun
    assert browser.value("typeof window.pwned") == "undefined"
    assert browser.complaints() == []


def test_a_response_is_coloured_by_what_it_knew_and_saved_as_a_picture(
    browser: Browser, hostile_store: Store
) -> None:
    (record,) = records(hostile_store)
    api = Api(hostile_store)
    found = api.response({"run": record.name, "evaluation": "tiny@1", "row": "1"})
    for cut in found["cuts"]:
        cut["correct"] = cut["budget"] >= 8
    (known,) = (cut["characters"] for cut in found["cuts"] if cut["budget"] == 8)
    api.calls["response"] = lambda query: found | {"tokens": 49, "wasted": 41, "correct": True}
    # The picture is what the button hands to the browser.
    keep = """URL.createObjectURL = (blob) => { window.blob = blob; return '#' };
        const click = HTMLElement.prototype.click;
        HTMLElement.prototype.click = function () { if (!this.download) click.call(this) }; 0"""
    with serving(api) as address:
        visit(browser, f"{address}#run={record.name}&tab=responses&of=tiny%401&row=1")
        wait(browser, "document.querySelector('.waste') !== null")
        assert (
            browser.value("document.querySelector('.waste b').textContent") == "41 of 49 tokens after it knew"
        )
        after = "[...document.querySelectorAll('.trace .known')].map((each) => each.textContent).join('')"
        assert browser.value(after) == found["response"][known:]
        browser.value(keep)
        browser.value("document.querySelector('.waste button').click()")
        picture = ElementTree.fromstring(browser.value("window.blob.text()"))
    assert {each.tag.rpartition("}")[2] for each in picture.iter()} == {"svg", "title", "rect", "text"}
    written = "".join(picture.itertext())
    assert "41 of 49 tokens after it knew" in written
    assert "<script>window.pwned=1</script>" in written
    assert browser.complaints() == []


def test_what_a_model_wrote_while_it_was_trained_is_read(
    browser: Browser, address: str, hostile_store: Store
) -> None:
    (record,) = records(hostile_store)
    browser.resize(1400)
    visit(browser, f"{address}#run={record.name}&tab=training")
    wait(browser, "document.querySelector('main h2')?.textContent === 'Step 2 of 2'")
    assert browser.value("document.querySelectorAll('main .trace').length") == 4
    head = str(browser.value("document.querySelector('.pane header').textContent"))
    assert head.startswith("reward ")
    assert "advantage " in head
    browser.value(
        "(() => { const each = document.querySelector('[name=step]'); each.value = 1;"
        " each.dispatchEvent(new Event('change')); })()"
    )
    wait(browser, "document.querySelector('main h2').textContent === 'Step 1 of 2'")
    browser.value(
        "(() => { const each = document.querySelector('[name^=over-]'); each.focus(); each.click(); })()"
    )
    wait(browser, "document.querySelector('main h2').textContent === 'A question over the steps'")
    assert browser.value("document.activeElement.tagName") == "H2"
    assert "window.pwned" in text(browser)
    assert browser.value("typeof window.pwned") == "undefined"
    assert browser.complaints() == []


def test_a_report_is_served_and_follows_its_run(
    browser: Browser, hostile_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is drawn anew where something came and nobody is at work in the page; else a button says so."""
    (record,) = records(hostile_store)
    api = Api(hostile_store)
    far = ["running", 1]

    def run(query: dict[str, str]) -> dict[str, Any]:
        assert query == {"run": record.name}
        return {"status": far[0], "done": far[1], "running": []}

    api.calls["run"] = run
    drawn = []
    monkeypatch.setattr(api, "_draw", lambda of: drawn.append(of) or Api._draw(api, of))
    # What the page does every ten seconds it does here twenty times as often.
    browser.resize(1400)
    hurry = "const wait = setTimeout; window.setTimeout = (work, time) => wait(work, time / 20)"
    hurried = browser.call("Page.addScriptToEvaluateOnNewDocument", source=hurry)
    with serving(api) as address:
        browser.visit(f"{address}report/{record.name}")
        state = "document.getElementById('state')?.textContent"
        wait(browser, f"{state} === 'running'")
        assert browser.value("document.querySelectorAll('nav a')[0].innerText") == "All runs"
        wait(browser, "document.documentElement.dataset.ready !== undefined")
        browser.value("document.querySelector('[data-chart]').focus(); window.before = 1")
        far[1] = 2
        wait(browser, "document.getElementById('newer') !== null")
        assert browser.value("window.before") == 1
        far[:] = ["finished", 3]
        browser.value("document.activeElement.blur()")
        wait(browser, f"window.before === undefined && {state} === 'finished'")
        assert len(drawn) == 1, "a run that has not changed is drawn once"
        assert browser.value("typeof window.pwned") == "undefined"
        browser.value("document.querySelector('nav a').click()")
        wait(browser, "document.getElementById('main') !== null")
    browser.call("Page.removeScriptToEvaluateOnNewDocument", **hurried)


def test_two_arms_stand_beside_each_other_with_one_slider(
    browser: Browser, address: str, hostile_store: Store
) -> None:
    (record,) = records(hostile_store)
    visit(browser, f"{address}#run={record.name}&tab=responses&of=tiny%401&row=1&beside=base%401&cut=0")
    wait(browser, "document.querySelectorAll('.pane').length === 2")
    assert browser.value("[...document.querySelectorAll('.kept')].every(each => each.textContent === '')")
    visit(browser, f"{address}#run={record.name}&tab=responses&of=tiny%401&row=1&beside=other%401")
    wait(browser, "document.querySelectorAll('.pane').length === 1")
    assert "nothing was evaluated as other@1" in text(browser)


def test_what_cannot_be_shown_is_told(browser: Browser, address: str, hostile_store: Store) -> None:
    (record,) = records(hostile_store)
    browser.visit(f"{address}#run={record.name}&tab=responses&of=tiny%401&row=999")
    wait(browser, "!document.getElementById('trouble').hidden")
    assert "no such response" in str(browser.value("document.getElementById('trouble').textContent"))


def test_damage_is_named(
    browser: Browser, address: str, hostile_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    (record,) = records(hostile_store)
    monkeypatch.setattr(Api, "_is_intact", lambda api, key, files=(): False)
    visit(browser, f"{address}#run={record.name}&tab=responses")
    wait(browser, "document.querySelectorAll('#main .damaged').length === 1")
    assert "Damaged or missing, and left out: base.eval.s1, tiny.eval.s1." in text(browser)


SMALLEST = """
Math.min(...[...document.querySelectorAll('body *')].filter((each) => each.getClientRects().length && !each.closest('math')
  && [...each.childNodes].some((one) => one.nodeType === 3 && one.data.trim()))
  .map((each) => parseFloat(getComputedStyle(each).fontSize)))
"""
"""The size of the smallest letters that are shown, in pixels."""


@pytest.mark.parametrize("width", [1400, 1024, 390])
@pytest.mark.parametrize(
    "part",
    ["", "tab=tasks", "tab=training", "tab=responses", "tab=responses&of=tiny%401&row=1&beside=base%401"],
)
def test_no_part_is_wider_than_the_window_and_axe_finds_nothing(
    browser: Browser, address: str, hostile_store: Store, width: int, part: str
) -> None:
    (record,) = records(hostile_store)
    browser.resize(width)
    visit(browser, f"{address}#run={record.name}&{part}" if part else address)
    assert browser.value("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert browser.value(SMALLEST) >= 11
    if AXE is not None and AXE.origin is not None and width != 1024:
        browser.value((Path(AXE.origin).parent / "axe.min.js").read_text("utf-8") + "; 0")
        found = browser.value(
            "axe.run({resultTypes: ['violations']}).then((all) => all.violations.map((one) => [one.id, one.nodes[0].html]))"
        )
        assert found == []


def test_the_browser_that_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find() is None
