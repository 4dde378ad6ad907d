"""From a method and a place to a whole spec: what is named is declared and imported, in the canonical layout."""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import Template

from reodsl.start.methods import METHODS, Method
from reodsl.start.places import PLACES, Place
from reodsl.syntax import source_from_bytes
from reodsl.syntax.formatter import format_source
from reodsl.syntax.scanner import KEYWORDS

LIBRARY: Mapping[str, tuple[str, ...]] = {
    "std.rewards": (
        "outcome", "reo", "reo_uniform", "reo_as_printed", "first_budget_alone", "length_group_norm",
        "length_harmonizing", "mrt", "hgpo", "l1_exact", "l1_max", "kimi_length", "soft_overlong", "brpo",
        "brpo_linear", "pruned", "alp", "shorter_better", "cosine_length",
    ),
    "std.methods": ("grpo_lead", "laser", "laser_d", "adapt_think", "gfpo", "s_grpo"),
    "std.selections": ("shortest", "both_modes", "shortest_against_longest", "dast", "dast_by_margin"),
    "std.recipes": ("ppo", "sft", "simpo"),
}  # fmt: skip
"""Where the library has what methods name."""
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')


def starting_spec(method: str, model: str, name: str = "compare") -> str:
    """The text of a spec that trains `model` by `method` and compares it with where it started; `name` is its study's.

    `method` is a key of `METHODS`, `model` one of `PLACES`. A name that the text has a use for gives way to `compare`.
    """
    start, place = METHODS[method], PLACES[model]
    words = _words(method, start, place)
    body = Template(start.body).substitute(words)
    study = Template(_study(start, place)).substitute(words | {"arm": Template(start.arm).substitute(words)})
    text = "\n\n".join((body, study))
    for declared, part in reversed(list(place.parts.items())):
        if _names(declared, text):
            text = f"{Template(part).substitute(words)}\n\n{text}"
    imports = []
    for module, names in {**place.imports, **LIBRARY}.items():
        used = [each for each in names if _names(each.split()[-1], text) and not _declares(each, text)]
        if used:
            imports.append(f"from {module} import {', '.join(used)}")
    fit = re.fullmatch("[a-z][a-z0-9_]*", name) is not None and name.upper() not in KEYWORDS
    fit = fit and not _names(name, text + "\n".join(imports))
    text = text.replace("study compare {", f"study {name if fit else 'compare'} {{")
    text = re.sub(r"\n\s*\n(?=  )", "\n", text)
    whole = f'"""{start.doc}"""\n' + "\n".join(imports) + f"\n\n{text}\n"
    return _laid_out(whole)


def _words(method: str, start: Method, place: Place) -> dict[str, str]:
    words = {"name": method, **place.words}
    if start.asked and words["start"] == "overthinker":
        words["start"] = "asked_overthinker"
    return {key: Template(value).substitute(start=words["start"]) for key, value in words.items()}


def _study(start: Method, place: Place) -> str:
    """The study of a start; vanilla RL stands beside it where the frontier or the arm itself is made of it."""
    compared = place.words["with_vanilla"] and start.vanilla
    vanilla = compared or "vanilla" in start.arm
    shown = ["base", *(["vanilla"] if vanilla else []), "mine"]
    scored = bool(place.words["score"]) and (compared or not place.words["with_vanilla"])
    # What is trained by SFT or SimPO has its table's cluster, for which the study's has to have room.
    offline = start.offline or any(_names(recipe, start.body) for recipe in ("tuned", "preferred"))
    return f"""
study compare {{
  replicate = seeds
  eval = $suite
  {"$offline_cluster" if offline else "$cluster"}
  arm base = $base
  {"arm vanilla = vanilla" if vanilla else ""}
  arm mine = $arm
  {f'unequal = "{start.unequal}"' if vanilla and start.unequal else ""}

  {"$frontier" if scored else ""}
  {"$score" if scored else ""}
  report {{
    table main {{ rows = arms, columns = [accuracy, length{", reg" if scored else ""}] }}
    chart curves {{ x = budget, y = accuracy, lines = [{", ".join(shown)}] }}
  }}
}}
"""


def _names(name: str, text: str) -> bool:
    return re.search(rf"\b{name}\b", _STRING.sub('""', text)) is not None


def _declares(name: str, text: str) -> bool:
    return re.search(rf"^(experiment|reward|recipe) {name}\b", text, re.MULTILINE) is not None


def _laid_out(text: str) -> str:
    result = format_source(source_from_bytes(text.encode(), "<new>"))
    assert result.text is not None, result.diagnostics
    return result.text
