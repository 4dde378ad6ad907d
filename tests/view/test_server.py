"""The page's server: under its key alone, on this machine alone, reading alone; and what it is asked wrongly."""

from __future__ import annotations

import html
import http.client
import json
import shutil
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from reodsl.diagnostics import Problem
from reodsl.report.run import material_of
from reodsl.report.theme import UNTRAINED_COLOUR
from reodsl.report.verdict_words import VERDICT
from reodsl.store.runs import records
from reodsl.store.store import Store
from reodsl.view import server
from reodsl.view.api import Api
from reodsl.view.server import HOST, Viewer, read_key
from reodsl.view.trainings import Training, find_training, list_rollouts
from tests.bad_input.commands import SPEC
from tests.called import call
from tests.undrawn import undraw
from tests.view.conftest import restamp

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
    files = {"": "html", "view.js": "javascript", "elements.js": "javascript", "page.css": "css"}
    for path, kind in files.items():
        status, headers, _ = ask(viewer, f"/{KEY}/{path}")
        assert (status, headers["content-type"].split(";")[0]) == (200, f"text/{kind}")
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


def test_a_report_is_under_the_key_with_a_policy_of_its_own(viewer: Viewer, hostile_store: Store) -> None:
    (record,) = records(hostile_store)
    status, headers, body = ask(viewer, f"/{KEY}/report/{record.name}")
    assert (status, headers["content-type"].split(";")[0]) == (200, "text/html")
    assert headers["content-security-policy"] == "frame-ancestors 'none'"
    page = html.unescape(body.decode())
    assert "default-src 'none'; script-src 'sha256-" in page
    assert "connect-src 'self'" in page
    assert f'data-live="../api/run?run={record.name}"' in page
    assert ask(viewer, f"/{KEY}/report/none")[0] == 404
    assert ask(viewer, f"/report/{record.name}")[0] == 404


def test_runs_and_responses_are_given(viewer: Viewer, hostile_store: Store) -> None:
    (record,) = records(hostile_store)
    _, runs = api(viewer, "runs")
    assert [each["run"] for each in runs["runs"]] == [record.name]
    # Without a score there is no REG.
    assert runs["runs"][0]["arms"] == [["base", None], ["tiny", None]]
    _, run = api(viewer, "run", run=record.name)
    assert run["status"] == "finished"
    assert [each["name"] for each in run["evaluations"]] == ["base@1", "tiny@1"]
    assert run["budgets"] == [0, 8, 16]
    assert run["colours"]["base"] == UNTRAINED_COLOUR
    _, found = api(viewer, "responses", run=record.name, limit=2)
    assert found["total"] == 8
    assert len(found["responses"]) == 2
    _, one = api(viewer, "response", run=record.name, evaluation="tiny@1", row=3)
    assert "</script>" in one["response"]
    assert one["wording"] == ""
    assert [cut["budget"] for cut in one["cuts"]] == [0, 8, 16]
    same = {name: one[name] for name in ("benchmark", "question", "sample")}
    assert api(viewer, "response", run=record.name, evaluation="tiny@1", **same)[1]["row"] == 3


def test_rollouts_of_a_step_and_of_a_question_are_given(viewer: Viewer, hostile_store: Store) -> None:
    (record,) = records(hostile_store)
    _, run = api(viewer, "run", run=record.name)
    (training,) = run["trainings"]
    assert training == {"name": "tiny.train.s1", "arm": "tiny"}
    asked = {"run": record.name, "training": "tiny.train.s1"}
    rows = pl.read_parquet(hostile_store.path(record.tasks["tiny.train.s1"]) / "rollouts.parquet")
    _, found = api(viewer, "rollouts", **asked, step=2, limit=3)
    here = rows.filter(step=2)
    assert found["total"] == here.height == 4
    assert [each["text"] for each in found["rollouts"]] == here["text"].head(3).to_list()
    assert found["means"]["tokens"] == pytest.approx(here["tokens"].mean())
    for each in found["rollouts"]:
        assert sum(each["parts"]) == pytest.approx(each["reward"])
        assert len(each["advantages"]) == 1
    question = rows["question"][0]
    assert "<think>" in found["questions"][found["rollouts"][0]["question"]]
    _, over = api(viewer, "rollouts", **asked, question=question)
    assert [each["step"] for each in over["rollouts"]] == rows.filter(question=question)["step"].to_list()
    assert [found[name] for name in ("steps", "step")] == [2, 2]
    for step, shown in (("", 2), (1, 1), (9, 2)):
        _, found = api(viewer, "rollouts", **asked, step=step)
        assert {each["step"] for each in found["rollouts"]} == {shown} == {found["step"]}
    assert "no such training" in api(viewer, "rollouts", run=record.name, training="base")[1]["error"]


