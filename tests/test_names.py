"""Names are the field's: nouns for classes and fields, one word for one idea, and docstrings that say what is returned."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = {
    path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8"))
    for package in ("reodsl", "runners")
    for path in sorted((ROOT / package).rglob("*.py"))
}
DIALECT = {
    "ahead", "among", "apart", "around", "aside", "asked", "at", "behind", "beside", "drawn", "each", "ended", "given",
    "gone", "here", "known", "made", "meant", "met", "moving", "one", "others", "part", "place", "said", "shown", "taken",
    "then", "there", "those", "told", "wanted", "what", "whole",
}  # fmt: skip
"""Words that name nothing: participles, adverbs and pronouns."""
MOST_DIALECT = 50


def nodes(kind: type[ast.AST] | tuple[type[ast.AST], ...]) -> Iterator[tuple[str, ast.AST]]:
    return ((path, node) for path, tree in FILES.items() for node in ast.walk(tree) if isinstance(node, kind))


def bound_names(function: ast.AST) -> set[str]:
    """The parameters and locals of a function without those of functions inside it."""
    names: set[str] = set()
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            waiting += ast.iter_child_nodes(node)
    return names


def fields(node: ast.ClassDef) -> list[ast.AnnAssign]:
    return [
        line for line in node.body if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    ]


def test_locals_are_named_by_nouns() -> None:
    found = [
        f"{path}:{node.lineno} {name}"
        for path, node in nodes((ast.FunctionDef, ast.AsyncFunctionDef))
        for name in sorted(bound_names(node) & DIALECT)
    ]
    assert len(found) <= MOST_DIALECT, "\n".join(found)


STORED = {
    "Acceptance.at", "FinishedTask.at", "FromResults.at", "If.then", "IfElse.then", "Live.at", "PairDifference.one",
    "RunRecord.ended", "StepStatistic.at", "Tokens.drawn",
}  # fmt: skip
"""Fields by the names that a spec, a file of the store or a user's function has for them."""
PARTICIPLE = re.compile(
    r"_?(?:(?!Need)[A-Z][a-z]+ed|Beyond|Drawn|Every|Found|Given|Going|Gone|Held|Hung|Kept|Known|Lost|Made|Met|Own|Read|Same|"
    r"Seen|Sent|Shown|Some|Spent|Such|Taken|Told|Unfit|Wanted|What|Whole)"
)


def test_classes_and_fields_are_nouns() -> None:
    classes = [(path, node) for path, node in nodes(ast.ClassDef) if isinstance(node, ast.ClassDef)]
    found = [f"{path}:{node.lineno} {node.name}" for path, node in classes if PARTICIPLE.fullmatch(node.name)]
    found += [
        f"{path}:{line.lineno} {node.name}.{line.target.id}"
        for path, node in classes
        for line in fields(node)
        if isinstance(line.target, ast.Name) and line.target.id in DIALECT
        if f"{node.name}.{line.target.id}" not in STORED
    ]
    assert not found, "\n".join(found)


def test_the_first_word_of_a_docstring_is_what_a_function_does() -> None:
    found = []
    for path, node in nodes((ast.FunctionDef, ast.AsyncFunctionDef)):
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        text, returns = ast.get_docstring(node) or "", ast.unparse(node.returns) if node.returns else ""
        nothing = text.startswith("Return") and returns in ("None", "NoReturn")
        if nothing or (text.startswith("Return whether") and returns not in ("bool", "Bools")):
            found.append(f"{path}:{node.lineno} {node.name} -> {returns}: {text[:60]}")
    assert not found, "\n".join(found)


def test_what_is_long_is_explained() -> None:
    """A private function of more than ten lines has a docstring; a class of more than six fields says each."""
    found = []
    for path, node in nodes((ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        lines = (node.end_lineno or 0) - node.lineno + 1
        if isinstance(node, ast.ClassDef):
            source = (ROOT / path).read_text("utf-8").splitlines()
            silent = [line for line in fields(node) if not is_said(node, line, source)]
            found += [f"{path}:{line.lineno} {node.name}" for line in silent if len(fields(node)) > 6]
        elif re.match(r"_[^_]", node.name) and lines > 10 and not ast.get_docstring(node):
            found.append(f"{path}:{node.lineno} {node.name}")
    assert not found, "\n".join(found)


def is_said(node: ast.ClassDef, line: ast.AnnAssign, source: list[str]) -> bool:
    """Whether a field has a docstring below it, a comment beside or above it, a setting's description, or says itself."""
    below = node.body[node.body.index(line) + 1 :][:1]
    documented = any(isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant) for item in below)
    commented = "#" in source[line.lineno - 1] or source[line.lineno - 2].lstrip().startswith("#")
    made = ast.unparse(line.value) if line.value is not None else ""
    described = re.match(r"setting\(|part_of\(|flatten\(|ENGINE|frozenset", made) is not None
    return (
        documented or commented or described or ast.unparse(line.target) in ("name", "doc", "kind", "batch")
    )


def test_names_are_those_of_the_glossary() -> None:
    """No class, field or column has a word that the glossary's last column leaves out; editors have their own terms."""
    rows = [line.split("|") for line in (ROOT / "docs" / "GLOSSARY.md").read_text().splitlines()[4:]]
    assert 30 <= len(rows) <= 45
    avoided = {word for row in rows for word in re.findall(r"\w+", " ".join(row[5:]))}
    assert len(avoided) >= 10
    found = []
    for path, node in nodes((ast.ClassDef, ast.Dict)):
        names: list[str] = []
        if isinstance(node, ast.ClassDef) and "/lsp/" not in path:
            names = [node.name, *(ast.unparse(line.target) for line in fields(node))]
        elif isinstance(node, ast.Dict) and any(
            ast.unparse(value).startswith("pl.") for value in node.values
        ):
            names = [str(getattr(key, "value", "")) for key in node.keys]
        for name in names:
            words = set(re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower().split("_"))
            found += [f"{path}:{getattr(node, 'lineno', 0)} {name}"] * bool(words & avoided)
    assert not found, "\n".join(found)
