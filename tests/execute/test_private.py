"""Ray for one run alone: who may join it, where it listens, what it writes, and what its workers import."""

from __future__ import annotations

import http.client
import json
import os
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from runners.machine.scratch import Scratch

pytestmark = pytest.mark.slow

NAMES = ("json", "numpy", "runners", "reodsl", "ray", "torch", "sitecustomize")
# A home in which nothing can be made, whoever tries.
NO_HOME = "/dev/null/home"
RUN = """
import os, sys
from runners.execute.instance import start_ray
before = dict(os.environ), os.getcwd()
session = start_ray(None)
import ray, json

def look():
    import json, numpy, runners, os, sys
    return [sys.path, [json.__file__, numpy.__file__, runners.__file__]]

found = ray.get(ray.remote(look).remote())
print(json.dumps([os.getpid(), ray.get_runtime_context().gcs_address, os.environ["RAY_AUTH_TOKEN"], found]), flush=True)
sys.stdin.readline()
session.close()
left = {name for name in before[0].keys() | os.environ.keys() if name.startswith("RAY_AUTH")}
assert os.getcwd() == before[1] and not left, left
# A second time in this process, with another token.
with start_ray(None):
    print(json.dumps(os.environ["RAY_AUTH_TOKEN"]), flush=True)
    assert ray.get(ray.remote(look).remote()) == found
"""
JOIN = """
import sys
from ray._raylet import GcsClient
print("joined", len(GcsClient(address=sys.argv[1]).get_all_node_info(timeout=60)))
"""


@dataclass(frozen=True)
class Run:
    """A process with a Ray of its own, as it is while tasks run."""

    process: subprocess.Popen[str]
    pid: int
    address: str
    token: str
    path: list[str]
    imported: list[str]
    folder: Path

    def processes(self) -> list[psutil.Process]:
        """It, and those that it started."""
        mine = psutil.Process(self.pid)
        return [mine, *mine.children(recursive=True)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    theirs = tmp_path_factory.mktemp("theirs")
    for name in NAMES:
        (theirs / f"{name}.py").write_text("raise SystemExit(__file__)\n")
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", RUN],
        cwd=theirs,
        env=environment(HOME=NO_HOME),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.wait()
    pid, address, token, (path, imported) = json.loads(line)
    yield Run(process, pid, address, token, path, imported, theirs)
    process.kill()
    process.communicate()


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return kept | {"RAY_USAGE_STATS_ENABLED": "0"} | more


def test_workers_import_nothing_from_the_folder_of_the_command(run: Run) -> None:
    assert not [entry for entry in run.path if Path(entry or ".").resolve() == run.folder.resolve()]
    assert not [file for file in run.imported if file.startswith(str(run.folder))]


def test_it_listens_on_the_loopback_alone(run: Run) -> None:
    heard = {
        connection.laddr.ip
        for each in run.processes()
        for connection in each.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert heard
    assert heard <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}


@pytest.mark.parametrize(
    "token", [{}, {"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}]
)
def test_nobody_joins_without_its_token(run: Run, token: dict[str, str]) -> None:
    done = join(run, token)
    assert done.returncode != 0
    assert "joined" not in done.stdout
    assert "AuthenticationError" in done.stderr, done.stderr[-2000:]


def test_who_has_the_token_joins(run: Run) -> None:
    done = join(run, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": run.token})
    assert done.stdout == "joined 1\n", done.stderr[-2000:]


def join(run: Run, token: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", JOIN, run.address],
        env=environment(HOME=NO_HOME, **token),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_its_agents_answer_nobody_else(run: Run) -> None:
    """What speaks HTTP wants the token too; what speaks gRPC does not know the request."""
    ports = {
        connection.laddr.port
        for each in run.processes()
        for connection in each.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    refused = 0
    for port in ports:
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/get_or_create_runtime_env", data=b"{}", method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                raise AssertionError(f"{port}: {answer.status}")
        except urllib.error.HTTPError as caught:
            refused += caught.code in (401, 403)
        except (OSError, http.client.HTTPException):
            pass
    assert refused


def test_others_read_no_file_of_it(run: Run) -> None:
    written = {
        Path(file.path)
        for each in run.processes()
        for file in each.open_files()
        if file.mode != "r" and not file.path.startswith(("/dev/", "/proc/"))
    }
    logs = {path for path in written if "logs" in path.parts}
    assert logs
    (place,) = {Path(*path.parts[: path.parts.index("ray")]) for path in logs}
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert all(path.is_relative_to(place) for path in written), written


def test_its_token_is_in_no_command_line_and_no_file(run: Run) -> None:
    for each in run.processes():
        assert run.token not in " ".join(each.cmdline())


@pytest.mark.heavy
def test_it_leaves_nothing_and_starts_again_with_another_token(run: Run) -> None:
    assert run.process.stdin is not None
    assert run.process.stdout is not None
    beside = Scratch()
    places = [path for path in beside.folder.parent.glob("reodsl-*") if (path / "ray").is_dir()]
    beside.remove()
    mine = [path for path in places if any(str(run.pid) in each.name for each in (path / "ray").iterdir())]
    assert len(mine) == 1
    run.process.stdin.write("\n")
    run.process.stdin.flush()
    assert json.loads(run.process.stdout.readline()) != run.token
    assert not mine[0].exists()
    assert run.process.wait(timeout=120) == 0
