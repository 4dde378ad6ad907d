"""Count the small mistakes that tests notice: a sample of mutants, each run against the tests that mirror its file.

    python -m benchmarks.mutants              # goes on where it stopped, until 400 have been tried
    python -m benchmarks.mutants --most 60    # until 60 have been tried
    python -m benchmarks.mutants --again      # survivors once more, after new tests
    python -m benchmarks.mutants --area price # of one area

A mutant is one change of one expression or statement of a copy of the last commit. The area's tests that run its line are
tried, the quickest first. Each area gives as many as every other, in an order that only their own text decides, so that a
change elsewhere leaves results as they are.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import inspect
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import chain, zip_longest
from multiprocessing import get_context
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest
from hypothesis import Phase, settings

from benchmarks.ordering import placed

ROOT = Path(__file__).resolve().parent.parent
COPY, TRIED = ROOT / "build" / "mutants", ROOT / "benchmarks" / "mutants.jsonl"
EQUAL, PAGE = ROOT / "benchmarks" / "mutants_equal.json", ROOT / "benchmarks" / "MUTANTS.md"
MAP, OURS = ROOT / "build" / "mutants.json", ("reodsl", "runners", "tests", "benchmarks")
MOST, LIMIT = 400, 600
WARM = ("altair", "math_verify", "polars", "torch", "transformers")

TRAIN, VERIFY, REPORT = "runners/train/", "runners/verify/", "reodsl/report/"
AREAS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "numbers": (("reodsl/numbers/*.py",), ("tests/numbers", "tests/cli/test_curve_commands.py")),
    "rewards": (("runners/rewards/*.py",), ("tests/rewards",)),
    "losses": (
        (f"{TRAIN}ppo_loss.py", f"{TRAIN}preference_loss.py"),
        ("tests/train/test_losses.py", "tests/train/test_objective.py", "tests/train/test_preference.py"),
    ),
    "advantages": (
        (f"{TRAIN}advantages.py", f"{TRAIN}gather.py"),
        ("tests/train/test_advantages.py", "tests/train/test_gather.py"),
    ),
    "optimizers": (
        (f"{TRAIN}optimizers.py", f"{TRAIN}on_host.py", f"{TRAIN}update.py"),
        ("tests/train/test_optimizers.py", "tests/train/test_update.py"),
    ),
    "evaluation": (("runners/evaluate/*.py",), ("tests/evaluate",)),
    # The files that hold hostile answers down are left alone: a mutant of a limit may take the machine with it.
    "grading": (
        tuple(
            f"{VERIFY}{name}.py"
            for name in (
                "answer",
                "extract",
                "fast",
                "notation",
                "quantity",
                "readers",
                "references",
                "units",
            )
        ),
        tuple(
            f"tests/verify/test_{name}.py"
            for name in ("extract", "readers", "references", "fast", "fresh", "graded", "units")
        ),
    ),
    "price": (("reodsl/price/*.py",), ("tests/price",)),
    "report": (
        tuple(
            f"{REPORT}{name}.py"
            for name in ("tables", "main_table", "standing", "verdict_words", "formats", "leading")
        ),
        ("tests/report", "tests/cli/test_report.py"),
    ),
}
"""The files to change, and the tests that should notice, by area."""

Test = tuple[float, set[tuple[str, int]]]
"""A test's seconds, and the lines that it runs."""

