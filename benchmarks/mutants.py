"""Count the small mistakes that tests notice: a sample of mutants, each run against the tests that mirror its file.

    python -m benchmarks.mutants              # goes on where it stopped, until 400 have been tried
    python -m benchmarks.mutants --most 60    # until 60 have been tried
    python -m benchmarks.mutants --again      # survivors once more, after new tests
    python -m benchmarks.mutants --area price # of one area

A mutant is one change of one expression or statement in a function, or in a constant of a module. A fork of the process
that has collected the area's tests puts it in the place of what is loaded, and runs the tests that reach it, the quickest
first. Each area gives as many as every other, in an order that only their own text decides, so that a change elsewhere
leaves results as they are.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import copy
import gc
import hashlib
import json
import os
import resource
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from itertools import chain, islice, zip_longest
from multiprocessing import get_context
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest
from hypothesis import Phase, settings

from benchmarks.tables import ROOT, markdown, rewrite
from reodsl.diagnostics import in_percent

TRIED, EQUAL = ROOT / "benchmarks" / "mutants.jsonl", ROOT / "benchmarks" / "mutants_equal.json"
PAGE, REACHED = ROOT / "benchmarks" / "MUTANTS.md", ROOT / "build" / "reached.json"
MOST, OURS = 400, ("reodsl", "runners", "tests")

# The files that hold hostile answers down are left alone: a mutant of a limit may take the machine with it.
GRADING = "runners/grade: answer checks readers; runners/grade/compare: final forms groups notation quantity"
REPORT = "reodsl/report: tables results main_table ranking verdict_words formats"
REPORTED = "tests/report: test_formats test_leading test_published test_ra* test_se* test_so* test_ta* test_te* test_v*"
AREAS = {
    "numbers": (
        "reodsl/numbers: *",
        "tests/numbers: test_*; tests/cli: test_curve_commands; tests/results: test_scored",
    ),
    "rewards": ("runners/rewards: *", "tests/rewards: test_*"),
    "losses": ("runners/train: losses", "tests/train: test_losses test_objective test_preference"),
    "advantages": (
        "runners/train: advantages gather",
        "tests/train: test_advantages test_gather test_rollouts test_update",
    ),
    "optimizers": (
        "runners/train: optimizers update",
        "tests/train: test_optimizers test_update test_packed test_adapters test_microbatches",
    ),
    "evaluation": ("runners/evaluate: *", "tests/evaluate: test_*"),
    "grading": (GRADING, "tests/grade: test_[ejru]* test_f* test_graded test_notation"),
    "price": ("reodsl/price: *", "tests/price: test_*"),
    "report": (REPORT, REPORTED),
}
"""The files to change, and the tests that should notice, by area."""

OPPOSITES: Mapping[type[ast.AST], tuple[type[Any], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,), ast.And: (ast.Or,), ast.Or: (ast.And,),
    ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.Div,), ast.Div: (ast.Mult,), ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.Mult,), ast.Pow: (ast.Mult,), ast.BitAnd: (ast.BitOr,), ast.BitOr: (ast.BitAnd,),
}  # fmt: skip
TURNED = {"min": "max", "max": "min", "floor": "ceil", "ceil": "floor", "any": "all", "all": "any"}
TEXTS = (ast.JoinedStr, ast.List, ast.Tuple)
NOT_RUN = {"annotation", "returns", "decorator_list", "bases", "defaults", "kw_defaults"}


Place = tuple[str, str, int]
"""A function's file, name and first line."""
Functions = Mapping[Place, Iterable[FunctionType]]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One of a file's changes: its name says which, and no line; its number and the line of its statement find it."""

    name: str
    area: str
    path: str
    source: str
    number: int
    at: int
    code: str
    constant: bool


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
            yield ast.Name(TURNED[name], ast.Load())
        case ast.Attribute(value, name) if name in TURNED:
            yield ast.Attribute(value, TURNED[name], ast.Load())
        case (
            ast.Expr(ast.Call()) | ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break()
            | ast.Assign([ast.Subscript()])
        ) if "super()" not in ast.unparse(node):  # fmt: skip
            # What calls `super()` no more has another closure, and cannot be put in the place of what does.
            yield ast.Pass()


