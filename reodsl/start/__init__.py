"""Write a starting spec: a study that imports a published method of the library, or has a reward of its own, to amend.

From a compiled spec write the job that runs it on its cluster: a script for SLURM, or a manifest for KubeRay.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import NamedTuple

from reodsl.diagnostics import problem
from reodsl.ir import Spec
from reodsl.language.modules import LIBRARY
from reodsl.syntax import source_from_bytes
from reodsl.syntax.formatter import format_source
from reodsl.syntax.scanner import KEYWORDS

_HERE = Path(__file__).resolve().parent
_SHIPPED = _HERE / "quickstart.reo"
# A wheel carries the spec inside the package; a checkout has it among the others.
QUICKSTART = _SHIPPED if _SHIPPED.exists() else _HERE.parents[1] / "specs" / "quickstart.reo"
"""The README's study."""
_RUNS = "runs_"
_DOC = re.compile(r'\A"""(.*?)"""', re.DOTALL)
_EXPERIMENT = re.compile(r'^experiment (\w+) = (\w+) \{\n  """(.*?)"""', re.MULTILINE | re.DOTALL)


class Method(NamedTuple):
    """A method to start from: its doc, what its experiment changes, and its arm where it has no experiment."""

    doc: str
    parent: str = "rl"
    arm: str = ""


class StartModel(NamedTuple):
    """A model to start from, and how its study evaluates and scores; `vanilla`: its frontier needs vanilla RL."""

    doc: str
    methods: Mapping[str, Method]
    imports: str
    base: str
    settings: str
    score: str
    vanilla: bool


_OWN = Method("A reward of one's own: an answer's worth, less a share of its length.")
_OWN_REWARD = '''
reward own(cost: number in 0..1) {
  """Right answers earn 1; every answer costs its length, relative to the longest of its group."""
  let longest = max(len(z) for z in group)
  correct(y) - cost * len(y) / longest
}

experiment mine = rl { reward = own(cost: 0.1) }
'''
# Their budgets come from the training of another arm, which only an arm can name.
_OF_ARMS = {
    "reo_as_printed": Method(
        "REO-RL (Q-Spec) with its printed coefficients: one budget a question, from another arm's training.",
        arm="rl { reward = std.rewards.reo_as_printed(at: question_min(rollouts: [vanilla])) }",
    ),
    "first_budget_alone": Method(
        "A hard budget for each question, from another arm's training.",
        arm="rl { reward = std.rewards.first_budget_alone(at: question_min(rollouts: [vanilla])) }",
    ),
}
_UNEQUAL = {"pruned": "the second limit has a stage of its own", "gfpo": "GFPO chooses among larger groups"}
_ASKED = {"l1_exact", "l1_max", "pruned", "opsdc", "saber"}
"""Methods whose model has to know budgets or efforts in prompts."""


def _model(name: str, imports: str, base: str, settings: str, score: str, vanilla: bool) -> StartModel:
    text = (LIBRARY / f"{_RUNS}{name}.reo").read_text(encoding="utf-8")
    methods = {name: Method(" ".join(doc.split()), parent) for name, parent, doc in _EXPERIMENT.findall(text)}
    (doc,) = _DOC.findall(text)
    return StartModel(doc, {"own": _OWN, **methods, **_OF_ARMS}, imports, base, settings, score, vanilla)


MODELS: Mapping[str, StartModel] = {
    "miniature": _model(
        "miniature",
        "from std.miniature import overthinker, asked_overthinker, chain_suite",
        "overthinker",
        "eval = chain_suite",
        "frontier edge = envelope(of: [base, vanilla], to: 128 tokens)  # existing methods only\n"
        "  score = reg(against: edge, to: 128 tokens, relative_to: vanilla)",
        vanilla=True,
    ),
    "qwen3_4b": _model(
        "qwen3_4b",
        "from std.models import qwen3_4b\nfrom std.suites import math_reg\nfrom std.clusters import h800_16x8\n"
        "from std.paper import qwen3_4b as printed_frontier",
        "qwen3_4b",
        "eval = math_reg\n  cluster = h800_16x8",
        "score = reg(against: printed_frontier, to: 16K tokens, relative_to: base)",
        vanilla=False,
    ),
}
"""Models by name."""