OPPOSITES: Mapping[type[ast.AST], tuple[type[Any], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,), ast.And: (ast.Or,), ast.Or: (ast.And,),
    ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.Div,), ast.Div: (ast.Mult,), ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.Mult,), ast.Pow: (ast.Mult,), ast.BitAnd: (ast.BitOr,), ast.BitOr: (ast.BitAnd,),
}  # fmt: skip
TURNED = {"min": "max", "max": "min", "floor": "ceil", "ceil": "floor", "any": "all", "all": "any"}
TEXTS = (ast.JoinedStr, ast.List, ast.Tuple)
NOT_RUN = {"annotation", "returns", "decorator_list", "bases"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: the text of a file with it, and its name, which tells file, function and change, and no line."""

    name: str
    area: str
    path: str
    line: str
    text: str
    code: str
    top: bool
    lines: frozenset[int]

    @property
    def rank(self) -> str:
        """Its place among all of its area."""
        return hashlib.sha256(self.name.encode()).hexdigest()


def altered(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that may replace a node by mistake."""
    match node:
        case ast.Compare(left, ops, comparators):
            for op in OPPOSITES.get(type(ops[0]), ()):
                yield ast.Compare(left, [op(), *ops[1:]], comparators)
        case ast.BinOp(left, op, right) if not any(
            isinstance(side, TEXTS) or (isinstance(side, ast.Constant) and isinstance(side.value, str))
            for side in (left, right)
        ):
            yield from (ast.BinOp(left, other(), right) for other in OPPOSITES.get(type(op), ()))
        case ast.BoolOp(op, values):
            yield ast.BoolOp(OPPOSITES[type(op)][0](), values)
        case ast.UnaryOp(ast.USub() | ast.Not(), operand):
            yield operand
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value) | float(value)):
            yield ast.Constant(0 if value == 1 else value + 1)
        case ast.If(test) | ast.IfExp(test) if isinstance(test, ast.Name | ast.Attribute | ast.Call):
            yield ast.UnaryOp(ast.Not(), test)
        case ast.Name(name) if name in TURNED:
            yield ast.Name(TURNED[name])
        case ast.Attribute(value, name) if name in TURNED:
            yield ast.Attribute(value, TURNED[name])
        case ast.Expr(ast.Call()) | ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break():
            yield ast.Pass()
        case ast.Assign([ast.Subscript()]):
            yield ast.Pass()


def changes(node: ast.AST, scope: str = "", at: int = 0) -> Iterator[tuple[str, int, ast.AST, ast.AST]]:
    """Every change inside a node: the function that it is in, the line of its statement, what goes, and what comes."""
    if isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    ):
        return
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        scope = f"{scope}.{node.name}".strip(".")
    at = node.lineno if isinstance(node, ast.stmt) else at
    for new in altered(node):
        # Of a branch the condition alone is written anew.
        yield scope, at, node.test if isinstance(node, ast.If | ast.IfExp) else node, new
    for name, value in ast.iter_fields(node):
        # How careful a zip is shows in no number.
        careful = isinstance(node, ast.keyword) and node.arg == "strict"
        if name not in NOT_RUN and not careful:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from changes(child, scope, at)


def mutants(area: str, path: str, source: str) -> Iterator[Mutant]:
    """All mutants of a file."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    counted: Counter[str] = Counter()
    tree = ast.parse(source)
    bodies = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for scope, at, old, new in changes(tree):
        assert isinstance(old, ast.stmt | ast.expr)
        assert old.end_lineno is not None
        assert old.end_col_offset is not None
        coming = ast.unparse(new) if isinstance(new, ast.stmt) else f"({ast.unparse(new)})"
        # A constant or a name alone would not say which.
        name = f"{path} {scope}: {ast.unparse(old)} → {coming.strip('()') if len(coming) < 6 else coming}"
        counted[name] += 1
        first, last = starts[old.lineno - 1] + old.col_offset, starts[old.end_lineno - 1] + old.end_col_offset
        whole = source.encode()
        text = (whole[:first] + coming.encode() + whole[last:]).decode()
        number = f" ({counted[name]})" if counted[name] > 1 else ""
        around = [node for node in bodies if node.body[0].lineno <= old.lineno <= (node.end_lineno or 0)]
        code = ast.unparse(around[0]) if around else source
        yield Mutant(
            name + number,
            area,
            path,
            source.splitlines()[old.lineno - 1].strip(),
            text,
            hashlib.sha256(code.encode()).hexdigest()[:8],
            not around,
            frozenset({at, *range(old.lineno, old.end_lineno + 1)}),
        )


def sample(root: Path) -> list[Mutant]:
    """All mutants in the order in which they are tried: one of each area in turn."""
    by_area = [
        sorted(
            (
                one
                for pattern in patterns
                for path in sorted(root.glob(pattern))
                for one in mutants(area, str(path.relative_to(root)), path.read_text())
            ),
            key=lambda one: one.rank,
        )
        for area, (patterns, _) in AREAS.items()
    ]
    return [one for one in chain.from_iterable(zip_longest(*by_area)) if one is not None]


class Watch:
    """What pytest tells a plugin, and Python a tracer: the lines of the areas' files that each test runs, and its seconds.

    Work of a fixture that tests share counts for each of them; what runs at import counts for no test.
    """

    def __init__(self, watched: set[str]) -> None:
        self.watched, self.now = watched, ""
        self.lines: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
        self.tests: dict[str, tuple[float, list[str]]] = {}

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename not in self.watched or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            return None
        now = self.now

        def line(frame: FrameType, event: str, argument: object) -> Any:
            self.lines[now].add((os.path.relpath(frame.f_code.co_filename, COPY), frame.f_lineno))
            return line

        return line

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        for name, module in list(sys.modules.items()):
            for value in list(vars(module).values()) if name.split(".")[0] in OURS else ():
                # Else the first test alone would run what later ones see as well.
                getattr(value, "cache_clear", int)()
        self.now, began = item.nodeid, time.monotonic()
        sys.settrace(self)
        yield
        shared = [str(each) for several in item._fixtureinfo.name2fixturedefs.values() for each in several]
        self.tests[item.nodeid], self.now = (time.monotonic() - began, shared), ""

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        before = self.now
        self.now = before if fixturedef.scope == "function" else str(fixturedef)
        try:
            return (yield)
        finally:
            self.now = before


class Chosen:
    """A plugin of pytest: some tests of those that it collects, the quickest first."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self.seconds = seconds

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self.seconds),
            key=lambda item: self.seconds[item.nodeid],
        )


