"""The page in a real browser: axe finds nothing, the layout holds at three widths, and every control works."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import math
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from reodsl.report import tables
from reodsl.report.curve_chart import add_intervals, curve_rows
from reodsl.report.figures import FIRST_METRICS, Gallery
from reodsl.report.formats import number
from reodsl.report.line_charts import LABELS
from reodsl.report.material import Material, read
from reodsl.report.page import page
from runners.evaluate.measures import reach
from tests.hostile.browser import Browser, find, running
from tests.report.synthetic import ARMS, world

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find() is None, reason="no Chromium here: apt-get install chromium"),
]
AXE = importlib.util.find_spec("axe_playwright_python")
WIDTHS = (1400, 1024, 390)
NEAR = 11
"""Pixels by which the sides of a box may differ from those that are kept: scroll bars are of other widths elsewhere."""
GOLDENS = Path(__file__).parents[1] / "goldens" / "report"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory, material: Material) -> Path:
    """A report with a few of the measurements of trainings: a chart more says nothing more."""
    folder = tmp_path_factory.mktemp("pages")
    spare = [name for name in LABELS if name in material.metrics.columns and name not in FIRST_METRICS["ppo"]]
    material = replace(material, metrics=material.metrics.drop(each for each in spare if each != "loss"))
    # One arm begins another stage after its twelfth step.
    late = (pl.col("arm") == "vanilla") & (pl.col("at") > 12)
    staged = material.metrics.with_columns(
        index=pl.when(late).then(1).otherwise(pl.col("index")),
        stage=pl.when(late).then(pl.lit("shorter")).otherwise(pl.col("stage")),
    )
    material = replace(material, metrics=staged)
    path = folder / "report.html"
    path.write_text(page(material, Gallery(), {}), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    path = find()
    assert path is not None
    with running(path, tmp_path_factory.mktemp("profile")) as started:
        yield started


def wait(browser: Browser, expression: str) -> None:
    """Wait until an expression is true; while another page loads, it may have no value."""
    end = time.monotonic() + 300
    while True:
        try:
            if browser.value(expression):
                return
            shown = browser.value("document.body?.innerText ?? ''")[:2000]
            assert time.monotonic() < end, f"never true: {expression}: {shown}"
        except AssertionError:
            if time.monotonic() >= end:
                raise
        time.sleep(0.05)


def wait_for_theme(browser: Browser, *, dark: bool) -> None:
    """Wait until every chart is drawn in this theme."""
    wait(browser, f"document.documentElement.dataset.ready === '{'dark' if dark else 'light'}'")


def visit(browser: Browser, path: Path, width: int, *, dark: bool = False) -> None:
    browser.resize(width, dark=dark)
    browser.open(path)
    wait_for_theme(browser, dark=dark)


@pytest.mark.skipif(AXE is None, reason="no axe here: make test installs it")
@pytest.mark.parametrize(("width", "dark"), [(390, False), (1400, True)])
def test_axe_finds_nothing(browser: Browser, drawn: Path, width: int, dark: bool) -> None:
    assert AXE is not None
    assert AXE.origin is not None
    visit(browser, drawn, width, dark=dark)
    # What is folded is looked at as well.
    browser.value("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    browser.value((Path(AXE.origin).parent / "axe.min.js").read_text("utf-8") + "; 0")
    found = browser.value(
        # To whoever hears it a chart is one image; the colours of its texts are looked at in tests/report/test_theme.py.
        "axe.run({exclude: ['.vega svg']}, {resultTypes: ['violations']}).then((all) => all.violations.map((one) => "
        "[one.id, one.help, one.nodes.slice(0, 3).map((node) => node.html.slice(0, 200))]))"
    )
    assert found == []


BOXES = """
(() => {
  const named = {h1: 'h1', verdict: '.verdict', standing: '.standing', nav: 'nav', table: '.scroll', legend: '.legend',
    chart: 'figure.wide', footer: 'footer'};
  for (const section of document.querySelectorAll('main > section')) named['#' + section.id] = '#' + section.id;
  return Object.fromEntries(Object.entries(named).flatMap(([name, selector]) => {
    const element = document.querySelector(selector);
    if (!element) return [];
    const box = element.getBoundingClientRect();
    return [[name, [box.left, box.right, box.top + scrollY, box.bottom + scrollY].map(Math.round)]];
  }));
})()
"""


def settled(browser: Browser, width: int, *, dark: bool) -> Any:
    """The boxes of the page in a window of this width, once they no longer change."""
    browser.resize(width, dark=dark)
    boxes = None
    end = time.monotonic() + 300
    while boxes != (boxes := browser.value(BOXES)):
        assert time.monotonic() < end, "the layout never comes to rest"
        browser.value("new Promise((done) => setTimeout(done, 150))")
    return boxes


COLOURS = """
(() => {
  const clear = 'rgba(0, 0, 0, 0)';
  const solid = (colour) => colour !== 'none' && colour !== clear;
  const looks = (element) => {
    const style = getComputedStyle(element);
    if (element instanceof SVGElement) {
      const kind = element.tagName === 'text' ? 'text' : element.closest('.vega') ? 'mark' : 'sign';
      return ['fill', 'stroke'].filter((name) => solid(style[name]))
        .map((name) => `${kind} ${name} ${style[name].replace(/url.*/, 'a gradient')}`);
    }
    const edge = parseFloat(style.borderBottomWidth) ? ` edge ${style.borderBottomColor}` : '';
    const ground = solid(style.backgroundColor) ? ` on ${style.backgroundColor}` : '';
    return [`${element.tagName.toLowerCase()} ${style.color}${ground}${edge}`];
  };
  return Object.fromEntries([...document.querySelectorAll('main > section')].map((section) =>
    ['#' + section.id, [...new Set([section, ...section.querySelectorAll('*')].flatMap(looks))].sort()]));
})()
"""
"""The colours of every section's elements and marks, as the browser resolves them: no font has a part in them."""


