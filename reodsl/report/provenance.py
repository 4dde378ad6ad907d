"""Provenance: how the run can be explained and repeated: sources, changes, versions, seeds, artifacts, commands."""

from __future__ import annotations

import platform
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from reodsl.diagnostics import group, plural
from reodsl.graph.lower import lower
from reodsl.graph.task import parse_role
from reodsl.ir import Spec
from reodsl.ir.data import Grading, verifier_words
from reodsl.ir.study import Study
from reodsl.report import formats
from reodsl.report.markup import Markup, data_table, tag
from reodsl.report.material import Material
from reodsl.store.external import package_version

PACKAGES = [
    "reodsl", "torch", "transformers", "sglang", "ray", "polars", "numpy", "altair", "vl-convert-python",
]  # fmt: skip


def versions() -> dict[str, str]:
    """Return the versions of Python, the platform, and the installed packages of `PACKAGES`."""
    machine = {"Python": platform.python_version(), "platform": f"{platform.system()} {platform.machine()}"}
    return machine | {name: version for name in PACKAGES if (version := package_version(name)) is not None}


def rerun(spec: Spec) -> str:
    """Return the command that computes the results of a spec again, with every change from the command line."""
    return _command("run", spec)


def rerun_with(spec: Spec, seeds: int) -> str:
    """Return the command that runs a spec with a number of seeds in all, the first of which are its own."""
    own = spec.study.seeds
    listed = [*own, *range(max(own) + 1, max(own) + 1 + seeds - len(own))]
    changes = tuple(change for change in spec.changes if change.target.rpartition(".")[2] != "replicate")
    without = spec.model_copy(update={"changes": changes})
    return _command("run", without, "--amend", f"replicate={listed}".replace(" ", ""))


def section(material: Material, installed: Mapping[str, str]) -> list[Markup]:
    """Return the section that explains how to repeat the run.

    It has the command, changes, seeds, versions, the text of every source, and the digests of all artifacts.

    Args:
        material: results of the run.
        installed: versions of the installed packages, by name.
    """
    spec = material.spec
    artifacts = material.artifacts.values()
    commits = sorted({revision for artifact in artifacts for revision in artifact.hub.items()})
    unconfined = "; ".join(sorted({artifact.unconfined for artifact in artifacts} - {""}))
    facts = {
        "Run again": tag("code", rerun(spec)),
        "Seeds": seeds(material.study),
        "Parameters": ", ".join(f"{name} = {value}" for name, value in spec.params.items()) or formats.NONE,
        "Versions": ", ".join(
            f"{name} {version}" for name, version in collect_versions(material, installed).items()
        ),
        "From a hub": ", ".join(f"{repo} at {commit}" for repo, commit in commits),
        "Answers": "; ".join(answers_read(spec)),
        "Sandbox": unconfined and f"answers were checked without a sandbox: {unconfined}",
    }
    definitions = [(tag("dt", name), tag("dd", value)) for name, value in facts.items() if value]
    elements = [tag("dl", definitions, class_="pair")]
    if spec.changes:
        lines = [tag("li", tag("code", f"{c.option} {c.target}={c.value}")) for c in spec.changes]
        elements.append(tag("h3", "Changed on the command line, not saved in a spec"))
        elements.append(tag("ul", lines))
    if spec.sources:
        elements.append(tag("h3", "The spec and its imports"))
        elements += [
            tag(
                "details",
                tag("summary", path, class_="mono"),
                tag("pre", spec.sources[path], tabindex="0", role="region", aria_label=path),
                open=i == 0,
            )
            for i, path in enumerate(sorted(spec.sources, key=lambda path: (path != spec.path, path)))
        ]
    return [*elements, *([list_artifacts(material)] if material.artifacts else [])]


def seeds(study: Study) -> str:
    """Return the study's seeds joined by commas; a dash without seeds."""
    return ", ".join(str(seed) for seed in study.seeds) or formats.NONE


def answers_read(spec: Spec) -> list[str]:
    """Return sentences on how answers are read and compared, one for all benchmarks with equal grading."""
    benchmarks = [benchmark for arm in spec.study.arms for benchmark in arm.suite.benchmarks]
    pairs = dict.fromkeys((_say_graded(benchmark.data.grading), benchmark.name) for benchmark in benchmarks)
    return [f"{', '.join(names)}: {words}" for words, names in group(pairs).items()]


def _say_graded(grading: Grading) -> str:
    """Return in words how answers are read and compared."""
    rounded = f" (rounded numbers within {100 * grading.tolerance:g}%)" if grading.verifier == "math" else ""
    return f"read by {grading.words}, compared by {verifier_words(grading.verifier)}{rounded}"


def collect_versions(material: Material, installed: Mapping[str, str]) -> dict[str, str]:
    """Return the versions of packages by name: those recorded with the artifacts, else the installed version.

    If artifacts were computed with several versions of a package, all are listed.

    Args:
        material: results of the run.
        installed: versions of the installed packages, by name.
    """
    pairs = (pair for artifact in material.artifacts.values() for pair in artifact.versions.items())
    recorded = group(dict.fromkeys(pairs))
    unrecorded = {
        name: version
        for name, version in installed.items()
        if name.lower() not in {n.lower() for n in recorded}
    }
    return {name: " and ".join(several) for name, several in recorded.items()} | unrecorded


def anchor(index: int) -> str:
    """Return the id of a result's row on the page, from its index among the artifacts of a run."""
    return f"made-{index}"


def why(spec: Spec, task: str) -> str:
    """Return the command that explains a task of the spec."""
    return _command("why", spec, task)


def _command(name: str, spec: Spec, *arguments: str) -> str:
    """Return a command of `reodsl` on the spec, with every change from the command line and, among studies, its target.

    Args:
        name: name of the command.
        spec: the spec.
        arguments: arguments between the spec and the changes.
    """
    words = [word for change in spec.changes for word in (change.option, f"{change.target}={change.value}")]
    # A model card has the file's name alone.
    text = next((text for path, text in spec.sources.items() if Path(path).name == Path(spec.path).name), "")
    studies = re.findall(r"^study\s+(\w+)", text, re.MULTILINE)
    words += ["--target", spec.study.name] if len(studies) > 1 and spec.study.name in studies else []
    return shlex.join(["reodsl", name, spec.path or "SPEC.reo", *arguments, *words])


def lines_of(spec: Spec) -> dict[str, str]:
    """Return the line that declares each arm and each frontier, such as `specs/quickstart.reo:41`."""
    return {name: f"{origin.path}:{origin.line}" for name, origin in spec.origins.items()}


def list_artifacts(material: Material) -> Markup:
    """Return the results behind a report as a folded table, a row for each result."""
    tasks = lower(material.spec)["report"].inputs
    rows, lines = [], lines_of(material.spec)
    for i, (role, artifact) in enumerate(material.artifacts.items()):
        task = tasks.get(role, role)
        rows.append(
            tag(
                "tr",
                tag("th", task, class_="text mono", scope="row"),
                tag("td", tag("code", why(material.spec, task)), class_="text"),
                tag("td", lines.get(parse_role(role).name, ""), class_="text mono"),
                tag("td", artifact.key[:16], class_="text mono", title=artifact.key),
                tag("td", artifact.device, class_="text"),
                tag("td", formats.number(artifact.seconds)),
                id=anchor(i),
            )
        )
    names = ("task", "explained by", "in the spec", "key", "device", "seconds")
    head = tag("tr", [tag("th", n, class_="text" if n != "seconds" else None) for n in names], class_="only")
    return tag(
        "details", tag("summary", f"{plural(len(rows), 'result')} behind this report"), data_table(head, rows)
    )