def starting_spec(method: str, model: str, name: str = "compare") -> str:
    """Return a spec that trains `model` by `method` and compares it with where it started; `name` is its study's.

    `model` is a key of `MODELS` and `method` one of its methods. A name that the text uses gives way to `compare`.
    """
    place = MODELS[model]
    start = place.methods[method]
    root = start.parent
    while root in place.methods:
        root = place.methods[root].parent
    asked = place.vanilla and method in _ASKED
    compared = root == "rl" and method != "vanilla"
    scored = compared or not place.vanilla
    vanilla = compared and (place.vanilla or bool(start.arm))
    base = f"asked_{place.base}" if asked else place.base
    plain = f"vanilla {{ base = checkpoint({base}) }}" if asked else "vanilla"
    if method == "own":
        body = _OWN_REWARD
    elif start.arm:
        body = ""
    else:
        body = f"experiment mine = {method} {{\n  # Settings that differ go here, such as: optim {{ lr = 1e-4 }}\n}}"
    study = f"""study compare {{
  replicate = seeds
  {place.settings}
  arm base = checkpoint({base})
  {f"arm vanilla = {plain}" if vanilla else ""}
  arm mine = {start.arm or "mine"}
  {f'unequal = "{_UNEQUAL[method]}"' if vanilla and method in _UNEQUAL else ""}

  {place.score if scored else ""}
  report {{
    table main {{ rows = arms, columns = [accuracy, length{", reg" if scored else ""}] }}
    chart curves {{ x = budget, y = accuracy, lines = [base, {"vanilla, " if vanilla else ""}mine] }}
  }}
}}"""
    text = f"{body}\n\n{study}"
    imports = [
        f"from std.{_RUNS}{model} import {', '.join(['rl', *(each for each in place.methods if each != 'own')])}"
    ]
    head = "\n".join(_select_used(each, text) for each in (*place.imports.splitlines(), *imports))
    fit = re.fullmatch("[a-z][a-z0-9_]*", name) is not None and name.upper() not in KEYWORDS
    if fit and not _names(name, f"{head} {text}"):
        text = text.replace("study compare {", f"study {name} {{")
    text = re.sub(r"\n\s*\n(?=  )", "\n", text)
    whole = f'"""{start.doc}"""\n{head}\n\nparam seeds: [int] = [1]\n\n{text}\n'
    result = format_source(source_from_bytes(whole.encode(), "<new>"))
    assert result.text is not None, result.diagnostics
    return result.text


def _select_used(clause: str, text: str) -> str:
    """Return an import with the names that `text` uses alone; empty where it uses none."""
    module, names = clause.split(" import ")
    used = [each for each in dict.fromkeys(names.split(", ")) if _names(each.split()[-1], text)]
    return f"{module} import {', '.join(used)}" if used else ""


def _names(name: str, text: str) -> bool:
    """Return whether `text` has a word, outside of strings, comments and names of the library."""
    return re.search(rf"(?<!\.)\b{name}\b", re.sub(r'"(?:[^"\\\n]|\\.)*"|#.*', '""', text)) is not None


JOBS = ("slurm", "kuberay")
"""The kinds of clusters that jobs are written for, each by the template of its name."""


def cluster_job(target: str, spec: Spec, path: str, file: str) -> str:
    """Return the job in `file` that runs the spec at `path` by `target`, one of `JOBS`, with the cluster's own numbers.

    Raises E0122 where the spec names no cluster.
    """
    cluster = spec.study.cluster
    if cluster is None:
        raise problem(
            "E0122",
            "the spec names no cluster, so there is nothing to ask a scheduler for",
            where=path,
            help="add `cluster = NAME` to its study: `from std.clusters import h100_1x8`, or one of yours",
        )
    words = {
        "spec": path,
        "file": file,
        "job": re.sub(r"[^a-z0-9]+", "-", spec.study.name.lower()).strip("-")[:40] or "study",
        "nodes": cluster.nodes,
        "gpus": cluster.gpus_per_node,
        "gpu": cluster.gpu,
        "quoted": shlex.quote(path),
        "entrypoint": f"reodsl run --address auto --store /shared/.reodsl -- {shlex.quote(path)}",
    }
    if any(not each.isprintable() for each in (path, file, cluster.gpu)):
        raise problem("E0122", "a path or a GPU's name has letters that no script can hold", help="rename it")
    if target == "kuberay":
        words["entrypoint"] = json.dumps(words["entrypoint"])
    template = (_HERE / f"{target}.template").read_text(encoding="utf-8")
    return Template(template).substitute(words)