def changes(node: ast.AST, scope: str = "", at: int = 0) -> Iterator[tuple[str, int, Any, Any]]:
    """Yield every change inside a node: its function, the line of its statement, what goes, and what comes."""
    match node:
        case ast.JoinedStr() | ast.If(ast.Name("TYPE_CHECKING")):
            return
        case ast.FunctionDef() | ast.ClassDef():
            scope = f"{scope}.{node.name}".strip(".")
    at = node.lineno if isinstance(node, ast.stmt) else at
    for new in altered(node):
        # Of a branch the condition alone is written anew.
        yield scope, at, node.test if isinstance(node, ast.If | ast.IfExp) else node, new
    for name, value in ast.iter_fields(node):
        # How careful a zip is shows in no number.
        if name not in NOT_RUN and not (isinstance(node, ast.keyword) and node.arg == "strict"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from changes(child, scope, at)


@cache
def fingerprint(node: ast.AST) -> str:
    """Return eight digits that only a node's code decides: comments and the places of lines may change."""
    return hashlib.sha256(ast.unparse(node).encode()).hexdigest()[:8]


def mutants(area: str, path: str, source: str) -> Iterator[Mutant]:
    """Yield all mutants of a file."""
    counted: Counter[str] = Counter()
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for one in functions:
        if ast.get_docstring(one) is not None:
            # Words may be written anew.
            one.body = one.body[1:] or [ast.copy_location(ast.Pass(), one.body[0])]
    constants = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    for number, (scope, at, old, new) in enumerate(changes(tree)):
        coming = ast.unparse(new) if isinstance(new, ast.stmt) else f"({ast.unparse(new)})"
        # A constant or a name alone would not say which.
        name = f"{path} {scope}: {ast.unparse(old)} → {coming.strip('()') if len(coming) < 6 else coming}"
        counted[name] += 1
        name += f" ({counted[name]})" if counted[name] > 1 else ""
        within = [one for one in functions if one.body[0].lineno <= old.lineno <= (one.end_lineno or 0)]
        for around in [*within, *(one for one in constants if one.lineno == at)][:1]:
            yield Mutant(name, area, path, source, number, at, fingerprint(around), not within)


def files(names: str) -> list[str]:
    """Return the files of some names in folders."""
    parts = [part.partition(": ")[::2] for part in names.split("; ")]
    patterns = [f"{folder}/{name}.py" for folder, names in parts for name in names.split()]
    return [str(path.relative_to(ROOT)) for pattern in patterns for path in sorted(ROOT.glob(pattern))]


def sample(rows: Mapping[str, Mapping[str, Any]]) -> list[Mutant]:
    """Return all mutants, one of each area in turn: first those that were tried of code as it is, then by their names."""
    by_area = [
        sorted(
            (one for path in files(names) for one in mutants(area, path, (ROOT / path).read_text())),
            key=lambda one: (
                rows.get(one.name, {}).get("code") != one.code,
                hashlib.sha256(one.name.encode()).digest(),
            ),
        )
        for area, (names, _) in AREAS.items()
    ]
    return [one for one in chain.from_iterable(zip_longest(*by_area)) if one is not None]


def changed(source: str, number: int) -> ast.Module:
    """Return a file's tree with one of its changes."""
    tree = ast.parse(source)
    *_, old, new = next(islice(changes(tree), number, None))
    new = ast.copy_location(copy.deepcopy(new), old)
    old.__class__, old.__dict__ = type(new), vars(new)
    return ast.fix_missing_locations(tree)


def probed(source: str, path: str, lines: Collection[int]) -> ast.Module:
    """Return a file's tree that calls `__reached__` before the statements of some lines."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for _, block in ast.iter_fields(node):
            for one in list(block) if isinstance(block, list) else ():
                if isinstance(one, ast.stmt) and one.lineno in lines:
                    block.insert(block.index(one), ast.parse(f"__reached__({path!r}, {one.lineno})").body[0])
    return tree


def module_of(path: str) -> ModuleType:
    """Return the module of a file."""
    return import_module(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))


def put(code: CodeType, functions: Functions) -> None:
    """Put what a file compiles to in the place of its functions that are loaded."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            put(inner, functions)
    # Several lambdas may begin in one line; those in a function come with it.
    if not code.co_name.startswith("<"):
        for each in functions.get((code.co_filename, code.co_qualname, code.co_firstlineno), ()):
            each.__code__ = code


def put_mutant(one: Mutant, functions: Functions) -> None:
    """Put a mutant in the place of what is loaded: a constant wherever it was imported."""
    tree, file = changed(one.source, one.number), str(ROOT / one.path)
    if not one.constant:
        put(compile(tree, file, "exec"), functions)
        return
    here = vars(module_of(one.path))
    before = dict(here)
    exec(compile(ast.Module([each for each in tree.body if each.lineno == one.at], []), file, "exec"), here)
    for name in [name for name, value in before.items() if here[name] is not value]:
        for module in list(sys.modules.values()):
            if getattr(module, "__dict__", {}).get(name) is before[name]:
                setattr(module, name, here[name])


def forked(work: Callable[[], object], limit: float) -> int | None:
    """Return the exit code of work by a fork of this process, 3 where it fails, None where it takes too long."""

    def alone() -> None:
        os.setsid()
        # A machine that is busy changes no outcome, as processor time is what is limited.
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit)))
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nowhere, stream)
        code = 3
        with suppress(BaseException):
            work()
            code = 0
        os._exit(code)

    process = get_context("fork").Process(target=alone)
    process.start()
    process.join(10 * limit)
    code = process.exitcode
    with suppress(ProcessLookupError):
        # What it started goes with it.
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.join()
    return None if code == -signal.SIGKILL or code == -signal.SIGXCPU else code


