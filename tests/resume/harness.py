"""Runs of a spec in processes of their own that are killed, and what must then be true of their store."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path

import polars as pl

from reodsl import load
from reodsl.ir.base import walk
from reodsl.ir.data import TaskData
from reodsl.numbers.responses import COLUMNS
from reodsl.store.layout import MARK
from reodsl.store.manifest import MANIFEST
from reodsl.store.store import MATERIAL, Store
from reodsl.store.sweep import find_garbage
from runners.data.fold import generate_questions
from runners.results.table import SCHEMA

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SEAM = HERE / "seam"
SPEC = "every_kind.reo"
sys.path.insert(0, str(SEAM))

import moments as seam  # noqa: E402

SHORT = ("--local", "--target", "short")
EVERY_KIND = ("--local", "--target", "every_kind")
ON_RAY = EVERY_KIND[1:]

marked = seam.marked

TELLS_TIME = {MANIFEST, "timings.parquet", "report.html"}
"""Files that say when and how long, or show it."""
CHARTS = "charts"
"""The folder of pictures, of what the tables say: runs that start by a fork draw none. The mark of `out` lists them."""


@dataclass(frozen=True)
class Moment:
    """When a run is killed: see `seam/moments.py`."""

    name: str
    event: str
    path: str
    times: int = 1
    cut: bool = False
    alone: bool = False
    stop: bool = False


class Forks:
    """The process that runs are copied from."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(SEAM / "forks.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=_environment(),
        )
        assert self._answer() == "ready"

    def start(self, **order: object) -> int:
        return int(self.ask(order))

    def ask(self, order: dict[str, object]) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@dataclass
class Running:
    """A command in its own process, with a mark that all its processes carry."""

    pid: int
    mark: str
    log: Path
    forks: Forks | None = None
    process: subprocess.Popen[bytes] | None = None

    def wait(self) -> int:
        """The exit code; negative where a signal ended it."""
        if self.forks is not None:
            return int(self.forks.ask({"wait": self.pid}))
        assert self.process is not None
        return self.process.wait(timeout=1200)

    def kill(self, *, alone: bool = False) -> int:
        """SIGKILL to all its processes at once, or to the command's own `alone`; its exit code."""
        os.kill(self.pid, signal.SIGKILL)
        code = self.wait()
        if not alone:
            seam.kill_marked(self.mark)
        return code

    @property
    def text(self) -> str:
        """What it said."""
        return self.log.read_text() if self.log.exists() else ""

    def refused(self, code: str, within: float = 30.0) -> None:
        """It ends with this diagnostic, told once, and without a traceback."""
        assert self.wait() == 1, self.text
        assert self.text.count(f"error[{code}]") == 1, self.text
        assert "Traceback" not in self.text
        assert_gone(self.mark, within)

    def until(self, words: str, within: float = 120.0) -> None:
        """Wait until it has said so."""
        end = time.monotonic() + within
        while words not in self.text:
            assert time.monotonic() < end, f"it never said {words!r}:\n{self.text}"
            time.sleep(0.02)

    def go_on(self) -> None:
        """After a moment at which it stopped."""
        os.kill(self.pid, signal.SIGCONT)

    def made(self) -> list[str]:
        """The tasks whose results it computed itself."""
        found = re.findall(r"^\[[0-9/]+\] done     (\S+)  (.*)$", self.text, re.M)
        return [task for task, rest in found if not rest.startswith("computed by another run")]

    def started(self) -> list[str]:
        """The tasks that it began."""
        return re.findall(r"^\[[0-9/]+\] start    (\S+)", self.text, re.M)


