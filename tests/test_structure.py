"""The shape of the code: which package may import which, that no two files read each other, and names that say nothing."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HEAVY = {"torch", "ray", "sglang", "transformers", "runners"}

# Each package of the compiler and what it may read, in the order in which data flows.
READS = {
    "diagnostics": set(),
    "syntax": {"diagnostics"},
    "numbers": {"diagnostics"},
    "ir": {"diagnostics"},
    "language": {"diagnostics", "syntax", "numbers", "ir"},
    "start": {"diagnostics", "syntax", "ir", "language"},
    "lsp": {"diagnostics", "syntax", "numbers", "ir", "language"},
    "graph": {"diagnostics", "ir", "numbers"},
    "store": {"diagnostics", "ir", "graph"},
    "price": {"diagnostics", "ir", "graph", "store"},
    "rehearse": {"diagnostics", "ir", "price"},
    "plan": {"diagnostics", "ir", "numbers", "graph", "store", "price", "rehearse"},
    "diff": {"diagnostics", "ir", "numbers", "graph", "store", "plan"},
    "doubts": {"diagnostics", "ir", "numbers", "graph"},
    "report": {"diagnostics", "ir", "numbers", "graph", "store", "diff", "doubts"},
    "watch": {"numbers", "graph", "store"},
    "track": {"diagnostics", "graph", "store"},
    "view": {"diagnostics", "ir", "numbers", "graph", "store", "tokenizer", "report", "watch"},
    "share": {"diagnostics", "ir", "graph", "store", "report"},
}


# The same for what executes.
RUNNERS_READ = {
    "machine": set(),
    "sandbox": {"machine"},
    "rewards": set(),
    "own": {"machine", "sandbox"},
    "programs": {"machine", "sandbox"},
    "grade": {"machine", "own", "programs", "sandbox"},
    "data": {"grade", "own", "programs", "rewards", "sandbox"},
    "models": {"data", "machine", "sandbox"},
    "engine": {"data", "machine", "models", "sandbox"},
    "rollout": {"data", "engine", "grade", "models", "rewards"},
    "train": {"data", "engine", "grade", "machine", "models", "own", "rewards", "rollout"},
    "evaluate": {"data", "engine", "grade", "machine", "models", "rewards", "rollout"},
    "results": {"evaluate", "grade", "models", "sandbox"},
    "execute": {"data", "engine", "machine", "models", "own", "results", "rollout", "sandbox", "train"},
    "registry": {"execute", "results", "train"},
}
# The comparison of answers could leave the project as it is.


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    """A file's tree, read once for all tests."""
    return ast.parse(path.read_text())


def imports(path: Path) -> set[str]:
    return imports_in(parsed(path))


def imports_in(tree: ast.AST) -> set[str]:
    """The modules that a piece of code imports."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
    return found


@pytest.mark.slow
def test_the_compiler_never_imports_what_executes() -> None:
    for path in modules("reodsl"):
        wrong = {name.split(".")[0] for name in imports(path)} & HEAVY
        assert not wrong, f"{path.relative_to(ROOT)} imports {sorted(wrong)}"


@pytest.mark.slow
@pytest.mark.parametrize("package", ["reodsl", "runners"])
def test_no_path_is_read_as_a_pattern(package: str) -> None:
    """Polars takes a path with `[`, `]`, `*` or `?` for a pattern, unless `glob=False`; some readers always do."""
    for path in modules(package):
        for node in ast.walk(parsed(path)):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="pl" | "polars"), attr=name), keywords=given
                ):
                    if name.startswith(("read_", "scan_")):
                        as_it_is = any(
                            each.arg == "glob" and ast.unparse(each.value) == "False" for each in given
                        )
                        assert as_it_is, f"{path.relative_to(ROOT)}:{node.lineno} lacks glob=False"


@pytest.mark.parametrize("package", READS)
def test_imports_point_back_along_the_flow_of_data(package: str) -> None:
    for path in modules(f"reodsl/{package}"):
        read = {name.split(".")[1] for name in imports(path) if name.startswith("reodsl.")}
        wrong = read - READS[package] - {package}
        assert not wrong, f"{path.relative_to(ROOT)} imports {sorted(wrong)}"


@pytest.mark.parametrize("part", RUNNERS_READ)
def test_what_executes_imports_one_way_too(part: str) -> None:
    for path in modules(f"runners/{part}") or [ROOT / "runners" / f"{part}.py"]:
        read = {name.split(".")[1] for name in imports(path) if name.startswith("runners.")}
        wrong = read - RUNNERS_READ[part] - {part}
        assert not wrong, f"{path.relative_to(ROOT)} imports {sorted(wrong)}"


def test_no_part_of_what_executes_reads_one_that_reads_it() -> None:
    there = {path.stem for path in (ROOT / "runners").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert set(RUNNERS_READ) == there - {"__init__", "__pycache__"}
    left = dict(RUNNERS_READ)
    while ready := [part for part, read in left.items() if not read & left.keys()]:
        left = {part: read for part, read in left.items() if part not in ready}
    assert not left, f"these go in a circle: {sorted(left)}"


# The arrows from a source to a plan, and from artifacts to a report: what they give depends on what they are given alone.
PURE = ("syntax", "language", "ir", "numbers", "graph", "price", "rehearse", "plan", "diff", "report")
CHANCE_AND_WORLD = {
    "random", "secrets", "uuid", "time", "datetime", "socket", "ssl", "http", "urllib", "subprocess", "threading",
    "multiprocessing", "concurrent", "asyncio",
}  # fmt: skip
EXCEPTED = {"reodsl/plan/render.py", "reodsl/report/drawing.py"}
"""How long ago a result was made; a process for V8, whose pictures depend on the charts that it is given."""


@pytest.mark.parametrize("package", PURE)
def test_the_arrows_know_no_clock_no_chance_and_no_network(package: str) -> None:
    for path in modules(f"reodsl/{package}"):
        name = str(path.relative_to(ROOT))
        found = {each.split(".")[0] for each in imports(path)} & CHANCE_AND_WORLD
        assert not found or name in EXCEPTED, f"{name} imports {sorted(found)}"


@pytest.mark.parametrize("package", ["reodsl", "runners", "benchmarks"])
def test_a_file_begins_with_what_it_is(package: str) -> None:
    wrong = [str(path.relative_to(ROOT)) for path in modules(package) if not ast.get_docstring(parsed(path))]
    assert not wrong, f"a module starts with a line that says what it does: {', '.join(wrong)}"


@pytest.mark.parametrize("package", ["reodsl", "runners"])
def test_no_docstring_begins_as_a_fragment(package: str) -> None:
    """A function's begins with a verb, any other with a noun, or a verb where a file does something."""
    fragment = re.compile(r'^ *"""(?:What|How|Where|Of|By|Those|Whether|Which|Who)\b', re.MULTILINE)
    found = {
        str(path.relative_to(ROOT)): fragment.findall(path.read_text("utf-8")) for path in modules(package)
    }
    assert {path: begun for path, begun in found.items() if begun} == {}


