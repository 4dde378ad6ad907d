"""The page: one file, no network, its own scripts alone, and every text from outside shown as text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console

from reodsl.graph.job import Job
from reodsl.graph.task import Task
from reodsl.ir.study import Frontier, PublishedCurve
from reodsl.report import tables
from reodsl.report.figures import Gallery, training_groups
from reodsl.report.markup import render
from reodsl.report.material import Material, read
from reodsl.report.page import note_evaluations, note_samples, note_trainings
from reodsl.report.page import page as page_of
from reodsl.report.provenance import versions
from reodsl.report.results import summary_table
from reodsl.report.run import report, write_report
from tests.report.conftest import HOSTILE
from tests.report.synthetic import ARMS, World, world


def made(world: World, out: Path) -> Path:
    payload = {"spec": world.spec.model_dump(mode="json")}
    report(Job(Task("report", "report", payload, {}), world.inputs, out, out, out, lambda told: None))
    return out


class Page(HTMLParser):
    """A page's elements, its visible text and its scripts, as a browser's parser splits them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.words: list[str] = []
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside.append(tag)
            if tag == "script":
                self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.words.append(data)
        elif self._inside[-1] == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)

    def block(self, identity: str) -> Any:
        return json.loads(next(text for attributes, text in self.scripts if attributes.get("id") == identity))

    @property
    def policy(self) -> str:
        metas = [a for tag, a in self.elements if tag == "meta" and a.get("http-equiv")]
        assert [meta["http-equiv"] for meta in metas] == ["Content-Security-Policy"]
        return str(metas[0]["content"])


