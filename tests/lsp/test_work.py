"""The work of requests: twice the text is at most about twice the work, whatever the text is made of."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from reodsl.language import check_file
from reodsl.language.bounds import EDITOR_STEPS
from reodsl.lsp import analysis as analysed
from reodsl.lsp.analysis import Analysis, analyse, list_findings, range_of
from reodsl.lsp.complete import completions
from reodsl.lsp.fixes import fixes
from reodsl.lsp.hints import hints, symbols
from reodsl.lsp.meaning import meaning, references, rename

HEAD = """from std.recipes import ppo
from std.miniature import overthinker, chain_train, chain_suite
from std.rewards import outcome
recipe small = ppo { base = overthinker, data = chain_train, reward = outcome, eval = chain_suite }
"""
FULL = HEAD.replace("recipe small", "recipe full").replace(
    "eval = chain_suite",
    "eval = chain_suite, steps = 9 steps, max_prompt = 32 tokens, rollout { max_tokens = 64 tokens }",
)
TEXTS: dict[str, tuple[str, Callable[[int], str]]] = {
    "experiments": (
        "small {",
        lambda n: HEAD + "".join(f"experiment e{i} = small {{ steps = {i + 1} steps }}\n" for i in range(n)),
    ),
    "one line": (
        "small {",
        lambda n: (
            f"{HEAD}study s {{ {', '.join(f'arm a{i} = small {{ steps = {i + 1} steps }}' for i in range(n))} }}"
        ),
    ),
    "a sum": ("a: ", lambda n: f"reward r(a: number in 0..1) {{ correct(y) + {' + '.join(['a'] * n)} }}\n"),
    "calls in a sum": (
        "a: ",
        lambda n: f"reward r(a: number in 0..1) {{ correct(y) + {' + '.join(['max(a, 1)'] * n)} }}\n",
    ),
    "a sum in a call": (
        "a: ",
        lambda n: f"reward r(a: number in 0..1) {{ correct(y) + max({' + '.join(['a'] * n)}, 1) }}\n",
    ),
    "parameters": (
        "p0: ",
        lambda n: (
            f"reward r({', '.join(f'p{i}: number in 0..1 = 0' for i in range(n))}) {{ correct(y) + p0 }}\n"
            + "".join(f"reward s{i} {{ r(p0: 0) }}\n" for i in range(n))
        ),
    ),
    "imports": ("ppo", lambda n: f"from std.recipes import {', '.join(f'ppo as p{i}' for i in range(n))}\n"),
    "points": ("a", lambda n: f"param a = {'.'.join(['a'] * n)}"),
    "characters past ASCII": (
        "a: ",
        lambda n: f"reward r(a: number in 0..1) {{ correct(y) + {' + '.join(['a'] * n)} }} # {'🙂' * n}",
    ),
}
REQUESTS: dict[str, Callable[[Analysis, int, int], object]] = {
    "hover": lambda found, line, column: (what := meaning(found, line, column)) and what.text,
    "references": lambda found, line, column: [
        range_of(each.text, each.span) for each in references(found, {}, line, column)
    ],
    "rename": lambda found, line, column: rename(found, {}, line, column, "other"),
    "complete": completions,
    "fixes": lambda found, line, column: fixes(found, 1, 10**6),
    "outline": lambda found, line, column: symbols(found.program.main.module.items),  # type: ignore[union-attr]
    "hints": lambda found, line, column: hints(found, 1, 10**6),
}


def count_steps(work: Callable[[], object]) -> int:
    """Count the calls of Python functions and of builtin ones, and the items of generators."""
    steps = count()

    def step(frame: object, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            next(steps)

    sys.setprofile(step)
    try:
        work()
    finally:
        sys.setprofile(None)
    return next(steps)


def opened(tmp_path: Path, name: str, size: int) -> tuple[Analysis, int, int]:
    word, make = TEXTS[name]
    text = make(size)
    path = tmp_path / f"{size}" / "spec.reo"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    at = text.index(word)
    return analyse(path, {}), text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


@pytest.mark.parametrize("name", TEXTS)
def test_work_grows_with_the_text(name: str, tmp_path: Path) -> None:
    small, large = opened(tmp_path, name, 30), opened(tmp_path, name, 60)
    for request, answer in REQUESTS.items():
        steps = [count_steps(partial(answer, *where)) for where in (small, large)]
        assert steps[1] <= 2.4 * steps[0], (request, steps)


WHOLE: dict[str, Callable[[int], str]] = {
    "experiments": lambda n: (
        HEAD + "".join(f"experiment e{i} = full {{ steps = {i} steps }}\n" for i in range(n))
    ),
    "stages": lambda n: (
        HEAD
        + f"experiment e = full {{ {' '.join(f'stage s{i} {{ steps = {i} steps }}' for i in range(n))} }}\n"
    ),
    "studies": lambda n: (
        HEAD
        + "".join(
            f"study s{i} {{ eval = chain_suite\n arm a = full\n arm b = full {{ steps = 5 steps }} }}\n"
            for i in range(n)
        )
    ),
    "arms": lambda n: (
        HEAD
        + f"study s {{ {', '.join(f'arm a{i} = full {{ steps = {i} steps, seed = 2 }}' for i in range(n))} }}"
    ),
    "brackets that stay open": lambda n: (
        HEAD + "".join(f"experiment e{i} = full {{ steps\n" for i in range(n))
    ),
}


def count_whole(folder: Path, text: str, other: str) -> int:
    """Count the steps to compile and to check a text that imports another, which was read before."""
    (folder / "other.reo").write_text(other)
    texts = {folder / "spec.reo": f"from .other import full\n{text}"}
    analyse(folder / "other.reo", texts)
    analyse(folder / "spec.reo", {folder / "spec.reo": "from .other import full\n"})
    return count_steps(lambda: list_findings(analyse(folder / "spec.reo", texts)))


@pytest.mark.parametrize("name", WHOLE)
def test_work_of_a_whole_file_grows_with_it_and_not_with_its_neighbour(name: str, tmp_path: Path) -> None:
    many = FULL + "".join(f"experiment n{i} = full {{ steps = {i} steps }}\n" for i in range(2000))
    assert len(many) < 100_000
    small, large = (count_whole(tmp_path, WHOLE[name](size), FULL) for size in (40, 80))
    assert large <= 2.3 * small
    # Names are suggested and declarations found among those of the neighbour. To read one anew takes some 300 steps.
    assert count_whole(tmp_path, WHOLE[name](80), many) <= 1.1 * large + 70 * 2000


@pytest.mark.parametrize("name", WHOLE)
def test_a_tenth_of_a_large_file_takes_a_tenth_of_a_second(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10 KB with a tenth of an editor's steps; a second of processor time is some five million calls."""
    monkeypatch.setattr(analysed, "EDITOR_STEPS", EDITOR_STEPS / 10)
    size = next(size for size in count(20, 10) if len(WHOLE[name](size)) > 10_000)
    assert count_whole(tmp_path, WHOLE[name](size), FULL) <= 330_000


def test_the_work_of_an_editor_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "spec.reo"
    path.write_text(
        FULL + "".join(f"experiment e{i} = full {{ steps = {i + 1} steps }}\n" for i in range(2000))
    )
    found = analyse(path, {})
    last = list_findings(found)[-1]
    assert (last.code, last.severity) == ("N0101", "note")
    assert 1 < found.program.context.modules.work_limit.steps / EDITOR_STEPS < 1.001
    assert [each.code for each in check_file(path).diagnostics] == []


def test_a_text_is_scanned_and_split_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, line, column = opened(tmp_path, "experiments", 50)
    scans: list[str] = []
    monkeypatch.setattr(
        analysed, "scan", lambda source, scan=analysed.scan: (scans.append(source.text), scan(source))[1]
    )
    analysed.tokens_of.cache_clear()
    analysed.lines_of.cache_clear()
    assert len(references(found, {}, line, column)) == 51
    assert scans == [found.text]
    assert analysed.lines_of.cache_info().misses == 1
