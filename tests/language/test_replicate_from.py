"""`replicate_from`: checkpoints that all seeds of a study share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reodsl.diff.compare import compare
from reodsl.graph.lower import lower
from reodsl.ir import Spec
from reodsl.language import Compiled
from reodsl.report import notes, provenance

HEAD = """
from std.miniature import overthinker, chain_model, chain_train, chain_forcing, chain_suite
from std.rewards import outcome
from std.recipes import ppo

experiment mine = ppo {
  base = checkpoint(overthinker)
  data = chain_train
  forcing = chain_forcing
  batch { prompts = 32, rollouts = 8 }
  rollout { max_tokens = 128 tokens }
  max_prompt = 32 tokens
  reward = outcome
  eval = chain_suite
  stage warm { steps = 2 steps }
  stage long { steps = 4 steps }
}
"""


def study(more: str, seeds: str = "[3, 4]") -> str:
    arms = "arm start = checkpoint(overthinker)\narm mine = mine\narm other = mine { kl = 0.1 }"
    return f"{HEAD}study all {{\nreplicate = {seeds}\n{more}\n{arms}\n}}"


def trained(spec: Spec) -> set[str]:
    return {task.id for task in lower(spec).tasks if task.kind == "train"}


@pytest.fixture
def spec(compiled: Callable[..., Compiled]) -> Callable[[str], Spec]:
    def run(text: str) -> Spec:
        result = compiled(text)
        assert result.spec is not None, [each.message for each in result.diagnostics]
        return result.spec

    return run


@pytest.mark.parametrize("named", ["checkpoint(overthinker)", "overthinker", "start"])
def test_the_base_is_trained_once(spec: Callable[[str], Spec], named: str) -> None:
    once = spec(study(f"replicate_from = [{named}]"))
    base = {f"overthinker.train.{stage}.s3" for stage in ("clean", "verbose")}
    each = {
        f"{arm}.train.{stage}.s{n}" for arm in ("mine", "other") for stage in ("warm", "long") for n in (3, 4)
    }
    assert trained(once) == base | each
    assert once.study.shared == ("overthinker",)


def test_a_stage_is_shared_with_all_before_it(spec: Callable[[str], Spec]) -> None:
    once = spec(study("replicate_from = [checkpoint(mine.stages[warm])]"))
    assert "mine.train.warm.s4" not in trained(once)
    assert {"mine.train.long.s4", "other.train.warm.s4"} <= trained(once)
    assert once.study.shared == ("overthinker", "mine to warm")
    # `other` starts where `mine` does, and shares that too.
    assert "overthinker.train.clean.s4" not in trained(once)


def test_one_seed_has_nothing_to_share(spec: Callable[[str], Spec]) -> None:
    assert spec(study("replicate_from = [start]", "[3]")).study.shared == ()


def test_diff_and_report_say_so(spec: Callable[[str], Spec]) -> None:
    each, once = spec(study("")), spec(study("replicate_from = [start]"))
    rows = {
        row.setting: row.b for arm in compare(each, once, lower(each), lower(once)).arms for row in arm.rows
    }
    assert rows == {"stages_for_all_seeds": 2, "base.stages_for_all_seeds": 2}
    said = "All seeds go on from one training of overthinker, with seed 3"
    assert provenance.seeds(once.study) == f"3, 4. {said}"
    assert said in notes.intervals(once.study, 2)
    assert provenance.seeds(each.study) == "3, 4"


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("checkpoint(chain_model)", "`all` replicates from a checkpoint, which nothing trains"),
        ("later", "no arm of `all` goes back to the experiment `later`"),
        ("checkpoint(later)", "no arm of `all` goes back to a checkpoint"),
    ],
)
def test_what_cannot_be_shared(compiled: Callable[..., Compiled], named: str, message: str) -> None:
    text = study(f"replicate_from = [{named}]").replace(
        "study all", "experiment later = mine { stage last { steps = 1 steps } }\n\nstudy all"
    )
    (finding,) = [each for each in compiled(text).diagnostics if each.severity == "error"]
    assert (finding.code, finding.message) == ("E0617", message)
