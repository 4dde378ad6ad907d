"""Check what this machine lacks for the tasks about to run, and say how to get it."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from reodsl.diagnostics import Diagnostic, Problem, error
from reodsl.graph.payload import engine_of
from reodsl.graph.task import Kind, Task
from reodsl.ir import Spec
from reodsl.ir.base import digest, values_of
from reodsl.ir.cluster import Cluster
from reodsl.ir.model import Architecture, Folder, Hub, ModelSource
from reodsl.ir.training import Experiment, FromResults, Ppo
from reodsl.plan.registry import Machine
from reodsl.price.machine import gpus_of, label_cluster
from reodsl.store.consent import LOSS, is_code, parts, read_all
from reodsl.store.external import hub_cache, hub_snapshot, leads_out
from reodsl.store.files import NotPlain, open_plain
from runners.execute.placement import (
    COMPUTES,
    RayNode,
    bundles,
    declared_nodes,
    gpu_here,
    lacking,
    other_gpus,
    resources_of,
)
from runners.execute.probes import ask_at, diagnose
from runners.execute.questions import place_finding, questions
from runners.models.bounds import (
    ADAPTER,
    INCOMPLETE,
    MADE,
    check_architecture,
    compare_tokens,
    explain_unread,
    require_bounded,
)
from runners.own.function import source_problem
from runners.sandbox import lacking as lacking_means
from runners.sandbox.workers import PROGRAMS, cannot_confine

CUDA_BUILD = (
    "install a build of torch that fits the driver: pip install 'reodsl[run]' -c constraints/cuda.txt"
)
_NEEDS: dict[Kind, tuple[str, ...]] = {
    "model": ("torch", "transformers"),
    "data": ("polars",),
    "train": ("torch", "transformers", "polars"),
    "sample": ("torch", "transformers", "polars"),
    "select": ("polars",),
    "evaluate": ("torch", "transformers", "polars"),
    "results": ("polars",),
}

_DEVICES = Path("/dev")


def check(tasks: tuple[Task, ...], spec: Spec, folder: Path, machine: Machine) -> tuple[Diagnostic, ...]:
    """Return each missing package, device, weight file and data source once; nothing is started.

    Args:
        tasks: tasks that are about to run.
        spec: the spec that they come from, whose lines diagnostics name.
        folder: the folder where the spec's relative paths start.
        machine: the machine or cluster of the run.
    """
    lacks = [
        *_packages(tasks, machine),
        *_engines(tasks, machine),
        *_devices(tasks, spec.study.cluster, machine),
        *_precisions(tasks, machine),
        *_products(tasks, machine),
        *_weights(tasks, folder),
        *_teachers(spec, folder),
        *_confines(tasks, machine),
        *_own_code(tasks, folder),
        *questions(tasks, spec, folder),
        *_prompts(tasks, spec, folder),
        *_results(spec, folder),
    ]
    return tuple(dict.fromkeys(lacks))


def gpus() -> int:
    """Return how many NVIDIA devices here torch can use, without importing it: none if it was built without CUDA."""
    return shown_gpus() if built_for_cuda() else 0


def shown_gpus() -> int:
    """Return how many NVIDIA devices of this machine CUDA_VISIBLE_DEVICES shows, whether or not torch can use them."""
    count = sum(path.name[6:].isdigit() for path in _DEVICES.glob("nvidia*"))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None or not count:
        return count
    # As CUDA reads it: the list ends at the first device that there is not.
    names = [name.strip() for name in visible.split(",")]
    return len(list(takewhile(lambda d: d and (not d.lstrip("-").isdigit() or 0 <= int(d) < count), names)))


def built_for_cuda() -> bool:
    """Return whether the installed torch was built for CUDA, as its `version.py` says; True where nothing says otherwise."""
    spec = importlib.util.find_spec("torch")
    try:
        text = Path(spec.origin).with_name("version.py").read_text() if spec and spec.origin else ""
    except OSError:
        return True
    return re.search(r"^cuda\b[^=\n]*= *None", text, re.MULTILINE) is None


def _packages(tasks: Iterable[Task], machine: Machine) -> Iterator[Diagnostic]:
    """Report E0121 if a package that the tasks import is not installed."""
    packages = {package for task in tasks for package in _NEEDS.get(task.kind, ())}
    if not machine.local and packages:
        packages.add("ray")
    missing = sorted(package for package in packages if importlib.util.find_spec(package) is None)
    if missing:
        yield error(
            "E0121",
            f"{_list(missing)} {'is' if len(missing) == 1 else 'are'} not installed",
            help="install what runs need with: pip install 'reodsl[run]'",
        )


def _confines(tasks: Iterable[Task], machine: Machine) -> Iterator[Diagnostic]:
    """Report E0742 if a package's or the user's code would read answers on this machine and nothing confines it."""
    # Where the tasks are another machine's, its workers say it themselves.
    missing = None if machine.address else lacking_means()
    if missing is None:
        return
    for where in dict.fromkeys(name for task in tasks for name in _scorers(task.payload)):
        if where == PROGRAMS or not machine.without_sandbox:
            yield from cannot_confine(missing, where).diagnostics


def _own_code(tasks: Iterable[Task], folder: Path) -> Iterator[Diagnostic]:
    """Report E0743 if an existing file of the user lacks the function that a task calls, without running the file."""
    for setting, code in read_all((task.payload for task in tasks), folder)[0]:
        fault = source_problem(code, setting)
        if fault is not None:
            yield fault


def _scorers(payload: Any) -> Iterator[str]:
    """Yield the scorers and functions of a payload that need a sandbox."""
    for setting, block in parts(payload):
        if "package" in (block.get("verifier"), block.get("kind") == "chance" and block["of"]):
            yield "verifier `package`"
        if block.get("kind") == "tests":
            yield PROGRAMS
        if is_code(block) and setting != LOSS:
            yield f"`{block['function']}`"


def _engines(tasks: Iterable[Task], machine: Machine) -> Iterator[Diagnostic]:
    """Report a missing SGLang if a task runs it on this machine, and E0971 if its releases find no GPU here."""
    served = [task for task in tasks if engine_of(task) == "sglang"]
    if machine.address or machine.notes is not None or not served:
        return
    from runners.engine.sglang.settings import VARIABLE, missing

    lack, alone = missing(), [task for task in served if task.cluster is None]
    if lack is not None:
        yield lack
    elif alone and not shown_gpus() and not os.environ.get(VARIABLE):
        yield error(
            "E0971",
            "SGLang's releases need a GPU, and this machine has none",
            where=alone[0].id,
            help="write `engine = embedded`, which computes on processors, or name a Python whose SGLang does in "
            + VARIABLE,
        )


def _devices(tasks: Iterable[Task], study_cluster: Cluster | None, machine: Machine) -> Iterator[Diagnostic]:
    """Report E0971 if machines have fewer GPUs than a cluster, or no room for a role of a task; W0971 for other GPUs.

    If the GPUs are enough, E0977 and W0977 say what servers lack on nodes.

    `study_cluster` is the study's cluster; an experiment's own cluster is named by the first task that runs on it.
    """
    tasks_of: dict[Cluster, dict[tuple[Kind, str], Task]] = {}
    for task in tasks:
        if task.kind in COMPUTES and task.cluster is not None:
            tasks_of.setdefault(task.cluster, {}).setdefault((task.kind, engine_of(task)), task)
    if not tasks_of:
        if machine.address:
            from runners.execute.instance import report_unanswered

            # Its room matters only to tasks that ask for GPUs.
            yield from report_unanswered(machine.address)
        return
    try:
        nodes = declared_nodes(tasks_of) if machine.declares else _nodes(machine)
    except Problem as caught:
        yield from caught.diagnostics
        return
    for cluster, kinds in sorted(tasks_of.items(), key=lambda cluster_kinds: -gpus_of(cluster_kinds[0])):
        where = f"cluster `{cluster.name}`" if cluster.name else None
        subject = "the spec" if cluster == study_cluster else next(iter(kinds.values())).id
        few = _too_few(f"{subject} runs on {label_cluster(cluster)}", gpus_of(cluster), nodes, machine, where)
        if few is not None:
            # Too little for the widest: of the narrower ones there is nothing to say before that has changed.
            yield few
            return
        other = other_gpus(cluster, nodes, where)
        if other is not None:
            yield other
        for kind, engine in kinds:
            lack = lacking(bundles(kind, resources_of(kind, cluster, "cuda", engine)), nodes, where)
            if lack is not None:
                yield lack
    served = any(engine == "sglang" for kinds in tasks_of.values() for _, engine in kinds)
    if served and machine.notes is None and (machine.address or gpus()):
        yield from diagnose(ask_at(machine.address))


def _precisions(tasks: Iterable[Task], machine: Machine) -> Iterator[Diagnostic]:
    """Report E0975 once for each processor or engine that does not compute in the precision of a task's model."""
    lacks: dict[tuple[str, str], Task] = {}
    for task in tasks:
        precision = task.payload.get("model", {}).get("precision", "auto")
        if task.kind in COMPUTES and precision != "auto":
            lack = _lacking_precision(task, precision, machine)
            if lack is not None:
                lacks.setdefault(lack, task)
    for (words, remedy), task in lacks.items():
        yield error("E0975", words, where=task.id, help=remedy)


