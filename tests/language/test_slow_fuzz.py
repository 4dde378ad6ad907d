"""A search for inputs that are slow to check: constructs of the language repeated, nested, mixed, up to the largest file."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from reodsl.syntax.source import MAX_BYTES
from tests.language.test_slow_inputs import MEGABYTES, OVER, SECONDS, SPEC, spent

ROUNDS = 120
Draw = random.Random


def _params(draw: Draw, n: int) -> str:
    kind = draw.choice(("int", "tokens", "text", "[int]", "number", "bool", "nothing"))
    value = draw.choice(
        (f"p{draw.randrange(n + 2)}", f"q{n}", "1", "1K tokens", '"a"', "[1, 2]", f"-(p{max(0, n - 1)}) + 1")
    )
    return f"param p{n}: {kind} = {value}" + draw.choice(("", " in 1..16", f" in 1..p{n}"))


def _circles(draw: Draw, n: int) -> str:
    ring = draw.choice((1, 2, 50, 5000))
    return f"param p{n}: int = p{n // ring * ring + (n + 1) % ring}"


def _lists(draw: Draw, n: int) -> str:
    size = draw.choice((1, 10, 1000))
    before = f"l{max(0, n - 1)}"
    value = draw.choice(
        (f"[{', '.join('1' for _ in range(size))}]", f"{before} + {before}", f"[{before}, 1]", before)
    )
    return f"param l{n}: [int] = {value}"


def _schedules(draw: Draw, n: int) -> str:
    count = draw.choice((1, 5, 64, 4096))
    value = draw.choice(
        (
            f"exp(from: 1 tokens, to: 16M tokens, n: {count})",
            f"linear(to: 32K tokens, n: {count})",
            f"greedy(edge, to: {draw.choice(('32K', '1M', '16M'))} tokens, n: {count}, step: {draw.choice((1, 64))} tokens)",
            f"explicit(every(1 tokens, from: 1 tokens, to: {count} tokens), to: 16M tokens)",
            f"b{max(0, n - 1)}",
        )
    )
    return f"budgets b{n} = {value}"


def _experiments(draw: Draw, n: int) -> str:
    parent = draw.choice(("x", f"e{max(0, n - 1)}", f"e{draw.randrange(n + 1)}", "ppo"))
    inside = draw.choice(
        (
            f"steps = {n + 1} steps",
            f"optim {{ lr = {n + 1}e-6 }}",
            OVER,
            f"base = checkpoint(e{max(0, n - 1)})",
            "reward = reo(at: exp(from: 4 tokens, to: 128 tokens, n: 5))",
            f"rolout {{ max_tokens = {n} tokens }}",
            "eval = chain_suite { samples = 2 }",
        )
    )
    return f"experiment e{n} = {parent} {{\n  {inside}\n}}"


def _studies(draw: Draw, n: int) -> str:
    arms = draw.choice((1, 50, 1000, 2600))
    seeds = list(range(draw.choice((1, 3, 256, 257, 2500))))
    parent = draw.choice(("x", f"x {{ steps = {n + 1} steps }}", "checkpoint(x)", f"a{n}"))
    lines = "".join(f"  arm a{each} = {parent}\n" for each in range(arms))
    edge = f"  frontier edge{n} = envelope(of: [a0, {', '.join(f'a{each}' for each in range(arms))}], to: 128 tokens)\n"
    return f"study s{n} {{\n  replicate = {seeds}\n{lines}{draw.choice(('', edge))}}}"


def _rewards(draw: Draw, n: int) -> str:
    lets = draw.choice((1, 20, 1000))
    term = draw.choice(
        ("correct(y)", "len(y) / 1 tokens", "mean(correct(z) for z in group)", "(a + {0}) ^ 2", "max(a, {0})")
    )
    body = "".join(
        f"  let l{each} = {f'l{each - 1} + ' if each else ''}{term.format(each)}\n" for each in range(lets)
    )
    uses = "".join(
        f"\nexperiment r{n}_{each} = x {{ reward = r{n}(a: {each}) }}"
        for each in range(draw.choice((1, 100)))
    )
    return f"reward r{n}(a: number) {{\n{body}  l{lets - 1}\n}}{uses}"


def _imports(draw: Draw, n: int) -> str:
    module = draw.choice(
        ("std.paper", "std.rewards", f".nope{n}", "std.nope", f".f{n % 300}", "..up", ".spec")
    )
    names = ", ".join(
        f"{draw.choice(('qwen3_4b', 'outcome', 'p0'))} as i{n}_{each}" for each in range(draw.choice((1, 30)))
    )
    return f"from {module} import {names}"


def _brackets(draw: Draw, n: int) -> str:
    depth = draw.choice((1, 60, 64, 70, 5000))
    opened, closed = draw.choice(
        (("(", ")"), ("[", "]"), ("{", "}"), ("([{", "}])"), ("-", ""), ("not ", ""), ("2^", ""))
    )
    return f"param n{n}: int = {opened * depth}1{closed * draw.choice((depth, depth, depth - 1, 0))}"


def _noise(draw: Draw, n: int) -> str:
    piece = draw.choice(
        (
            "@",
            "é",
            "\u0301",
            "\u202e",
            "\t",
            "漢",
            '"',
            "\\",
            "#",
            ",",
            ";",
            "..",
            "=",
            "a",
            "9",
            "~",
            '"\\q"',
        )
    )
    return piece * draw.choice((1, 100, 20_000))


CONSTRUCTS: tuple[Callable[[Draw, int], str], ...] = (
    _params, _circles, _lists, _schedules, _experiments, _studies, _rewards, _imports, _brackets, _noise,
)  # fmt: skip


def spec_of(seed: int) -> str:
    """A text of up to the largest size: one construct or a few of them, over and over, on lines or on one line."""
    draw = random.Random(seed)
    chosen = draw.sample(CONSTRUCTS, draw.choice((1, 1, 2, 3)))
    most = draw.choice((2_000, 60_000, MAX_BYTES - 5_000))
    glue = draw.choice(("\n", "\n", "; "))
    pieces = ["from std.paper import qwen3_4b as edge", "from std.rewards import reo", SPEC]
    size, number = sum(map(len, pieces)), 0
    while size < most:
        piece = chosen[number % len(chosen)](draw, number)
        pieces.append(piece)
        size += len(piece.encode()) + len(glue)
        number += 1
    return glue.join(pieces).encode()[:MAX_BYTES].decode(errors="ignore")


@pytest.mark.heavy
@pytest.mark.parametrize("part", range(10))
def test_nothing_is_slow_to_check(part: int, tmp_path: Path) -> None:
    slow = {}
    for number in range(100):
        (tmp_path / f"f{number}.reo").write_text("".join(f"param p{n}: int = {n}\n" for n in range(100)))
    path = tmp_path / "spec.reo"
    for seed in range(part * ROUNDS // 10, (part + 1) * ROUNDS // 10):
        path.write_text(spec_of(seed))
        found = spent(path)
        if found.seconds >= SECONDS or found.megabytes >= MEGABYTES:
            slow[seed] = found
    assert slow == {}