@dataclass(frozen=True)
class Seen:
    """A page in one window: the boxes of its parts, and the colours of each section."""

    width: int
    dark: bool
    window: int
    scrolled: int
    boxes: dict[str, list[int]]
    colours: dict[str, list[str]]


@pytest.fixture(scope="module")
def seen(browser: Browser, drawn: Path) -> list[Seen]:
    """The page at three widths, light and dark."""
    visit(browser, drawn, WIDTHS[0])
    windows = [(width, dark) for width in WIDTHS for dark in (False, True)]
    found = []
    for width, dark in windows:
        boxes = settled(browser, width, dark=dark)
        sizes = [browser.value(f"document.documentElement.{each}") for each in ("clientWidth", "scrollWidth")]
        wait_for_theme(browser, dark=dark)
        found.append(Seen(width, dark, *sizes, boxes, browser.value(COLOURS)))
    return found


def test_the_layout_is_as_it_was_and_nothing_overflows_or_overlaps(
    seen: list[Seen], golden: Callable[[str, str], None], request: pytest.FixtureRequest
) -> None:
    """Sides of boxes: fonts differ between machines, and with them every letter and every height."""
    sides: dict[str, dict[str, list[int]]] = {}
    for light, dark in zip(seen[::2], seen[1::2], strict=True):
        assert light.boxes == dark.boxes, "light and dark differ in more than colours"
        assert light.scrolled <= light.window, light.width
        sections = [box for each, box in light.boxes.items() if each.startswith("#")]
        for above, below in pairwise(sections):
            assert above[3] <= below[2], "two sections overlap"
        # From the middle of the window, which a scroll bar moves by half of its width.
        sides[str(light.width)] = {
            each: [round(left - light.window / 2), round(right - light.window / 2)]
            for each, (left, right, *_) in light.boxes.items()
        }
    kept = GOLDENS / "layout-report.json"
    if request.config.getoption("--update-goldens") or not kept.is_file():
        golden(f"report/{kept.name}", json.dumps(sides, indent=1) + "\n")
    before = json.loads(kept.read_text())
    # How wide a row of names is depends on the font; it begins where it began.
    loose = {"h1", "legend", "filters"}
    for width, here in sides.items():
        assert set(here) == set(before[width])
        for each, (left, right) in here.items():
            assert abs(left - before[width][each][0]) <= NEAR, (width, each)
            assert each in loose or abs(right - before[width][each][1]) <= NEAR, (width, each)