def _lacking_precision(task: Task, precision: str, machine: Machine) -> tuple[str, str] | None:
    """Return why a task cannot compute in the precision that its model asks for, and what to write instead."""
    clause = f"the model has `precision = {precision}`, and"
    if engine_of(task) == "sglang":
        served_in = "float32" if task.cluster is None else "bfloat16"
        if precision == served_in:
            return None
        hardware = "a processor" if task.cluster is None else "GPUs"
        return (
            f"{clause} SGLang's servers generate in {served_in} on {hardware}",
            "leave it out of the model: `auto` is that",
        )
    if precision == "bfloat16" and task.cluster is None and not machine.address and not multiplies_bfloat16():
        return (
            f"{clause} this processor has no products in bfloat16 (AVX512-BF16, AMX): they would be slower than float32",
            "write `precision = float32` in the model, or run on a processor that has them",
        )
    return None


def _products(tasks: Iterable[Task], machine: Machine) -> Iterator[Diagnostic]:
    """Report E0975 if a task multiplies on this machine, and `REODSL_PRODUCTS` names no library."""
    named = os.environ.get("REODSL_PRODUCTS") and importlib.util.find_spec("torch") is not None
    if named and not machine.address and any(task.kind in COMPUTES for task in tasks):
        from runners.models.products import products

        try:
            products()
        except Problem as caught:
            yield from caught.diagnostics


