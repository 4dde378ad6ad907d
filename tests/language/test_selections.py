"""Selections, pools, wordings and parts of rewards: what they lower to, and what is said of those that are wrong."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from reodsl.graph.lower import lower
from reodsl.ir import canonical, canonical_json
from reodsl.ir.expression import Correct
from reodsl.ir.study import Spec
from reodsl.ir.training import Dpo, FromTraining, Ppo, Stage
from reodsl.language import CompileResult

HEAD = """
from std.miniature import overthinker, chain_train, chain_suite
from std.recipes import ppo, sft, simpo
from std.rewards import outcome

wording plain { prefix = "hmm" }
wording brief { prefix = "</think>" }
wording within { question = "{budget} {question}", budget = 16 tokens..64 tokens }
wording known { question = "{question}", budget = [16 tokens, 32 tokens] }
"""
SHORTEST = "selection best { trace = argmin(len(z) for z in group if correct(z)) }"
PAIRS = """
selection best(ratio: number in 0..1) {
  let typical = mean(len(z) for z in group)
  pick right {
    preferred = argmin(len(z) for z in group if correct(z) and len(z) < typical)
    rejected  = argmax(len(z) for z in group if correct(z) and len(z) > len(preferred))
    where     = len(preferred) <= ratio * len(rejected)
  }
  pick wrong {
    preferred = argmax(len(z) for z in group if not correct(z))
    rejected  = argmin(len(z) for z in group if not correct(z))
  }
}
"""
EVERY = "selection best { trace = each(z for z in group if correct(z)) }"
QUESTIONS_EXAMPLE = """
selection best(most: number in 0..1) {
  let solved = mean(correct(z) for z in group)
  where = solved > 0 and solved <= most
}
"""


def sequences(method: str, data: str, more: str = "") -> str:
    own = {"sft": "", "simpo": "beta = 2\n  gamma = 1.2\n  "}.get(
        method, f"method = {method}\n  beta = 0.1\n  "
    )
    return f"""
experiment it = {"sft" if method == "sft" else "simpo"} {{
  base = checkpoint(overthinker)
  data = {data}
  {own}batch {{ prompts = 8 }}
  max_tokens = 192 tokens
  optim {{ lr = 1e-4 }}
  steps = 10 steps
  eval = chain_suite
  {more}
}}
"""


def rewarded(reward: str, rollout: str = "") -> str:
    return f"""