def test_names_of_sixty_letters_fit_a_phone_and_are_whole_on_hover(browser: Browser, tmp_path: Path) -> None:
    names = {arm: ("an_arm_with_a_name_that_goes_on_and_on_until_it_has_sixty_" + arm)[-60:] for arm in ARMS}
    of = world(tmp_path, rename=names)
    (tmp_path / "report.html").write_text(page(read(of.spec, of.inputs), Gallery(), {}), encoding="utf-8")
    visit(browser, tmp_path / "report.html", 390)
    assert browser.value("document.documentElement.scrollWidth") <= 390
    hover = "document.querySelectorAll('[data-chart=reg] .role-axis-label title')"
    assert {*browser.value(f"[...{hover}].map((each) => each.textContent)")} == {*names.values()}
    cut = "[...document.querySelectorAll('th .cut')].map((name) => [name.title, name.firstChild.textContent])"
    assert all(whole in names.values() and whole.startswith(begin) for whole, begin in browser.value(cut))
    head = browser.value("document.querySelector('.results tbody td').dataset.label")
    assert head == "Average REG vs. baseline ↓"
    ends = "['.links', '#theme'].map((each) => document.querySelector(each).getBoundingClientRect().right)"
    assert browser.value(ends)[0] < browser.value("document.querySelector('#theme').offsetLeft")


def test_the_page_has_its_colours(seen: list[Seen], golden: Callable[[str, str], None]) -> None:
    """A part that is not drawn, or that keeps the colours of the other theme, is a line less or more."""
    light, dark = seen[0].colours, seen[1].colours
    looks = {each: {"light": light[each], "dark": dark[each]} for each in light}
    golden("report/looks-report.json", json.dumps(looks, indent=1) + "\n")
    for each in light:
        marks = [line for line in light[each] if line.startswith("text ")]
        assert not set(marks) & set(dark[each]), "a chart's letters have one colour in both themes"


def test_the_table_is_whole_with_the_average_first(browser: Browser, drawn: Path) -> None:
    visit(browser, drawn, WIDTHS[0])
    first = "document.querySelector('table.results tbody tr')"
    rights = (
        f"Math.max(...[...{first}.querySelectorAll('td')].map((each) => each.getBoundingClientRect().right))"
    )
    for width in WIDTHS:
        settled(browser, width, dark=False)
        frame = browser.value("document.querySelector('.scroll').getBoundingClientRect().right")
        assert browser.value(rights) <= frame, f"a number is out of sight at {width} pixels"
        label = browser.value(f"{first}.querySelector('td').dataset.label")
        assert label.startswith("Average REG vs. vanilla")
    # Columns that have no room are scrolled, and the average stays.
    browser.value(
        "document.head.insertAdjacentHTML('beforeend', '<style>.results td { min-width: 80px }</style>')"
    )
    settled(browser, WIDTHS[1], dark=False)
    browser.value("document.querySelector('.scroll').scrollLeft = 9999")
    assert browser.value("document.querySelector('.scroll').scrollLeft") > 0
    box = f"{first}.querySelector('td.fixed').getBoundingClientRect()"
    assert 0 <= browser.value(f"{box}.left") < browser.value(f"{box}.right") <= WIDTHS[1]


