"""Recipes from which nothing is learnt, and rewards that ask for what no response has."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reodsl.diagnostics.render import render
from reodsl.ir.data import Python
from reodsl.ir.training import Advantage, Loss
from reodsl.language import CompileResult
from tests.language.conftest import HEAD, MINE

WORDED = """
wording short { question = "{question} Be brief." }
wording long  { question = "{question} Take your time." }
wording rare = short { share = 50% }
from std.models import qwen3_8b
"""


def changed(*lines: str, above: str = "") -> str:
    return "\n".join((HEAD, above, MINE, "experiment other = mine {", *lines, "}"))


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (("rollout { temperature = 0 }",), ["E0519"]),
        (("rollout { top_k = 1 }",), ["E0519"]),
        (("rollout { temperature = 0 }", "advantage { normalise = center }"), ["E0519"]),
        (("rollout { temperature = 0 }", "advantage { normalise = none }"), []),
        (("rollout { temperature = 0.01, top_k = 2 }",), []),
        (("rollout { temperature = 0, wordings = [short, long] }",), []),
        (("rollout { temperature = 0, wordings = [rare, long] }",), ["E0519"]),
        (("rollout { temperature = 0, wordings = [short, long], wordings_per = question }",), ["E0519"]),
        (("rollout { temperature = 0, solution = 1K tokens, cut_at = [50%] }",), []),
        (("rollout { temperature = 0 }", "teacher = qwen3_8b", "kl = 1"), []),
        (("rollout { temperature = 0 }", "kl = 1"), ["E0519"]),
    ],
)
def test_rollouts_that_are_all_equal(
    codes: Callable[..., list[str]], lines: tuple[str, ...], found: list[str]
) -> None:
    assert codes(changed(*lines, above=WORDED), target="other") == found


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        # Of 16 rollouts the largest z-score is sqrt(15) = 3.873, or 15 / 4 by the sample's deviation.
        (("advantage { bound = 3.88 }",), ["W0523"]),
        (("advantage { bound = 3.87 }",), []),
        (("advantage { bound = 3.8, std = sample }",), ["W0523"]),
        (("advantage { bound = 3.7, std = sample }",), []),
        # The largest itself: a bound there cuts nothing either.
        (("advantage { bound = 3.75, std = sample }",), ["W0523"]),
        (("advantage { bound = 5, normalise = center }",), []),
        (("advantage { bound = 5, batch = true }",), []),
        (("advantage { bound = 5, std = sample }",), ["W0523"]),
        (("advantage { bound = 5 }", "reward = parted"), []),
    ],
)
def test_a_bound_that_no_advantage_reaches(
    compiled: Callable[..., CompileResult], lines: tuple[str, ...], found: list[str]
) -> None:
    parted = "reward parted {\n  z(correct(y)) + z(len(y) / 1K tokens)\n}\n"
    result = compiled(changed("batch { rollouts = 16 }", *lines, above=parted), target="other")
    assert [each.code for each in result.diagnostics if each.severity == "error"] == []
    assert [each.code for each in result.diagnostics if each.code == "W0523"] == found


LOST = """reward own(pay: number = 0.5) {
  let p = mean(correct(z) for z in group)
  let short = 1 - len(y) / 16K tokens
  let paid = pay * short
  let f(a) = p * a
  track warm = min(1, (step + 1 step) / 100 steps)
  VALUE
}
"""
NONE = "advantage { normalise = none }"
STEP = "advantage { normalise = center, batch = true }"
BOTH = "advantage { batch = true }"


@pytest.mark.parametrize(
    ("value", "line", "lost"),
    [
        ("z(correct(y)) + z(warm * short)", "", "warm"),
        ("z(correct(y)) - 0.2 * z(p * (warm * -short) / pay)", "", "p * warm"),
        ("z(correct(y)) + pay * p * warm * z(short)", "", None),
        ("z(correct(y)) + z(paid)", "", "0.5"),
        ("z(correct(y)) + z(f(short) + f(correct(y)))", "", "p"),
        ("z(correct(y)) + z(warm * short if correct(y) else 0)", "", "warm"),
        ("z(correct(y)) + z(warm * short if correct(y) else -1)", "", None),
        ("z(correct(y)) + z(-short)", "", None),
        ("z(correct(y)) + z(warm * short)", "advantage { normalise = center }", None),
        ("warm * correct(y)", "", "warm"),
        ("warm * correct(y)", NONE, None),
        ("correct(y) + warm * short", "", None),
        ("p * correct(y)", STEP, None),
        ("warm * p * correct(y)", STEP, "warm"),
        ("warm * p * z(correct(y))", "", None),
        ("warm * p * z(correct(y))", BOTH, "warm"),
        ("warm * z(correct(y)) + z(short)", BOTH, None),
    ],
)
def test_a_factor_that_a_z_score_cancels(
    compiled: Callable[..., CompileResult], value: str, line: str, lost: str | None
) -> None:
    above = LOST.replace("VALUE", value)
    result = compiled(changed("reward = own", *filter(None, [line]), above=above), target="other")
    assert [each.code for each in result.diagnostics if each.severity == "error"] == []
    told = [each.message.split("`")[1] for each in result.diagnostics if each.code == "W0523"]
    assert told == ([] if lost is None else [lost])


@pytest.mark.parametrize(
    "value", ["z(correct(y)) + z(warm * p * short)", "warm * correct(y)", "p * (short + correct(y))"]
)
def test_what_the_warning_of_a_cancelled_factor_says_mends_it(
    compiled: Callable[..., CompileResult], value: str
) -> None:
    """The factors are moved as the help has it; what is left goes into `z(…)`."""
    above = LOST.replace("VALUE", value)
    (told,) = [
        each
        for each in compiled(changed("reward = own", above=above), target="other").diagnostics
        if each.code == "W0523"
    ]
    written, lost = str(told.help).split("`")[1], told.message.split("`")[1]
    inner = value.partition("z(correct(y)) + z(")[2].removesuffix(")") or value
    mended = value.replace(
        f"z({inner})" if inner != value else value, written.replace("…", inner.replace(f"{lost} * ", ""))
    )
    result = compiled(changed("reward = own", above=LOST.replace("VALUE", mended)), target="other")
    assert mended != value
    assert not [each for each in result.diagnostics if each.code == "W0523" or each.severity == "error"]


CUT = "reward cut(at: tokens = 640 tokens) {\n  correct(answer(y[:at])) + correct(answer(y[:2 * at]))\n}\n"


@pytest.mark.parametrize(
    ("reward", "longest", "found"),
    [
        ("cut", "1280 tokens", []),
        ("cut", "1279 tokens", ["E0402"]),
        ("cut(at: 64 tokens)", "128 tokens", []),
        ("cut(at: 64 tokens)", "32 tokens", ["E0402", "E0402"]),
    ],
)
def test_a_cut_past_the_longest_response(
    codes: Callable[..., list[str]], reward: str, longest: str, found: list[str]
) -> None:
    lines = (f"reward = {reward}", "forcing = dynasor", f"rollout {{ max_tokens = {longest} }}")
    above = f"from std.forcing import dynasor\n{CUT}"
    assert codes(changed(*lines, above=above), target="other") == found


def test_a_cut_past_the_longest_response_is_told(
    compiled: Callable[..., CompileResult], golden: Callable[[str, str], None]
) -> None:
    lines = ("reward = cut", "forcing = dynasor", "rollout { max_tokens = 1K tokens }")
    result = compiled(changed(*lines, above=f"from std.forcing import dynasor\n{CUT}"), target="other")
    golden("language/E0402-cut.txt", render(result.diagnostics, result.sources))


@pytest.mark.parametrize(
    ("mode_tokens", "prefixes", "codes"),
    [
        ("shares", [], ["E0521"]),
        ("shares", ["go"], ["E0521"]),
        ("shares", ["go", "go"], ["E0521"]),
        ("shares", ["go", "now"], []),
        ("policy", [], ["E0521"]),
        ("policy", ["go"], []),
        ("rewarded", [], []),
    ],
)
def test_tokens_of_modes_need_modes(
    compiled: Callable[..., CompileResult], mode_tokens: str, prefixes: list[str], codes: list[str]
) -> None:
    above = "".join(f'wording w{i} {{ prefix = "{text}" }}\n' for i, text in enumerate(prefixes))
    names = ", ".join(f"w{i}" for i in range(len(prefixes)))
    lines = [
        f"loss {{ mode_tokens = {mode_tokens} }}",
        *([f"rollout {{ wordings = [{names}] }}"] * bool(names)),
    ]
    found = compiled(changed(*lines, above=above), target="other").diagnostics
    assert [each.code for each in found if each.severity == "error"] == codes


OF_TOKENS = """
from std.forcing import reo_forcing
reward sure     { mean(prob(t) - logprob(t) / 20 for t in y) + count(t for t in y[:8 tokens]) / 8 }
reward unsure   { -mean(entropy(t) for t in y) }
reward truthful { mean(prob(t) for t in truth(y)) }
reward told     { mean(logprob(t, under: teacher) for t in y) }
"""
APART = " cluster = h800_16x8 { placement = apart }"


@pytest.mark.parametrize(
    ("said", "codes"),
    [
        ("lag = 1 step\n importance_cap = 2", ["E0516"]),
        ("lag = 1 step\n old_logprobs = engine", []),
        ("loss { decoupled = true }\n old_logprobs = engine", ["E0516"]),
        ("lag = 1 step\n cluster = h800_16x8", ["W0528"]),
        ("lag = 1 step\n cluster = h800_16x8 { placement = apart }", []),
        ("lag = 1 step\n cluster = h800_16x8 { nodes = 1, gpus_per_node = 1, placement = apart }", ["W0528"]),
        ("lag = 0 steps\n cluster = h800_16x8", []),
        # How likely the engine made its tokens is known of it.
        ("lag = 1 step\n reward = sure", []),
        ("lag = 1 step\n reward = unsure", ["W0528"]),
        ("lag = 1 step\n reward = truthful", ["W0528"]),
        ("lag = 1 step\n reward = told", ["W0528"]),
        ("rollout { caches = fp8 }\n cluster = h800_16x8", []),
        ("rollout { caches = fp8 }", ["E0521"]),
        ("rollout { caches = fp8 }\n cluster = h800_16x8\n engine = embedded", ["E0521"]),
        ("rollout { caches = auto }", []),
        ("importance_cap = maybe", ["E0314"]),
        ("importance_cap = 0.5", ["E0303"]),
    ],
)
def test_what_lagging_rollouts_need(
    compiled: Callable[..., CompileResult], said: str, codes: list[str]
) -> None:
    above = f"from std.clusters import h800_16x8\nfrom std.rewards import kimi_length\n{OF_TOKENS}"
    found = compiled(changed(said, above=above), target="other").diagnostics
    ours = {"E0516", "W0528"}
    assert [each.code for each in found if each.severity == "error" or each.code in ours] == codes


TAUGHT = """
from std.models import qwen3_8b
model behind = qwen3_4b { source = served("m", address: "http://127.0.0.1:1/v1", tokenizer: hub("m")) }
model short  = qwen3_8b { context = 16K tokens }
wording concise { question = "{question} Be concise." }
wording knowing { question = "{question} The answer is {answer}." }
wording boxes   { question = "{question} End with \\\\boxed{answer}." }
data programs { source = file("programs.jsonl"), verifier = tests() }
reward unsure { correct(y) - mean(entropy(t, under: teacher) for t in y) }
reward likely { correct(y) + mean(prob(t, under: teacher) for t in y) }
wording within  { question = "{question} Think for {budget} tokens.", budget = [100 tokens] }
experiment alone = ppo {
  base = qwen3_4b, data = areal_boba_7b, steps = 9 steps, eval = math_reg, teacher = qwen3_8b, kl = 1
}
"""


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (("teacher = qwen3_8b", "kl = 1"), []),
        (("teacher = mine", "kl = 1", "loss { estimator = reverse }"), []),
        (("teacher_wording = concise", "kl = 1", "loss { estimator = jsd, jsd_beta = 0.1 }"), []),
        (("teacher_wording = knowing", "kl = 1", "loss { estimator = reverse }"), []),
        (("teacher_wording = knowing", "kl = 1", "data = programs"), ["E0511"]),
        (("rollout { wordings = [knowing] }",), ["E0512"]),
        (("rollout { wordings = [boxes] }",), []),
        (("eval = math_reg { wording = knowing }",), ["E0512"]),
        (("teacher = qwen3_8b",), ["E0521"]),
        (("teacher_wording = concise",), ["E0521"]),
        (("kl = 1", "loss { estimator = reverse, jsd_beta = 0.1 }"), ["E0521"]),
        (("kl = 1", "loss { top_k = 64 }"), ["E0521"]),
        (("kl = 1", "loss { estimator = jsd, jsd_beta = 1 }"), ["E0303"]),
        (("teacher = behind", "kl = 1"), ["E0311"]),
        (("teacher = short", "kl = 1"), ["E0501"]),
        (("teacher = concise", "kl = 1"), ["E0301"]),
        (("teacher_wording = within", "kl = 1"), ["E0512"]),
        (("kl = 1", "teacher_follows { every = 1 step }"), []),
        (("reward = likely", "teacher_follows { decay = 0.995, every = 10 steps }"), []),
        (
            (
                "kl = 1",
                "teacher_wording = concise",
                "teacher_follows { every = 50 steps }",
                "lora { rank = 8 }",
            ),
            [],
        ),
        (("teacher_follows { every = 1 step }",), ["E0521"]),
        (("kl = 1", "teacher = qwen3_8b", "teacher_follows { every = 1 step }"), ["E0521"]),
        (("kl = 1", "teacher_follows { decay = 1, every = 1 step }"), ["E0303"]),
        (("kl = 1", "teacher_follows { decay = -0.1, every = 1 step }"), ["E0303"]),
        (("kl = 1", "teacher_follows { every = 0 steps }"), ["E0303"]),
        (("kl = 1", "teacher_follows { decay = 0.9 }"), ["E0304"]),
        (("kl = 1", "teacher_follows = true"), ["E0301"]),
    ],
)
def test_a_teacher(codes: Callable[..., list[str]], lines: tuple[str, ...], found: list[str]) -> None:
    above = TAUGHT + "\nfrom std.clusters import h800_16x8\n"
    assert codes(changed(*lines, above=above), target="other") == found


@pytest.mark.parametrize(
    ("steps", "every", "found"), [(10, 9, []), (10, 10, ["W0523"]), (10, 400, ["W0523"]), (1, 1, ["W0523"])]
)
def test_a_teacher_that_follows_after_the_last_step_alone(
    compiled: Callable[..., CompileResult], steps: int, every: int, found: list[str]
) -> None:
    lines = "kl = 1", f"steps = {steps} steps", f"teacher_follows {{ every = {every} steps }}"
    result = compiled(changed(*lines, above=""), target="other")
    assert [
        each.code for each in result.diagnostics if each.code == "W0523" or each.severity == "error"
    ] == found
    helps = [each.help for each in result.diagnostics if each.code == "W0523"]
    assert all(("below 10 steps" in str(each)) == (steps == 10) for each in helps)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("steps = 5 steps", "W0523"),
        ("reward = std.rewards.outcome", "W0520"),
        ("teacher = std.models.qwen3_8b", "E0521"),
    ],
)
def test_what_the_user_wrote_leads_where_a_library_teacher_follows(
    compiled: Callable[..., CompileResult], line: str, code: str
) -> None:
    text = f"from std.runs_miniature import grpo_care\n\nexperiment less = grpo_care {{\n{line}\n}}\n"
    labels = [each.labels[0] for each in compiled(text, target="less").diagnostics if each.code == code]
    assert [(each.span.path.startswith("std/"), each.span.line) for each in labels] == [(False, 4)]


@pytest.mark.parametrize(
    ("kl", "lag", "every", "found"),
    [
        (0, 0, 9, None),
        # Responses of step 10 are sampled, and read by rewards, when step 8 is done.
        (0, 1, 8, None),
        (0, 1, 9, "below 9 steps"),
        (0, 2, 8, "below 8 steps"),
        # The loss reads it in the next step.
        (1, 1, 9, None),
        (1, 1, 10, "below 10 steps"),
    ],
)
def test_a_teacher_that_follows_after_the_last_responses_that_lag(
    compiled: Callable[..., CompileResult], kl: int, lag: int, every: int, found: str | None
) -> None:
    above = "reward likely { mean(prob(t, under: teacher) for t in y) }\n"
    lines = f"kl = {kl}", f"lag = {lag} steps", "steps = 10 steps", "reward = likely"
    result = compiled(
        changed(*lines, f"teacher_follows {{ every = {every} steps }}", above=above), target="other"
    )
    helps = [str(each.help) for each in result.diagnostics if each.code == "W0523"]
    assert [found in each for each in helps] == ([] if found is None else [True])  # type: ignore[operator]


def test_what_another_file_has_is_not_to_be_taken_out(compiled: Callable[..., CompileResult]) -> None:
    text = "from std.runs_miniature import grpo_care\nfrom std.rewards import outcome\n\n"
    found = compiled(text + "experiment less = grpo_care { reward = outcome }\n", target="less").diagnostics
    (helps,) = [each.help for each in found if each.code == "W0520"]
    assert helps == "write `kl = 1e-3`, or begin with a recipe that has no `teacher_follows`"


UNPAID = 'wording brief { question = "{question} Be brief." }\n'
BY_REF = "wording low = brief { when = mean(len(z) for z in ref) < 1K tokens }\n" + UNPAID


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ((), []),
        (("rollout { wordings = [low, brief] }",), ["E0505"]),
        (("rollout { wordings = [low, brief] }", "reference_samples = 4"), []),
        (("reference_samples = 4",), ["E0521"]),
        (("monitor { questions = 4, samples = 2, every = 1 step }",), ["E0521"]),
        (("resample = 3",), ["E0521"]),
        (("resample = 0",), []),
        (("batch { rollouts = 1 }",), []),
        (("rollout { temperature = 0 }",), []),
        (("reward = nonsense", "resample = 3", "reference_samples = 4"), ["E0201"]),
    ],
)
def test_a_stage_without_a_reward_is_checked_like_any_other(
    compiled: Callable[..., CompileResult], lines: tuple[str, ...], found: list[str]
) -> None:
    mine = MINE.replace("  reward = outcome\n", "  kl = 1\n  teacher_wording = brief\n")
    text = f"{HEAD}{BY_REF}{mine}experiment other = mine {{\n" + "\n".join(lines) + "\n}\n"
    diagnostics = compiled(text, target="other").diagnostics
    assert [each.code for each in diagnostics if each.code != "W0201"] == found


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (("monitor = 64",), ["E0301"]),
        (("monitor { questions = nonsense, samples = 2, every = 1 step }",), ["E0201"]),
        (("forcing = nonsense", "monitor { questions = 4, samples = 2, every = 1 step }"), ["E0201"]),
        (("forcing = reo_forcing",), ["E0530"]),
    ],
)
def test_what_is_wrong_is_not_missing_as_well(
    codes: Callable[..., list[str]], lines: tuple[str, ...], found: list[str]
) -> None:
    above = """