@pytest.fixture(scope="module")
def folder(three_seeds: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(three_seeds, tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return Page((folder / "report.html").read_text("utf-8"))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on a study in which every name and text from outside is hostile."""
    names = {plain: f"{plain}{HOSTILE}" for plain in ("study", *ARMS)}
    bad = world(
        tmp_path_factory.mktemp("hostile"),
        benchmarks=(f"easy{HOSTILE}", "=cmd|' /C calc'!A0"),
        rename={**names, "shrink": "=1+1"},
        doc=HOSTILE,
        text=HOSTILE,
    )
    out = tmp_path_factory.mktemp("hostile-report")
    write_report(read(bad.spec, bad.inputs), out, pictures=True)
    return out


def test_nothing_is_fetched(page: Page) -> None:
    """No element with an address but links inside the page, and a policy under which none could load."""
    for tag, attributes in page.elements:
        assert tag not in ("link", "iframe", "object", "embed", "base", "form")
        assert re.match("data:image/svg[+]xml;base64,|$", attributes.get("src") or "")
        assert attributes.get("href", "#").startswith("#")
    assert page.policy.startswith("default-src 'none';")
    assert "connect-src 'none'" in page.policy
    assert not re.search("unsafe-eval|http", page.policy)
    assert not re.findall(r"@import|url\(", Path("reodsl/report/page.css").read_text())
    # The policy names exactly the scripts that run.
    running = [text for attributes, text in page.scripts if attributes.get("type") != "application/json"]
    wanted = {f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in running}
    assert len(running) == 2
    (allowed,) = re.findall(r"script-src ([^;]*);", page.policy)
    assert set(allowed.split()) == wanted


def test_the_page_holds_every_part(page: Page) -> None:
    found = {attributes["id"] for tag, attributes in page.elements if tag == "section"}
    assert found == {"results", "curves", "tradeoff", "gap", "training", "budgets", "examples", "provenance"}
    text = " ".join(page.words)
    for words in (
        *("quickstart", "Average", "reo_oracle", "trapezoid", "Seeds", "All pairs", "This rests on 3 seeds"),
        "reodsl run specs/quickstart.reo",
        "REG, the reasoning efficiency gap, is the signed area",
        "Bars are 95% intervals.",
        "Means over 3 seeds. Brackets: 95% intervals over 3 seeds and questions. * significantly different from vanilla",
        "REG is against the cross-fitted frontier",
        "REG, plain frontier",
        "REG vs. vanilla, in tokens",
    ):
        assert words in text


def test_arms_have_one_order_on_the_whole_page(folder: Path, three_seeds: World) -> None:
    arms = read(three_seeds.spec, three_seeds.inputs).arms
    html = re.sub(r"(?s)<script.*?</script>", "", (folder / "report.html").read_text("utf-8"))
    lists = re.findall(r'(?s)<thead.*?</thead>|<tbody.*?</tbody>|<ol>.*?</ol>|class="legend">.*?</div>', html)
    found = [list(dict.fromkeys(re.findall(r'<(?:th|button)[^>]*data-arm="(\w+)"', part))) for part in lists]
    assert sum(len(each) > 1 for each in found) > 9
    for each in found:
        assert each == [arm for arm in arms if arm in each]


def test_charts_on_the_page_find_their_rows(page: Page) -> None:
    charts, rows = page.block("charts"), page.block("rows")
    places = [a["data-chart"] for tag, a in page.elements if "data-chart" in a]
    assert sorted(places) == sorted(charts)
    for chart in charts.values():
        used = set(re.findall(r'"(rows-[0-9a-f]{16})"', json.dumps(chart["spec"])))
        assert used == set(chart["rows"]) <= set(rows)


def test_a_page_is_light(folder: Path) -> None:
    """The bundle of the chart library is there once; everything else is small."""
    text = (folder / "report.html").read_text("utf-8")
    assert text.count("window.vegaEmbed=") == 1
    assert len(text.encode()) < 2_000_000


def test_tables_lie_beside_the_page(folder: Path, page: Page) -> None:
    assert not (folder / "charts").exists()
    for path in (folder / "tables").glob("*.parquet"):
        frame = pl.read_parquet(path)
        assert frame.height
        assert pl.read_csv(path.with_suffix(".csv")).height == frame.height
    spec = json.loads((folder / "spec.reo.json").read_text())
    assert spec["study"]["name"] == "quickstart"


@pytest.mark.slow
def test_hostile_texts_stay_texts(hostile: Path, page: Page) -> None:
    """A parser finds no element or attribute that an ordinary report does not have, and the words are shown."""
    bad = Page((hostile / "report.html").read_text("utf-8"))
    ordinary = {(tag, *sorted(attributes)) for tag, attributes in page.elements}
    extra = {(tag, *sorted(attributes)) for tag, attributes in bad.elements} - ordinary
    assert not {shape for shape in extra if shape[0] in ("script", "img", "meta", "link", "style")}
    assert not {name for shape in extra for name in shape[1:] if name.startswith("on") or name == "src"}
    assert len(bad.scripts) == len(page.scripts)
    assert "<script>window.pwned=1</script>" in "".join(bad.words)
    assert bad.block("charts")
    assert "\u2028" not in "".join(text for a, text in bad.scripts if a.get("type") == "application/json")


@pytest.mark.usefixtures("undrawn")
def test_accepted_results_are_told_with_change_and_reason(material: Material, page: Page) -> None:
    kept = {"task": "vanilla.train.s1", "because": HOSTILE, "changes": ["optim.lr 0.0005 -> 0.0004"]}
    told = Page(page_of(replace(material, acceptances=(kept,)), Gallery(), {}))
    text = " ".join(told.words)
    for words in ("Results accepted as they were", kept["task"], *kept["changes"], "window.pwned"):
        assert words in text
    assert len(told.scripts) == len(page.scripts)
    assert "Results accepted" not in " ".join(page.words)


def test_hostile_names_make_harmless_files(hostile: Path) -> None:
    for path in hostile.rglob("*"):
        assert re.fullmatch(r"[A-Za-z0-9_.-]+", path.name), path.name
    pictures = sorted((hostile / "charts").glob("*.svg"))
    assert pictures
    for path in pictures:
        text = path.read_text("utf-8")
        assert "<script" not in text
        assert "<img" not in text
    for path in (hostile / "tables").glob("*.csv"):
        cells = [cell for line in path.read_text("utf-8").splitlines() for cell in line.split(",")]
        assert not [cell for cell in cells if cell.lstrip('"').startswith(("=", "@"))]


def test_two_reports_on_one_study_are_equal(three_seeds: World, folder: Path, tmp_path: Path) -> None:
    gallery = Gallery(pictured=True)
    text = page_of(read(three_seeds.spec, three_seeds.inputs), gallery, versions())
    assert text.encode() == (folder / "report.html").read_bytes()


@pytest.mark.usefixtures("undrawn")
def test_answers_that_were_never_judged_are_told(material: Material, page: Page) -> None:
    arm = (pl.col("arm") == "vanilla") & (pl.col("benchmark") == "mean")
    counted = material.summary.with_columns(
        pl.when(arm).then(1201).otherwise(pl.col("verifier_timeouts")).alias("verifier_timeouts"),
        pl.when(arm).then(1).otherwise(pl.col("verifier_failures")).alias("verifier_failures"),
    )
    told = " ".join(Page(page_of(replace(material, summary=counted), Gallery(), {})).words)
    assert "1,201 answers exceeded the verifier's time limit and 1 answer made the verifier fail" in told
    assert "most of them in vanilla; these answers count as wrong" in told
    assert "exceeded the verifier" not in " ".join(page.words)


@pytest.mark.usefixtures("undrawn")
def test_the_commonest_reasons_of_what_was_never_judged_are_listed(
    material: Material, tmp_path: Path
) -> None:
    """Of evaluations and trainings, what code of others said among them; results of older versions have no reasons."""
    counted = material.summary.with_columns(verifier_failures=pl.lit(9))
    said = [
        "timeout",
        *["failed: `a.py:f` failed: <b>, line 3"] * 3,
        *(f"failed: {word}" for word in "abcdef"),
        None,
    ]
    pl.DataFrame({"unsettled": said}).write_parquet(tmp_path / "samples.parquet")
    for folder in (folders := [tmp_path / name for name in ("old", "new", "pool")]):
        folder.mkdir()
    old, new, pool = folders
    said = [f"failed: `a.py:f` said '{number}'" for number in (1, 2, 2)]
    pl.DataFrame({"unsettled": said}).write_parquet(pool / "samples.parquet")
    pl.DataFrame({"unsettled": [None, ["reward: late"] * 2]}).write_parquet(new / "rollouts.parquet")
    pl.DataFrame({"correct": [True]}).write_parquet(old / "rollouts.parquet")
    pl.DataFrame({"unsettled": [["timeout"], None]}).write_parquet(old / "monitor.parquet")
    metrics = material.metrics.with_columns(reward_failures=pl.when(pl.col("at") == 1).then(2.0))
    changed = replace(
        material,
        summary=counted,
        metrics=metrics,
        evaluations={("vanilla", 1): tmp_path},
        trainings={("vanilla", 1, 0): new, ("vanilla", 1, 1): old},
        sample_folders={
            "vanilla.pool": pool,
            "few.reference.s1": tmp_path / "gone",
            "vanilla.reference": pool,
        },
    )
    results, training, pools = note_evaluations(changed), note_trainings(changed), note_samples(changed)
    assert results is not None
    assert training is not None
    assert "<li>3 times: failed: `a.py:f` failed: &lt;b&gt;, line 3</li>" in render(results)
    assert "<li>3 times: other reasons</li>" in render(results)
    assert "<li>2 times: reward: late</li>" in render(training)
    assert "Python fail while training" in render(training)
    assert "1 answer exceeded the verifier&#x27;s time limit and 12 responses made" in render(training)
    assert note_trainings(material) is None
    assert pools is not None
    words = "6 answers made the verifier fail in the samples of vanilla.pool, vanilla.reference; they count as wrong."
    assert words in render(pools)
    assert "<li>6 times: failed: `a.py:f` said &#x27;2&#x27;</li>" in render(pools)
    assert note_samples(material) is None
    unfinished = replace(changed, summary=material.summary.clear(), scores=material.scores.clear())
    assert words in page_of(unfinished, Gallery(), {})


def test_time_outs_of_training_are_drawn_where_there_are_any(material: Material) -> None:
    for count, drawn in ((0.0, False), (3.0, True)):
        metrics = material.metrics.select(
            "arm", "seed", "index", "stage", "method", "at", "step", pl.lit(count).alias("verifier_timeouts")
        )
        gallery = Gallery()
        training_groups(gallery, replace(material, metrics=metrics))
        assert ("ppo-verifier_timeouts" in gallery.specs) is drawn


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_reg_against_a_frontier_that_is_not_of_the_arms_is_marked(material: Material) -> None:
    def of(benchmark: str, *misfits: str) -> Material:
        curve = PublishedCurve(benchmark=benchmark, budgets=(0, 128), accuracy=(0.1, 0.9))
        edge = Frontier(name="edge", to=128, published=(curve,))
        assert material.study.score is not None
        score = material.study.score.model_copy(update={"misfits": misfits})
        study = material.study.model_copy(update={"frontiers": (edge,), "score": score})
        return replace(material, spec=material.spec.model_copy(update={"study": study}))

    older = "edge is a mean over unnamed benchmarks, but each arm&#x27;s mean is over easy, medium"
    other = "the frontier is of A, and base goes back to B"
    for marked, words in ((of("Average"), older), (of("easy", other), other)):
        page = page_of(marked, Gallery(), {})
        assert f"REG is approximate (~): {words}" in page
        assert ">~REG ↓<" in page
        assert re.search(r"<b>~[\d.]+</b> <small>REG</small>", page)
        console = Console(width=300, no_color=True)
        with console.capture() as shown:
            console.print(summary_table(marked.study, tables.main(marked)))
        assert "~REG" in shown.get()
        assert "REG is approximate (~): " in shown.get()
        assert 'data-label="easy ~REG ↓"' in page
    for unmarked in (of("easy"), material):
        assert "~REG" not in page_of(unmarked, Gallery(), {})


@pytest.mark.usefixtures("undrawn")
def test_the_caption_of_the_curves_says_what_is_drawn(material: Material) -> None:
    """On a logarithmic axis the filled area is no REG; on a linear one it is that against the plain frontier."""
    budgets = material.curves["budget"].unique().sort()
    assert budgets.max() > 16 * budgets.filter(budgets > 0).min()  # type: ignore[operator]
    coarse = replace(material, curves=material.curves.filter(pl.col("budget").is_in([0, *budgets[-3:]])))
    for shown, hidden_axis in ((material, "linear"), (coarse, "logarithmic")):
        found = Page(page_of(shown, Gallery(), {}))
        captions = {a["data-axis"]: a for tag, a in found.elements if "data-axis" in a}
        assert [axis for axis, attributes in captions.items() if "hidden" in attributes] == [hidden_axis]
        area = tables.main(shown).filter(arm="vanilla", benchmark="mean")["reg_plain"][0]
        assert f"REG against the plain frontier: vanilla {area:.1f} tokens." in "".join(found.words)


def test_without_scripts_a_picture_stands_in_the_place_of_the_first_chart(page: Page) -> None:
    first = next(i for i, (tag, _) in enumerate(page.elements) if tag == "figure")
    inside = page.elements[first + 1 : first + 4]
    assert [tag for tag, _ in inside] == ["div", "noscript", "img"]
    svg = base64.b64decode(str(inside[2][1]["src"]).partition(",")[2]).decode()
    assert {"vanilla", "reo_exp", "frontier"} <= set(re.findall(r"<text[^>]*>([^<]*)</text>", svg))
    assert inside[2][1]["alt"] == inside[0][1]["aria-label"]