def key(browser: Browser, name: str) -> None:
    for kind in ("keyDown", "keyUp"):
        codes = {"Tab": 9, "ArrowRight": 39, "ArrowLeft": 37, "Escape": 27, "Enter": 13}
        typed: dict[str, Any] = {"text": "\r"} if name == "Enter" and kind == "keyDown" else {}
        browser.call(
            "Input.dispatchKeyEvent",
            type=kind,
            key=name,
            code=name,
            windowsVirtualKeyCode=codes[name],
            **typed,
        )


def readout(browser: Browser, chart: str, what: str = "textContent") -> Any:
    """What the readout of a chart says."""
    figure = f"document.querySelector('[data-chart={chart}]').closest('figure')"
    return browser.value(f"{figure}.querySelector('.readout').{what}")


def test_the_keyboard_alone_reaches_and_works_everything(
    browser: Browser, drawn: Path, material: Material
) -> None:
    visit(browser, drawn, 1400)
    browser.value("document.body.focus()")
    reached = set()
    for _ in range(360):
        key(browser, "Tab")
        reached.add(
            browser.value(
                "(() => { const e = document.activeElement; return e.dataset.chart ? 'chart ' + e.dataset.chart"
                " : e.dataset.arm ? 'arm ' + e.dataset.arm : e.dataset.copy ? 'copy' : e.matches('.scroll') ? 'table'"
                " : e.matches('a.made') ? 'number' : e.name || e.id || e.tagName; })()"
            )
        )
        if "more" in reached:
            break
    arms = {f"arm {arm}" for arm in material.arms}
    assert arms | {"theme", "table", "number", "copy", "chart curves-Average", "smooth", "from"} <= reached
    browser.value("document.querySelector('[data-chart=curves-Average]').focus()")
    for _ in range(3):
        key(browser, "ArrowRight")
    said = readout(browser, "curves-Average")
    value = material.curves.filter(name="vanilla", benchmark="mean", budget=4)["accuracy"][0]
    assert said.startswith("budget 4")
    assert f"vanilla {100 * value:.1f}%" in said
    assert "frontier" in said
    assert readout(browser, "curves-Average", "getAttribute('role')") == "status"
    # An arm that is switched off is not read out.
    off = "document.querySelector('.first button[data-arm=\"vanilla\"]')"
    browser.value(f"{off}.focus()")
    key(browser, "Enter")
    assert browser.value(f"{off}.getAttribute('aria-pressed')") == "false"
    browser.value("document.querySelector('[data-chart=curves-Average]').focus()")
    key(browser, "ArrowLeft")
    said = readout(browser, "curves-Average")
    assert "vanilla" not in said
    assert "reo_oracle" in said
    key(browser, "Escape")
    assert readout(browser, "curves-Average", "hidden")


def test_training_curves_are_smoothed_and_cut(browser: Browser, drawn: Path, material: Material) -> None:
    visit(browser, drawn, 1400)
    browser.value(
        "(() => { const c = document.querySelector('.shaping'); c.querySelector('[name=smooth]').value = 3;"
        " c.querySelector('[name=from]').value = 10; c.querySelector('[name=to]').value = 12;"
        " c.dispatchEvent(new Event('input')); document.querySelector('[data-chart=ppo-length]').focus(); })()"
    )
    for _ in range(2):
        key(browser, "ArrowRight")
    said = readout(browser, "ppo-length")
    rows = material.metrics.filter(arm="vanilla", method="ppo").sort("at")
    lengths = dict(zip(rows["at"], rows["length"], strict=True))
    assert said.startswith("step 11")
    shown = re.search(r"vanilla ([\d.]+)", said)
    assert shown is not None
    assert float(shown[1]) == pytest.approx(sum(lengths[at] for at in (10, 11, 12)) / 3, rel=2e-3)
    key(browser, "ArrowRight")
    said = readout(browser, "ppo-length")
    assert said.startswith("step 12")
    assert said.endswith("vanilla: shorter begins")
    assert browser.value("!!document.querySelector('[data-chart=ppo-length] svg [stroke-dasharray=\"2,4\"]')")
    browser.value("document.querySelector('.shaping [name=whole]').click()")
    assert browser.value("document.querySelector('.shaping [name=to]').value") == "24"