def test_rollouts_of_a_training_under_way_are_read_as_far_as_they_are(tmp_path: Path) -> None:
    """A file a step, of which the first is of a version that kept no parts."""
    store = Store(tmp_path / "store")
    folder = store.root / "work" / "key" / "rollouts"
    folder.mkdir(parents=True)
    row = {
        "question": "q",
        "rollout": 0,
        "tokens": 30_000,
        "finish": "stop",
        "correct": True,
        "text": "a" * 50_000,
    }
    for step, more in ((1, {}), (2, {"parts": [0.5], "advantages": [1.5]})):
        frame = pl.DataFrame([row | {"step": step, "reward": float("nan") if step == 2 else 0.5} | more])
        frame.write_parquet(folder / f"{step:08d}.parquet")
    training = find_training(store, "arm", "arm.train", "key", {"data": "gone"})
    assert training is not None
    assert not training.is_complete
    found = list_rollouts(training, None, "q", 0, 9)
    assert found["steps"] == 2
    assert [each["step"] for each in found["rollouts"]] == [1, 2]
    assert found["rollouts"][1]["text"] == f"{'a' * 10_000} … {'a' * 10_000}"
    assert found["questions"] == {}
    assert find_training(store, "arm", "arm.train", "none", {}) is None


def test_rollouts_name_the_wording_that_they_were_asked_in(tmp_path: Path) -> None:
    """As the stage has it, and none where there is only a budget, or a number of no wording."""
    row = {"step": 1, "question": "q", "tokens": 3, "correct": True, "reward": 1.0, "text": "a"}
    rows = [row | {"rollout": at, "mode": mode, "budget": 8} for at, mode in enumerate((1, 0, 2, None))]
    pl.DataFrame(rows).write_parquet(tmp_path / "rollouts.parquet")
    training = Training(
        "arm", "task", "key", (tmp_path / "rollouts.parquet",), None, False, ("brief", "free")
    )
    found = list_rollouts(training, 1, None, 0, 9)["rollouts"]
    assert [each.get("wording") for each in found] == ["free", "brief", None, None]
    assert [each["budget"] for each in found] == [8] * 4


def test_the_question_with_the_widest_spread_of_rewards_is_first(tmp_path: Path) -> None:
    rewards = zip("abcdeabcd", (1, 0, 0, 0.2, 0.2, 1, float("nan"), 0.5, 1), strict=True)
    row = {"step": 1, "tokens": 3, "correct": True, "text": "a"}
    rows = [row | {"question": question, "reward": float(reward)} for question, reward in rewards]
    pl.DataFrame(rows).write_parquet(tmp_path / "rollouts.parquet")
    training = Training("arm", "task", "key", (tmp_path / "rollouts.parquet",), None, False)
    pages = [list_rollouts(training, 1, None, offset, 4)["rollouts"] for offset in (0, 4, 8)]
    assert "".join(each["question"] for page in pages for each in page) == "ddccabeab"
    assert [each["question"] for each in list_rollouts(training, None, "d", 0, 9)["rollouts"]] == ["d", "d"]


