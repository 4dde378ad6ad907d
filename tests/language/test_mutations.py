"""Mutations of the specs end in diagnostics inside a file that was read, never in an exception or in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from reodsl.language import compile_file
from tests.language.mutate import mutated

ROOT = Path(__file__).resolve().parents[2]
FILES = [
    *sorted((ROOT / "specs").glob("*.reo")),
    *(ROOT / "stdlib" / f"{n}.reo" for n in ("miniature", "rewards", "suites")),
]
TEXTS = [path.read_text() for path in FILES]
BLOCKS = 4


def holds(seed: int, folder: Path) -> None:
    text = mutated(TEXTS[seed % len(TEXTS)], seed, TEXTS)
    path = folder / "spec.reo"
    path.write_text(text, encoding="utf-8")
    result = compile_file(path)
    if result.spec is None:
        assert any(each.severity == "error" for each in result.diagnostics), seed
    for each in result.diagnostics:
        assert each.labels or each.where, (seed, each)
        for label in each.labels:
            lines = result.sources.get(label.span.path, text).split("\n")
            assert 1 <= label.span.line <= len(lines), (seed, each)
            assert 1 <= label.span.column <= len(lines[label.span.line - 1]) + 1, (seed, each)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_mutations(block: int, tmp_path: Path) -> None:
    for seed in range(block * 20, block * 20 + 20):
        holds(seed, tmp_path)


@pytest.mark.heavy
@pytest.mark.parametrize("block", range(30))
def test_three_thousand_mutations(block: int, tmp_path: Path) -> None:
    for seed in range(10_000 + block * 100, 10_000 + block * 100 + 100):
        holds(seed, tmp_path)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"   \n",
        b"\x00\x01",
        b"\xff\xfe\x00",
        b"caf\xe9",
        b"{" * 5000,
        b"(" * 100_000,
        b"a" * (2 << 20),
        b"from . import x",
    ],
)
def test_bad_files(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "spec.reo"
    path.write_bytes(data)
    result = compile_file(path)
    assert result.spec is None
    assert any(each.severity == "error" for each in result.diagnostics)


def test_no_file(tmp_path: Path) -> None:
    assert compile_file(tmp_path / "none.reo").diagnostics[0].code == "E0101"
    assert "a directory" in compile_file(tmp_path).diagnostics[0].message


@pytest.mark.parametrize(
    "text",
    [
        "reward r {\n  " + "(" * 40 + "correct(y)" + ")" * 40 + "\n}",
        "reward r {\n  " + "1 + " * 3000 + "correct(y)\n}",
        "reward r {\n" + "".join(f"  let a{n} = len(y) * 2\n" for n in range(500)) + "  correct(y)\n}",
        "\n".join(f"budgets b{n} = b{n + 1}" for n in range(500)),
        "budgets b = exp(from: 1 tokens, to: 16777217 tokens, n: 4097)",
        "suite s { grid = every(1 tokens, to: 1e15 tokens) }",
        "param n: int = 2 ^ 64 ^ 64",
        "param n: int = 1e308 * 1e308",
    ],
)
def test_extremes(text: str, tmp_path: Path) -> None:
    path = tmp_path / "spec.reo"
    path.write_text(text)
    result = compile_file(path)
    assert result.spec is None
    assert any(each.severity == "error" for each in result.diagnostics)
