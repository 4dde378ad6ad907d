"""Short texts that mean too much: refused, in time and memory that grow with the text and not with what it means."""

from __future__ import annotations

from pathlib import Path

import pytest

from reodsl.graph.lower import lower
from reodsl.language import check_file, compile_file
from reodsl.language.bounds import MOST_ARMS, MOST_ERRORS, MOST_SEEDS
from reodsl.language.evaluate import MOST_STAGES
from reodsl.syntax.scanner import MOST_TOKENS
from reodsl.syntax.source import MAX_BYTES

HEAD = """from std.miniature import overthinker, chain_train, chain_suite
from std.recipes import ppo, sft
from std.rewards import outcome

experiment x = ppo {
  base = checkpoint(overthinker)
  data = chain_train
  reward = outcome
  batch { prompts = 32, rollouts = 8 }
  rollout { max_tokens = 128 tokens }
  max_prompt = 64 tokens
  minibatches = 2
  epochs = 1
  STEPS
  optim { lr = 5e-4 }
  eval = chain_suite
}
selection shortest { trace = argmin(len(z) for z in group) }
"""
SELECTED = """experiment e{n} = sft {{
  base = {base}
  data = shortest(pool(checkpoint({before}), data: chain_train, samples: 3, max_tokens: 32 tokens))
  batch {{ prompts = 4 }}
  max_tokens = 60 tokens
  steps = 3 steps
  optim {{ lr = 5e-4 }}
  eval = chain_suite
}}
"""


def spec(folder: Path, text: str, steps: str = "steps = 40 steps") -> Path:
    path = folder / "spec.reo"
    path.write_text(HEAD.replace("STEPS", steps) + text)
    return path


def refused(path: Path, target: str | None = None) -> str:
    """The words of the one error, E0216."""
    compiled = compile_file(path, target=target)
    assert compiled.spec is None
    (found,) = [each for each in compiled.diagnostics if each.severity == "error"]
    assert found.code == "E0216"
    return found.message


def chain(count: int, link: str) -> str:
    return "".join(
        f"experiment e{n} = x {{ base = checkpoint({link if n == 0 else f'e{n - 1}'}) }}\n"
        for n in range(count)
    )


@pytest.mark.parametrize("join", ["p{0} + p{0}", "[p{0}, p{0}]"])
def test_lists_that_double(tmp_path: Path, join: str) -> None:
    lines = ['param p0: [text] = words("a b c d")']
    for n in range(1, 60):
        depth = n if join[0] == "[" else 0
        lines.append(f"param p{n}: {'[' * depth}[text]{']' * depth} = {join.format(n - 1)}")
    found = check_file(spec(tmp_path, "\n".join(lines) + "\n"))
    codes = [each.code for each in found.diagnostics if each.severity == "error"]
    assert "E0216" in codes
    assert set(codes) <= {"E0216", "E0138"}


def test_lists_that_grow_by_what_is_added(tmp_path: Path) -> None:
    text, before = "", "chain_suite"
    for n in range(4):
        more = ", ".join(map(str, range(6000 * n + 1000, 6000 * n + 7000)))
        text += f"suite s{n} = {before} {{ grid += [{more}] }}\n"
        before = f"s{n}"
    (found, *_) = [each for each in check_file(spec(tmp_path, text)).diagnostics if each.severity == "error"]
    assert (found.code, found.labels[0].text) == ("E0216", "too large")


def test_stages_over_every_length(tmp_path: Path) -> None:
    over = "stages(cap in every(1 tokens, from: 1 tokens, to: {0} tokens))"
    steps = over + " {{ rollout {{ max_tokens = cap }}\n steps = 1 steps }}"
    message = refused(spec(tmp_path, "", steps.format(4096)))
    assert message == f"an experiment has at most {MOST_STAGES} stages, and these are 4096"
    most = compile_file(spec(tmp_path, "", steps.format(128)))
    assert most.spec is not None
    assert len(lower(most.spec).tasks) > 128


@pytest.mark.slow
def test_a_long_chain_of_experiments(tmp_path: Path) -> None:
    """What is let through can be lowered, written out, and read again."""
    for count in (180, 800):
        assert "start from each other" in refused(spec(tmp_path, chain(count, "x")), f"e{count - 1}")
    long = compile_file(spec(tmp_path, chain(85, "x")), target="e84").spec
    assert long is not None
    assert len(lower(long).tasks) > 85
    assert type(long).model_validate_json(long.model_dump_json()) == long


