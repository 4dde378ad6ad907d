"""Every setting of every kind changes a task, a page or a plan, or the checker says why it does not.

Each is written into a spec where it can matter. Values follow from its type; the tables below have what does not, and what a
setting changes where no result depends on it. A new setting is walked over without a row, and fails if nothing comes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from reodsl.graph.lower import lower
from reodsl.graph.task import identity
from reodsl.ir import digest
from reodsl.ir.kinds import KINDS
from reodsl.ir.setting import AnyOf, Block, Flag, ListOf, Num, OneOf, Setting, Text, Type
from reodsl.language import CompileResult

HEAD = """
from std.miniature import overthinker, chain_model, chain_words, chain, chain_long, chain_traces, chain_train
from std.miniature import chain_easy_questions, chain_first_traces, chain_suite, chain_forcing, easy, medium
from std.recipes import ppo, sft, simpo
from std.rewards import outcome, reo, mrt
from std.selections import shortest, shortest_against_longest
from std.measures import auc_oaa
from std.models import qwen3_4b
from std.clusters import h800_8x8
wording brief { prefix = "so" }
wording long { prefix = "hmm" }
wording rare = brief { share = 50% }
wording hard { prefix = "wait", when = mean(len(z) for z in ref) > 20 tokens }
budgets two = exp(from: 8 tokens, to: 64 tokens, n: 2)
suite quick = chain_suite { benchmarks = [easy], samples = 1, max_tokens = 64 tokens
  grid = [0 tokens, 64 tokens], reg_to = 64 tokens }
reward watched { track usual = mean(len(z) for z in monitor)
  correct(y) - len(y) / usual }
reward compared { correct(y) - len(y) / mean(len(z) for z in ref) }
reward taught { mean(prob(t, under: teacher) for t in y) }
frontier edge { base = chain_model, budgets = [0 tokens, 64 tokens], curve mean { accuracy = [1%, 2%] } }
cluster small { nodes = 2, gpus_per_node = 2, gpu = "H100", memory = 80 GiB
  hardware { flops = 1e15, bandwidth = 3e12, interconnect = 4e11 } }
recipe rl = ppo {
  base = checkpoint(overthinker), data = chain_train, reward = outcome, forcing = chain_forcing, max_prompt = 32 tokens
  batch { prompts = 8, rollouts = 4 }
  rollout { max_tokens = 64 tokens }
  steps = 20 steps, eval = quick
  optim { warmup = 0 steps }
}
recipe traced = sft { base = chain_model, data = chain_first_traces, max_tokens = 96 tokens, steps = 20 steps, eval = quick
  batch { prompts = 8 }
  optim { warmup = 0 steps } }
recipe paired = simpo {
  base = checkpoint(overthinker), max_tokens = 96 tokens, steps = 20 steps, eval = quick, beta = 2, gamma = 1
  data = shortest_against_longest(pool(checkpoint(overthinker), data: chain_train, samples: 4, max_tokens: 64 tokens))
  optim { lr = 1e-4, warmup = 0 steps }
}
recipe against {
  method = dpo, base = checkpoint(overthinker), max_tokens = 96 tokens, steps = 20 steps, eval = quick, beta = 2
  data = shortest_against_longest(pool(checkpoint(overthinker), data: chain_train, samples: 4, max_tokens: 64 tokens))
  optim { algorithm = adamw, lr = 1e-4 }
  batch { prompts = 8 }
}
published printed { benchmarks = ["easy"]
  row base { title = "Base", accuracy = [10%] }
  row mine { title = "Mine", accuracy = [20%] } }
