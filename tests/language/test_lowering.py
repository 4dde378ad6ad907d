"""Lowered specs: the quickstart and the Qwen3-4B run hold what is written in them and in the paper's tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reodsl.ir.base import canonical_json
from reodsl.ir.model import Hub
from reodsl.ir.reward import Budgets
from reodsl.ir.study import Spec
from reodsl.ir.training import Dpo, Experiment, FromTraining, Loss, Ppo, Sft
from reodsl.language import compile_file
from reodsl.plan.render import describe_corrections
from tests.language.conftest import HEAD, MINE

ROOT = Path(__file__).resolve().parents[2]


def experiment(spec: Spec, arm: str) -> Experiment:
    checkpoint = spec.study.arm(arm).checkpoint
    assert isinstance(checkpoint, FromTraining)
    return checkpoint.experiment


def ppo(spec: Spec, arm: str, stage: int = 0) -> Ppo:
    method = experiment(spec, arm).stages[stage].method
    assert isinstance(method, Ppo)
    return method


@pytest.fixture(scope="module")
def qwen() -> Spec:
    spec = compile_file(ROOT / "specs" / "qwen3_4b_reo_exp.reo").spec
    assert spec is not None
    return spec


@pytest.fixture(scope="module")
def quickstart() -> Spec:
    spec = compile_file(ROOT / "specs" / "quickstart.reo").spec
    assert spec is not None
    return spec


def test_the_papers_ppo_table(qwen: Spec) -> None:
    method = ppo(qwen, "qwen3_4b_reo_exp")
    # The paper names none; a run of 4K GPU hours is not to go on with an engine that answers otherwise.
    assert method.mismatch_limit == 1.05
    optim = experiment(qwen, "qwen3_4b_reo_exp").stages[0].optim
    assert (method.batch.prompts, method.batch.rollouts) == (128, 16)
    assert (method.minibatches, method.epochs) == (4, 2)
    assert (method.clip_low, method.clip_high) == (0.2, 0.2)
    assert (method.rollout.temperature, method.rollout.top_p, method.rollout.top_k) == (1.0, 1.0, -1)
    assert (method.max_prompt, method.rollout.max_tokens) == (1024, 32768)
    # The table's "Adam" is what its framework builds by that name.
    assert (optim.algorithm, optim.lr, optim.weight_decay, optim.betas) == ("adamw", 5e-6, 0.05, (0.9, 0.95))
    assert (optim.eps, optim.grad_norm, optim.decay) == (1e-5, 1.0, "constant")
    assert (optim.warmup_steps, optim.warmup_share) == (0, 0.001)
    assert qwen.study.seeds == (1,)
    assert qwen.study.limit == 4000
    assert qwen.study.cluster is not None
    assert qwen.study.cluster.nodes * qwen.study.cluster.gpus_per_node == 128


def test_exp_budgets_and_the_evaluation(qwen: Spec) -> None:
    reward = ppo(qwen, "qwen3_4b_reo_exp").reward
    assert reward.dense is not None
    assert reward.dense.split == Budgets(budgets=(1024, 2048, 4096, 8192, 16384), l_max=32768)
    suite = qwen.study.arms[0].suite
    # The paper's grid up to 16K.
    paper = {64 * i for i in range(16)} | {1024 * i for i in range(1, 17)}
    assert {budget for budget in suite.grid if budget <= suite.reg_to} == paper
    assert (suite.samples, suite.rollout.temperature, suite.rollout.top_p) == (32, 0.6, 0.95)
    assert [benchmark.name for benchmark in suite.benchmarks] == ["aime24", "aime25", "amc23", "minerva"]
    assert qwen.study.score is not None
    assert qwen.study.score.to == 16384


def test_forcing_is_the_papers_byte_for_byte(qwen: Spec) -> None:
    forcing = ppo(qwen, "qwen3_4b_reo_exp").forcing
    assert forcing is not None
    assert (
        forcing.text
        == "...\nOh, I suddenly got the answer to the whole problem. **Final Answer**:\n[\\boxed{"
    )
    assert forcing.close == "}"


def test_published_sizes_give_the_published_parameters() -> None:
    tied = {"qwen3_4b", "smollm2_135m"}
    names = ("qwen3_4b", "qwen3_8b", "deepseek_1_5b", "deepseek_7b", "smollm2_135m")
    for name in names:
        head = f"from std.models import {name}\nfrom std.suites import math_reg\n"
        text = f"{head}experiment look = checkpoint({name}) {{ eval = math_reg }}"
        model = compiled_text(text).study.arms[0].checkpoint.model  # type: ignore[union-attr]
        d = model.dimensions
        assert d is not None
        query, key = d.heads * d.head_dim, d.kv_heads * d.head_dim
        attention = d.hidden * (query + 2 * key) + query * d.hidden
        # Qwen3 normalises queries and keys; Qwen2 has biases on them and on the values.
        extra = (
            2 * d.head_dim
            if name.startswith("qwen3")
            else query + 2 * key
            if name.startswith("deepseek")
            else 0
        )
        layer = attention + 3 * d.hidden * d.intermediate + 2 * d.hidden + extra
        embeddings = d.vocabulary * d.hidden * (1 if name in tied else 2)
        assert d.parameters == d.layers * layer + embeddings + d.hidden, name


def compiled_text(text: str) -> Spec:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spec.reo"
        path.write_text(text)
        result = compile_file(path)
    assert result.spec is not None, result.diagnostics
    return result.spec


def test_how_a_trainer_computes_is_lowered() -> None:
    said = """  precision = bfloat16
  microbatch = 16K tokens
  checkpointing = off
  old_logprobs = trainer
  importance_cap = 2
  mismatch_limit = 1.05
  entropy = 0.01