def multiplies_bfloat16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether this processor multiplies bfloat16 numbers, as far as `cpuinfo` and oneDNN say.

    Without such instructions oneDNN may multiply so too, but slower than in float32.
    """
    try:
        flags = re.search(r"^(?:flags|Features)\s*:(.*)$", cpuinfo.read_text(), re.MULTILINE)
    except OSError:
        flags = None
    if flags is not None and not {"avx512_bf16", "amx_bf16", "bf16"} & set(flags[1].split()):
        return False
    if importlib.util.find_spec("torch") is None:
        return True
    from runners.models.products import computes_bfloat16

    return computes_bfloat16()


def _too_few(
    wants: str, needed: int, nodes: Sequence[RayNode], machine: Machine, where: str | None
) -> Diagnostic | None:
    """Return E0971 if all nodes together have fewer GPUs than are asked for, by what `wants` them in words."""
    available = int(sum(node.gpus for node in nodes))
    if needed <= available:
        return None
    have = "no GPU" if not available else f"{available} GPU{'s' if available > 1 else ''}"
    idle = 0 if machine.address or available else shown_gpus()
    if idle:
        return error(
            "E0971",
            f"{wants}, and torch cannot use the {'GPU' if idle == 1 else f'{idle} GPUs'} of this machine:"
            " it was built without CUDA",
            where=where,
            help=f"{CUDA_BUILD}, or start the spec on a Ray cluster: --address HOST:PORT",
        )
    return error(
        "E0971",
        f"{wants}, and {'the Ray cluster' if machine.address else 'this machine'} has {have}",
        where=where,
        notes=[f"{node.name} has {node.gpus:g}" for node in nodes] if machine.address else (),
        help=f"start the spec on a Ray cluster that has {'such GPUs' if needed > 1 else 'a GPU'}: --address HOST:PORT"
        if not machine.address
        else f"add nodes with {needed - available} more GPUs, or take fewer in `cluster`"
        + ("; `--address local` declares some on this machine" if machine.notes is not None else ""),
    )


def _nodes(machine: Machine) -> tuple[RayNode, ...]:
    """Return the nodes of the Ray cluster at the address, or this machine as the only node."""
    if machine.address:
        from runners.execute.instance import nodes_at

        return nodes_at(machine.address)
    return (RayNode("this machine", float(len(os.sched_getaffinity(0))), float(gpus()), gpu_here()),)


def _weights(tasks: Iterable[Task], folder: Path) -> Iterator[Diagnostic]:
    """Report what is wrong with the configuration, folder, snapshot or tokenizer of each `model` task."""
    for task in tasks:
        if task.kind != "model":
            continue
        source, context = task.payload["model"]["source"], task.payload["model"]["context"]
        if source["kind"] == "architecture":
            fault = check_architecture(Architecture.model_validate(source), task.id)
            if fault is not None:
                yield fault
        elif source["kind"] == "folder":
            model_folder = folder / source["path"]
            yield from tuple(_folder(model_folder, task.id)) or _settings(model_folder, context)
        elif source["kind"] == "hub":
            yield from _hub(source, context)
        elif source["kind"] == "served":
            yield from _tokenizer(source["tokenizer"], folder, task.id)


def _teachers(spec: Spec, folder: Path) -> Iterator[Diagnostic]:
    """Report E0514 for teachers with other tokens than the model that they teach, as far as files here tell."""
    for experiment in values_of(spec.study, Experiment):
        for stage in experiment.stages:
            teacher = stage.method.teacher if isinstance(stage.method, Ppo) else None
            if teacher is None or digest(teacher.model.source) == digest(experiment.model.source):
                continue
            mine, theirs = (_place(model.source, folder) for model in (experiment.model, teacher.model))
            fault = compare_tokens(mine, theirs, str(theirs)) if mine and theirs else None
            if fault is not None:
                yield fault


PROMPTS_TRIED = 200
"""Questions of a table whose prompts are tried with each wording: those that are longest without one."""


def _prompts(tasks: Iterable[Task], spec: Spec, folder: Path) -> Iterator[Diagnostic]:
    """Report E0933 for wordings that make questions too long, if the questions and the tokenizer are files here.

    A selective wording is tried when the stage asks, since its condition may read responses.
    """
    training = {task.arm for task in tasks if task.kind == "train"}
    if not training or importlib.util.find_spec("polars") is None:
        return
    from runners.data.load import at_hand, load_data
    from runners.models.folder import load_tokenizer
    from runners.models.tokenizer import make_word_tokenizer
    from runners.rollout.questions import Wordings, fitting_questions

    for experiment in values_of(spec.study, Experiment):
        for stage in experiment.stages:
            method, source = stage.method, experiment.model.source
            if (
                not isinstance(method, Ppo)
                or not method.wordings
                or any(w.selective for w in method.wordings)
            ):
                continue
            model_folder = _place(source, folder)
            if not at_hand(stage.data, folder):
                continue
            try:
                if isinstance(source, Architecture):
                    tokenizer = make_word_tokenizer(source.tokenizer)
                elif model_folder is not None:
                    tokenizer = load_tokenizer(model_folder)
                else:
                    continue
                table = load_data(stage.data, folder)
                fitting, _ = fitting_questions(table, experiment.model.prompt, tokenizer, method.max_prompt)
                words = Wordings.of(method, experiment.model, tokenizer, 0, lambda _: None)
                for question in sorted(fitting, key=lambda q: -len(q.prompt))[:PROMPTS_TRIED]:
                    words.require_room(question)
            except Problem as fault:
                # What else is wrong with files is reported with them.
                yield from (question for question in fault.diagnostics if question.code == "E0933")


def _place(source: ModelSource, folder: Path) -> Path | None:
    """Return where the files of a model are on this machine, if they can be."""
    match source:
        case Folder(path=path):
            return folder / path
        case Hub(repo=repo, revision=revision):
            return hub_snapshot("models", repo, revision)
    return None


def _tokenizer(source: dict[str, Any], folder: Path, name: str) -> Iterator[Diagnostic]:
    """Report E0803 or E0850 if a served model's tokenizer is not on this machine."""
    if source["kind"] == "folder":
        path: Path | None = folder / source["path"]
        lack = error(
            "E0803",
            "the folder has no tokenizer.json",
            where=str(path),
            notes=(f"needed by {name}; a relative path starts at the spec's folder",),
            help="name a folder with the tokenizer of the model that is served",
        )
    else:
        path = hub_snapshot("models", source["repo"], source.get("revision"))
        lack = error(
            "E0850",
            f"the tokenizer of `{source['repo']}` is not on this machine",
            where=str(hub_cache()),
            help="fetch it where there is a network: `reodsl fetch SPEC`",
        )
    if path is None or not (path / "tokenizer.json").is_file():
        yield lack