def copied(browser: Browser, form: str, table: str = "results") -> str:
    """What a button of a table copies, where no clipboard takes it."""
    place = f"document.querySelector('.{table}').parentElement"
    browser.value(
        "Object.defineProperty(navigator, 'clipboard', {value: {writeText: () => Promise.reject()}, configurable: true});"
        f"{place}.nextSibling.querySelector('[data-copy={form}]').click()"
    )
    shown = f"{place}.nextSibling.nextSibling"
    wait(browser, f"!{shown}.hidden")
    return str(browser.value(f"{shown}.textContent"))


def test_a_table_is_copied_in_three_forms_whatever_arms_are_called(
    browser: Browser, drawn: Path, material: Material
) -> None:
    visit(browser, drawn, 1400)
    table = tables.main(material)
    head, *body = csv.reader(io.StringIO(copied(browser, "CSV")))
    assert head[:3] == ["arm", "Average REG vs. vanilla", "Average Acc (%)"]
    for line in (dict(zip(head, row, strict=True)) for row in body):
        (row,) = table.filter(arm=line["arm"], benchmark="mean").to_dicts()
        for name, value in (("Acc (%)", 100 * row["accuracy"]), ("REG", row["reg"])):
            assert abs(float(line[f"Average {name}"]) - value) < 0.051
        change = line["Average REG vs. vanilla"]
        assert change == "" if line["arm"] == "vanilla" else abs(float(change) - row["difference"]) < 0.051
    head_of_arm = "document.querySelector('.results tbody th').childNodes[1].textContent"
    evil = "[x|y & 100% \\\\input{/etc/passwd} `z` <b>"
    browser.value(f"{head_of_arm} = {json.dumps(evil.replace(chr(92) * 2, chr(92)))}")
    tabular = copied(browser, "LaTeX").split("\n")
    assert tabular[0] == f"\\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}"
    assert tabular[2].count(r"\multicolumn") == 1 + len(material.benchmarks)
    assert tabular[3].startswith(r"\cmidrule(lr){2-6} \cmidrule(lr){7-")
    assert all(line.count(" & ") == len(head) - 1 for line in tabular[4:-2] if line.endswith("\\\\"))
    assert tabular[6].startswith(r"{}[x|y \& 100\% \textbackslash{}input\{/etc/passwd\} `z` <b> & ")
    low, high = (
        table.filter(arm=material.arms[0], benchmark="mean")[f"difference_{end}"][0]
        for end in ("low", "high")
    )
    ends = f"[{low:.1f}, {high:.1f}]".replace("-", "$-$")
    assert rf" {{\scriptsize {ends}}} & " in tabular[6]
    assert re.search(r"\$-\$[\d.]+\$\^\{\*\}\$ ", tabular[8])
    assert {line.count(" | ") for line in copied(browser, "Markdown").split("\n")[2:]} == {len(head) - 1}
    browser.value(f"{head_of_arm} = '=1+1'")
    assert copied(browser, "CSV").split("\n")[1].startswith("'=1+1,")


def saved(browser: Browser, chart: str, form: str) -> str:
    """The text of the file that a chart is saved as, or its first bytes."""
    browser.value(
        "window.kept = null; URL.createObjectURL = (blob) => { window.kept = blob; return '#'; };"
        f"document.querySelector('[data-chart={chart}]').closest('figure').querySelector('[data-save={form}]').click()"
    )
    wait(browser, "window.kept !== null")
    return str(browser.value("window.kept.text()"))