from std.forcing import reo_forcing
reward watched {
  track usual = mean(len(z) for z in monitor, empty: 1K tokens)
  correct(answer(y[:1K tokens])) - usual / 32K tokens
}
"""
    assert codes(changed("reward = watched", *lines, above=above), target="other") == found


def test_a_condition_on_drawn_questions_is_told_what_else_it_may_read(
    compiled: Callable[..., CompileResult],
) -> None:
    above = (
        "from std.miniature import chain_train\n"
        'wording by_level { question = "{question}?", when = x.level > 3 }\n' + UNPAID
    )
    lines = "data = chain_train", "rollout { wordings = [by_level, brief] }"
    (found,) = [
        each
        for each in compiled(changed(*lines, above=above), target="other").diagnostics
        if each.code == "E0511"
    ]
    assert str(found.help).endswith("or measure responses of `ref`: `mean(len(z) for z in ref)`")


def test_what_only_a_cluster_has_is_known_of_a_study_of_the_file(
    compiled: Callable[..., CompileResult],
) -> None:
    """An experiment that names no cluster is run on its study's."""
    study = "\nstudy s { cluster = h800_16x8\n arm mine = mine }\n"
    above = "from std.clusters import h800_16x8\n"
    lines = ("rollout { caches = fp8 }",)
    found = compiled(changed(*lines, above=above) + study, target="s").diagnostics
    assert [each.code for each in found if each.severity == "error"] == []
    without = study.replace("cluster = h800_16x8\n", "")
    found = compiled(changed(*lines, above=above) + without, target="s").diagnostics
    assert {each.code for each in found if each.severity == "error"} == {"E0521"}


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (('loss = python("mine.py:loss")', "kl = 1"), []),
        (('loss { own = python("mine.py:loss"), mode_tokens = rewarded }',), []),
        (('loss = python("mine.py:loss", seconds: 9 seconds, memory: 1 GiB)',), ["E0521", "E0521"]),
        (('loss { own = python("mine.py:loss"), clip = dual }',), ["E0521"]),
        (("loss { clip = gate }", 'loss = python("mine.py:loss")'), ["E0208"]),
        (('loss = python("../mine.py:loss")',), ["E0317"]),
        (("loss = whole()",), ["E0201"]),
        (("loss = 3",), ["E0301"]),
        (('advantage = python("mine.py:made")', "batch { rollouts = 1 }"), []),
        (('advantage { own = python("mine.py:made"), batch = true, bound = 9 }',), []),
        (('advantage { own = python("mine.py:made"), std = sample }',), ["E0521"]),
        (('advantage = python("mine.py:made")', "credit = own"), ["E0521"]),
        (('advantage = python("mine.py:made", batch: 9)',), ["E0521"]),
        (('advantage = python("mine.py:made")', "reward = parted"), ["E0521"]),
    ],
)
def test_a_function_for_the_loss_and_for_advantages(
    codes: Callable[..., list[str]], lines: tuple[str, ...], found: list[str]
) -> None:
    above = "reward parted {\n  z(correct(y)) + z(len(y) / 1K tokens)\n}\n"
    assert codes(changed(*lines, above=above), target="other") == found


