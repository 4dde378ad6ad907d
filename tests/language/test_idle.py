"""Settings that nothing reads: an error where they are written, a warning where they are inherited, and no other work."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reodsl.graph.lower import lower
from reodsl.graph.task import identity
from reodsl.ir import digest
from reodsl.language import CompileResult
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
        ("optim { betas = [0.9, 0.99] }", "optim { algorithm = muon, rest { lr = 1e-3 } }"),
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
        ("loss { cap = 2 }", "loss { clip = dual }\n  minibatches = 1\n  epochs = 1"),
        ("loss { cap = 2 }", "loss { clip = dual }\n  advantage { normalise = none }"),
        ("loss { decoupled = true }", "importance_cap = 2"),
    ],
)
def test_an_idle_setting_is_refused_where_it_is_written_and_changes_no_work_where_it_is_inherited(
    compiled: Callable[..., CompileResult], idle: str, beside: str
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


def test_a_warning_is_at_what_makes_an_inherited_setting_idle(compiled: Callable[..., CompileResult]) -> None:
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
        "optim { algorithm = muon, betas = [0.8, 0.95], rest { lr = 1e-3, eps = 1e-8 } }",
        "advantage { std = sample }",
        "rollout { top_p = 0.9, top_k = 5 }",
        "loss { clip = dual, cap = 2 }",
        "loss { decoupled = true }",
        "loss { decoupled = true }\n  lag = 1 step\n  importance_cap = 2",
        "loss { clip = dual, cap = 2 }\n  advantage { normalise = none, batch = true }",
        "loss { clip = dual, cap = 2 }\n  advantage { normalise = none }\n  reward = std.rewards.kimi_length(weight: 1)",
    ],
)
def test_a_setting_that_is_read_or_has_its_default_is_not_told(
    compiled: Callable[..., CompileResult], line: str
) -> None:
    found = compiled(HEAD + PARENT % "" + f"experiment mine = small {{\n  {line}\n}}\n", target="mine")
    assert [each.code for each in found.diagnostics if not each.code.startswith("W02")] == []


ONCE = "minibatches = 1\n  epochs = 1"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (ONCE, True),
        ("minibatches = 1\n  epochs = 2", False),
        ("minibatches = 2\n  epochs = 1", False),
        (f"{ONCE}\n  old_logprobs = engine", False),
        (f"{ONCE}\n  old_logprobs = trainer", True),
        (f"{ONCE}\n  importance_cap = 2", True),
        (f"{ONCE}\n  lag = 1 step", False),
        (f"{ONCE}\n  lag = 1 step\n  old_logprobs = trainer", True),
        (f"{ONCE}\n  lag = 1 step\n  loss {{ decoupled = true }}", True),
        (f"{ONCE}\n  loss {{ mode_tokens = shares }}\n  rollout {{ wordings = [so, hmm] }}", False),
    ],
)
def test_a_bound_of_a_ratio_that_is_1_is_told(
    compiled: Callable[..., CompileResult], lines: str, told: bool
) -> None:
    text = 'wording so { prefix = "so" }\nwording hmm { prefix = "hmm" }\n' if "wordings" in lines else ""
    text += f"experiment mine = small {{\n  clip {{ low = 0.1, high = 0.3 }}\n  {lines}\n}}\n"
    found = compiled(HEAD + PARENT % "" + text, target="mine").diagnostics
    names = {each.message.split("`")[1] for each in found if each.code == "E0521"}
    assert names == ({"low", "high"} if told else set())


SPARE = """
forcing brief { text = "so", answer_tokens = 2 tokens }
recipe parent = small { %s }
experiment mine = parent { %s }
"""


@pytest.mark.parametrize(
    ("parent", "child", "found"),
    [
        ("", "forcing = brief", {"W0520"}),
        ("forcing = brief\n  reward = std.rewards.outcome", "", {"W0520"}),
        ("forcing = brief", "reward = std.rewards.outcome", set()),
        ("forcing = brief", "reward = reo(at: exp(from: 8 tokens, to: 64 tokens, n: 2))", set()),
    ],
)
def test_a_forcing_is_for_a_reward_that_cuts_responses(
    compiled: Callable[..., CompileResult], parent: str, child: str, found: set[str]
) -> None:
    told = compiled(HEAD + PARENT % "" + SPARE % (parent, child), target="mine").diagnostics
    assert {each.code for each in told if "`forcing` is appended" in each.message} == found


DECLARED = """
from std.miniature import overthinker, chain_train, chain_suite, chain_forcing, chain_traces, chain_first_traces, chain
from std.miniature import chain_model
from std.recipes import ppo, sft
from std.rewards import outcome
from std.clusters import h800_8x8
wording brief { prefix = "so" }
traces plain { open = "so", close = "so {value} .", again = "wait", answer = "{value}"
  style one { template = "{value} {op} {next}" } }