def test_a_chart_leaves_the_page_with_title_caption_and_one_legend(browser: Browser, drawn: Path) -> None:
    visit(browser, drawn, 1400, dark=True)
    browser.value("document.querySelector('.first button[data-arm=\"base\"]').click()")
    svg = saved(browser, "curves-Average", "SVG")
    texts = re.findall(r"<(?:text|tspan)[^>]*>([^<]+)<", svg)
    assert "quickstart: Average" in texts
    assert "so the filled area is not REG." in " ".join(texts)
    # Each is in the legend, and an arm at the end of its line too; what is switched off is in neither.
    assert (texts.count("frontier"), texts.count("vanilla")) == (1, 2)
    assert "base" not in texts
    assert 'fill="white"' in svg
    assert "base" in saved(browser, "gap", "SVG")
    assert saved(browser, "accuracy-length", "PNG")[1:4] == "PNG"


def test_the_filled_area_is_the_number_beside_it_on_a_linear_axis(
    browser: Browser, drawn: Path, material: Material
) -> None:
    visit(browser, drawn, 1400)
    note = "document.querySelector('header .note').innerText"
    assert browser.value(note).endswith("The axis is logarithmic, so the filled area is not REG.")
    browser.value("document.querySelector('header [data-turn]').click()")
    wait(browser, "document.querySelector('header [data-turn]').textContent === 'logarithmic budgets'")
    wait(browser, "!document.querySelector('header .vega').textContent.includes('logarithmic')")
    for arm in ("vanilla", "reo_exp"):
        browser.value(
            f"document.querySelector('.first button[data-arm={arm}]').dispatchEvent(new Event('mouseenter'))"
        )
        gap = curve_rows(material, "mean", [arm]).select("budget", pl.col("edge") - pl.col("accuracy")).rows()
        area = sum((b - a) * (f + g) / 2 for (a, f), (b, g) in pairwise(gap))
        assert browser.value(note).endswith(f"against the plain frontier: {arm} {number(area)} tokens.")


def test_a_sheet_of_paper_has_tables_as_tables(browser: Browser, drawn: Path) -> None:
    visit(browser, drawn, 718, dark=True)
    dark = {"name": "prefers-color-scheme", "value": "dark"}
    browser.call("Emulation.setEmulatedMedia", media="print", features=[dark])
    # What is drawn for a dark page is turned light.
    assert "invert" in browser.value("getComputedStyle(document.querySelector('.vega svg')).filter")
    row = "getComputedStyle(document.querySelector('.results tbody tr')).display"
    assert browser.value(row) == "table-row"
    assert browser.value("document.querySelector('.results').offsetWidth") <= 718
    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    shown = "['nav', '.screen', 'details:not([open], .asking) p'].map(n => document.querySelector(n).checkVisibility())"
    assert browser.value(shown) == [False, False, True]
    browser.call("Emulation.setEmulatedMedia", media="")