def test_a_function_replaces_the_loss_of_a_recipe(compiled: Callable[..., CompileResult]) -> None:
    above = "recipe gated = ppo { loss { clip = gate }, advantage { std = sample } }\n"
    lines = ('loss = python("mine.py:loss")', 'advantage = python("mine.py:made")')
    text = changed(*lines, above=above).replace("experiment mine = ppo", "experiment mine = gated")
    spec = compiled(text, target="other").spec
    assert spec is not None
    (stage,) = next(arm.checkpoint.experiment.stages for arm in spec.study.arms if arm.is_trained)
    assert stage.method.loss == Loss(own=Python(function="mine.py:loss"))
    assert stage.method.advantage == Advantage(own=Python(function="mine.py:made"))


def test_a_teacher_alone_needs_no_reward(compiled: Callable[..., CompileResult]) -> None:
    whole = compiled("\n".join((HEAD, TAUGHT)), target="alone")
    assert whole.spec is not None
    assert [model.name for model in whole.spec.study.models] == ["qwen3_4b", "qwen3_8b"]
    without = compiled("\n".join((HEAD, TAUGHT.replace("teacher = qwen3_8b, ", ""))), target="alone")
    assert [each.code for each in without.diagnostics if each.severity == "error"] == ["E0304"]


LEVELLED = """
data levelled { source = file("levels.jsonl", columns: columns(meta: ["level"])) }
benchmark own { data = levelled }
suite own_suite = math_reg { benchmarks = [own] }
"""
CHOSEN = """
wording easy = short { when = mean(thinking(z) for z in ref) < 1K tokens }
wording hard = short { when = mean(correct(z) for z in ref) < 50% and x.level > 3 }
wording same = long  { when = mean(thinking(z) for z in ref) < 1K tokens }
"""
SHARES = {
    "part": "when = mean(thinking(z) for z in ref) < 1K tokens, share = 50%",
    "whole": "when = mean(thinking(z) for z in ref) < 1K tokens, share = 100%",
    "some": "share = 50%",
    "all": "share = 100%",
    "none": "share = 0%",
    "more": "share = 150%",
}
"""Wordings for a share, by name."""