"""
    stage = experiment(compiled_text(HEAD + MINE.replace("\n}", "\n" + said + "}")), "mine").stages[0]
    assert (stage.precision, stage.microbatch, stage.checkpointing) == ("bfloat16", 16384, "off")
    assert isinstance(stage.method, Ppo)
    method = stage.method
    assert (method.old_logprobs, method.importance_cap, method.mismatch_limit) == ("trainer", 2.0, 1.05)
    assert method.entropy == 0.01


@pytest.mark.parametrize(
    ("said", "cap"),
    [
        ("", None),
        ("cluster = h800_16x8", 2.0),
        ("cluster = h800_16x8\n engine = embedded", None),
        ("cluster = h800_16x8\n importance_cap = none", None),
        ("cluster = h800_16x8\n importance_cap = 5", 5.0),
        ("importance_cap = 5", 5.0),
        # What corrects already.
        ("cluster = h800_16x8\n old_logprobs = engine", None),
        ("cluster = h800_16x8\n lag = 1 step", None),
        ("cluster = h800_16x8\n lag = 1 step\n loss { decoupled = true }", None),
        # A setting of the weights needs no cap beside it.
        ("cluster = h800_16x8\n loss { importance = sequence }", 2.0),
    ],
)
def test_tokens_are_weighed_by_default_where_servers_on_gpus_sample(said: str, cap: float | None) -> None:
    imports = "from std.clusters import h800_16x8\n" if "cluster" in said else ""
    spec = compiled_text(imports + HEAD + MINE.replace("\n}", "\n" + said + "\n}"))
    assert ppo(spec, "mine").importance_cap == cap
    warned = f"tokens of mine have {'' if cap else 'no '}importance weights"
    corrected = "old_logprobs" in said or "lag" in said
    on_gpus = "cluster" in said and "embedded" not in said
    assert any(warned in line for line in describe_corrections(spec.study)) == (on_gpus and not corrected)


def test_how_far_rollouts_lag_is_lowered() -> None:
    said = """  lag = 1 step
  loss { decoupled = true }
  importance_cap = 5
"""
    method = ppo(compiled_text(HEAD + MINE.replace("\n}", "\n" + said + "}")), "mine")
    assert (method.lag, method.loss) == (1, Loss(decoupled=True))


def test_what_a_loss_is_made_of_is_lowered() -> None:
    said = """  kl = 0.001
  entropy = 0.01
  loss { ratio = token, clip = dual, cap = 2, estimator = k2 }