@pytest.mark.parametrize(
    ("name", "query", "said"),
    [
        ("run", {"run": "none"}, "no run is called"),
        ("responses", {"evaluation": "none@1"}, "nothing was evaluated as none@1"),
        ("responses", {"offset": "-1"}, "`offset` is not a whole number"),
        ("responses", {"shortest": "9" * 40}, "`shortest` is not a whole number"),
        ("response", {"evaluation": "tiny@1", "row": "99"}, "no such response"),
        ("nothing", {}, "unknown or too long query"),
        ("__init__", {}, "unknown or too long query"),
        ("runs", {"x": "y" * 5000}, "unknown or too long query"),
    ],
)
def test_what_is_asked_wrongly_is_told(
    viewer: Viewer, hostile_store: Store, name: str, query: dict[str, str], said: str
) -> None:
    (record,) = records(hostile_store)
    status, found = api(viewer, name, **{"run": record.name, **query})
    assert status in (400, 404)
    assert said in found["error"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small study that ran."""
    place = tmp_path_factory.mktemp("finished")
    (place / "tiny.reo").write_text(SPEC)
    with pytest.MonkeyPatch.context() as patch:
        undraw(patch.setattr)
        where = ("--store", str(place / ".reodsl"), "--out", str(place / "out"))
        assert call("run", str(place / "tiny.reo"), "--local", "--quiet", *where) == 0
    return place


def flip(path: Path) -> None:
    """Change one bit in the middle: the file still reads, mostly, and holds another number."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def another(path: Path) -> None:
    path.write_bytes(b"another version")


def loud(path: Path) -> None:
    """A table that reads well, of the same number of rows, and says that every answer is right."""
    pl.read_parquet(path).with_columns(correct=True).write_parquet(path)


def gone(path: Path) -> None:
    shutil.rmtree(path.parent)


SPOILT = [
    *(
        (name, "tiny.eval.s1", spoil)
        for name in ("samples", "forced")
        for spoil in (flip, cut, another, loud, gone)
    ),
    *(("metrics", "tiny.train.s1", spoil) for spoil in (flip, cut, another, gone)),
]


@pytest.mark.parametrize(("name", "task", "spoil"), SPOILT)
def test_damage_is_named_and_the_rest_is_shown_as_in_a_report(
    finished: Path, tmp_path: Path, name: str, task: str, spoil: Callable[[Path], None]
) -> None:
    shutil.copytree(finished / ".reodsl", tmp_path / "store", symlinks=True)
    store = Store(tmp_path / "store")
    asked, (record,) = Api(store), records(store)
    run = {"run": record.name}
    before = asked.responses(run)
    assert (before["total"], before["unread"]) == (8, [])
    path = store.path(record.tasks[task]) / f"{name}.parquet"
    for each in (path, *path.parents[:1]):
        each.chmod(0o755)
    spoil(path)
    # The page that was open, and one that is opened now.
    for api in (asked, Api(store)):
        assert api.run(run)["status"] == "finished"
        responses = api.responses(run)
        assert {each["evaluation"] for each in responses["responses"]} <= {"base@1", "tiny@1"}
        if task.endswith("eval.s1"):
            assert responses["unread"] == [task]
            assert {each["evaluation"] for each in responses["responses"]} == {"base@1"}
            with pytest.raises(Problem, match="damaged or missing"):
                api.response(run | {"evaluation": "tiny@1", "row": "0"})
        else:
            assert (responses["unread"], responses["total"]) == ([], 8)
    _, findings = material_of(store, record)
    assert any(task in str(each) for each in findings)
    assert task in asked.report(record.name)


def test_a_run_that_has_nothing_yet_has_a_page_that_says_so(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished / ".reodsl", tmp_path / "store", symlinks=True)
    store = Store(tmp_path / "store")
    (record,) = records(store)
    for key in set(record.tasks.values()):
        store.remove(key)
    assert "results that the report needs exists yet" in Api(store).report(record.name)


def test_a_run_without_an_end_has_stopped_and_is_shown(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished / ".reodsl", tmp_path / "store", symlinks=True)
    store = Store(tmp_path / "store")
    (path,) = store.root.glob("runs/*.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"status": "running", "ended": None}))
    asked, (record,) = Api(store), records(store)
    assert record.status == "running"
    assert asked.runs({})["runs"][0]["status"] == "stopped"
    assert asked.run({"run": record.name})["status"] == "stopped"
    assert 'id="training"' in asked.report(record.name)


def test_without_a_browser_the_address_is_for_the_reader(
    hostile_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def end(viewer: Viewer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    monkeypatch.setattr(Viewer, "serve_forever", end)
    assert call("view", "--open", "--store", str(hostile_store.root)) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(f"view: http://{HOST}:")
    assert "open the address by hand" in shown.err


def test_a_damaged_report_gives_no_verdict(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished / ".reodsl", tmp_path / "store", symlinks=True)
    store = Store(tmp_path / "store")
    asked, (record,) = Api(store), records(store)
    path = store.path(record.tasks["report"]) / VERDICT
    path.parent.chmod(0o755)
    path.write_text('{"sentences": ["tiny leads"]}')
    restamp(path)
    table = path.parent / "tables" / "main.parquet"
    for each in (table.parent, table):
        each.chmod(0o755)
    arms = pl.DataFrame(
        {"arm": ["base", "tiny", "tiny"], "benchmark": ["mean", "mean", "few"], "reg": [9.5, -1.5, 2.0]}
    )
    arms.write_parquet(table)
    restamp(table)
    assert asked.runs({})["runs"][0]["arms"] == [("base", 9.5), ("tiny", -1.5)]
    assert asked.runs({})["runs"][0]["verdict"] == "tiny leads"
    path.write_text('{"sentences": ["base leads"]}')
    assert asked.runs({})["runs"][0]["verdict"] == ""


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
        golden("runs/E0114-port.txt", render(caught.value.diagnostics, {}).replace(str(port), "PORT") + "\n")
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