def _results(spec: Spec, folder: Path) -> Iterator[Diagnostic]:
    """Report the first fault of each imported result table, at the line that names the table."""
    arms = [arm for arm in spec.study.arms if isinstance(arm.checkpoint, FromResults)]
    if not arms or importlib.util.find_spec("polars") is None:
        return
    from runners.results.arm import check_arms

    for arm, fault in check_arms(spec.study, folder):
        start = spec.study.arm(arm).checkpoint
        path = start.path if isinstance(start, FromResults) else None
        yield place_finding(fault, path, spec, start.given_at.get("path"))


def _folder(folder: Path, task_id: str) -> Iterator[Diagnostic]:
    """Report E0803 if a model folder is missing, incomplete or unreadable, or links to files outside."""
    exists = os.path.isdir(folder)
    missing = [name for name in ("config.json", "tokenizer.json") if not os.path.isfile(folder / name)]
    if exists and not any(path for path in folder.glob("*.safetensors") if path.name != ADAPTER):
        other = explain_unread(folder)
        if other is not None:
            yield other
            return
        missing.insert(0, "weights: no *.safetensors file")
    if exists and not missing:
        outward = leads_out(folder)
        yield from _find_unreadable(folder) if outward is None else [outward]
        return
    yield error(
        "E0803",
        f"the model folder has no {missing[0]}" if exists else "there is no model folder here",
        where=str(folder),
        notes=(f"needed by {task_id}; a relative path starts at the spec's folder",),
        help=MADE.get(folder.name, INCOMPLETE),
    )