"""
    method = ppo(compiled_text(HEAD + MINE.replace("\n}", "\n" + said + "}")), "mine")
    assert method.loss == Loss(clip="dual", cap=2.0, estimator="k2")
    assert method.uses_reference


def test_a_loss_that_says_the_defaults_is_none_in_canonical_form() -> None:
    plain = ppo(compiled_text(HEAD + MINE), "mine")
    said = ppo(
        compiled_text(HEAD + MINE.replace("\n}", "\n  loss { ratio = token, clip = two_sided }\n}")), "mine"
    )
    assert canonical_json(said) == canonical_json(plain)
    assert "loss" not in plain.model_dump()
    assert "ratio" in said.model_copy(update={"loss": Loss(ratio="sequence")}).model_dump()["loss"]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("loss { cap = 2 }", "`cap` bounds the ratio of negative advantages only with `clip = dual`"),
        ("loss { estimator = k1 }", "`estimator` estimates the divergence, whose weight `kl` is 0"),
        ("loss { ratio = none }", "`clip` bounds ratios, and this loss has no ratio"),
        (
            "loss { clip = none }, clip { low = 0.1, high = 0.3 }",
            "`low` of `clip` is a bound, but this loss does not clip",
        ),
        (
            "loss { ratio = sequence }",
            "`clip.low` is 0.2, and a response's ratio is hardly ever that far from 1",
        ),
        (
            "method = sft, max_tokens = 1K tokens, loss { ratio = sequence }",
            "`loss` is a setting of ppo, and this trains by sft",
        ),
    ],
)
def test_parts_of_a_loss_without_effect_are_told(said: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "spec.reo"
    path.write_text(HEAD + MINE.replace("\n}", f"\n  {said}\n}}"))
    found = compile_file(path)
    assert message in [each.message for each in found.diagnostics]
    assert (found.spec is None) != ("hardly ever" in message)


@pytest.mark.parametrize("said", ["loss { clip = none }", "loss { ratio = none, clip = none }"])
def test_a_recipes_bounds_do_not_stand_in_the_way_of_a_loss_without(said: str) -> None:
    assert ppo(compiled_text(HEAD + MINE.replace("\n}", f"\n  {said}\n}}")), "mine").loss.clip == "none"


SOURCES = {"gspo": "2507.18071", "cispo": "2506.13585", "dpo_shortest": "2305.18290"}


@pytest.mark.parametrize("name", SOURCES)
def test_methods_of_others_take_25_lines(name: str) -> None:
    path = ROOT / "specs" / "miniature" / f"{name}.reo"
    lines = [line for line in path.read_text("utf-8").splitlines() if line.strip()]
    assert len(lines) <= 25
    assert SOURCES[name] in lines[0]
    found = compile_file(path)
    assert found.spec is not None
    method = experiment(found.spec, name).stages[0].method
    if isinstance(method, Ppo):
        assert method.loss == (Loss(ratio="sequence") if name == "gspo" else Loss(clip="weight"))
        assert (method.clip_low, method.clip_high) == ((3e-4, 4e-4) if name == "gspo" else (1.0, 3.0))
    else:
        assert method == Dpo(batch=16, max_tokens=192, beta=0.1)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("entropy = -0.01", "`entropy` must be at least 0"),
        (
            "method = sft, max_tokens = 1K tokens, entropy = 0.01",
            "`entropy` is a setting of ppo, and this trains by sft",
        ),
        ("entropy_coeff = 0.01", "an experiment has no setting `entropy_coeff`"),
    ],
)
def test_an_entropy_bonus_is_refused_where_it_has_no_effect(said: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "spec.reo"
    path.write_text(HEAD + MINE.replace("\n}", f"\n  {said}\n}}"))
    found = compile_file(path)
    assert found.spec is None
    assert message in [each.message for each in found.diagnostics]


def test_quickstart(quickstart: Spec) -> None:
    study = quickstart.study
    names = [arm.name for arm in study.arms]
    assert names == ["base", "vanilla", "reo_exp", "group_norm", "shrink", "shrink_64"]
    assert "reo_exp" not in study.frontiers[0].of
    base = experiment(quickstart, "base")
    assert [type(stage.method) for stage in base.stages] == [Sft, Sft]
    reward = ppo(quickstart, "reo_exp").reward
    assert reward.dense is not None
    assert reward.dense.split == Budgets(budgets=(4, 8, 16, 32, 64), l_max=128)
    caps = [ppo(quickstart, "shrink", n).rollout.max_tokens for n in range(2)]
    assert caps == [64, 32]
    early = quickstart.study.arm("shrink_64").checkpoint
    assert isinstance(early, FromTraining)
    assert (early.experiment, early.stage) == (experiment(quickstart, "shrink"), 0)


def test_training_and_evaluation_questions_are_kept_apart(quickstart: Spec) -> None:
    train = experiment(quickstart, "vanilla").stages[0].data.sources[0]
    assert train.split == "train"  # type: ignore[union-attr]
    for benchmark in quickstart.study.arms[0].suite.benchmarks:
        assert benchmark.data.sources[0].split == "held_out"  # type: ignore[union-attr]


def test_a_value_knows_the_lines_that_gave_its_settings(qwen: Spec) -> None:
    (stage,) = experiment(qwen, "qwen3_4b_reo_exp").stages
    lr, eps = (stage.optim.given_at[name] for name in ("lr", "eps"))
    text = (ROOT / "specs" / "qwen3_4b_reo_exp.reo").read_text().split("\n")
    assert "lr = 5e-6" in text[lr.line - 1]
    assert eps.path == "std/recipes.reo"
    assert "eps" in qwen.sources[eps.path].split("\n")[eps.line - 1]
    assert set(qwen.sources) >= {"std/recipes.reo", "std/models.reo"}


def test_stages_until_and_inheritance(spec: Callable[..., Spec]) -> None:
    text = f"""{HEAD}{MINE}
