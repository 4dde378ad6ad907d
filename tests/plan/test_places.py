"""The line that a change comes from, for a change in every kind of declaration."""

from __future__ import annotations

from pathlib import Path

import pytest

from reodsl.graph.lower import lower
from reodsl.ir import Spec, digest
from reodsl.language import compile_file
from reodsl.plan import Item, Keys, make_plan
from reodsl.store import runs
from tests.execute.bench import Bench

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "resume" / "every_kind.reo").read_text()
MORE = """
reward own { correct(y) }
wording hinted { question = "{question} a" }
suite worded = few { samples = 3, wording = hinted }
budgets three = [4 tokens, 16 tokens, 32 tokens]

experiment with_own    = small { reward = own }
experiment with_worded = small { reward = outcome, eval = worded }
experiment with_inline = small { reward = outcome, eval = few { samples = 5 } }
experiment with_three  = small { reward = reo(at: three) }
experiment with_asking = small { reward = outcome, rollout { wordings = [hinted] } }
experiment with_until  = small { reward = outcome, until = plateau(train.accuracy, window: 2, within: 1%) }
"""
ARMS = "  arm {0} = {0}\n"
NAMES = ("with_own", "with_three", "with_asking", "with_until")
APART = """
study apart {
  arm base        = checkpoint(start)
  arm with_worded = with_worded
  arm with_inline = with_inline
}
"""
HEAD, STUDY, BODY = TEXT.partition("study every_kind {\n")
SPEC = HEAD + MORE + "\n" + STUDY + "".join(map(ARMS.format, NAMES)) + BODY + APART
STUDIES = ("every_kind", "apart")

# A text that is there once or first, and what it becomes: the line that it stands on is the line to be named.
CHANGES = {
    "tokenizer": ('eos = "<eos>"', 'eos = "<end>"'),
    "task": ("length     = 2..4", "length     = 2..3"),
    "traces": ('open   = "hmm ."', 'open   = "hmm so ."'),
    "a style of traces": ("{value} {op} {next}", "{op} {value} {next}"),
    "data with traces": ("count: 64, seed: 1", "count: 72, seed: 1"),
    "data": ("count: 12, seed: 2), verifier = exact", "count: 16, seed: 2), verifier = exact"),
    "data's verifier": ("count: 12, seed: 2), verifier = math", "count: 12, seed: 2), verifier = exact"),
    "a benchmark's data": ("count: 6, seed: 3", "count: 7, seed: 3"),
    "forcing": ("answer_tokens = 1 tokens", "answer_tokens = 2 tokens"),
    "a wording of a pool": ('wording brief  { prefix = "hmm ." }', 'wording brief  { prefix = "hmm so" }'),
    "a wording of rollouts": ('question = "{question} a"', 'question = "{question} b"'),
    "suite": ("  samples    = 2", "  samples    = 4"),
    "a suite's longest response": (
        "  max_tokens = 32 tokens\n  samples",
        "  max_tokens = 64 tokens\n  samples",
    ),
    "a suite's grid": ("8 tokens, 16 tokens, 32 tokens]\n", "8 tokens, 32 tokens]\n"),
    "a suite made from another": ("few { samples = 3,", "few { samples = 6,"),
    "a suite changed in place": ("few { samples = 5 }", "few { samples = 7 }"),
    "model": ("hidden: 32,", "hidden: 64,"),
    "a model's context": ("context = 96 tokens", "context = 128 tokens"),
    "experiment": ("lr = 1e-2, rest", "lr = 2e-2, rest"),
    "a stage": ("stage two { data = worked_sums, steps = 40", "stage two { data = worked_sums, steps = 41"),
    "recipe": ("minibatches = 2", "minibatches = 1"),
    "batch": ("prompts = 4, rollouts = 3", "prompts = 4, rollouts = 6"),
    "warm-up": ("lr = 1e-3, warmup = 1 steps", "lr = 1e-3, warmup = 2 steps"),
    "batch of traces": ("batch      { prompts = 8 }", "batch      { prompts = 4 }"),
    "preferences": ("gamma      = 1.2", "gamma      = 1.4"),
    "selection": ("trace = argmin(len(z)", "trace = argmax(len(z)"),
    "a pool": ("samples: 3, max_tokens: 32 tokens, wordings", "samples: 4, max_tokens: 32 tokens, wordings"),
    "reward": ("reward own { correct(y) }", "reward own { 2 * correct(y) }"),
    "a reward's argument": ("length_harmonizing(gamma: 2)", "length_harmonizing(gamma: 3)"),
    "reference samples": ("reference_samples = 2 }", "reference_samples = 3 }"),
    "budgets": ("three = [4 tokens, 16 tokens", "three = [2 tokens, 16 tokens"),
    "budgets in place": ("reo(at: [4 tokens, 8 tokens", "reo(at: [2 tokens, 8 tokens"),
    "plateau": ("window: 2, within: 1%", "window: 3, within: 1%"),
    "frontier": ("selected, preferred], to: 32", "selected], to: 32"),
    "budgets on a frontier": ("greedy(edge, n: 2, step: 4 tokens)", "greedy(edge, n: 3, step: 4 tokens)"),
    "what a score compares with": (
        "relative_to: vanilla)\n  report {\n    table main   {",
        "relative_to: base)\n  report {\n    table main   {",
    ),
    "score": (
        "score = reg(against: edge, to: 32 tokens, relative_to: vanilla)\n  report {\n    table main   {",
        "score = reg(against: edge, to: 16 tokens, relative_to: vanilla)\n  report {\n    table main   {",
    ),
}


def compiled(folder: Path, text: str, study: str) -> Spec:
    path = folder / "every.reo"
    path.write_text(text)
    found = compile_file(str(path), target=study)
    assert found.spec is not None, found.diagnostics
    return found.spec


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A store in which both studies have run."""
    bench = Bench(tmp_path_factory.mktemp("places"))
    bench.knobs(all={"steps": 1})
    (bench.folder / "theirs.parquet").touch()
    for study in STUDIES:
        spec = compiled(bench.folder, SPEC, study)
        record = runs.begin(bench.store.open(), spec, digest(spec))
        record.tasks = bench.run(spec).keys
        runs.end(bench.store, record, "finished")
    return bench


def planned(bench: Bench, text: str) -> list[Item]:
    """What both studies would do, reports apart."""
    specs = [compiled(bench.folder, text, study) for study in STUDIES]
    plans = [make_plan(spec, lower(spec), bench.store, Keys(bench.store, bench.folder)) for spec in specs]
    return [item for plan in plans for item in plan.items if item.task.kind != "report"]


@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_is_shown_at_the_line_that_makes_it(bench: Bench, kind: str) -> None:
    old, new = CHANGES[kind]
    assert old in SPEC
    line = SPEC[: SPEC.index(old) + next(i for i in range(len(old)) if old[i] != new[i])].count("\n") + 1
    found = {
        (item.task.id, change.path): change.origin
        for item in planned(bench, SPEC.replace(old, new, 1))
        for change in item.changes
    }
    assert found
    where = {name: origin.line if origin is not None else None for name, origin in found.items()}
    assert set(where.values()) == {line}, where


def test_nothing_changes_where_nothing_did(bench: Bench) -> None:
    assert {item.verdict for item in planned(bench, SPEC)} == {"reuse"}