class Trial:
    """A plugin of pytest that tries mutants with the tests that it collected, in place of running these."""

    def __init__(self, todo: list[Mutant], keep: Callable[[Mutant, str], None], spare: int = 20) -> None:
        self.todo, self.keep, self.spare = todo, keep, spare
        self.stops, self.now = False, ""
        self.failed: set[str] = set()
        self.reached: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)

    def pytest_sessionstart(self) -> None:
        # What fails for one mutant is not tried first for the next, nor made smaller.
        phases = [Phase.explicit, Phase.generate]
        settings.register_profile("mutants", settings(database=None, phases=phases))
        settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            if self.stops:
                os._exit(1)
            self.failed.add(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        before = self.now
        if fixturedef.scope != "function":
            self.now = fixturedef.argname
        try:
            return (yield)
        finally:
            self.now = before

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        functions: defaultdict[Place, list[FunctionType]] = defaultdict(list)
        for each in gc.get_objects():
            if type(each) is FunctionType:
                code = each.__code__
                functions[code.co_filename, code.co_qualname, code.co_firstlineno].append(each)
        if forked(lambda: self.measure(session.items, functions), 900) != 0:
            raise session.Failed("the tests do not end without any mutant")
        tests = json.loads(REACHED.read_text())
        for name in sorted({item.nodeid for item in session.items} - tests.keys()):
            print(f"         {name} fails without any mutant, and is left alone", flush=True)
        for one in self.todo:
            chosen: list[Any] = []
            usual: Counter[Path] = Counter()
            for item in session.items:
                seconds, reached = tests.get(item.nodeid, (0, []))
                if [one.path, one.at] in reached or (one.constant and item.nodeid in tests):
                    chosen.append(item)
                    usual[item.path] += seconds
            chosen.sort(key=lambda item: (usual[item.path], str(item.path), tests[item.nodeid][0]))
            ours = forked(partial(self.judge, one, chosen, functions), self.spare + 5 * sum(usual.values()))
            self.keep(one, {0: "survived", 3: "failed", None: "timeout"}.get(ours, "killed"))
        return True

    def measure(self, items: list[Any], functions: Functions) -> None:
        """Keep the seconds of each test that passes, and which of the mutants' statements it reaches.

        What a fixture reaches that tests share counts for each of them.
        """
        lines: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
        for one in self.todo:
            lines[one.path, one.source].add(one.at)
        for (path, source), of_path in lines.items():
            put(compile(probed(source, path, of_path), str(ROOT / path), "exec"), functions)
        vars(builtins)["__reached__"] = lambda path, line: self.reached[self.now].add((path, line))
        seconds = {}
        for item, following in zip_longest(items, items[1:]):
            for name, module in list(sys.modules.items()):
                for value in list(vars(module).values()) if name.startswith(OURS) else ():
                    # Else the first test alone would reach what later ones use as well.
                    getattr(value, "cache_clear", int)()
            began = time.monotonic()
            self.now = item.nodeid
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            seconds[item.nodeid] = time.monotonic() - began
        tests = {}
        for item in items:
            if item.nodeid not in self.failed:
                hits = self.reached[item.nodeid].union(*(self.reached[name] for name in item.fixturenames))
                tests[item.nodeid] = seconds[item.nodeid], sorted(hits)
        REACHED.parent.mkdir(exist_ok=True)
        REACHED.write_text(json.dumps(tests))

    def judge(self, one: Mutant, items: list[Any], functions: Functions) -> None:
        """Run tests with a mutant until one fails."""
        self.stops = True
        put_mutant(one, functions)
        for item, following in zip_longest(items, items[1:]):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


def tried() -> dict[str, dict[str, Any]]:
    """Return the results so far by mutant; of several the last counts."""
    return {row["mutant"]: row for row in map(json.loads, TRIED.read_text().splitlines())}


def page(rows: Mapping[str, Mapping[str, Any]], equal: Mapping[str, str]) -> str:
    """Return the table by area, and each survivor by name."""
    shares = []
    for area in (*AREAS, "all"):
        of_area = [row for row in rows.values() if area in ("all", row["area"])]
        same = sum(row["mutant"] in equal for row in of_area)
        alive = sum(row["outcome"] == "survived" and row["mutant"] not in equal for row in of_area)
        dead = len(of_area) - same - alive
        share = f"{in_percent(dead / (dead + alive))}%" if dead + alive else "–"
        shares.append((area, len(of_area), same, dead, alive, share))
    counts = (">tried", ">change nothing", ">killed", ">survived", ">killed of those that change something")
    left = sorted(name for name, row in rows.items() if row["outcome"] == "survived" and name not in equal)
    lines = [markdown(("area", *counts), shares)]
    return "\n".join(
        [*lines, "", "Survivors:", "", *(f"- `{name}`, in `{rows[name]['line']}`" for name in left)]
    )


def main() -> None:
    """Try mutants until so many have been tried, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=MOST, help="how many are to have been tried in all")
    parser.add_argument("--area", choices=AREAS, action="append", help="of these areas alone")
    parser.add_argument("--again", action="store_true", help="try those that survived once more")
    asked = parser.parse_args()
    rows = tried()
    everyone = sample(rows)
    # What was tried of code that has changed since says nothing.
    known = {one.name: rows[one.name] for one in everyone if rows.get(one.name, {}).get("code") == one.code}
    again = {name for name, row in known.items() if asked.again and row["outcome"] == "survived"}
    todo = [one for one in everyone[: asked.most] if one.name not in known or one.name in again]

    def keep(one: Mutant, outcome: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {outcome:9}{one.name}", flush=True)
        if outcome == "failed":
            return
        line = one.source.splitlines()[one.at - 1].strip()
        known[one.name] = {
            "mutant": one.name,
            "area": one.area,
            "line": line,
            "code": one.code,
            "outcome": outcome,
        }
        TRIED.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in known.values()))

    for area in asked.area or AREAS:
        of_area = [one for one in todo if one.area == area]
        for path in {one.path for one in of_area}:
            module_of(path)
        if of_area:
            options = ["-s", "-p", "no:cacheprovider", "--hypothesis-seed=0", "--disable-warnings"]
            pytest.main([*options, *files(AREAS[area][1])], [Trial(of_area, keep)])
    rewrite(PAGE, {"mutants": page(known, json.loads(EQUAL.read_text()))})


if __name__ == "__main__":
    main()
