"""A value of the wrong kind: the help says what was most likely meant."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reodsl.language import CompileResult

HEAD = """from std.miniature import overthinker, chain_train, chain_suite
from std.recipes import ppo, sft
from std.selections import shortest
"""
SHORT = """
recipe short = ppo {
  base = checkpoint(overthinker)
  batch { prompts = 32, rollouts = 8 }
  rollout { max_tokens = 128 tokens }
  max_prompt = 32 tokens
  steps = 40 steps
  optim { lr = 5e-4 }
}
reward mine { correct(y) }
experiment vanilla = short { data = chain_train, reward = mine, eval = chain_suite }
"""
CLEAN = "checkpoint(overthinker.stages[clean])"
POOL = "pool(checkpoint(…), data: …, samples: 8, max_tokens: …)"


def help_of(result: CompileResult, code: str) -> str:
    (found,) = (each for each in result.diagnostics if each.code == code)
    assert found.help is not None
    return found.help


@pytest.mark.parametrize(
    ("text", "code", "remedy"),
    [
        ("experiment x = vanilla { eval = [chain_suite] }", "E0301", "write `chain_suite`, without brackets"),
        ("experiment x = vanilla { eval = chain_train }", "E0301", "write `eval = math_reg`, for example"),
        ('experiment x = vanilla { reward = "mine" }', "E0301", "a declaration is named without quotes: `mine`"),
        (
            'experiment x = vanilla { reward = python("style.py:score", seconds: 3 seconds) }',
            "E0301",
            'call it in a reward, and name that here: `reward NAME { python("style.py:score", y) }`',
        ),
        (
            'experiment x = vanilla { base = "Qwen/Qwen3-4B" }',
            "E0301",
            'declare a model, and name it here: `model NAME { source = hub("Qwen/Qwen3-4B"), context = 32K tokens }`',
        ),
        ("experiment x = vanilla { data = shortest }", "E0301", f"give it a pool to pick from: `shortest({POOL})`"),
        ("experiment x = vanilla { data = shortest(chain_train) }", "E0301", f"sample responses: `shortest({POOL})`"),
        ('data x = file("a.jsonl")', "E0311", "write it in a block: `data x { source = file(…), … }`"),
        ('data x { source = "a.jsonl" }', "E0301", 'write `file("a.jsonl")`'),
        ('data x { path = "a.jsonl" }', "E0203", 'did you mean `source = file("…")`?'),
        (
            'data x { source = file("a.jsonl"), columns { id = "n" } }',
            "E0203",
            'did you mean `source = file("…", columns: columns(…))`?',
        ),
        (
            'experiment x = vanilla { data = file("a.jsonl") }',
            "E0301",
            "declare the data, and name it here: `data NAME { source = file(…) }`",
        ),
        (
            'experiment x = checkpoint(folder("a")) { eval = chain_suite }',
            "E0301",
            "declare a model, and name it here: `model NAME { source = folder(…), context = 32K tokens }`",
        ),
        (
            "reward b(at: budgets) { dense L in at: correct(answer(y[:L])) }\nexperiment x = vanilla { reward = b(8) }",
            "E0301",
            "write a schedule, such as `exp(from: 1K tokens, to: 32K tokens, n: 5)`, or a list of budgets, or declare it as "
            "`at: number`",
        ),
        (
            "reward b { sum(correct(y[:L]) for L in budget) }",
            "E0301",
            "`group` is the question's responses, `batch` the step's, `ref` the reference model's",
        ),
        ("study x { arm a = overthinker.stages[clean] }", "E0311", f"take its checkpoint: `{CLEAN}`"),
        ("experiment x = vanilla { eval = zzz }", "E0201", "this file has `chain_suite`"),
        ("study x { score = reg(against: zzz, to: 9 tokens) }", "E0201", "declare or import a frontier, and name it here"),
        (
            "study x { arm a = vanilla\n score = reg(against: a, to: 128 tokens) }",
            "E0301",
            "declare a frontier, and name it here: `frontier NAME = envelope(of: [a], to: …)`",
        ),
        (
            "study x { arm a = vanilla\n frontier f = envelope(of: [vanilla], to: 128 tokens) }",
            "E0301",
            "make it an arm: `arm vanilla = vanilla`",
        ),
    ],
)  # fmt: skip
def test_what_was_meant(text: str, code: str, remedy: str, compiled: Callable[..., CompileResult]) -> None:
    assert help_of(compiled(f"{HEAD}{SHORT}{text}\n"), code) == remedy