experiment it = ppo {{
  base       = checkpoint(overthinker)
  data       = chain_train
  reward     = {reward}
  batch      {{ prompts = 4, rollouts = 4 }}
  rollout    {{ max_tokens = 128 tokens, {rollout} }}
  max_prompt = 32 tokens
  steps      = 1 steps
  eval       = chain_suite
}}
"""


POOL = "pool(checkpoint(overthinker), data: chain_train, samples: 4, max_tokens: 128 tokens)"
BOTH = POOL[:-1] + ", wordings: [plain, brief])"


def stage(spec: Spec) -> Stage:
    start = spec.study.arm("it").checkpoint
    assert isinstance(start, FromTraining)
    return start.experiment.stages[0]


def test_a_selection_of_a_pool_lowers_to_sampling_and_selecting(spec: Callable[..., Spec]) -> None:
    made = spec(HEAD + SHORTEST + sequences("sft", f"best({BOTH})", "passes = 3"))
    found = stage(made)
    assert found.selected is not None
    assert found.passes == 3
    assert [each.prefix for each in found.selected.pool.wordings] == ["hmm", "</think>"]
    assert found.selected.selection.roles == ("trace",)
    tasks = {task.id: task for task in lower(made).tasks}
    select = tasks[tasks["it.train.s1"].inputs["data"]]
    assert select.kind == "select"
    assert select.payload["prefixes"] == ["hmm", "</think>"]
    pools = [tasks[select.inputs[f"pool:{index}"]] for index in range(2)]
    assert [pool.payload["model"]["prompt"]["prefix"] for pool in pools] == ["hmm", "</think>"]
    assert len({pool.payload["seed"] for pool in pools}) == 2
    assert "pool" not in str(tasks["it.train.s1"].payload)


def test_questions_are_selected_by_a_condition_alone(spec: Callable[..., Spec]) -> None:
    text = rewarded("outcome").replace("= chain_train", f"= best({POOL}, most: 0.5)")
    found = spec(HEAD + QUESTIONS_EXAMPLE + text)
    chosen = stage(found).selected
    assert chosen is not None
    rule = chosen.selection
    assert (rule.picks, rule.roles) == ((), ())
    assert rule.keep is not None
    graph = lower(found)
    (select,) = (task for task in graph.tasks if task.kind == "select")
    (train,) = (task for task in graph.tasks if task.arm == "it" and task.kind == "train")
    assert select.inputs == {"pool:0": "it.pool.s1", "data": "chain_train.data"}
    assert train.inputs["data"] == select.id


def test_every_right_response(spec: Callable[..., Spec]) -> None:
    text = HEAD + EVERY + sequences("sft", f"best({POOL})").replace("prompts = 8", "prompts = 16384")
    chosen = stage(spec(text)).selected
    assert chosen is not None
    trace = chosen.selection.picks[0].trace
    assert trace is not None
    assert (trace.fn, trace.where) == ("each", Correct(of="z"))


def test_a_few_questions_fill_a_batch_again_and_again(codes: Callable[..., list[str]]) -> None:
    few = "data few { source = generated(chain, count: 2, seed: 1), verifier = exact }\n"
    pool = POOL.replace("chain_train", "few")
    text = rewarded("outcome").replace("= chain_train", f"= best({pool}, most: 0.5)")
    head = HEAD.replace("import overthinker", "import chain, overthinker")
    assert codes(head + few + QUESTIONS_EXAMPLE + text) == []


def test_a_selections_name_changes_nothing(spec: Callable[..., Spec]) -> None:
    one = lower(spec(HEAD + SHORTEST + sequences("sft", f"best({POOL})")))
    two = lower(spec(HEAD + SHORTEST.replace("best", "other") + sequences("sft", f"other({POOL})")))
    payloads = [
        {task.id: task.payload for task in graph.tasks if task.kind != "report"} for graph in (one, two)
    ]
    assert payloads[0] == payloads[1]


def test_picks_lets_and_conditions_on_what_was_chosen(spec: Callable[..., Spec]) -> None:
    found = stage(spec(HEAD + PAIRS + sequences("simpo", f"best({POOL}, ratio: 0.5)"))).selected
    assert found is not None
    assert found.selection.roles == ("preferred", "rejected")
    assert len(found.selection.lets) == 1
    right, wrong = found.selection.picks
    assert right.where is not None
    assert '"of":"preferred"' in canonical_json(right.where)
    assert wrong.where is None
    assert wrong.preferred is not None
    assert (wrong.preferred.fn, wrong.rejected.fn if wrong.rejected else "") == ("argmax", "argmin")


def test_preferences_against_the_start(spec: Callable[..., Spec]) -> None:
    found = stage(spec(HEAD + PAIRS + sequences("dpo", f"best({POOL}, ratio: 0.5)"))).method
    assert found == Dpo(batch=8, max_tokens=192, beta=0.1)
    assert canonical(found) == {"kind": "dpo", "batch": 8, "max_tokens": 192, "beta": 0.1}


def test_margins_and_what_is_dropped(spec: Callable[..., Spec]) -> None:
    assert (
        "drop"
        not in stage(spec(HEAD + PAIRS + sequences("simpo", f"best({POOL}, ratio: 0.5)"))).model_dump_json()
    )
    rule = SHORTEST.replace("}", ", margin = -len(trace), drop = 15% }")
    found = stage(spec(HEAD + rule + sequences("sft", f"best({POOL})"))).selected
    assert found is not None
    assert found.selection.drop == 0.15
    assert found.selection.picks[0].margin is not None


def test_wordings_of_rollouts(spec: Callable[..., Spec]) -> None:
    """Of a model whose tokenizer writes every number; a list of words has to hold each that is drawn."""
    text = HEAD + "from std.models import qwen3_4b\n"
    text += rewarded("outcome", "wordings = [plain, within], wordings_per = question").replace(
        "checkpoint(overthinker)", "qwen3_4b"
    )
    method = stage(spec(text)).method
    assert isinstance(method, Ppo)
    assert (method.wordings[1].low, method.wordings[1].high) == (16, 64)
    assert method.wordings_per == "question"


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        ("z(correct(y))", [(1.0, "response")]),
        ("z(correct(y)) + 0.5 * z(mode(y) == 1, on: prefix)", [(1.0, "response"), (0.5, "prefix")]),
        ("2 * z(correct(y)) - z(mode(y), on: response)", [(2.0, "response"), (-1.0, "response")]),
    ],
)
def test_parts_of_a_reward(spec: Callable[..., Spec], body: str, parts: list[tuple[float, str]]) -> None:
    text = HEAD + f"reward mine {{\n{body}\n}}\n" + rewarded("mine", "wordings = [plain, brief]")
    method = stage(spec(text)).method
    assert isinstance(method, Ppo)
    assert [(part.weight, part.on) for part in method.reward.parts] == parts
    assert method.reward.outcome is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (
            PAIRS.replace("  pick right", "  let typical = 1 token\n  pick right")
            + sequences("simpo", f"best({POOL}, ratio: 0.5)"),
            "E0208",
        ),
        (SHORTEST + sequences("simpo", f"best({POOL})"), "E0510"),
        (PAIRS + sequences("sft", f"best({POOL}, ratio: 0.5)"), "E0510"),
        (sequences("simpo", "chain_train"), "E0510"),
        (sequences("dpo", "chain_train"), "E0510"),
        (SHORTEST + sequences("dpo", f"best({POOL})"), "E0510"),
        (PAIRS + sequences("dpo", f"best({POOL}, ratio: 0.5)", "gamma = 1"), "E0521"),
        (SHORTEST + rewarded("outcome").replace("= chain_train", f"= best({POOL})"), "E0510"),
        (PAIRS + sequences("simpo", f"best({POOL})"), "E0310"),
        (PAIRS + sequences("simpo", f"best({POOL}, ratio: 2)"), "E0303"),
        (SHORTEST + sequences("sft", "best(chain_train)"), "E0301"),
        (SHORTEST + sequences("sft", "best"), "E0301"),
        ("selection best { }" + sequences("sft", f"best({POOL})"), "E0313"),
        ("selection best { trace = len(group) }" + sequences("sft", f"best({POOL})"), "E0310"),
        ("selection best { trace = argmin(len(y) for z in group) }" + sequences("sft", f"best({POOL})"), "E0301"),
        ("selection best { preferred = argmin(len(z) for z in group) }", "E0304"),
        ("selection best { trace = argmin(len(z) for z in group), size = 2 }", "E0203"),
        (SHORTEST.replace("correct(z)", "len(z)"), "E0301"),
        (SHORTEST.replace("correct(z)", 'python("s.py:f", z) > 0') + sequences("sft", f"best({POOL})"), "E0301"),
        (SHORTEST + sequences("sft", f"best({POOL[:-1]}, wordings: [known]))"), "E0512"),
        (rewarded("outcome", "wordings = [plain, brief, known]"), "E0511"),
        (PAIRS + sequences("simpo", f"best({POOL}, ratio: 0.5)".replace("samples: 4", "samples: 1")), "E0513"),
        (SHORTEST + sequences("sft", f"best({POOL})").replace("prompts = 8", "prompts = 4097"), "E0513"),
        ("reward mine {\nmode(y) + 0.0\n}\n" + rewarded("mine"), "E0511"),
        ("reward mine {\nabs(x.budget - len(y)) / 1 tokens\n}\n" + rewarded("mine", "wordings = [plain]"), "E0511"),
        ("reward mine {\n0.5 + z(correct(y))\n}\n" + rewarded("mine"), "E0301"),
        ("reward mine {\nz(len(y))\n}\n" + rewarded("mine"), "E0302"),
        ("reward mine {\n1 token * z(correct(y))\n}\n" + rewarded("mine"), "E0302"),
        ("reward mine {\nlet r = 2 * correct(y)\nr * z(len(y) / 1K tokens)\n}\n" + rewarded("mine"), "E0301"),
        ("reward mine {\nz(correct(y), on: first)\n}\n" + rewarded("mine"), "E0310"),
        ("reward mine {\ncorrect(answer(y[:before(L)]))\n}\n" + rewarded("mine"), "E0301"),
        ('wording lost { question = "{question}", system = "It is {answer}." }', "E0512"),
        ('wording lost { question = "{question}", prefix = "So {answer}" }', "E0512"),
        ('wording lost { question = "what?" }', "E0512"),
        (SHORTEST.replace("}", ", drop = 10% }"), "E0304"),
        (EVERY.replace("each(z for", "each(len(z) for"), "E0310"),
        (EVERY.replace("trace", "rejected = argmax(len(z) for z in group), preferred"), "E0310"),
        (EVERY + sequences("sft", f"best({POOL})").replace("prompts = 8", "prompts = 16385"), "E0513"),
        ("selection best { where = mean(correct(z) for z in group) > 1 }", "E0316"),
        ('selection best { where = mean(python("s.py:f", z) for z in group) < 1 }', "E0301"),
        ("selection best { where = mean(count(M for M in [4 tokens, 8 tokens]) for z in group) < 4 }", "E0301"),
        ("selection best { where = mean(correct(z) for z in group) < 1, drop = 10% }", "E0304"),
        (QUESTIONS_EXAMPLE + sequences("sft", f"best({POOL}, most: 0.5)"), "E0510"),
        (SHORTEST.replace("correct(z)", "len(z) < mean(len(w) for w in ref)") + sequences("sft", f"best({POOL})"), "E0301"),
        (PAIRS + sequences("simpo", f"best({POOL[:-1]}, temperature: 0), ratio: 0.5)"), "E0513"),
        (
            SHORTEST.replace("}", ", margin = len(trace) / 8 tokens, drop = 10% }")
            + sequences("sft", f"best({POOL})").replace("prompts = 8", "prompts = 4000"),
            "E0513",
        ),
        ("reward mine {\ncorrect(y) * x.level\n}\n" + rewarded("mine"), "E0511"),
        ("reward mine {\ncorrect(y) - x.budget / len(y)\n}\n" + rewarded("mine"), "E0511"),
        (SHORTEST.replace("}", ", margin = len(trace) / 8 tokens, drop = 100% }"), "E0303"),
        (SHORTEST.replace("}", ", margin = len(trace) / 8 tokens, drop = len(trace) }"), "E0301"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_once(codes: Callable[..., list[str]], text: str, code: str) -> None:
    assert codes(HEAD + text) == [code]


def test_a_wording_that_draws_budgets_can_be_pasted(
    compiled: Callable[..., CompileResult], codes: Callable[..., list[str]]
) -> None:
    """The one that is suggested where a reward reads a budget that nothing draws; another vocabulary has its own words."""
    mine = "reward mine {\ncorrect(y) - x.budget / len(y)\n}\n"
    head = "\n".join(line for line in HEAD.splitlines() if not line.startswith("wording within"))
    (found,) = (
        each for each in compiled(head + "\n" + mine + rewarded("mine")).diagnostics if each.code == "E0511"
    )
    declared, wordings = re.findall("`([^`]+)`", found.help or "")[:2]
    assert codes(f"{head}\n{declared}\n{mine}{rewarded('mine', wordings)}") == []