def _find_unreadable(folder: Path) -> Iterator[Diagnostic]:
    """Report the first unreadable file of a model folder."""
    for path in sorted([*folder.glob("*.safetensors"), *folder.glob("*.json")]):
        try:
            open_plain(path).close()
        except OSError as failure:
            plain = not isinstance(failure, NotPlain)
            yield error(
                "E0803",
                f"the model folder cannot be read: {failure.strerror}",
                where=str(path),
                help=f"let yourself read it: `chmod -R u+rX {folder}`"
                if plain
                else "put the file itself there",
            )
            return


def _settings(folder: Path, context: int) -> Iterator[Diagnostic]:
    """Yield the faults of a model's config, for example a context shorter than the spec says (E0807)."""
    if not (folder / "config.json").is_file():
        return
    try:
        config_context = require_bounded(folder).get("max_position_embeddings")
    except Problem as fault:
        yield from fault.diagnostics
        return
    if isinstance(config_context, int) and context > config_context:
        yield error(
            "E0807",
            f"the spec says that the model's context is {context} tokens, and its config that it is {config_context}",
            where=str(folder / "config.json"),
            help=f"write `context = {config_context} tokens` in the model, or take one with a longer context",
        )


def _hub(source: dict[str, Any], context: int) -> Iterator[Diagnostic]:
    """Report E0850 if a hub model's weights are not on this machine, or the faults of its config."""
    repo, revision = source["repo"], source.get("revision")
    snapshot = hub_snapshot("models", repo, revision)
    if snapshot is not None and any(snapshot.glob("*.safetensors")):
        yield from _settings(snapshot, context)
        return
    option = f" --revision {revision}" if revision else ""
    yield error(
        "E0850",
        f"the weights of `{repo}` are not on this machine",
        where=str(hub_cache()),
        help="fetch them where there is a network: `reodsl fetch SPEC`, or "
        f"`hf download {repo}{option}` (HF_HOME says where to)",
    )


def _list(names: list[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