@pytest.mark.parametrize(
    ("wordings", "more", "found"),
    [
        ("easy, hard, long", "reference_samples = 4", []),
        ("easy, long", "reference_samples = 4\n batch { rollouts = 15 }", []),
        ("easy, hard", "reference_samples = 4", ["E0511"]),
        ("long, easy, short", "reference_samples = 4", ["E0511"]),
        ("easy, same, long", "reference_samples = 4", ["E0511"]),
        ("part, easy, long", "reference_samples = 4", []),
        ("whole, part, long", "reference_samples = 4", ["E0511"]),
        ("some, part, long", "reference_samples = 4\n batch { rollouts = 15 }", []),
        ("some, long", "batch { rollouts = 15 }", []),
        ("some", "", ["E0511"]),
        ("some, part", "reference_samples = 4", ["E0511"]),
        ("turn some, long", "", ["E0511"]),
        ("all, long", "", ["E0521"]),
        ("all, some, long", "", ["E0511"]),
        ("none, long", "", ["E0303"]),
        ("more, long", "", ["E0303"]),
        ("easy, long", "", ["E0505"]),
        ("turn easy, long", "reference_samples = 4", ["E0511"]),
    ],
)
def test_wordings_by_a_property_of_the_question(
    codes: Callable[..., list[str]], wordings: str, more: str, found: list[str]
) -> None:
    turns, wordings = (
        ("wordings_per = question, ", wordings[5:]) if wordings.startswith("turn ") else ("", wordings)
    )
    lines = ("data = levelled", f"rollout {{ {turns}wordings = [{wordings}] }}", *more.splitlines())
    shares = "".join(f"wording {name} = short {{ {SHARES[name]} }}\n" for name in SHARES if name in wordings)
    assert codes(changed(*lines, above=WORDED + LEVELLED + CHOSEN + shares), target="other") == found


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("len(y) < 1K tokens", "E0301"),
        ("correct(y)", "E0301"),
        ("mode(y) == 0", "E0301"),
        ("thinking(y) < 1K tokens", "E0301"),
        ("mean(thinking(z) for z in group) < 1K tokens", "E0301"),
        ("mean(thinking(z) for z in history(x), empty: 0 tokens) < 1K tokens", "E0301"),
        ("mean(mode(z) for z in ref) < 1", "E0301"),
        ("mean(thinking(z) for z in ref) < 3", "E0302"),
        ("mean(len(z) for z in group) < 1K tokens", "E0301"),
        ("mean(len(z) for z in history(x), empty: 0 tokens) < 1K tokens", "E0301"),
        ("x.budget > 1K tokens", "E0301"),
        ("mean(len(z) for z in ref)", "E0301"),
        ("mean(len(z) for z in ref) < 3", "E0302"),
        ("1 < 2", "E0511"),
    ],
)
def test_what_no_question_is_known_by_before_it_is_asked(
    codes: Callable[..., list[str]], condition: str, code: str
) -> None:
    wrong = f"wording wrong {{ when = {condition} }}\n"
    lines = ("rollout { wordings = [wrong, long] }", "reference_samples = 4")
    assert codes(changed(*lines, above=WORDED + wrong), target="other") == [code]