"""
PLAIN = (
    "study s {\n  eval = quick\n  arm base = checkpoint(overthinker) { eval = quick }\n  arm mine = mine\n}\n"
)
MINE = "experiment mine = other {}\n" + PLAIN


class Context(NamedTuple):
    """A spec around settings of a kind: they go where `@` is, and what they need beside them where `BESIDE` is.

    `args` are the arguments of a call, of which each setting replaces its own.
    """

    text: str
    args: dict[str, str] = {}


def _called(text: str, **args: str) -> Context:
    return Context(text, args)


def _in_block(block: str) -> Context:
    return Context(
        "recipe other = rl {\n  BESIDE\n}\nexperiment mine = other { " + block + " { @ } }\n" + PLAIN
    )


def _of_study(text: str) -> Context:
    whole = PLAIN.replace(
        "\n}",
        "\n  frontier over = envelope(of: [base, mine], to: 64 tokens)\n"
        "  frontier less = envelope(of: [base], to: 64 tokens)\n" + text + "\n}",
    )
    return Context("experiment mine = rl {}\n" + whole)


MODEL = "model own = chain_model { @ }\nexperiment mine = traced { base = own, BESIDE }\n" + PLAIN
OWN_MODEL = "model own = chain_model { source = @ }\nexperiment mine = traced { base = own }\n" + PLAIN
DATA = (
    "data near = chain_train { BESIDE }\ndata own = near { @ }\nexperiment mine = rl { data = own }\n" + PLAIN
)
SOURCE = DATA.replace("@", "source = @")
TRACED = "data own = chain_first_traces { source = @ }\nexperiment mine = traced { data = own }\n" + PLAIN
TASK = "task own = chain { @ }\ndata drawn = chain_train { source = generated(own, count: 64, seed: 1) }\n"
STYLED = "traces own = chain_traces { BESIDE }\ntraces other_own = own { @ }\n"
STYLED += (
    "data drawn = chain_first_traces { source = generated(chain, count: 64, seed: 1, traces: other_own) }\n"
)
SUITE = "suite near = quick { BESIDE }\nsuite own = near { @ }\n"
SUITE += "study s {\n  arm base = checkpoint(overthinker) { eval = own }\n}\n"
RESULTS = PLAIN.replace("arm mine = mine", "arm mine = @")
CLUSTER = (
    "experiment mine = rl {}\ncluster near = small { BESIDE }\ncluster own = near { @ }\n"
    + PLAIN.replace("\n}", "\n  cluster = own\n}")
)
PRINTED = 'published own {\n benchmarks = ["easy"]\n relative_to = "base"\n row base { title = "Base", accuracy = [10%] }\n'
PRINTED += " row mine { @ }\n}\n"
PRINTED += _of_study("report { table t { columns = [accuracy], published = own } }").text
CONTEXTS: dict[str, Context] = {
    **{kind: _in_block(kind) for kind in ("batch", "optim", "advantage", "loss", "rollout", "clip")},
    "lora": Context(_in_block("lora").text, {"rank": "4"}),
    "monitor": Context(_in_block("monitor").text, {"questions": "4", "samples": "2", "every": "4 steps"}),
    "teacher_follows": Context(_in_block("teacher_follows").text, {"every": "4 steps"}),
    "rest": Context(_in_block("optim").text.replace("@", "algorithm = muon, rest { @ }"), {"lr": "1e-3"}),
    "experiment": Context("recipe other = rl {\n  BESIDE\n}\nexperiment mine = other { @ }\n" + PLAIN),
    "recipe": Context("recipe near = rl {\n  BESIDE\n}\nrecipe other = near { @ }\n" + MINE),
    "stage": Context(
        "recipe other = rl {\n  BESIDE\n}\nexperiment mine = other {\n  stage one {}\n  stage two { @ }\n}\n"
        + PLAIN
    ),
    "arm": Context(
        "recipe other = rl {\n  BESIDE\n}\n" + PLAIN.replace("arm mine = mine", "arm mine = other { @ }")
    ),
    "plateau": _called(
        "experiment mine = rl { until = @ or steps(20) }\n" + PLAIN,
        metric="train.accuracy",
        window="4 steps",
        within="1%",
    ),
    "pool": _called(
        "experiment mine = paired { data = shortest_against_longest(@) }\n" + PLAIN,
        of="checkpoint(overthinker)",
        data="chain_train",
        samples="4",
        max_tokens="64 tokens",
    ),
    "forced": _called(
        RESULTS.replace("@", 'results("t.parquet", model: "m", at: @)'), of="checkpoint(overthinker)"
    ),
    "results": _called(RESULTS, path='"t.parquet"', model='"m"'),
    "tokenizer": Context(
        "tokenizer near = chain_words { @ }\n"
        + OWN_MODEL.replace(
            "@",
            "architecture(family: qwen3, hidden: 16, layers: 1, heads: 2, kv_heads: 1, head_dim: 8, intermediate: 16,"
            " tokenizer: near)",
        )
    ),
    "architecture": _called(
        OWN_MODEL,
        family="qwen3",
        hidden="16",
        layers="1",
        heads="2",
        kv_heads="1",
        head_dim="8",
        intermediate="16",
        tokenizer="chain_words",
    ),
    "folder": _called(OWN_MODEL, path='"weights"'),
    "served": _called(
        OWN_MODEL.replace("experiment mine = traced { base = own }", "experiment mine = checkpoint(own)"),
        model='"m"',
        address='"http://127.0.0.1:8000/v1"',
        tokenizer='hub("a/b")',
    ),
    "dimensions": Context(
        MODEL.replace("@", "dimensions { @ }"),
        dict.fromkeys(
            ("parameters", "layers", "hidden", "heads", "kv_heads", "head_dim", "intermediate", "vocabulary"),
            "4",
        ),
    ),
    "prompt": Context(
        MODEL.replace("@", "prompt { @ }").replace("traced { base = own, BESIDE }", "rl { base = own }")
    ),
    "think": Context(
        MODEL.replace("@", "think { @ }").replace("traced { base = own, BESIDE }", "rl { base = own }")
    ),
    "model": Context(MODEL),
    "forcing": Context(
        "forcing near = chain_forcing { BESIDE }\nforcing own = near { @ }\n"
        "experiment mine = rl { reward = reo(at: two), forcing = own }\n" + PLAIN
    ),
    "wording": Context(
        "wording own = brief { @ }\n"
        "experiment mine = rl { rollout { wordings = [own, long], wordings_per = question } }\n" + PLAIN
    ),
    "columns": _called(SOURCE.replace("@", 'file("q.jsonl", columns: @)')),
    "python": _called(DATA.replace("@", "verifier = @"), function='"checks.py:check"'),
    "tests": _called(DATA.replace("@", "verifier = @")),
    "generated": _called(TRACED, task="chain", count="64", seed="1", traces="chain_traces"),
    "file": _called(SOURCE, path='"q.jsonl"'),
    "hub": _called(SOURCE, repo='"a/b"'),
    "package": _called(SOURCE, package='"reasoning-gym"', task='"chain_sum"', count="8", seed="1"),
    "marks": _called(DATA.replace("@", "strip = @"), before='"Q:"'),
    "after": _called(DATA.replace("@", "answer = @"), marker='"so"'),
    "regex": _called(DATA.replace("@", "answer = @"), pattern='"(.)"'),
    "data": Context(DATA),
    "task": Context(TASK + "experiment mine = rl { data = drawn }\n" + PLAIN),
    "style": Context(
        STYLED.replace("@", "style terse { @ }") + "experiment mine = traced { data = drawn }\n" + PLAIN,
        {"template": '"{label} {op} {next}"'},
    ),
    "traces": Context(STYLED + "experiment mine = traced { data = drawn }\n" + PLAIN),
    "benchmark": Context(
        "benchmark own = easy { @ }\nsuite asked = quick { benchmarks = [own] }\n"
        "study s {\n  arm base = checkpoint(overthinker) { eval = asked }\n}\n"
    ),
    "suite": Context(SUITE),
    "curve": Context(
        "frontier own { base = chain_model, budgets = [0 tokens, 64 tokens], curve mean { @ } }\n"
        + _of_study("score = reg(against: own, to: 64 tokens, approximate: true)").text,
        {"accuracy": "[1%, 2%]"},
    ),
    "frontier": Context(
        "frontier own = edge { @ }\n"
        + _of_study("score = reg(against: own, to: 64 tokens, approximate: true)").text
    ),
    "envelope": _called(
        _of_study("frontier most = @\n  score = reg(against: most, to: 32 tokens)").text,
        of="[base, mine]",
        to="64 tokens",
    ),
    "reg": _called(_of_study("score = @").text, against="over", to="64 tokens"),
    "row": Context(PRINTED, {"title": '"Mine"', "accuracy": "[20%]"}),
    "published": Context(
        "published own = printed { @ }\n"
        + _of_study("report { table t { columns = [accuracy], published = own } }").text
    ),
    "table": Context(_of_study("report { table t { @ } }").text, {"columns": "[accuracy]"}),
    "chart": Context(
        _of_study("report { chart t { @ } }").text, {"x": "budget", "y": "accuracy", "lines": "[mine]"}
    ),
    "study": Context("experiment mine = rl {}\n" + PLAIN.replace("\n}", "\n  BESIDE\n  @\n}")),
    "rollout.caches": Context(
        _in_block("rollout").text.replace("study s {", "study s {\n  cluster = h800_8x8")
    ),
    **dict.fromkeys(
        ("wording.when", "wording.share"),
        Context(
            "wording own = hard { @ }\n"
            "experiment mine = rl { reference_samples = 2, rollout { wordings = [own, long] } }\n" + PLAIN
        ),
    ),
    "results.base": _called(
        "study s {\n  eval = quick\n  arm mine = @\n  score = reg(against: other, to: 64 tokens, approximate: true)\n}\n"
        "frontier other = edge { base = qwen3_4b }\n",
        path='"t.parquet"',
        model='"m"',
    ),
    "model.base": Context(
        "model own = chain_model { @ }\nfrontier other = edge { base = qwen3_4b }\nstudy s {\n  eval = quick\n"
        "  arm mine = checkpoint(own)\n  score = reg(against: other, to: 64 tokens, approximate: true)\n}\n"
    ),
    "reg.approximate": _called(_of_study("score = @").text, against="edge", to="64 tokens"),
    "study.eval": Context("study s {\n  @\n  arm base = checkpoint(chain_model)\n}\n", {"eval": "quick"}),
    "study.unequal": Context(
        "experiment mine = rl {}\nexperiment longer = rl { steps = 40 steps }\n"
        + PLAIN.replace("\n}", "\n  arm longer = longer\n  @\n}")
    ),
    "hub as a model": _called(OWN_MODEL, repo='"a/b"'),
    "hardware": Context(
        CLUSTER.replace("@", "hardware { @ }"), dict.fromkeys(("flops", "bandwidth", "interconnect"), "4e12")
    ),
    "cluster": Context(CLUSTER),
}
PYTHON = 'python("own.py:mine")'
VALUES: dict[str, tuple[str, ...]] = {
    "advantage.own": (PYTHON,),
    "loss.own": (PYTHON,),
    "rollout.wordings": ("[brief, long]",),
    "rollout.ending": ('"so </think>"',),
    "think.open": ('"so"',),
    "think.close": ('"so"',),
    "experiment.base": ("chain_model",),
    "experiment.method": ("simpo, gamma = 1",),
    "experiment.data": ("chain_train { source = generated(chain, count: 64, seed: 3) }",),
    "experiment.reward": ("watched",),
    "experiment.forcing": ("chain_forcing { answer_tokens = 2 tokens }",),
    "experiment.teacher": ("chain_model",),
    "experiment.teacher_wording": ("brief",),
    "experiment.until": ("steps(10)",),
    "experiment.eval": ("quick { samples = 2 }",),
    "experiment.score": ("reg(against: edge, to: 64 tokens, approximate: true)",),
    "experiment.cluster": ("h800_8x8 { nodes = 1 }",),
    "experiment.mismatch_limit": ("2",),
    "plateau.metric": ("train.reward",),
    "pool.of": ("chain_model",),
    "pool.data": ("chain_train { source = generated(chain, count: 2048, seed: 3) }",),
    "pool.ending": ('"so </think>"',),
    "pool.wordings": ("[brief]",),
    "forced.of": ("chain_model",),
    "results.path": ('"u.parquet"',),
    "results.base": ("chain_model",),
    "results.at": ("forced(checkpoint(overthinker))",),
    "tokenizer.words": ('chain_words.words + ["more"]', 'words("1 2")'),
    "architecture.tokenizer": ('chain_words { eos = "<end>" }',),
    "served.address": ('"http://127.0.0.1:9000/v1"',),
    "served.tokenizer": ('hub("a/c")',),
    "model.source": ('hub("a/b")',),
    "model.base": ("qwen3_4b",),
    "model.context": ("512 tokens",),
    "prompt.template": ('"Q: {question}"',),
    "forcing.text": ('"so"',),
    "wording.question": ('"Q: {question}"',),
    "wording.budget": ("8 tokens..16 tokens",),
    "wording.when": ("mean(len(z) for z in ref) > 30 tokens",),
    "python.function": ('"checks.py:other"',),
    "generated.task": ("chain_long",),
    "generated.traces": ("chain_traces { error = 1% }",),
    "file.path": ('"r.jsonl"',),
    "file.columns": ('columns(question: "q")',),
    "hub.columns": ('columns(question: "q")',),
    "package.traces": ("chain_traces",),
    "data.source": ("generated(chain_long, count: 64, seed: 1)",),
    "data.strip": ('marks(before: "Q:")',),
    "task.modulus": ('5, values = words("0 1 2 3 4")',),
    "task.values": ('words("9 8 7 6 5 4 3 2 1 0")',),
    "task.operations": ('["+1", "+2"]',),
    "task.labels": ('words("b a c d e f g h")',),
    "task.question": ('"{start} {steps} ?"',),
    "task.step": ('"{op} {label}"',),
    "task.length": ("2..4",),
    "style.template": ('"{label} {value} {op} {next}"',),
    "traces.until_agree": ("false",),
    "benchmark.data": ("chain_train",),
    "suite.benchmarks": ("[medium]",),
    "suite.max_tokens": ("128 tokens",),
    "suite.ending": ('"so </think>"',),
    "suite.grid": ("[0 tokens, 32 tokens, 64 tokens]",),
    "suite.forcing": ("chain_forcing { answer_tokens = 2 tokens }",),
    "suite.wording": ("brief",),
    "suite.wordings": ("[rare, long]",),
    "suite.reference": ("chain_model",),
    "curve.accuracy": ("[3%, 4%]",),
    "frontier.base": ("qwen3_4b",),
    "frontier.budgets": ("[0 tokens, 96 tokens]",),
    "envelope.of": ("[base]",),
    "envelope.on": ("quick { samples = 2 }",),
    "envelope.to": ("32 tokens",),
    "reg.against": ("less",),
    "reg.to": ("32 tokens",),
    "reg.approximate": ("true",),
    "reg.relative_to": ("base",),
    "row.reg": ("[8 tokens]",),
    "row.reg_change": ("[8%]",),
    "published.benchmarks": ('["medium"]',),
    "published.relative_to": ('"mine"',),
    "table.rows": ("[mine]",),
    "table.columns": ("[accuracy, length]",),
    "table.published": ("printed",),
    "chart.lines": ("[base]",),
    "study.eval": ("quick { samples = 2 }",),
    "study.score": ("reg(against: edge, to: 64 tokens, approximate: true)",),
    "study.cluster": ("small",),
    "study.unequal": ('"they differ"',),
}
"""Values for settings whose type does not give one."""
SOLUTION = "solution = 8 tokens"
BESIDE: dict[str, str] = {
    "optim.decay_from": "optim { decay = linear }",
    "advantage.absent": "reward = reo(at: two)",
    "advantage.equal": "advantage { batch = true }",
    "loss.cap": "loss { clip = dual }",
    **dict.fromkeys(("loss.gate_up", "loss.gate_down"), "loss { clip = gate }"),
    "loss.importance": "importance_cap = 2",
    "loss.estimator": "kl = 0.1",
    "loss.jsd_beta": "kl = 0.1, loss { estimator = jsd }",
    "loss.top_k": "kl = 0.1, loss { estimator = reverse }",
    "loss.mode_tokens": "rollout { wordings = [brief, long] }",
    **dict.fromkeys(("loss.ending_tokens", "rollout.ending", "rollout.cut_at"), f"rollout {{ {SOLUTION} }}"),
    "rollout.wordings_per": "rollout { wordings = [brief, long] }",
    **dict.fromkeys((f"monitor.{each}" for each in ("questions", "samples", "every")), "reward = watched"),
    **dict.fromkeys((f"teacher_follows.{each}" for each in ("decay", "every")), "kl = 0.1"),
    "experiment.reward": "monitor { questions = 4, samples = 2, every = 4 steps }",
    "experiment.credit": "reward = reo(at: two)",
    "experiment.forcing": "reward = reo(at: two)",
    "experiment.reference_samples": "reward = compared, reference_samples = 4",
    **dict.fromkeys(("experiment.teacher", "experiment.teacher_wording"), "kl = 0.1"),
    "pool.ending": "solution: 8 tokens",
    "forcing.top_p": "temperature = 1",
    "forcing.close": 'text = "so"',
    "suite.ending": SOLUTION,
    "suite.reference": "wordings = [hard, long], reference_samples = 2, reference = checkpoint(overthinker)",
    "suite.reference_samples": "wordings = [hard, long], reference_samples = 4, reference = checkpoint(overthinker)",
    "data.tolerance": "verifier = math",
    "cluster.rollout_share": "placement = apart",
}
"""What a setting needs beside it."""
OTHER: dict[str, str] = {
    "max_tokens": "traced",
    "method": "against",
    "bucket_by_length": "traced",
    "passes": "traced",
    "beta": "paired",
    "gamma": "paired",
}
"""Settings of another method than PPO, and the recipe of one that has it."""
SERVED = ("cluster",)
"""Settings of an experiment that matter in a study with a cluster."""
LONE = ("seed", "engine", "limit", "score")
"""Settings of an experiment that is run by itself, and not in a study."""
CHANGES: dict[str, str] = {
    **dict.fromkeys(
        (
            f"{kind}.{name}"
            for kind in ("hardware", "cluster", "dimensions", "row", "published", "table", "chart")
            for name in KINDS[kind].fields
        ),
        "report",
    ),
    **dict.fromkeys(
        (
            f"experiment.{name}"
            for name in ("microbatch", "checkpointing", "save_every", "expected_length", "mismatch_limit")
        ),
        "run",
    ),
    **dict.fromkeys((f"{kind}.{name}" for kind in ("stage", "arm") for name in LONE), "E0521"),
    **dict.fromkeys((f"stage.{name}" for name in ("base", "eval", "cluster")), "E0521"),
    **dict.fromkeys((f"hub as a model.{name}" for name in ("name", "split", "columns")), "E0521"),
    "reg.approximate": "check",
    "published.benchmarks": "report",
    "envelope.on": "E0601",
    "study.unequal": "check",
    "optim.on": "run",
    "suite.expected_length": "run",
    "data.questions": "run",
    "suite.reg_to": "report",
    "study.limit": "report",
    "experiment.limit": "report",
    "experiment.cluster": "report",
}
"""What a setting changes where no result but the report depends on it: how it runs or its price (`run`), the page or the
price of all (`report`), what else the checker says (`check`), or the code by which it is refused."""
TRAINED = ("experiment", "recipe", "stage", "arm")


def list_values(type_: Type, default: Any) -> Iterator[str]:
    """Yield values of a type that are not the default, as a spec has them."""
    match type_:
        case Num():
            for number in (2, 3, 16, 8, 0.5, 0.25, 1.5, 24, 64):
                if type_.takes(number) and number != default:
                    yield f"{number} {type_.unit}".strip() if type_.unit != "%" else f"{number}%"
        case Flag():
            yield str(not default).lower()
        case OneOf():
            yield from (word for word in type_.words if word != default)
        case Text():
            yield '"other"'
        case AnyOf():
            for option in type_.options:
                yield from list_values(option, default)
        case ListOf():
            for value in list_values(type_.item, None):
                yield f"[{', '.join([value] * max(1, type_.least))}]"


def write(kind: str, key: str, beside: str, value: str = "") -> str:
    """Return a spec of the context of a kind, with a setting of it if it has a value."""
    context, name = CONTEXTS.get(key) or CONTEXTS[kind], key.partition(".")[2]
    given = {**context.args, name: value} if value else context.args
    word, called = kind.partition(" ")[0], is_called(kind)
    inside = ", ".join(f"{each}{': ' if called else ' = '}{text}" for each, text in given.items())
    if called:
        inside = f"{word}({', '.join(filter(None, (inside, beside)))})"
    text = context.text
    if kind in TRAINED and name in OTHER:
        text = text.replace("= rl {", f"= {OTHER[name]} {{")
    if kind in TRAINED and name in SERVED:
        text = text.replace("study s {", "study s {\n  cluster = h800_8x8")
    if kind in ("experiment", "recipe") and name in LONE:
        text = text.replace(PLAIN, "")
    return HEAD + text.replace("@", inside).replace("BESIDE", beside)


def is_called(kind: str) -> bool:
    """Return whether a kind is written as a call."""
    return KINDS[kind.partition(" ")[0]].form == "call"


class Outcome(NamedTuple):
    """What a spec leads to: codes of its findings, and what its tasks depend on."""

    codes: frozenset[str]
    keys: frozenset[str]
    payloads: frozenset[str]
    spec: str


def compare(before: Outcome, after: Outcome) -> str:
    """Return what differs: `task`, what only a run or a price sees (`run`), `report`, or nothing."""
    for what in ("keys", "payloads", "spec"):
        if getattr(before, what) != getattr(after, what):
            return {"keys": "task", "payloads": "run", "spec": "report"}[what]
    return ""


READ: dict[str, Outcome] = {}
"""What texts led to: settings by the dozen are compared with one."""


def read(compiled: Callable[..., CompileResult], text: str) -> Outcome:
    """Return what a text leads to."""
    if text not in READ:
        READ[text] = _read(compiled, text)
    return READ[text]


def _read(compiled: Callable[..., CompileResult], text: str) -> Outcome:
    found = compiled(text, target="s" if "study s" in text else "mine")
    codes = frozenset(
        f"{each.code} {each.message}" for each in found.diagnostics if not each.code.startswith("W02")
    )
    if found.spec is None:
        return Outcome(codes, frozenset(), frozenset(), "")
    tasks = [task for task in lower(found.spec).tasks if task.kind != "report"]
    keys = frozenset(f"{task.kind} {sorted(task.inputs.items())} {digest(identity(task))}" for task in tasks)
    return Outcome(codes, keys, frozenset(digest(task.payload) for task in tasks), digest(found.spec))


def name_change(compiled: Callable[..., CompileResult], kind: str, name: str, setting: Setting) -> str:
    """Return what a setting changes: `task`, `run`, `report`, the first code that is told, or nothing."""
    key = f"{kind}.{name}"
    shared = f"experiment.{name}" if kind in TRAINED else key
    beside = BESIDE.get(shared, "")
    before = read(compiled, write(kind, key, beside))
    told = ""
    plain = f"{kind.partition(' ')[0]}.{name}"
    for value in VALUES.get(shared) or VALUES.get(plain) or list_values(setting.type, setting.default):
        after = read(compiled, write(kind, key, beside, value))
        new = sorted(after.codes - before.codes)
        idle = any(each[:5] in ("E0521", "W0520") for each in new)
        change = compare(before, after) if before.spec and after.spec and not idle else ""
        if change in ("task", "run"):
            return change
        if before.codes - after.codes:
            return "check"
        if change:
            return change
        told = told or next(iter(new), "")
    return told if before.spec else f"the context is wrong: {sorted(before.codes)}"


def list_parts() -> Iterator[Any]:
    """Yield kinds with up to a dozen of their settings; parents and stages have those of an experiment and take longer."""
    for kind in (each for each in CONTEXTS if "." not in each):
        fields = KINDS[kind.partition(" ")[0]].fields
        # Settings of a block have a context of their own.
        names = [name for name, setting in fields.items() if not isinstance(setting.type, Block)]
        if " as " in kind:
            names = [name for name in names if name not in CONTEXTS[kind].args]
        marks = [pytest.mark.slow] if kind in TRAINED[1:] else []
        for start in range(0, len(names), 12):
            yield pytest.param(kind, names[start : start + 12], id=f"{kind} {start}", marks=marks)


@pytest.mark.parametrize(("kind", "names"), list_parts())
def test_every_setting_changes_something_or_is_told(
    compiled: Callable[..., CompileResult], kind: str, names: list[str]
) -> None:
    missed = {}
    for name in names:
        shared = f"experiment.{name}" if kind in TRAINED else f"{kind}.{name}"
        wanted = CHANGES.get(f"{kind}.{name}", CHANGES.get(shared, "task"))
        found = name_change(compiled, kind, name, KINDS[kind.partition(" ")[0]].fields[name])
        if not (found == wanted or found.startswith(f"{wanted} ")):
            missed[f"{kind}.{name}"] = f"not {wanted}, but {found or 'nothing'}"
    assert missed == {}


def test_every_kind_has_a_context() -> None:
    assert set(KINDS) - {"report"} == {each for each in CONTEXTS if "." not in each and " " not in each}
