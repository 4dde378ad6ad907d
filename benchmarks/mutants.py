"""Count the small mistakes that tests notice: a sample of mutants, each run against the tests that mirror its file.

    python -m benchmarks.mutants              # goes on where it stopped, until 400 have been tried
    python -m benchmarks.mutants --most 60    # until 60 have been tried
    python -m benchmarks.mutants --again      # survivors once more, after new tests
    python -m benchmarks.mutants --area price # of one area

A mutant is one change of one expression or statement of a copy of the last commit. Each area gives as many as every other,
in an order that only their own text decides, so that a change elsewhere leaves results as they are.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from benchmarks.ordering import placed

ROOT = Path(__file__).resolve().parent.parent
COPY, TRIED = ROOT / "build" / "mutants", ROOT / "benchmarks" / "mutants.jsonl"
EQUAL, PAGE = ROOT / "benchmarks" / "mutants_equal.json", ROOT / "benchmarks" / "MUTANTS.md"
MOST, LIMIT = 400, 900

TRAIN, VERIFY, REPORT = "runners/train/", "runners/verify/", "reodsl/report/"
AREAS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "numbers": (("reodsl/numbers/*.py",), ("tests/numbers",)),
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
            f"tests/verify/test_{name}.py" for name in ("extract", "readers", "references", "fast", "graded")
        ),
    ),
    "price": (("reodsl/price/*.py",), ("tests/price",)),
    "report": (
        tuple(f"{REPORT}{name}.py" for name in ("tables", "main_table", "cards", "formats", "leading")),
        tuple(f"tests/report/test_{name}.py" for name in ("tables", "formats", "leading", "page")),
    ),
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
NOT_RUN = {"annotation", "returns", "decorator_list", "bases"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: the text of a file with it, and its name, which tells file, function and change, and no line."""

    name: str
    area: str
    path: str
    line: str
    text: str

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


def changes(node: ast.AST, scope: str = "") -> Iterator[tuple[str, ast.AST, ast.AST]]:
    """Every change inside a node: the function that it is in, what goes, and what comes."""
    if isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    ):
        return
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        scope = f"{scope}.{node.name}".strip(".")
    for new in altered(node):
        # Of a branch the condition alone is written anew.
        yield scope, node.test if isinstance(node, ast.If | ast.IfExp) else node, new
    for name, value in ast.iter_fields(node):
        # How careful a zip is shows in no number.
        careful = isinstance(node, ast.keyword) and node.arg == "strict"
        if name not in NOT_RUN and not careful:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from changes(child, scope)


def mutants(area: str, path: str, source: str) -> Iterator[Mutant]:
    """All mutants of a file."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    counted: Counter[str] = Counter()
    for scope, old, new in changes(ast.parse(source)):
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
        yield Mutant(name + number, area, path, source.splitlines()[old.lineno - 1].strip(), text)


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


def judged(root: Path, area: str, path: str | None = None) -> str:
    """Return the outcome of an area's tests in a copy of the code; tests that mirror the changed file run first."""
    mirror = f"tests/{Path(path).parent.name}/test_{Path(path).stem}.py" if path else ""
    environment = os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    for tests in ([mirror] if path and (root / mirror).exists() else [], AREAS[area][1]):
        if not tests:
            continue
        call = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "--hypothesis-seed=0", *tests]
        nowhere = subprocess.DEVNULL
        with subprocess.Popen(
            call, cwd=root, env=environment, stdout=nowhere, stderr=nowhere, start_new_session=True
        ) as process:
            try:
                code = process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                # Its workers go with it, whatever it left.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        if code != 0:
            return "killed" if code else "timeout"
    return "survived"


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
    COPY.mkdir(parents=True, exist_ok=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", COPY], input=archive, check=True)
    everyone = sample(COPY)
    standing = {one.name for one in everyone}
    # What was tried of code that has gone says nothing.
    known = {name: row for name, row in tried().items() if name in standing}
    TRIED.write_text("".join(map(line_of, known.values())))
    todo = [one for one in everyone if one.name not in known][: max(0, asked.most - len(known))]
    if asked.again:
        todo = [one for one in everyone if known.get(one.name, {}).get("outcome") == "survived"]
    sound: set[str] = set()
    for one in todo:
        if asked.area and one.area not in asked.area:
            continue
        if one.area not in sound and judged(COPY, one.area) != "survived":
            raise SystemExit(f"the tests of {one.area} fail without any mutant")
        sound.add(one.area)
        file, began = COPY / one.path, time.monotonic()
        kept = file.read_text()
        try:
            put(file, one.text)
            outcome = judged(COPY, one.area, one.path)
        finally:
            put(file, kept)
        row = {"mutant": one.name, "area": one.area, "line": one.line, "outcome": outcome}
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
