"""Clusters of experiments in a study: each keeps its own, as far as the study's has room for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reodsl.graph.lower import lower
from reodsl.graph.task import Task, identity
from reodsl.ir.study import Spec
from reodsl.language import CompileResult

TEXT = """
from std.models import qwen3_4b
from std.data import areal_boba_7b
from std.recipes import ppo, sft
from std.rewards import outcome
from std.selections import shortest
from std.suites import math_reg

cluster whole { nodes = 4, gpus_per_node = 8, gpu = "H800", memory = 80 GiB }
cluster part  { nodes = 2, gpus_per_node = 8, gpu = "H800", memory = 80 GiB, tensor_parallel = 2 }

experiment first = sft {
  base    = qwen3_4b
  data    = shortest(pool(checkpoint(qwen3_4b), data: areal_boba_7b, samples: 2, max_tokens: 1K tokens))
  steps   = 10 steps
  FIRST
}

experiment second = ppo {
  base   = checkpoint(first)
  data   = areal_boba_7b
  reward = outcome
  steps  = 10 steps
  eval   = math_reg
  SECOND
}

study both {
  eval = math_reg
  STUDY
  arm base = checkpoint(qwen3_4b)
  arm second = second
}
"""


def text(study: str = "", first: str = "", second: str = "") -> str:
    clusters = {"STUDY": study, "FIRST": first, "SECOND": second}
    found = TEXT
    for name, cluster in clusters.items():
        found = found.replace(f"  {name}\n", f"  cluster = {cluster}\n" if cluster else "")
    return found


def where(spec: Spec) -> dict[str, str]:
    """The cluster's name of every task that computes."""
    computes = ("train", "sample", "evaluate")
    return {
        task.id: task.cluster.name if task.cluster is not None else ""
        for task in lower(spec).tasks
        if task.kind in computes
    }


def test_an_experiment_keeps_its_own_cluster_and_all_else_has_the_studys(spec: Callable[..., Spec]) -> None:
    found = spec(text("whole", first="part"), target="both")
    assert where(found) == {
        "base.eval": "whole",
        "first.pool": "part",
        "first.train.s1": "part",
        "second.train.s1": "whole",
        "second.eval.s1": "whole",
    }
    assert where(spec(text("whole", second="part"), target="both")) == {
        "base.eval": "whole",
        "first.pool": "whole",
        "first.train.s1": "whole",
        "second.train.s1": "part",
        "second.eval.s1": "whole",
    }


def test_no_result_depends_on_it(spec: Callable[..., Spec]) -> None:
    def marks(found: Spec) -> list[tuple[str, object, object]]:
        def mark(task: Task) -> tuple[str, object, object]:
            return task.id, identity(task), task.inputs

        return [mark(task) for task in lower(found).tasks if task.kind != "report"]

    one, other = (spec(text("whole", first=each), target="both") for each in ("", "part"))
    assert marks(one) == marks(other)


def test_the_studys_own_is_not_said_twice(spec: Callable[..., Spec]) -> None:
    """So that a spec that says it in both places is the same as one that says it once."""
    once, twice = (spec(text("whole", second=each), target="both").study for each in ("", "whole"))
    assert once == twice
    assert '"cluster"' not in twice.arms[1].checkpoint.model_dump_json()


def test_a_study_without_one_is_on_this_machine_and_says_so(
    spec: Callable[..., Spec], compiled: Callable[..., CompileResult]
) -> None:
    declared = text(first="part", second="whole")
    found = spec(declared, target="both")
    assert set(where(found).values()) == {""}
    assert found.study.engine == "embedded"
    (told,) = idle(compiled(declared, target="both"))
    assert "as does `second` and 1 more" in told
    assert idle(compiled(text(), target="both")) == []


def idle(found: CompileResult) -> list[str]:
    """What is said of clusters that nothing runs on."""
    return [each.message for each in found.diagnostics if each.code == "W0520"]


def test_a_cluster_of_what_is_only_evaluated_has_no_effect(compiled: Callable[..., CompileResult]) -> None:
    def told(cluster: str) -> list[str]:
        arm = f"arm base = checkpoint(qwen3_4b) {{ cluster = {cluster} }}"
        return idle(compiled(text("whole").replace("arm base = checkpoint(qwen3_4b)", arm), target="both"))

    assert told("whole") == []
    assert [each.split(" is")[0] for each in told("part")] == ["`base`"]


def test_a_cluster_of_a_stage_has_no_effect(compiled: Callable[..., CompileResult]) -> None:
    def told(stage: str, own: str = "part") -> list[str]:
        stages = f"stage warm {{ steps = 2 steps{stage} }}\n    stage long {{ steps = 3 steps }}"
        arm = f"arm staged = second {{\n    {stages}\n  }}"
        found = compiled(text("whole", second=own).replace("arm second = second", arm), target="both")
        return [each.message for each in found.diagnostics if each.code in ("E0521", "W0520")]

    assert told("") == []
    assert told(", cluster = part") == []
    assert [each.rpartition("stage ")[2] for each in told(", cluster = whole")] == ["`warm` sets another"]
    assert len(told(", cluster = part", own="")) == 1


def test_a_lone_experiment_leaves_what_it_starts_from_where_that_is(spec: Callable[..., Spec]) -> None:
    """Wider than itself, too: there is no study that would have to have room for it."""
    found = where(spec(text("whole", first="whole", second="part"), target="second"))
    assert found["first.pool"] == found["first.train.s1"] == "whole"
    assert found["second.train.s1"] == found["second.eval.s1"] == "part"


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ('{ nodes = 5, gpus_per_node = 8, gpu = "H800", memory = 80 GiB }', "has fewer GPUs"),
        ('{ nodes = 1, gpus_per_node = 16, gpu = "H800", memory = 80 GiB }', "has smaller nodes"),
        ('{ nodes = 1, gpus_per_node = 8, gpu = "H100", memory = 80 GiB }', "has no H100"),
    ],
)
@pytest.mark.parametrize("place", ["first", "second"])
def test_a_study_without_room_for_one_is_refused(
    own: str, why: str, place: str, compiled: Callable[..., CompileResult]
) -> None:
    declared = text("whole", **{place: "part"}).replace(
        "cluster part ", f"cluster other {own}\ncluster part "
    )
    found = compiled(declared.replace("= part", "= other"), target="both")
    assert found.spec is None
    (refused,) = [each for each in found.diagnostics if each.severity == "error"]
    assert refused.code == "E0615"
    assert refused.message.startswith(f"`{place}` runs on ")
    assert why in refused.message


@pytest.mark.parametrize("nodes", [(4, 8), (8, 4), (1, 1)])
def test_what_fits_is_not_refused(nodes: tuple[int, int], codes: Callable[..., list[str]]) -> None:
    own = f'cluster other {{ nodes = {nodes[0]}, gpus_per_node = {nodes[1]}, gpu = "H800", memory = 80 GiB }}'
    declared = text("whole", second="other").replace("cluster part ", f"{own}\ncluster part ")
    assert codes(declared, target="both") == []