@pytest.mark.parametrize(
    ("suite", "found"),
    [
        ("math_reg { wordings = [known, long] }", []),
        ("math_reg { wordings = [known, right, long] }", ["E0505"]),
        ("math_reg { wordings = [right, long], reference = qwen3_4b }", ["E0505"]),
        ("math_reg { wordings = [right, long], reference_samples = 4 }", ["E0505"]),
        ("math_reg { wordings = [right, long], reference = qwen3_4b, reference_samples = 0 }", ["E0505"]),
        ("math_reg { wordings = [right, long], reference = qwen3_4b, reference_samples = 4 }", []),
        ("math_reg { wordings = [right, long], reference = missing, reference_samples = 4 }", ["E0201"]),
        (
            "math_reg { wordings = [right, long], reference = checkpoint(other), reference_samples = 4 }",
            ["E0209"],
        ),
        ("math_reg { wordings = [known, long], wording = long }", ["E0512"]),
        ("math_reg { wordings = [known, exact] }", ["E0512"]),
        ("math_reg { wordings = [long] }", ["E0511"]),
        ("math_reg { wordings = [known] }", ["E0511"]),
        ("math_reg { wordings = [some, long] }", []),
        ("math_reg { wordings = [some, right, long] }", ["E0505"]),
        ("math_reg { wordings = [long, some] }", ["E0511"]),
        ("math_reg { wording = some }", ["E0512"]),
        ("math_reg { wordings = [long, known, short] }", ["E0511"]),
        ("math_reg { benchmarks = [easy_chains], wordings = [known, long] }", ["E0511"]),
    ],
)
def test_wordings_of_a_suite_by_numbers_of_the_question(
    codes: Callable[..., list[str]], suite: str, found: list[str]
) -> None:
    above = f"""{WORDED}{LEVELLED}
from std.miniature import easy as easy_chains
wording known = short {{ when = x.level > 3 }}
wording some  = short {{ share = 20% }}
wording right = short {{ when = x.level > 4 and mean(correct(z) for z in ref) < 50% }}
wording exact {{ question = "{{question}} {{budget}}", budget = 1 token..9 tokens }}
"""
    line = f"eval = {suite.replace('math_reg', 'own_suite')}"
    assert codes(changed(line, above=above), target="other") == found