def forked(work: Callable[[], int], limit: float) -> int | None:
    """Return the exit code of work done in the copy by a process of its own, or None where it does not end in time.

    The process has the libraries imported already, and nothing of the code.
    """

    def alone() -> None:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nowhere, stream)
        for name in [name for name in sys.modules if name.split(".")[0] in OURS]:
            del sys.modules[name]
        # Processes that tests start would import this file.
        sys.modules["__main__"] = ModuleType("__main__")
        os.chdir(COPY)
        sys.path.insert(0, str(COPY))
        os.environ |= {"PYTHONPATH": str(COPY), "OMP_NUM_THREADS": "1"}
        # What fails for one mutant is not tried first for the next.
        settings.register_profile("mutants", database=None, phases=[Phase.explicit, Phase.generate])
        settings.load_profile("mutants")
        code = 3
        with suppress(BaseException):
            code = work()
        os._exit(code)

    process = get_context("fork").Process(target=alone)
    process.start()
    process.join(limit)
    code = process.exitcode
    with suppress(ProcessLookupError):
        # What it started goes with it.
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.join()
    return code


def passes(plugin: object, file: str) -> int:
    """Return pytest's code for a file's tests, 0 where there is none for the plugin to run."""
    call = ["-x", "-p", "no:cacheprovider", "--hypothesis-seed=0", file]
    return int(pytest.main(call if isinstance(plugin, Chosen) else call[1:], [plugin])) % 5


def mapped(places: Iterable[str], paths: Iterable[str]) -> dict[str, Test]:
    """Return what each test runs, by its name; `build` keeps it until its file or the code of the areas changes."""
    kept = json.loads(MAP.read_text()) if MAP.exists() else {}
    watched = {str(COPY / path) for path in paths}
    code = "".join(Path(path).read_text() for path in sorted(watched))
    tests: dict[str, Test] = {}
    for file in (
        str(path.relative_to(COPY))
        for place in places
        for path in ([COPY / place] if place.endswith(".py") else sorted((COPY / place).glob("test_*.py")))
    ):
        key = hashlib.sha256((code + (COPY / file).read_text()).encode()).hexdigest()

        def measure(file: str = file) -> int:
            watch = Watch(watched)
            sys.settrace(watch)
            threading.settrace(watch)
            code = passes(watch, file)
            sys.settrace(None)
            # What runs at import goes by the name of no test.
            watch.tests |= {f"{file}::": (0.0, [""])}
            tests = {
                name: [seconds, sorted({line for each in (name, *shared) for line in watch.lines[each]})]
                for name, (seconds, shared) in watch.tests.items()
            }
            MAP.with_suffix(".new").write_text(json.dumps(tests))
            return code

        if kept.get(file, {}).get("key") != key:
            began = time.monotonic()
            passed = forked(measure, LIMIT) == 0
            kept[file] = {
                "key": key,
                "tests": json.loads(MAP.with_suffix(".new").read_text()) if passed else {},
            }
            fault = "" if passed else " fails without any mutant, and is left alone"
            print(f"{time.monotonic() - began:5.0f} s  {file}{fault}", flush=True)
            MAP.write_text(json.dumps(kept))
        for name, (seconds, lines) in kept[file]["tests"].items():
            tests[name] = (seconds, {(path, line) for path, line in lines})
    return tests


