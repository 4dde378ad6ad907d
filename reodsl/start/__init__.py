"""Write a starting spec, whose study uses a published method of the library or defines a reward.

From a compiled spec, write the job that runs it on its cluster: a script for SLURM, or a manifest for KubeRay.
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
# A wheel has the spec in the package; a checkout has it in `specs/`.
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


_OWN = "A reward that you write: 1 for a right answer, less a share of its length."
_OWN_REWARD = '''
reward own(cost: number in 0..1) {
  """Right answers earn 1; every answer costs its length, relative to the longest of its group."""
  let longest = max(len(z) for z in group)
  correct(y) - cost * len(y) / longest
}

experiment mine = rl { reward = own(cost: 0.1) }
'''
# Their budgets come from the training of another arm, and only an arm can name another arm.
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
"""Methods that need a model which understands budgets or efforts in prompts."""


def _read_model(name: str, imports: str, base: str, settings: str, score: str, vanilla: bool) -> StartModel:
    """Return a model to start from, whose description and methods are read from its module of the standard library.

    Args:
        name: End of the module's name `runs_NAME.reo`.
        imports: See the fields of `StartModel` for this and the following arguments.
        base: Name of the base model.
        settings: Settings of the study.
        score: Frontier and score of the study.
        vanilla: Whether the frontier needs an arm of vanilla RL.
    """
    text = (LIBRARY / f"runs_{name}.reo").read_text(encoding="utf-8")
    experiments = {name: " ".join(doc.split()) for name, doc in _EXPERIMENT.findall(text)}
    methods = {"own": _OWN, **experiments, **_DOCS}
    return StartModel(_DOC.findall(text)[0], methods, imports, base, settings, score, vanilla)


MODELS: Mapping[str, StartModel] = {
    "miniature": _read_model(
        "miniature",
        "from std.miniature import {base}, chain_suite",
        "overthinker",
        "eval = chain_suite",
        "frontier edge = envelope(of: [base, vanilla], to: 128 tokens)  # existing methods only\n"
        "  score = reg(against: edge, to: 128 tokens, relative_to: vanilla)",
        vanilla=True,
    ),
    "qwen3_4b": _read_model(
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
    """Return the text of a spec that trains a model by a method, and compares it with the untrained model.

    If the frontier of the model's study needs an arm of vanilla RL, or the method reads the training of such an arm, the
    spec has this arm as well.

    Args:
        method: Name of a method of the model; `own` writes a reward into the spec, for the user to change.
        model: Key of `MODELS`.
        name: Name of the study; a keyword, or a name that the spec uses already, is replaced by `compare`.
    """
    start_model, arm = MODELS[model], _OF_ARMS.get(method, "")
    scored = method != "vanilla" or not start_model.vanilla
    vanilla = scored and (start_model.vanilla or bool(arm))
    prompted = start_model.vanilla and method in _ASKED
    base = f"asked_{start_model.base}" if prompted else start_model.base
    is_library = method != "own" and not arm
    experiment = (
        f"experiment mine = {method} {{\n  # Settings that differ go here, such as: optim {{ lr = 1e-4 }}\n}}"
    )
    fields = {
        "doc": start_model.methods[method],
        "imports": start_model.imports.format(base=base),
        "model": model,
        "methods": ", ".join(["rl"] * (not is_library) + ["vanilla"] * vanilla + [method] * is_library),
        "experiment": experiment if is_library else "" if arm else _OWN_REWARD,
        "settings": start_model.settings,
        "base": base,
        "vanilla": f"arm vanilla = vanilla {f'{{ base = checkpoint({base}) }}' * prompted}" * vanilla,
        "mine": arm or "mine",
        "unequal": f'unequal = "{_UNEQUAL[method]}"' if vanilla and method in _UNEQUAL else "",
        "score": start_model.score * scored,
        "columns": "accuracy, length" + ", reg" * scored,
        "lines": "base, " + "vanilla, " * vanilla + "mine",
    }
    text = _fill("study", fields | {"name": "compare"})
    if _NAME.fullmatch(name) and name.upper() not in KEYWORDS and not re.search(rf"\b{name}\b", text):
        text = _fill("study", fields | {"name": name})
    # Fields of the template that this study does not need leave empty lines.
    filled = re.sub(r"\n(?: +\n)+", "\n", text)
    result = format_source(source_from_bytes(filled.encode(), "<new>"))
    assert result.text is not None, result.diagnostics
    return result.text


def _fill(name: str, fields: Mapping[str, object]) -> str:
    """Return the text of the template `NAME.template` with values for its placeholders."""
    return Template((_HERE / f"{name}.template").read_text(encoding="utf-8")).substitute(fields)


JOBS = ("slurm", "kuberay")
"""The kinds of jobs, which are the names of their templates."""


def cluster_job(target: str, spec: Spec, path: str, file: str) -> str:
    """Return the text of a job that runs a spec on its cluster, with the cluster's numbers of nodes and GPUs.

    Args:
        target: Kind of the job, an entry of `JOBS`.
        spec: The compiled spec.
        path: Path of the spec.
        file: Path that the job will be written to, which its comments name.

    Raises:
        Problem: E0122 if the spec names no cluster, or a path cannot be written in a script.
    """
    cluster = spec.study.cluster
    if cluster is None:
        raise problem(
            "E0122",
            "the spec names no cluster, so a job has no nodes to request",
            where=path,
            help="add `cluster = NAME` to its study, with `from std.clusters import h100_1x8` or your own cluster",
        )
    fields = {
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
        raise problem("E0122", "a path or a GPU's name has letters that cannot be printed", help="rename it")
    if target == "kuberay":
        fields["entrypoint"] = json.dumps(fields["entrypoint"])
    return _fill(target, fields)