@pytest.mark.parametrize("package", ["reodsl", "runners", "benchmarks"])
def test_no_file_reads_one_that_reads_it(package: str) -> None:
    files = {module_name(path): path for path in modules(package) if path.name != "__init__.py"}
    left = {name: (names_read(path) & files.keys()) - {name} for name, path in files.items()}
    while ready := [name for name, read in left.items() if not read & left.keys()]:
        left = {name: read for name, read in left.items() if name not in ready}
    assert not left, f"these go in a circle: {sorted(left)}"


HEAVY_LIBRARIES = {
    "altair", "httpx", "io", "numpy", "polars", "pydantic", "rich", "tempfile", "tensorboard",
    "tokenizers", "vl_convert",
}  # fmt: skip
"""What is imported where it is used: each takes longer than all of `reodsl check`, or serves one rare case."""
LATE = {
    # A command, a notebook or a function of the door waits for what it needs alone.
    "reodsl/__init__.py", "reodsl/__main__.py",
    "reodsl/cli", "reodsl/door.py", "reodsl/ir/__init__.py", "reodsl/language/__init__.py",
    # A tracker's package is needed by those who name it.
    "reodsl/track/worker.py",
}  # fmt: skip


def test_imports_stand_at_the_top() -> None:
    for path in modules("reodsl"):
        name = path.relative_to(ROOT)
        late = {
            inner
            for node in ast.walk(parsed(path))
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            for inner in imports_in(node)
        }
        if not {str(name), str(name.parent)} & LATE:
            wrong = {each.split(".")[0] for each in late} - HEAVY_LIBRARIES
            assert not wrong, f"{name} imports {sorted(wrong)} inside a function"


def test_values_are_asserted_nowhere() -> None:
    asserts = [
        path for path in modules("reodsl") for node in ast.walk(parsed(path)) if isinstance(node, ast.Assert)
    ]
    assert len(asserts) <= 10, "give what may be two things a class for each"


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def names_read(path: Path) -> set[str]:
    """The dotted names that a file imports anywhere, `from a import b` as both `a` and `a.b`."""
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("package", ["reodsl", "runners"])
def test_the_maps_name_every_part(package: str) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    parts = [path for path in (ROOT / package).iterdir() if (path / "__init__.py").is_file()]
    names = {f"{package}/{path.name}/" if package == "reodsl" else f"{path.name}/" for path in parts}
    if package == "runners":
        names |= {path.name for path in (ROOT / package).glob("*.py") if path.name != "__init__.py"}
    assert not {name for name in names if f"`{name}`" not in text}
    # What the maps name inside a part is there too.
    files = {path.name for each in ("reodsl", "runners") for path in modules(each)}
    assert set(re.findall(r"`(?:[a-z]+/)*(\w+\.py)`", text)) - {"NAME.py", "picture.py"} <= files | {
        path.name for path in (ROOT / "tests").rglob("*.py")
    }


def test_the_recipes_name_what_is_there_and_are_read_in_one_sitting() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"`(\w+)` (?:of|in) `([\w/]+\.py)`", text)
    assert len(named) >= 12
    files = [path for each in ("reodsl", "runners", "tests") for path in (ROOT / each).rglob("*.py")]
    for name, end in named:
        there = [path.read_text() for path in files if path.as_posix().endswith(f"/{end}")]
        assert any(re.search(rf"\b{name}\b", source) for source in there), f"{end} has no `{name}`"
    assert len(re.sub(r"\||---", "", text).split()) <= 1600


def test_importing_reodsl_pulls_in_nothing_heavy() -> None:
    code = (
        "import sys, reodsl, reodsl.language, reodsl.cli.main;"
        "print(*sorted(m for m in sys.modules if m in {'torch','ray','transformers','sglang','runners','polars','altair'}))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == ""