@dataclass
class Place:
    """A folder with the spec in it, the runs there, and the moments that were fatal so far."""

    folder: Path
    forks: Forks | None = None
    options: tuple[str, ...] = SHORT
    kills: int = 0
    runs: list[Running] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.fired.mkdir(exist_ok=True)
        if not (self.folder / SPEC).exists():
            shutil.copyfile(HERE / SPEC, self.folder / SPEC)
            (self.folder / "theirs.parquet").write_bytes(_theirs())

    @property
    def fired(self) -> Path:
        return self.folder / "fired"

    @property
    def store(self) -> Store:
        return Store(self.folder / "store")

    def start(
        self, moments: Iterable[Moment] = (), *more: str, spec: str = SPEC, out: str = "out"
    ) -> Running:
        """`reodsl run` of the spec in a process of its own."""
        mark = uuid.uuid4().hex
        told = {"fired": str(self.fired), "moments": [asdict(moment) for moment in moments]}
        own = {seam.MARK: mark, seam.MOMENTS: json.dumps(told) if told["moments"] else ""}
        arguments = ["run", spec, "--store", "store", "--out", out, *self.options, *more]
        log = self.folder / f"log.{len(self.runs)}.{mark}.txt"
        if self.forks is not None:
            pid = self.forks.start(
                folder=str(self.folder), log=str(log), environment=own, arguments=arguments
            )
            running = Running(pid, mark, log, self.forks)
        else:
            script = "import sharded; sharded.install(); from reodsl.cli.main import entry; entry()"
            process = subprocess.Popen(
                [sys.executable, "-c", script, *arguments],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log.open("wb"),
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=_environment() | own,
            )
            running = Running(process.pid, mark, log, process=process)
        self.runs.append(running)
        return running

    def stopped(self, moment: Moment, *more: str, **how: str) -> Running:
        """A run that stopped at a moment, and is still there."""
        running = self.start([replace(moment, stop=True)], *more, **how)
        end = time.monotonic() + 120
        while not (any(self.fired.glob(f"{moment.name}.*")) and _state(running.pid) == "T"):
            assert time.monotonic() < end, running.text
            time.sleep(0.02)
        return running

    def run(self, *more: str, **how: str) -> Running:
        """A run that comes to its end."""
        running = self.start((), *more, **how)
        assert running.wait() == 0, running.text
        assert_gone(running.mark)
        return running

    def run_through(self, moments: Iterable[Moment]) -> None:
        """Run the same command until it ends by itself: after every fatal moment once more."""
        moments = tuple(moments)
        alone = any(moment.alone for moment in moments)
        # An agent of Ray that lost its node asks for its cluster for a minute before it ends.
        patience = 180.0 if alone else 30.0
        while True:
            before = len(list(self.fired.iterdir()))
            running = self.start(moments)
            code = running.wait()
            if code == 0:
                break
            assert code == -signal.SIGKILL, running.text
            assert len(list(self.fired.iterdir())) > before, running.text
            self.kills += 1
            if not alone:
                # Who killed all may have been ended with them before it came to the last.
                seam.kill_marked(running.mark)
            assert_gone(running.mark, patience)
            self.assert_whole()
        assert_gone(running.mark, patience)

    def assert_whole(self) -> None:
        """Everything that can be seen of the results is as it was stored."""
        wrong = {key: self.store.damage(key) for key in self.store}
        assert not any(wrong.values()), wrong

    def assert_tidy(self) -> None:
        """Nothing is left that a finished run has no use for: no work, no locks that are held, nothing half written."""
        self.assert_whole()
        root = self.store.root
        left = [path for name in ("work", "tmp", "live", "errors") for path in (root / name).iterdir()]
        left += [path for path in root.rglob(".*") if path.is_file()]
        left += [path for path in (self.folder / "out").rglob(".*") if path.name != MARK]
        left += list(root.glob("runs/*.lock"))
        assert left == []
        assert find_garbage(self.store, keep=10**6) == ()

    def contents(self) -> dict[str, bytes]:
        """All bytes of all results, and of what was laid out for people, by path; no pictures, and nothing of the time."""
        found = {}
        for top in (self.store.root / "objects", self.folder / "out"):
            for path in sorted(top.rglob("*")):
                if path.is_file() and path.name not in (*TELLS_TIME, MARK) and path.parent.name != CHARTS:
                    found[str(path.relative_to(self.folder))] = path.read_bytes()
        return found

    def task_of(self, key: str) -> str:
        """The task that a result was made for first."""
        made: str = json.loads((self.store.path(key) / MANIFEST).read_text())["made"]["task"]
        return made

    def kinds(self) -> dict[str, str]:
        """The kind of every key in the store."""
        return {key: json.loads((self.store.path(key) / MATERIAL).read_text())["kind"] for key in self.store}

    def fatal(self) -> dict[str, set[str]]:
        """For every fatal moment the kinds of tasks that it ended."""
        kinds = self.kinds()
        found: dict[str, set[str]] = {}
        for path in self.fired.iterdir():
            name, _, key = path.name.partition(".")
            found.setdefault(name, set()).add(kinds.get(key, ""))
        return found


def same(one: dict[str, bytes], other: dict[str, bytes]) -> None:
    """Equal to the byte, and told by name where not."""
    lacking = sorted(one.keys() ^ other.keys())
    assert lacking == [], f"only one has these: {lacking}"
    differing = [name for name in one if one[name] != other[name]]
    assert differing == [], f"these differ: {differing}"


def assert_gone(mark: str, within: float = 30.0) -> None:
    """No process with this mark is left, after a moment to go."""
    until = time.monotonic() + within
    while (left := [pid for pid in seam.marked(mark) if not _ended(pid)]) and time.monotonic() < until:
        time.sleep(0.05)
    assert left == [], [Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0") for pid in left]


def _ended(pid: int) -> bool:
    return _state(pid) in "ZX"


def _state(pid: int) -> str:
    """The letter of /proc for what a process does: T stopped, Z ended and not yet asked about."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


@cache
def _theirs() -> bytes:
    """Responses of somebody else's model to the questions that the spec holds out, as `reodsl import` writes them."""
    whole = load(HERE / SPEC, target="short").spec
    asked = next(each for each in walk(whole) if isinstance(each, TaskData) and each.split == "held_out")
    questions = generate_questions(asked.task, asked.count, asked.seed, split=asked.split)
    at = [{"budget": budget, "correct": budget >= 8} for budget in (0, 4, 8, 16, 32)]
    rows = [
        {"model": "mine", "benchmark": "held", "question": each, "sample": sample, "tokens": 8 + sample}
        | {"finish": "stop", "correct": True, "at": at}
        for each in questions["id"]
        for sample in range(2)
    ]
    made = io.BytesIO()
    pl.DataFrame(rows, schema={name: SCHEMA[name] for name in COLUMNS}).write_parquet(made)
    return made.getvalue()


def _environment() -> dict[str, str]:
    paths = [str(SEAM), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
