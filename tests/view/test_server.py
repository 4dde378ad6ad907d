"""The page's server: under its key alone, on this machine alone, reading alone; and what it is asked wrongly."""

from __future__ import annotations

import http.client
import json
import socket
import stat
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from reodsl.diagnostics import Problem
from reodsl.report.theme import UNTRAINED
from reodsl.store.runs import records
from reodsl.store.store import Store
from reodsl.view import server
from reodsl.view.api import Api
from reodsl.view.evaluations import Training
from reodsl.view.server import HOST, Viewer, read_key
from tests.bad_input.commands import SPEC
from tests.called import call

KEY = "k" * 32


@pytest.fixture(scope="module")
def viewer(hostile_store: Store) -> Iterator[Viewer]:
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    with Viewer(Api(hostile_store), KEY, port) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def ask(viewer: Viewer, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(HOST, viewer.server_port, timeout=30)
    connection.request(method, path, headers=headers)
    reply = connection.getresponse()
    found = reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()
    connection.close()
    return found


def api(viewer: Viewer, name: str, **query: Any) -> tuple[int, Any]:
    from urllib.parse import urlencode

    status, _, body = ask(viewer, f"/{KEY}/api/{name}?{urlencode(query)}")
    return status, json.loads(body)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        f"/{KEY}",
        "/other/",
        f"/{KEY[:-1]}/",
        f"/{KEY}x/api/runs",
        "/api/runs",
        f"/{KEY}/../{KEY}/x",
        f"/{KEY}/view.py",
        f"/{KEY}/%2e%2e/server.py",
    ],
)
def test_nothing_is_there_without_the_key(viewer: Viewer, path: str) -> None:
    assert ask(viewer, path)[0] == 404


def test_the_page_is_under_the_key_with_a_strict_policy(viewer: Viewer) -> None:
    for path, kind in (("", "text/html"), ("view.js", "text/javascript"), ("view.css", "text/css")):
        status, headers, _ = ask(viewer, f"/{KEY}/{path}")
        assert (status, headers["content-type"].split(";")[0]) == (200, kind)
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
    assert viewer.server_address[0] == "127.0.0.1"


def test_a_name_of_somebody_elses_that_leads_here_is_refused(viewer: Viewer) -> None:
    assert ask(viewer, f"/{KEY}/api/runs", Host=f"evil.example:{viewer.server_port}")[0] == 404
    assert ask(viewer, f"/{KEY}/api/runs", Host=f"localhost:{viewer.server_port}")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_it_is_for_reading_alone(viewer: Viewer, method: str) -> None:
    assert ask(viewer, f"/{KEY}/api/runs", method)[0] == 501


def test_runs_curves_and_responses_are_told(viewer: Viewer, hostile_store: Store) -> None:
    (record,) = records(hostile_store)
    _, runs = api(viewer, "runs")
    assert [each["run"] for each in runs["runs"]] == [record.name]
    _, run = api(viewer, "run", run=record.name)
    assert run["status"] == "finished"
    assert [each["name"] for each in run["evaluations"]] == ["base@1", "tiny@1"]
    assert run["budgets"] == [0, 8, 16]
    assert run["colours"]["base"] == UNTRAINED
    assert run["dashes"] == {"base": "", "tiny": ""}
    _, curves = api(viewer, "curves", run=record.name)
    (line,) = curves["lines"]
    assert curves["metrics"][:3] == ["accuracy", "reward", "length"]
    assert [step for step, _ in line["values"]["reward"]] == [1, 2]
    _, found = api(viewer, "responses", run=record.name, limit=2)
    assert found["total"] == 8
    assert len(found["responses"]) == 2
    _, one = api(viewer, "response", run=record.name, evaluation="tiny@1", row=3)
    assert "</script>" in one["response"]
    assert [cut["budget"] for cut in one["cuts"]] == [0, 8, 16]
    same = {name: one[name] for name in ("benchmark", "question", "sample")}
    assert api(viewer, "response", run=record.name, evaluation="tiny@1", **same)[1]["row"] == 3