def test_curves_are_asked_for_tokens_at_an_accuracy_and_accuracy_at_a_budget(
    browser: Browser, drawn: Path, material: Material
) -> None:
    visit(browser, drawn, 390)
    browser.value(
        "document.querySelector('.asking').open = true; for (const [name, value] of [['level', 80], ['budget', 11]]) {"
        " const field = document.querySelector(`.asking [name=${name}]`); field.value = value;"
        " field.dispatchEvent(new Event('input')); }"
    )
    head, *body = csv.reader(io.StringIO(copied(browser, "CSV", "reached")))
    assert head == ["arm", "Acc (%) at 32 tokens", "tokens at 80%", "vs. vanilla"]
    curves = {arm: curve_rows(material, "mean", [arm]) for arm in material.arms}
    fine = np.linspace(0, 128, 1_280_001)
    above = {arm: np.interp(fine, rows["budget"], rows["accuracy"]) >= 0.8 for arm, rows in curves.items()}
    tokens = {arm: fine[line.argmax()] if line.any() else math.inf for arm, line in above.items()}
    assert tuple(row[0] for row in body) == material.arms
    browser.value("document.querySelectorAll('.asking th button')[2].click()")
    _, *sorted_body = csv.reader(io.StringIO(copied(browser, "CSV", "reached")))
    assert [row[0] for row in sorted_body] == sorted(material.arms, key=tokens.__getitem__)
    for arm, rows in curves.items():  # as the measure `tokens_at` has it
        (found,) = reach(rows["accuracy"].to_numpy()[None], rows["budget"].to_numpy()[None], np.array([0.8]))
        assert found == pytest.approx(tokens[arm], abs=1e-3) if tokens[arm] < math.inf else np.isnan(found)
    for arm, accuracy, reached, change in body:
        assert float(accuracy) == pytest.approx(100 * curves[arm].filter(budget=32)["accuracy"][0], abs=0.051)
        assert reached == ("" if tokens[arm] == math.inf else f"{tokens[arm]:.0f}")
        saving = f"{100 * (tokens[arm] / tokens['vanilla'] - 1):+.0f}%"
        assert change == ("" if not reached or arm == "vanilla" else saving)
    # The other forms have the intervals that the bands draw.
    rows = curve_rows(replace(material, curves=add_intervals(material)), "mean", material.arms).filter(
        budget=32
    )
    tabular, lines = (copied(browser, form, "reached") for form in ("LaTeX", "Markdown"))
    assert "vs. vanilla \\\\" in tabular
    for row in rows.to_dicts():
        accuracy, *ends = (f"{100 * row[name]:.1f}" for name in ("accuracy", "low", "high"))
        assert f" & {accuracy} {{\\scriptsize [{', '.join(ends)}]}} & " in tabular
        assert f" | {accuracy} \\[{', '.join(ends)}\\] | " in lines


ARMS_OF_LISTS = """
[...document.querySelectorAll('.standing ol, .legend, main thead, main tbody, #examples > div > div')]
  .map((part) => [...new Set([...part.querySelectorAll('[data-arm]')].map((one) => one.dataset.arm))])
  .filter((arms) => arms.length > 1)
"""


def test_the_head_of_a_column_orders_the_whole_page(
    browser: Browser, drawn: Path, material: Material
) -> None:
    visit(browser, drawn, 1400)
    browser.value("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    means = tables.main(material).filter(benchmark="mean")
    rows = "document.querySelectorAll('.results tbody tr')"
    # One arm has no length.
    browser.value(f"[...{rows}].find((row) => row.textContent.includes('shrink')).cells[3].textContent = '–'")
    known = means.filter(pl.col("arm") != "shrink")
    expected = {
        "": ("ascending", list(material.arms)),
        "Len ↓": ("ascending", [*known.sort("length")["arm"], "shrink"]),
        "Len ↓ again": ("descending", [*known.sort("length", descending=True)["arm"], "shrink"]),
        "Acc (%) ↑": ("descending", means.sort("accuracy", descending=True)["arm"].to_list()),
        # The baseline differs by 0 from itself.
        "REG vs. vanilla ↓": ("ascending", list(material.arms)),
        "arm": ("ascending", sorted(material.arms)),
    }
    for name, (way, order) in expected.items():
        head = "[...document.querySelectorAll('#results .results th')].find((head) => head.textContent === "
        if name:
            browser.value(f"{head}{json.dumps(name.removesuffix(' again'))}).firstChild.focus()")
            key(browser, "Enter")
        assert browser.value(
            "[...document.querySelectorAll('th[aria-sort]')].map((head) => head.ariaSort)"
        ) == [way]
        lists = browser.value(ARMS_OF_LISTS)
        assert len(lists) > 10
        assert lists == [[arm for arm in order if arm in arms] for arms in lists], name
        assert [row[0] for row in csv.reader(io.StringIO(copied(browser, "CSV")))][1:] == order
        for chart in ("gap", "reg"):
            labels = f"[...document.querySelectorAll('[data-chart={chart}] .role-axis-label text')]"
            shown = f"{labels}.map((one) => one.textContent).filter((name) => /^[a-z]/.test(name)).join()"
            wait(browser, f"{shown} === {json.dumps(','.join(order))}")