def judged(one: Mutant, tests: Mapping[str, Test]) -> str:
    """Return the outcome of the tests that run what a mutant changes; of what runs at import, of all that run the file."""
    by_file: defaultdict[str, dict[str, float]] = defaultdict(dict)
    changed = {(one.path, number) for number in one.lines}
    early = one.top or any(changed & lines for name, (_, lines) in tests.items() if name.endswith("::"))
    for name, (seconds, lines) in tests.items():
        if changed & lines or (early and any(path == one.path for path, _ in lines)):
            by_file[name.partition("::")[0]][name] = seconds
    quickest = sorted(by_file.items(), key=lambda each: sum(each[1].values()))
    usual = sum(sum(each.values()) for each in by_file.values())
    code = forked(
        lambda: next((code for file, names in quickest if (code := passes(Chosen(names), file))), 0),
        60 + 5 * usual,
    )
    return "timeout" if code is None else "killed" if code else "survived"


def tried() -> dict[str, dict[str, Any]]:
    """The results so far by mutant; of several the last counts."""
    lines = TRIED.read_text().splitlines() if TRIED.exists() else []
    return {row["mutant"]: row for row in map(json.loads, lines)}


def line_of(row: Mapping[str, Any]) -> str:
    """A result as it is kept."""
    return json.dumps(row, ensure_ascii=False) + "\n"


def page(rows: Mapping[str, Mapping[str, Any]], equal: Mapping[str, str]) -> str:
    """The table by area, and each survivor by name."""
    lines = ["| area | tried | change nothing | killed | survived | killed of those that change something |"]
    lines.append("| --- | ---: | ---: | ---: | ---: | ---: |")
    for area in (*AREAS, "all"):
        of_area = [row for row in rows.values() if area in ("all", row["area"])]
        same = sum(row["mutant"] in equal for row in of_area)
        alive = sum(row["outcome"] == "survived" and row["mutant"] not in equal for row in of_area)
        dead = len(of_area) - same - alive
        share = f"{100 * dead / (dead + alive):.0f}%" if dead + alive else "–"
        lines.append(f"| {area} | {len(of_area)} | {same} | {dead} | {alive} | {share} |")
    left = sorted(row["mutant"] for row in rows.values() if row["outcome"] == "survived")
    lines += ["", "Survivors:", "", *(f"- `{name}`" for name in left if name not in equal)]
    lines += ["", "Changes that change nothing:", ""]
    lines += [f"- `{name}`: {equal[name]}" for name in sorted(equal) if name in rows]
    return "\n".join(lines)


def write_page() -> None:
    """Put the results so far on the page."""
    equal = json.loads(EQUAL.read_text())
    PAGE.write_text(placed(PAGE.read_text(), "mutants", page(tried(), equal)))


def main() -> None:
    """Try mutants until so many have been tried, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=MOST, help="how many are to have been tried in all")
    parser.add_argument("--area", choices=AREAS, action="append", help="of these areas alone")
    parser.add_argument("--again", action="store_true", help="try those that survived once more")
    asked = parser.parse_args()
    for name in WARM:
        import_module(name)
    COPY.mkdir(parents=True, exist_ok=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", COPY], input=archive, check=True)
    everyone = sample(COPY)
    code = {one.name: one.code for one in everyone}
    # What was tried of code that has changed since says nothing.
    known = {name: row for name, row in tried().items() if row.get("code") == code.get(name, 0)}
    TRIED.write_text("".join(map(line_of, known.values())))
    todo = [one for one in everyone[: asked.most] if one.name not in known]
    if asked.again:
        todo = [one for one in everyone if known.get(one.name, {}).get("outcome") == "survived"]
    tests: dict[str, dict[str, Test]] = {}
    for one in todo:
        if asked.area and one.area not in asked.area:
            continue
        if one.area not in tests:
            tests[one.area] = mapped(AREAS[one.area][1], {each.path for each in everyone})
        file, began = COPY / one.path, time.monotonic()
        kept = file.read_text()
        try:
            put(file, one.text)
            outcome = judged(one, tests[one.area])
        finally:
            put(file, kept)
        row = {"mutant": one.name, "area": one.area, "line": one.line, "code": one.code, "outcome": outcome}
        with TRIED.open("a") as results:
            results.write(line_of(row))
        print(f"{outcome:9}{time.monotonic() - began:5.0f} s  {one.name}", flush=True)
    write_page()


def put(file: Path, text: str) -> None:
    """Write a file of the copy. What Python compiled of it goes: it is told apart by its second and its size alone."""
    file.write_text(text)
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
        compiled.unlink()


if __name__ == "__main__":
    main()