@pytest.mark.parametrize(
    "suite",
    [
        "wordings = [known, long], reference = qwen3_4b",
        "wordings = [known, long], reference_samples = 4",
        "reference = qwen3_4b, reference_samples = 4",
    ],
)
def test_a_reference_that_no_wording_of_a_suite_reads_is_told_of(
    compiled: Callable[..., CompileResult], suite: str
) -> None:
    above = f"{WORDED}{LEVELLED}wording known = short {{ when = x.level > 3 }}"
    found = compiled(changed(f"eval = own_suite {{ {suite} }}", above=above), target="other").diagnostics
    assert {each.code for each in found if not each.code.startswith("W02")} == {"E0521"}


@pytest.mark.parametrize("line", ["eval = math_reg { wording = easy }", "kl = 1\n teacher_wording = easy"])
def test_a_wording_for_some_questions_is_for_training_alone(
    codes: Callable[..., list[str]], line: str
) -> None:
    assert codes(changed(*line.splitlines(), above=WORDED + CHOSEN), target="other") == ["E0512"]


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (("rollout { max_tokens = 2K tokens, solution = 1K tokens }",), []),
        (("rollout { max_tokens = 2K tokens, solution = 2047 tokens }",), []),
        (("rollout { max_tokens = 2K tokens, solution = 2K tokens }",), ["E0538"]),
        (('rollout { ending = "</think>" }',), ["E0538"]),
        (('rollout { max_tokens = 2K tokens, solution = 1K tokens, ending = "Stop." }',), ["E0538"]),
        (('rollout { max_tokens = 2K tokens, solution = 1K tokens, ending = "Stop.</think>" }',), []),
        (("reward = quick", "rollout { max_tokens = 2K tokens }"), []),
        (("reward = apart", "rollout { max_tokens = 2K tokens }"), ["E0538"]),
        (("reward = apart", "rollout { max_tokens = 2K tokens, solution = 1K tokens }"), []),
        (("eval = short_suite",), ["E0538"]),
        (("loss { ending_tokens = policy }",), ["E0521"]),
        (("rollout { solution = 9 tokens, cut_at = [25%, 0.5] }", "batch { rollouts = 12 }"), []),
        (("rollout { cut_at = [25%, 50%] }", "batch { rollouts = 12 }"), ["E0538"]),
        (("rollout { solution = 9 tokens, cut_at = [25%] }", "batch { rollouts = 15 }"), ["E0538"]),
        (("rollout { solution = 9 tokens, cut_at = [0%] }", "batch { rollouts = 12 }"), ["E0303"]),
        (("rollout { solution = 9 tokens, cut_at = [50%], wordings = [a, b] }",), ["E0538"]),
        (
            ("rollout { solution = 9 tokens, cut_at = [50%], wordings = [a, b], wordings_per = question }",),
            [],
        ),
    ],
)
def test_phases_that_cannot_be_had(
    codes: Callable[..., list[str]], lines: tuple[str, ...], found: list[str]
) -> None:
    above = """
    reward quick { correct(y) * (1 - thinking(y) / 32K tokens) }
    reward apart { z(correct(y)) + z(correct(y), on: solution) }
    suite short_suite = math_reg { solution = 32K tokens }
    wording a { question = "{question} a" }
    wording b { question = "{question} b" }
    """
    assert codes(changed(*lines, above=above), target="other") == found


