"""Settings that nothing reads: an error where they are written, a warning where they are inherited, and no other work."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reodsl.graph.lower import lower
from reodsl.graph.task import identity
from reodsl.ir import digest
from reodsl.language import Compiled
from tests.language.conftest import HEAD

PARENT = """
recipe small = ppo {
  base = qwen3_4b
  data = areal_boba_7b
  reward = outcome
  steps = 400 steps
  eval = math_reg
  %s
}
"""


@pytest.mark.parametrize(
    ("idle", "beside"),
    [
        ("optim { decay_from = 50% }", "optim { decay = constant }"),
        ("optim { rest { lr = 1e-3 } }", "optim { algorithm = adamw }"),
        ("optim { eps = 1e-8 }", "optim { algorithm = muon, rest { lr = 1e-3 } }"),
        ("advantage { std = sample }", "advantage { normalise = center }"),
        ("advantage { std = sample }", "advantage { normalise = leave_one_out, batch = true }"),
        ("advantage { absent = zero }", "advantage { normalise = none }"),
        ("advantage { absent = zero }", "reward = outcome"),
        ("credit = own", "reward = outcome"),
        ("loss { cap = 2 }", "loss { clip = weight }"),
        ("loss { estimator = k1 }", "kl = 0"),
        ("rollout { wordings_per = question }", "reward = outcome"),
        ("rollout { top_p = 0.9 }", "advantage { normalise = none }\n  rollout { temperature = 0 }"),
        ("rollout { top_k = 5 }", "advantage { normalise = none }\n  rollout { temperature = 0 }"),
        ("monitor { questions = 4, samples = 2, every = 1 step }", "reward = outcome"),
        ("reference_samples = 4", "reward = outcome"),
    ],
)
def test_an_idle_setting_is_refused_where_it_is_written_and_changes_no_work_where_it_is_inherited(
    compiled: Callable[..., Compiled], idle: str, beside: str
) -> None:
    def tell(text: str) -> tuple[set[str], dict[str, str]]:
        found = compiled(HEAD + text, target="mine")
        codes = {each.code for each in found.diagnostics if not each.code.startswith("W02")}
        graph = lower(found.spec) if found.spec is not None else None
        tasks = graph.tasks if graph is not None else ()
        return codes, {each.id: digest(identity(each)) for each in tasks if each.kind != "report"}

    written = PARENT % "" + f"recipe other = small {{\n  {beside}\n}}\nexperiment mine = other {{ {idle} }}\n"
    assert "E0521" in tell(written)[0]
    inherited, plain = (
        PARENT % line + f"experiment mine = small {{\n  {beside}\n}}\n" for line in (idle, "")
    )
    (codes, keys), (none, wanted) = tell(inherited), tell(plain)
    assert (codes - none, keys) == ({"W0520"}, wanted)


def test_a_warning_is_at_what_makes_an_inherited_setting_idle(compiled: Callable[..., Compiled]) -> None:
    text = HEAD + PARENT % "optim { decay = linear, decay_from = 50% }"
    text += "experiment mine = small {\n  optim { decay = constant }\n}\n"
    (found,) = [each for each in compiled(text, target="mine").diagnostics if each.code == "W0520"]
    assert [text.splitlines()[label.span.line - 1].strip() for label in found.labels] == [
        "optim { decay = constant }",
        "optim { decay = linear, decay_from = 50% }",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "optim { decay_from = 0 }",
        "advantage { normalise = center, std = population }",
        "credit = causal",
        "optim { decay = linear, decay_from = 50% }",
        "optim { algorithm = muon, rest { lr = 1e-3, eps = 1e-8 } }",
        "advantage { std = sample }",
        "rollout { top_p = 0.9, top_k = 5 }",
        "loss { clip = dual, cap = 2 }",
    ],
)
def test_a_setting_that_is_read_or_has_its_default_is_not_told(
    compiled: Callable[..., Compiled], line: str
) -> None:
    found = compiled(HEAD + PARENT % "" + f"experiment mine = small {{\n  {line}\n}}\n", target="mine")
    assert [each.code for each in found.diagnostics if not each.code.startswith("W02")] == []


STUDIED = """
experiment start = ppo {{ base = qwen3_4b, data = areal_boba_7b, reward = outcome, steps = 4 steps, eval = math_reg
  {start} }}
experiment mine = ppo {{ base = checkpoint(start), data = areal_boba_7b, reward = outcome, steps = 4 steps, eval = math_reg
  {mine} }}