@pytest.mark.parametrize(
    ("name", "query", "said"),
    [
        ("run", {"run": "none"}, "no run is called"),
        ("responses", {"evaluation": "none@1"}, "nothing was evaluated as none@1"),
        ("responses", {"offset": "-1"}, "`offset` is not a whole number"),
        ("responses", {"shortest": "9" * 40}, "`shortest` is not a whole number"),
        ("response", {"evaluation": "tiny@1", "row": "99"}, "no such response"),
        ("nothing", {}, "no such answer"),
        ("__init__", {}, "no such answer"),
        ("runs", {"x": "y" * 5000}, "no such answer"),
    ],
)
def test_what_is_asked_wrongly_is_told(
    viewer: Viewer, hostile_store: Store, name: str, query: dict[str, str], said: str
) -> None:
    (record,) = records(hostile_store)
    status, found = api(viewer, name, **{"run": record.name, **query})
    assert status in (400, 404)
    assert said in found["error"]


@pytest.mark.usefixtures("undrawn")
def test_an_artifact_of_another_version_is_told_and_the_rest_is_shown(tmp_path: Path) -> None:
    (tmp_path / "tiny.reo").write_text(SPEC)
    store = Store(tmp_path / ".reodsl")
    spec, out = str(tmp_path / "tiny.reo"), str(tmp_path / "out")
    assert call("run", spec, "--local", "--quiet", "--store", str(store.root), "--out", out) == 0
    asked = Api(store)
    (record,) = records(store)
    for name in ("samples", "metrics"):
        path = next(store.root.glob(f"objects/*/*/{name}.parquet"))
        path.parent.chmod(0o755)
        path.unlink()
        path.write_bytes(b"another version")
    assert asked.run({"run": record.name})["status"] == "finished"
    found = asked.curves({"run": record.name})
    assert found["unread"] == ["tiny.train.s1"]
    with Viewer(asked, KEY, None) as viewer:
        thread = threading.Thread(target=viewer.serve_forever)
        thread.start()
        status, told = api(viewer, "responses", run=record.name)
        assert (status, told["error"].startswith("this cannot be read: ")) == (500, True)
        assert api(viewer, "runs")[0] == 200
        viewer.shutdown()
        thread.join()


def test_long_curves_are_thinned_to_the_same_steps(
    tmp_path: Path, hostile_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An arm of two fifths of the steps has its points where the other has some, each the mean of as many steps."""
    (record,) = records(hostile_store)
    asked = Api(hostile_store)
    trainings = []
    for arm, steps in (("long", range(1, 1001)), ("short", range(1, 401)), ("rare", range(10, 1001, 10))):
        (tmp_path / arm).mkdir()
        pl.DataFrame({"step": steps, "reward": steps}).write_parquet(tmp_path / arm / "metrics.parquet")
        trainings.append(Training(arm, 1, 0, f"{arm}.train.s1", "k", tmp_path / arm))
    there = replace(asked._of(record), trainings=tuple(trainings))
    monkeypatch.setattr(asked, "_of", lambda record: there)
    lines = asked.curves({"run": record.name})["lines"]
    points = {line["arm"]: dict(line["values"]["reward"]) for line in lines}
    assert len(points["long"]) == 334
    assert points["long"][9] == 8.0
    assert points["long"][1000] == 1000.0
    # The end of the shorter one falls into a stretch of the longer one.
    *whole, last = points["short"]
    assert all(points["short"][step] == points["long"][step] for step in whole)
    assert points["short"][last] == last == 400
    assert points["rare"] == {step: step for step in range(10, 1001, 10)}


def test_a_port_in_use_is_told_or_passed_by(
    hostile_store: Store, monkeypatch: pytest.MonkeyPatch, golden: Any
) -> None:
    from reodsl.diagnostics.render import render

    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Problem) as caught:
            Viewer(Api(hostile_store), KEY, port)
        golden("runs/E0983.txt", render(caught.value.diagnostics, {}).replace(str(port), "PORT") + "\n")
        monkeypatch.setattr(server, "PORT", port)
        with Viewer(Api(hostile_store), KEY) as viewer:
            assert viewer.moved
            assert viewer.server_port != port


def test_the_key_is_random_kept_and_for_its_user_alone(tmp_path: Path) -> None:
    place = tmp_path / "state" / "reodsl" / "view.key"
    key = read_key(place)
    assert len(key) >= 32
    assert read_key(place) == key
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    place.write_text("short")
    assert read_key(place) not in ("short", key)
    # A home that cannot be written gives a key for one time.
    (tmp_path / "file").write_text("")
    blocked = tmp_path / "file" / "view.key"
    assert read_key(blocked) != read_key(blocked)