@pytest.mark.parametrize(("wordings", "found"), [("a", ["E0511"]), ("a, b", [])])
def test_a_part_on_a_prefix_needs_one(
    codes: Callable[..., list[str]], wordings: str, found: list[str]
) -> None:
    above = """
    reward led { z(correct(y)) + z(correct(y), on: prefix) }
    wording a { question = "{question} a" }
    wording b { prefix = "Hm" }
    """
    lines = "reward = led", f"rollout {{ wordings = [{wordings}] }}"
    assert codes(changed(*lines, above=above), target="other") == found


def test_what_ends_thinking_counts_in_the_context(codes: Callable[..., list[str]]) -> None:
    """The model reads 40K tokens: prompt and response take all of them, and the end of the thinking comes on top."""
    prompt, rollout = "max_prompt = 8K tokens", "rollout { max_tokens = 32K tokens"
    assert codes(changed(prompt, f"{rollout} }}"), target="other") == []
    assert codes(changed(prompt, f"{rollout}, solution = 1K tokens }}"), target="other") == ["E0501"]


@pytest.mark.parametrize(
    ("meta", "read", "message", "helps"),
    [
        ('["level"]', "x.level", None, None),
        ('["info.level"]', "x.info.level", None, None),
        ('["info"]', "x.info.level", None, None),
        ('["level"]', "x.lvel", "the questions of `own` keep no column `lvel`", "did you mean `x.level`?"),
        ('["info.level"]', "x.level", "keep no column `level`", "did you mean `x.info.level`?"),
        ('["gold"]', "x.level", "keep no column `level`", '`columns: columns(meta: ["gold", "level"])`'),
        ("", "x.level", "keep no column `level`", '`columns: columns(meta: ["level"])`'),
    ],
)
@pytest.mark.parametrize("reader", ["reward", "when"])
def test_a_number_that_no_column_keeps_is_told_where_it_is_read(
    compiled: Callable[..., CompileResult],
    meta: str,
    read: str,
    message: str | None,
    helps: str | None,
    reader: str,
) -> None:
    """In a reward and in a `when`, of a training and of a suite; the edit of a near name is accepted."""
    columns = f", columns: columns(meta: {meta})" if meta else ""
    data = f'data own {{ source = file("own.jsonl"{columns}) }}\n'
    above = f"{data}reward leveled {{ correct(y) * {read} }}\n"
    lines = ["data = own", "reward = leveled"]
    if reader == "when":
        above = f"{WORDED}{data}benchmark mine_too {{ data = own }}\nwording some = short {{ when = {read} > 3 }}\n"
        lines = ["eval = math_reg { benchmarks = [mine_too], wordings = [some, long] }"]
    text = changed(*lines, above=above)
    errors = [each for each in compiled(text, target="other").diagnostics if each.severity == "error"]
    if message is None or helps is None:
        assert not errors
        return
    (found,) = errors
    span = found.labels[0].span
    assert found.code == "E0511"
    assert message in found.message
    assert helps in str(found.help)
    assert text.split("\n")[span.line - 1][span.column - 1 : span.end_column - 1] == read
    for edit in found.edits:
        assert not [
            each
            for each in compiled(text.replace(read, edit.text), target="other").diagnostics
            if each.severity == "error"
        ]