def test_experiments_that_each_start_twice_from_the_one_before(tmp_path: Path) -> None:
    def text(count: int, base: str) -> str:
        return "".join(
            SELECTED.format(
                n=n, base=base.format(n - 1 if n > 1 else "0"), before=f"e{n - 1}" if n > 1 else "x"
            )
            for n in range(1, count + 1)
        ).replace("checkpoint(e0)", "checkpoint(x)")

    assert "values" in refused(spec(tmp_path, text(30, "checkpoint(e{})")), "e30")
    assert "start from each other" in refused(spec(tmp_path, text(60, "checkpoint(overthinker)")), "e60")
    few = compile_file(spec(tmp_path, text(3, "checkpoint(e{})")), target="e3").spec
    assert few is not None
    assert lower(few).tasks


def test_more_tasks_than_anybody_runs(tmp_path: Path) -> None:
    arms = "".join(f"  arm a{n} = x {{ steps = {n + 1} steps }}\n" for n in range(50))

    def study(seeds: int) -> Path:
        return spec(tmp_path, f"study s {{\n  replicate = {list(range(seeds))}\n{arms}}}\n")

    assert "20,000" in refused(study(MOST_SEEDS))
    assert f"at most {MOST_SEEDS} seeds" in refused(study(MOST_SEEDS + 1))


def test_more_arms_than_anybody_compares(tmp_path: Path) -> None:
    arms = "".join(f"  arm a{n} = x\n" for n in range(MOST_ARMS + 1))
    assert "400 arms, and this one has 401" in refused(spec(tmp_path, f"study s {{\n{arms}}}\n"))


def test_more_words_than_anybody_writes(tmp_path: Path) -> None:
    """Counted over all files of a spec: neither many small ones nor one large one is read on."""
    large = "# a\n" * (MOST_TOKENS // 4)
    (tmp_path / "one.reo").write_text(f"{large}param one: int = 1\n")
    assert check_file(tmp_path / "one.reo").diagnostics == ()
    (tmp_path / "spec.reo").write_text(f"from .one import one\n{large}\nparam two: int = one\n")
    assert check_file(tmp_path / "one.reo", sets={}).diagnostics == ()
    codes = [each.code for each in check_file(tmp_path / "spec.reo").diagnostics]
    assert codes[0] == "E0216"


def test_more_text_than_a_spec_is(tmp_path: Path) -> None:
    large = f"# {'a' * (MAX_BYTES // 2)}\n"
    (tmp_path / "one.reo").write_text(f"{large}param one: int = 1\n")
    (tmp_path / "spec.reo").write_text(f"from .one import one\n{large}param two: int = one\n")
    found = check_file(tmp_path / "spec.reo").diagnostics
    assert "256 KiB" in found[0].message
    assert found[0].where == str(tmp_path / "one.reo")


def test_errors_without_end(tmp_path: Path) -> None:
    path = tmp_path / "spec.reo"
    path.write_text("".join(f"param p{n}: int = q{n}\n" for n in range(1000)))
    *errors, last = check_file(path).diagnostics
    assert len(errors) == MOST_ERRORS
    assert last.code == "N0101"
    assert compile_file(path).spec is None


def test_warnings_do_not_hide_what_runs(tmp_path: Path) -> None:
    """Only errors are given up on: a study of many arms may have something to remark about each."""
    arms = "".join(f"  arm a{n} = x {{ steps = {n + 1} steps }}\n" for n in range(150))
    path = spec(
        tmp_path, f"study s {{\n{arms}  report {{ table t {{ rows = [a0], columns = [accuracy] }} }}\n}}\n"
    )
    found = compile_file(path)
    assert found.spec is not None
    assert sum(each.code == "W0604" for each in found.diagnostics) == 149


def test_greedy_schedules_try_so_many(tmp_path: Path) -> None:
    text = "from std.paper import qwen3_4b as edge\n"
    text += "".join(f"budgets b{n} = greedy(edge, to: 32K tokens, n: 4096)\n" for n in range(3))
    path = tmp_path / "spec.reo"
    path.write_text(text)
    assert {each.code for each in check_file(path).diagnostics} == {"E0216"}
    # Equal ones are worked out once.
    path.write_text(text.replace("n: 4096", "n: 5") * 1 + "budgets c = greedy(edge, to: 32K tokens, n: 6)\n")
    assert check_file(path).diagnostics == ()


@pytest.mark.heavy
def test_a_block_that_many_stages_share(tmp_path: Path) -> None:
    """What a short text means is counted, whatever it is written with."""
    over = "stages(cap in every(1 tokens, from: 1 tokens, to: 256 tokens)) { optim { lr = 1e-6 } }"
    text = "".join(f"experiment e{n} = x {{\n  {over}\n}}\n" for n in range(100))
    assert refused(spec(tmp_path, text)) == "checking this spec takes more than 1,000,000 steps"