experiment staged = mine {{
  until = plateau(train.accuracy, window: 20 steps, within: 0.2%) or steps(300)
  stages(cap in halve(from: 16K tokens, to: 4K tokens)) {{ rollout {{ max_tokens = cap }} }}
}}
experiment cooler = staged {{ rollout {{ temperature = 0.8 }} }}
experiment longer = staged {{ steps = 500 steps }}
study all {{
  arm base = checkpoint(qwen3_4b)
  arm half = checkpoint(cooler.stages[8K tokens])
  arm end = cooler
  arm longer = longer
}}
"""
    every = spec(text)
    # The nearer of `steps` and `or steps(…)` is taken; the plateau stays.
    assert [(stage.steps, stage.plateau is None) for stage in experiment(every, "longer").stages] == [
        (500, False)
    ] * 3
    made = experiment(every, "end")
    assert [stage.steps for stage in made.stages] == [300, 300, 300]
    assert {stage.plateau.window for stage in made.stages if stage.plateau is not None} == {20}
    assert {stage.plateau.within for stage in made.stages if stage.plateau is not None} == {0.002}
    methods = [stage.method for stage in made.stages]
    assert [method.rollout.max_tokens for method in methods if isinstance(method, Ppo)] == [16384, 8192, 4096]
    assert {method.rollout.temperature for method in methods if isinstance(method, Ppo)} == {0.8}


def test_oracle_and_question_budgets(spec: Callable[..., Spec]) -> None:
    text = f"""{HEAD}{MINE}
study all {{
  arm base = checkpoint(qwen3_4b)
  arm plain = mine
  frontier edge = envelope(of: [base, plain], on: math_reg, to: 32K tokens)
  arm oracle = mine {{ reward = reo(at: greedy(edge, n: 5)) }}
  arm tailor = mine {{ reward = reo(at: question_min(rollouts: [plain])) }}
}}
"""
    made = spec(text)
    oracle = ppo(made, "oracle").reward.dense
    tailor = ppo(made, "tailor").reward.dense
    assert oracle is not None
    assert tailor is not None
    assert oracle.split.model_dump() == {
        "kind": "oracle",
        "frontier": "edge",
        "n": 5,
        "l_max": 32768,
        "step": 1,
    }
    assert tailor.split.model_dump() == {
        "kind": "question", "rollouts": ("plain",), "l_max": 32768, "unsolved": "formula",
    }  # fmt: skip


def test_an_oracle_inside_its_own_frontier_is_a_circle(codes: Callable[..., list[str]]) -> None:
    text = f"""{HEAD}{MINE}
study all {{
  arm base = checkpoint(qwen3_4b)
  frontier edge = envelope(of: [base, oracle], to: 32K tokens)
  arm oracle = mine {{ reward = reo(at: greedy(edge, n: 5)) }}
}}
"""
    assert codes(text) == ["E0209"]


def test_greedy_on_a_published_frontier_is_found_at_once(spec: Callable[..., Spec]) -> None:
    text = HEAD + MINE.replace("outcome", "reo(at: greedy(std.paper.qwen3_4b, to: 32K tokens, n: 5))")
    reward = ppo(spec(text), "mine").reward
    assert reward.dense is not None
    assert isinstance(reward.dense.split, Budgets)
    assert len(reward.dense.split.budgets) == 5


def test_many_errors_in_one_pass(codes: Callable[..., list[str]]) -> None:
    text = f"""{HEAD}
param n: int = 50 in 1..16
budgets five = exp(from: 1K tokens, to: 64K tokens, n: 5)
{MINE.replace("reward = outcome", "reward = reo(at: five)")}
experiment other = mine {{
  lr = 1
  minibatches = 3
  credit = casual
  optim {{ betas = [0.9, 2] }}
  eval = math_rge
}}
reward bad {{
  len(y)
}}
"""
    assert sorted(codes(text)) == ["E0201", "E0203", "E0302", "E0303", "E0303", "E0314", "E0402", "E0502"]


def test_a_model_on_a_hub_by_name(qwen: Spec) -> None:
    model = experiment(qwen, "qwen3_4b_reo_exp").model
    assert model.source == Hub(repo="Qwen/Qwen3-4B")


def test_thinking_is_read_unless_the_data_skip_it() -> None:
    said = {}
    for line in ("", "thinking = skip", "thinking = read"):
        data = f"data own_data = areal_boba_7b {{ {line} }}\n"
        mine = compiled_text(HEAD + data + MINE.replace("data = areal_boba_7b", "data = own_data"))
        stage = experiment(mine, "mine").stages[0]
        said[line] = stage.data.grading.thinking, "thinking" in canonical_json(stage.data.grading)
    assert said == {
        "": ("read", False),
        "thinking = skip": ("skip", True),
        "thinking = read": ("read", False),
    }