suite greedy = chain_suite { temperature = 0 }
"""
USES = {
    "suite": "experiment mine = ppo { base = checkpoint(overthinker), data = chain_train, reward = outcome\n"
    "  max_prompt = 32 tokens\n  rollout { max_tokens = 64 tokens }\n  steps = 20 steps, eval = @ }\n",
    "cluster": "study s { eval = chain_suite, cluster = @\n  arm base = checkpoint(overthinker) }\n",
    "traces": "data own_data = chain_first_traces { source = generated(chain, count: 64, seed: 1, traces: @) }\n"
    "experiment mine = sft { base = chain_model, data = own_data, max_tokens = 96 tokens\n"
    "  steps = 20 steps, eval = chain_suite\n  batch { prompts = 8 } }\n",
}
USES["data"] = USES["suite"].replace("chain_train", "@").replace("@ }", "chain_suite }")
USES["forcing"] = USES["suite"].replace("eval = @", "eval = chain_suite { forcing = @ }")


@pytest.mark.parametrize(
    ("kind", "parent", "idle", "beside", "used"),
    [
        ("suite", "chain_suite", "seed = 4", "temperature = 0", ""),
        ("suite", "chain_suite", "seed = 4", "top_k = 1", ""),
        ("suite", "chain_suite", "top_p = 0.5", "temperature = 0", ""),
        ("forcing", "chain_forcing", "top_p = 0.5", "temperature = 0", "temperature = 1"),
        ("forcing", "chain_forcing", 'close = "."', r'text = "answer \\boxed{ "', 'text = "answer"'),
        ("cluster", "h800_8x8", "rollout_share = 50%", "placement = colocated", "placement = apart"),
        ("traces", "chain_traces", "max_passes = 2", "another_pass = 0", ""),
        ("traces", "chain_traces", "another_pass = 30%", "max_passes = 1", ""),
        ("traces", "chain_traces", "until_agree = true", "error = 0", ""),
        ("data", "chain_train", "tolerance = 10%", "verifier = exact", "verifier = math"),
    ],
)
def test_an_idle_setting_of_a_declaration_is_told_and_changes_no_work(
    compiled: Callable[..., CompileResult], kind: str, parent: str, idle: str, beside: str, used: str
) -> None:
    name = idle.partition(" ")[0]

    def tell(text: str) -> tuple[set[str], set[str]]:
        found = compiled(DECLARED + text, target="s" if kind == "cluster" else "mine")
        assert found.spec is not None or any(each.code == "E0521" for each in found.diagnostics)
        tasks = lower(found.spec).tasks if found.spec is not None else ()
        told = {each.code for each in found.diagnostics if each.message.startswith(f"`{name}` ")}
        return told, {digest(identity(each)) for each in tasks if each.kind != "report"}

    use, own = USES[kind], USES[kind].replace("@", "own")
    assert tell(f"{kind} own = {parent} {{ {beside}, {idle} }}\n{own}")[0] == {"E0521"}
    assert tell(use.replace("@", f"{parent} {{ {beside}, {idle} }}"))[0] == {"E0521"}
    near = f"{kind} near = {parent} {{ {', '.join(filter(None, (used, idle)))} }}\n"
    told, keys = tell(f"{near}{kind} own = near {{ {beside} }}\n{own}")
    assert told == {"W0520"}
    assert keys == tell(f"{kind} own = {parent} {{ {beside} }}\n{own}")[1]


@pytest.mark.parametrize(
    "line",
    [
        "temperature = 1, seed = 4",
        "temperature = 0, seed = 4, forcing = chain_forcing { temperature = 1 }",
        "temperature = 0, seed = 4, wordings = [brief { share = 50% }, brief]",
    ],
)
def test_a_seed_that_draws_something_is_read(compiled: Callable[..., CompileResult], line: str) -> None:
    text = f"suite own = chain_suite {{ {line} }}\n" + USES["suite"].replace("@", "own")
    found = compiled(DECLARED + text, target="mine")
    assert found.spec is not None
    assert not any("`seed`" in each.message for each in found.diagnostics)


@pytest.mark.parametrize(
    "line", ["restyle = 20%", "max_passes = 2", "until_agree = true", "another_pass = 20%"]
)
def test_traces_with_one_style_and_one_pass_have_no_settings_of_several(
    compiled: Callable[..., CompileResult], line: str
) -> None:
    text = f"traces own = plain {{ {line} }}\n" + USES["traces"].replace("@", "own")
    assert "E0521" in {each.code for each in compiled(DECLARED + text, target="mine").diagnostics}


def test_fillers_that_are_switched_off_stay_and_are_told_where_they_are_written(
    compiled: Callable[..., CompileResult],
) -> None:
    for text, found in (
        ('traces own = plain { filler = ["well"] }', ["W0520"]),
        ('traces own = plain { filler = ["well"], filler_probability = 5% }', []),
        ('traces near = plain { filler = ["well"], filler_probability = 5% }\n'
         "traces own = near { filler_probability = 0 }", []),
    ):  # fmt: skip
        told = compiled(
            DECLARED + text + "\n" + USES["traces"].replace("@", "own"), target="mine"
        ).diagnostics
        assert [each.code for each in told if "`filler`" in each.message] == found


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        ("save_every = 9 steps", []),
        (
            "reward = watched\n  monitor { questions = 4, samples = 2, every = 4 steps }",
            ["as long as the stage"],
        ),
        ("reward = watched\n  monitor { questions = 4, samples = 2, every = 3 steps }", []),
        ("lag = 4", ["as long as the stage"]),
        ("lag = 3", []),
        ("optim { decay = linear, decay_from = 75% }", ["past its end"]),
        ("optim { decay = linear, decay_from = 74% }", []),
    ],
)
def test_what_the_stage_ends_before_and_a_second_momentum_are_told(
    compiled: Callable[..., CompileResult], line: str, texts: list[str]
) -> None:
    text = "reward watched { track usual = mean(len(z) for z in monitor)\n  correct(y) - len(y) / usual }\n"
    text += f"experiment mine = small {{\n  steps = 4 steps\n  {line}\n}}\n"
    found = compiled(HEAD + PARENT % "" + text, target="mine").diagnostics
    assert [each.labels[0].text for each in found if each.code == "W0523"] == texts


def test_monitors_that_are_asked_once_are_one_work(compiled: Callable[..., CompileResult]) -> None:
    keys = set()
    for every in (4, 5, 90):
        text = (
            "reward watched { track usual = mean(len(z) for z in monitor)\n  correct(y) - len(y) / usual }\n"
        )
        text += "experiment mine = small {\n  steps = 4 steps\n  reward = watched\n"
        text += f"  monitor {{ questions = 4, samples = 2, every = {every} steps }}\n}}\n"
        spec = compiled(HEAD + PARENT % "" + text, target="mine").spec
        assert spec is not None
        keys.add(tuple(digest(identity(each)) for each in lower(spec).tasks if each.kind == "train"))
    assert len(keys) == 1


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
    compiled: Callable[..., CompileResult], written: dict[str, str], found: list[str]
) -> None:
    text = (STUDIED + STUDY).format_map(dict.fromkeys(("start", "mine", "study", "arm"), "") | written)
    told = compiled(HEAD + EDGE + text, target="both").diagnostics
    assert [each.code for each in told if each.code in ("E0521", "W0520")] == found
    assert all("in the study" in str(each.help) for each in told if each.code in ("E0521", "W0520"))


def test_a_lone_run_has_one_seed(compiled: Callable[..., CompileResult]) -> None:
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
def test_a_stage_has_no_settings_of_its_experiment(compiled: Callable[..., CompileResult], line: str) -> None:
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
    compiled: Callable[..., CompileResult], warmup: str, text: str | None
) -> None:
    lines = f"steps = 4 steps\n  optim {{ warmup = {warmup} }}"
    found = compiled(HEAD + PARENT % "" + f"experiment mine = small {{\n  {lines}\n}}\n", target="mine")
    told = [each.labels[0].text for each in found.diagnostics if each.code == "W0523"]
    assert told == ([] if text is None else [text])


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (
            'question = "{question} in {steps} steps"',
            ["`{steps}` is not a placeholder, so models read it unchanged"],
        ),
        (
            'system = "You answer {question}."',
            ["`{question}` is not a placeholder, so models read it unchanged"],
        ),
        ('question = "{question} Answer in \\\\boxed{x}, or \\\\frac{a}{b}."', []),
    ],
)
def test_a_word_in_braces_that_nothing_fills_is_told(
    compiled: Callable[..., CompileResult], line: str, found: list[str]
) -> None:
    text = f"wording own {{ {line} }}\nexperiment mine = small {{ rollout {{ wordings = [own] }} }}\n"
    told = compiled(HEAD + PARENT % "" + text, target="mine").diagnostics
    assert [each.message.partition(":")[0] for each in told if each.code == "W0520"] == found