"""
STUDY = """
study both {{
  eval = math_reg
  {study}
  arm base = checkpoint(qwen3_4b)
  arm mine = mine {{ {arm} }}
}}
"""
EDGE = "\nfrontier edge { base = qwen3_4b, budgets = [0 tokens, 1K tokens], curve mean { accuracy = [1%, 2%] } }\n"
SCORE = "score = reg(against: edge, to: 1K tokens, approximate: true)"


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ({"mine": "seed = 7"}, ["E0521"]),
        ({"start": "seed = 7"}, ["E0521"]),
        ({"arm": "seed = 7"}, ["E0521"]),
        ({"arm": "seed = 7", "study": "replicate = [1]"}, ["E0521"]),
        ({"mine": "seed = 7", "study": "replicate = [1, 2]"}, ["W0520"]),
        ({"mine": "seed = 7", "study": "replicate = [7]"}, []),
        ({"mine": "seed = 1"}, []),
        ({"mine": "limit = 5 gpu_hours"}, ["W0520"]),
        ({"mine": "engine = sglang"}, ["W0520"]),
        ({"mine": SCORE}, ["W0520"]),
        ({"arm": "limit = 5 gpu_hours"}, ["E0521"]),
        ({"arm": "engine = sglang"}, ["E0521"]),
        ({"arm": "engine = embedded", "study": "engine = embedded"}, []),
        ({"mine": "limit = 5 gpu_hours", "study": "limit = 50 gpu_hours"}, []),
    ],
)
def test_what_a_study_decides_has_no_effect_in_its_experiments(
    compiled: Callable[..., Compiled], written: dict[str, str], found: list[str]
) -> None:
    text = (STUDIED + STUDY).format_map(dict.fromkeys(("start", "mine", "study", "arm"), "") | written)
    told = compiled(HEAD + EDGE + text, target="both").diagnostics
    assert [each.code for each in told if each.code in ("E0521", "W0520")] == found
    assert all("in the study" in str(each.help) for each in told if each.code in ("E0521", "W0520"))


def test_a_lone_run_has_one_seed(compiled: Callable[..., Compiled]) -> None:
    for start, mine, found in (
        ("seed = 7", "", ["W0520"]),
        ("seed = 7", "seed = 7", []),
        ("", "seed = 7", []),
    ):
        text = HEAD + STUDIED.format(start=start, mine=mine)
        told = compiled(text, target="mine").diagnostics
        assert [each.code for each in told if each.code in ("E0521", "W0520")] == found
        assert all(each.help == "write `seed = 7` in `mine`" for each in told if each.code == "W0520")


@pytest.mark.parametrize(
    "line", ["seed = 5", "base = qwen3_4b", "engine = sglang", "limit = 3 gpu_hours", SCORE]
)
def test_a_stage_has_no_settings_of_its_experiment(compiled: Callable[..., Compiled], line: str) -> None:
    for stages, found in (("stage one {{}}\n  stage two {{ {} }}", ["E0521"]), ("{}", [])):
        inside = stages.format(line).replace("base = qwen3_4b", "base = checkpoint(mine)" if found else "")
        text = HEAD + EDGE + STUDIED.format(start="", mine="")
        text += f"experiment other = mine {{\n  {inside}\n}}\n"
        told = compiled(text, target="other").diagnostics
        assert [each.code for each in told if each.code == "E0521"] == found


@pytest.mark.parametrize(
    ("warmup", "text"),
    [
        ("3 steps", None),
        ("4 steps", "as long as the stage"),
        ("8 steps", "past its end"),
        ("100%", "as long as the stage"),
        ("99%", None),
        ("24%", "no warm-up"),
        ("25%", None),
        ("0 steps", None),
    ],
)
def test_a_warm_up_that_fills_the_stage_or_none_of_it_is_told(
    compiled: Callable[..., Compiled], warmup: str, text: str | None
) -> None:
    lines = f"steps = 4 steps\n  optim {{ warmup = {warmup} }}"
    found = compiled(HEAD + PARENT % "" + f"experiment mine = small {{\n  {lines}\n}}\n", target="mine")
    told = [each.labels[0].text for each in found.diagnostics if each.code == "W0523"]
    assert told == ([] if text is None else [text])


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('question = "{question} in {steps} steps"', ["nothing takes the place of `{steps}`"]),
        ('system = "You answer {question}."', ["nothing takes the place of `{question}`"]),
        ('question = "{question} Answer in \\\\boxed{x}, or \\\\frac{a}{b}."', []),
    ],
)
def test_a_word_in_braces_that_nothing_fills_is_told(
    compiled: Callable[..., Compiled], line: str, found: list[str]
) -> None:
    text = f"wording own {{ {line} }}\nexperiment mine = small {{ rollout {{ wordings = [own] }} }}\n"
    told = compiled(HEAD + PARENT % "" + text, target="mine").diagnostics
    assert [each.message.partition(":")[0] for each in told if each.code == "W0520"] == found
