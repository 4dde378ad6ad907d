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
_NAME = re.compile("[a-z][a-z0-9_]*")
_DOC = re.compile(r'\A"""(.*?)(?:"""|\n\n)', re.DOTALL)
_EXPERIMENT = re.compile(r'^experiment (\w+) = \w+ \{\n  """(.*?)"""', re.MULTILINE | re.DOTALL)


class StartModel(NamedTuple):
    """A model to start from, with the methods of its library and the evaluation of its study."""

    doc: str
    """Description for `reodsl new --list`."""
    methods: Mapping[str, str]
    """Descriptions of its methods, by name."""
    imports: str
    """Import statements of the spec."""
    base: str
    """Name of the base model."""
    settings: str
    """Settings of the study, such as its suite."""
    score: str
    """Frontier and score of the study."""
    vanilla: bool
    """True if its frontier needs an arm of vanilla RL."""


_OWN = "A reward of one's own: an answer's worth, less a share of its length."
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
    name: f"rl {{ reward = std.rewards.{name}(at: question_min(rollouts: [vanilla])) }}"
    for name in ("reo_as_printed", "first_budget_alone")
}
_DOCS = {
    "reo_as_printed": "REO-RL (Q-Spec) with its printed coefficients: one budget a question, from another arm's training.",
    "first_budget_alone": "A hard budget for each question, from another arm's training.",
}
_UNEQUAL = {"pruned": "the second limit has a stage of its own", "gfpo": "GFPO chooses among larger groups"}
_ASKED = {"l1_exact", "l1_max", "pruned", "opsdc", "saber"}
"""Methods whose model has to know budgets or efforts in prompts."""


def _model(name: str, imports: str, base: str, settings: str, score: str, vanilla: bool) -> StartModel:
    text = (LIBRARY / f"runs_{name}.reo").read_text(encoding="utf-8")
    experiments = {name: " ".join(doc.split()) for name, doc in _EXPERIMENT.findall(text)}
    methods = {"own": _OWN, **experiments, **_DOCS}
    return StartModel(_DOC.findall(text)[0], methods, imports, base, settings, score, vanilla)


MODELS: Mapping[str, StartModel] = {
    "miniature": _model(
        "miniature",
        "from std.miniature import {base}, chain_suite",
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
    start, arm = MODELS[model], _OF_ARMS.get(method, "")
    scored = method != "vanilla" or not start.vanilla
    vanilla = scored and (start.vanilla or bool(arm))
    own_prompt = start.vanilla and method in _ASKED
    base = f"asked_{start.base}" if own_prompt else start.base
    by_name = method != "own" and not arm
    experiment = (
        f"experiment mine = {method} {{\n  # Settings that differ go here, such as: optim {{ lr = 1e-4 }}\n}}"
    )
    words = {
        "doc": start.methods[method],
        "imports": start.imports.format(base=base),
        "model": model,
        "methods": ", ".join(["rl"] * (not by_name) + ["vanilla"] * vanilla + [method] * by_name),
        "experiment": experiment if by_name else "" if arm else _OWN_REWARD,
        "settings": start.settings,
        "base": base,
        "vanilla": f"arm vanilla = vanilla {f'{{ base = checkpoint({base}) }}' * own_prompt}" * vanilla,
        "mine": arm or "mine",
        "unequal": f'unequal = "{_UNEQUAL[method]}"' if vanilla and method in _UNEQUAL else "",
        "score": start.score * scored,
        "columns": "accuracy, length" + ", reg" * scored,
        "lines": "base, " + "vanilla, " * vanilla + "mine",
    }
    text = _fill("study", words | {"name": "compare"})
    if _NAME.fullmatch(name) and name.upper() not in KEYWORDS and not re.search(rf"\b{name}\b", text):
        text = _fill("study", words | {"name": name})
    # Lines of a study that this one lacks are empty.
    filled = re.sub(r"\n(?: +\n)+", "\n", text)
    result = format_source(source_from_bytes(filled.encode(), "<new>"))
    assert result.text is not None, result.diagnostics
    return result.text


def _fill(name: str, words: Mapping[str, object]) -> str:
    """Return the text of a template with these words."""
    return Template((_HERE / f"{name}.template").read_text(encoding="utf-8")).substitute(words)


JOBS = ("slurm", "kuberay")
"""The kinds of clusters that jobs are written for, each by the template of its name."""


def cluster_job(target: str, spec: Spec, path: str, file: str) -> str:
    """Return the job in `file` that runs the spec at `path`, with the cluster's numbers.

    Args:
        target: kind of the cluster, an entry of `JOBS`.
        spec: the compiled spec.
        path: path of the spec.
        file: path of the job.
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
    if any(not text.isprintable() for text in (path, file, cluster.gpu)):
        raise problem("E0122", "a path or a GPU's name has letters that no script can hold", help="rename it")
    if target == "kuberay":
        words["entrypoint"] = json.dumps(words["entrypoint"])
    return _fill(target, words)
