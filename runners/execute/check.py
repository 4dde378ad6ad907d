"""Check what a machine or cluster lacks for the tasks that are about to run, and say how to get it."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from reodsl.diagnostics import Diagnostic, Problem, error, join_words
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
# Packages that the process of a task imports, by the kind of the task.
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
    """Return a diagnostic for each thing that tasks need and that is missing, such as packages, GPUs, weights and data.

    No task is started, and equal diagnostics are returned once.

    Args:
        tasks: Tasks that are about to run.
        spec: Spec of the tasks, whose lines the diagnostics name.
        folder: The spec's folder, where relative paths start.
        machine: The machine or cluster of the run.
    """
    diagnostics = [
        *_check_packages(tasks, machine),
        *_check_engines(tasks, machine),
        *_check_devices(tasks, spec.study.cluster, machine),
        *_check_precisions(tasks, machine),
        *_check_products(tasks, machine),
        *_check_models(tasks, folder),
        *_check_teachers(spec, folder),
        *_check_sandbox(tasks, machine),
        *_check_own_code(tasks, folder),
        *questions(tasks, spec, folder),
        *_check_prompts(tasks, spec, folder),
        *_check_results(spec, folder),
    ]
    return tuple(dict.fromkeys(diagnostics))


def gpus() -> int:
    """Return the number of NVIDIA GPUs of this machine that torch can use; 0 if torch was built without CUDA.

    Torch is not imported.
    """
    return shown_gpus() if built_for_cuda() else 0


def shown_gpus() -> int:
    """Return the number of NVIDIA GPUs of this machine that CUDA_VISIBLE_DEVICES shows, or of all GPUs if it is unset.

    GPUs that the installed torch cannot use count as well.
    """
    count = sum(path.name[6:].isdigit() for path in _DEVICES.glob("nvidia*"))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None or not count:
        return count
    # CUDA ignores the list from the first entry on that is no device.
    names = [name.strip() for name in visible.split(",")]
    return len(list(takewhile(lambda d: d and (not d.lstrip("-").isdigit() or 0 <= int(d) < count), names)))


def built_for_cuda() -> bool:
    """Return whether the installed torch was built for CUDA, according to torch's file `version.py`.

    The result is False only if the file says `cuda = None`. It is True if torch or the file is missing.
    """
    spec = importlib.util.find_spec("torch")
    try:
        text = Path(spec.origin).with_name("version.py").read_text() if spec and spec.origin else ""
    except OSError:
        return True
    return re.search(r"^cuda\b[^=\n]*= *None", text, re.MULTILINE) is None


def _check_packages(tasks: Iterable[Task], machine: Machine) -> Iterator[Diagnostic]:
    """Yield E0121 if packages that the tasks import are not installed.

    Ray is one of these packages, except for a run in this process (`machine.local`).
    """
    packages = {package for task in tasks for package in _NEEDS.get(task.kind, ())}
    if not machine.local and packages:
        packages.add("ray")
    missing = sorted(package for package in packages if importlib.util.find_spec(package) is None)
    if missing:
        yield error(
            "E0121",
            f"{join_words(missing)} {'is' if len(missing) == 1 else 'are'} not installed",
            help="install what runs need with: pip install 'reodsl[run]'",
        )


def _check_sandbox(tasks: Iterable[Task], machine: Machine) -> Iterator[Diagnostic]:
    """Yield E0742 for each code that needs the sandbox (`_list_scorers`), if the sandbox does not work on this machine.

    If the user allowed unconfined code (`machine.without_sandbox`), E0742 is only for programs that models write. For a
    cluster nothing is checked here.
    """
    # On another machine, the workers check their sandbox themselves.
    missing = None if machine.address else lacking_means()
    if missing is None:
        return
    for where in dict.fromkeys(name for task in tasks for name in _list_scorers(task.payload)):
        if where == PROGRAMS or not machine.without_sandbox:
            yield from cannot_confine(missing, where).diagnostics


def _check_own_code(tasks: Iterable[Task], folder: Path) -> Iterator[Diagnostic]:
    """Yield E0743 for each function of the user that a task calls and that its file does not define as required.

    Files are parsed and not run. Files that cannot be read are skipped: another check reports them.
    """
    functions, _ = read_all((task.payload for task in tasks), folder)
    yield from filter(None, (source_problem(code, setting) for setting, code in functions))


def _list_scorers(payload: Any) -> Iterator[str]:
    """Yield a name, for messages, of each code in a payload that grades or generates and must run in the sandbox.

    There are three kinds of such code. First, a verifier of an installed package, also if a rehearsal has wrapped it into
    a verifier `chance`, whose field `of` is the wrapped verifier. Second, the programs of models that the verifier `tests`
    runs. Third, Python functions of the user. A loss in Python is left out, as it runs in the trainer's process.

    Args:
        payload: A task's payload, or a value in it: nested mappings and lists.
    """
    for setting, block in parts(payload):
        if "package" in (block.get("verifier"), block.get("kind") == "chance" and block["of"]):
            yield "verifier `package`"
        if block.get("kind") == "tests":
            yield PROGRAMS
        if is_code(block) and setting != LOSS:
            yield f"`{block['function']}`"


def _check_engines(tasks: Iterable[Task], machine: Machine) -> Iterator[Diagnostic]:
    """Yield a diagnostic if tasks need SGLang and it is not installed, or E0971 if this machine has no GPU for it.

    E0971 concerns tasks without a cluster. It is left out if the user named a Python for SGLang in the environment, whose
    SGLang may run on processors. On a Ray cluster and in a rehearsal (`machine.notes`) nothing is checked.
    """
    served_tasks = [task for task in tasks if engine_of(task) == "sglang"]
    if machine.address or machine.notes is not None or not served_tasks:
        return
    from runners.engine.sglang.settings import VARIABLE, missing

    lack, tasks_here = missing(), [task for task in served_tasks if task.cluster is None]
    if lack is not None:
        yield lack
    elif tasks_here and not shown_gpus() and not os.environ.get(VARIABLE):
        yield error(
            "E0971",
            "SGLang's releases need a GPU, and this machine has none",
            where=tasks_here[0].id,
            help="write `engine = embedded`, which runs on processors, or set "
            + f"{VARIABLE} to a Python whose SGLang runs on processors",
        )


def _check_devices(
    tasks: Iterable[Task], study_cluster: Cluster | None, machine: Machine
) -> Iterator[Diagnostic]:
    """Yield diagnostics on clusters of the spec that the machines cannot provide.

    E0971 says that there are too few GPUs, or that the processes of a task do not fit the nodes. W0971 says that GPUs are
    of another kind. If the GPUs are enough, E0977 and W0977 say what SGLang's servers lack on nodes. If no task needs a
    cluster, only the address of the Ray cluster is checked. If a rehearsal declares GPUs that do not exist
    (`machine.declares`), the declared nodes are checked instead of real nodes.

    Args:
        tasks: Tasks that are about to run.
        study_cluster: The study's cluster; the message for another cluster names the first task that runs on it.
        machine: The machine or cluster of the run.
    """
    tasks_of: dict[Cluster, dict[tuple[Kind, str], Task]] = {}
    for task in tasks:
        if task.kind in COMPUTES and task.cluster is not None:
            tasks_of.setdefault(task.cluster, {}).setdefault((task.kind, engine_of(task)), task)
    if not tasks_of:
        if machine.address:
            from runners.execute.instance import report_unanswered

            yield from report_unanswered(machine.address)
        return
    try:
        nodes = declared_nodes(tasks_of) if machine.declares else _list_nodes(machine)
    except Problem as caught:
        yield from caught.diagnostics
        return
    for cluster, kinds in sorted(tasks_of.items(), key=lambda cluster_kinds: -gpus_of(cluster_kinds[0])):
        where = f"cluster `{cluster.name}`" if cluster.name else None
        subject = "the spec" if cluster == study_cluster else next(iter(kinds.values())).id
        lack = _check_gpus(
            f"{subject} runs on {label_cluster(cluster)}", gpus_of(cluster), nodes, machine, where
        )
        if lack is not None:
            # The largest cluster comes first; smaller clusters are checked once it fits.
            yield lack
            return
        needed = (bundles(kind, resources_of(kind, cluster, "cuda", engine)) for kind, engine in kinds)
        lacks = (lacking(of_task, nodes, where) for of_task in needed)
        yield from filter(None, (other_gpus(cluster, nodes, where), *lacks))
    any_served = any(engine == "sglang" for kinds in tasks_of.values() for _, engine in kinds)
    if any_served and machine.notes is None and (machine.address or gpus()):
        yield from diagnose(ask_at(machine.address))


def _check_precisions(tasks: Iterable[Task], machine: Machine) -> Iterator[Diagnostic]:
    """Yield E0975 for each reason why tasks cannot compute in the `precision` of their model, with the first such task."""
    tasks_by_lack: dict[tuple[str, str], Task] = {}
    for task in tasks:
        precision = task.payload.get("model", {}).get("precision", "auto")
        if task.kind in COMPUTES and precision != "auto":
            lack = _explain_precision(task, precision, machine)
            if lack is not None:
                tasks_by_lack.setdefault(lack, task)
    for (message, remedy), task in tasks_by_lack.items():
        yield error("E0975", message, where=task.id, help=remedy)


def _explain_precision(task: Task, precision: str, machine: Machine) -> tuple[str, str] | None:
    """Return why a task cannot compute in a precision.

    Args:
        task: The task.
        precision: `precision` of the task's model, `float32` or `bfloat16`.
        machine: The machine or cluster of the run.

    Returns:
        (reason, what to write instead), or None if the task can compute in the precision.
    """
    clause = f"the model has `precision = {precision}`, and"
    if engine_of(task) == "sglang":
        served_in = "float32" if task.cluster is None else "bfloat16"
        if precision == served_in:
            return None
        hardware = "a processor" if task.cluster is None else "GPUs"
        return (
            f"{clause} SGLang's servers generate in {served_in} on {hardware}",
            "leave `precision` out of the model",
        )
    if precision == "bfloat16" and task.cluster is None and not machine.address and not multiplies_bfloat16():
        return (
            f"{clause} this processor cannot multiply bfloat16 (AVX512-BF16, AMX), so that it is slower than float32",
            "write `precision = float32` in the model, or run on a processor with these instructions",
        )
    return None


def _check_products(tasks: Iterable[Task], machine: Machine) -> Iterator[Diagnostic]:
    """Yield E0975 if the variable `REODSL_PRODUCTS` names no library that can multiply matrices on this machine.

    Nothing is checked if the variable is unset, torch is not installed, or no task computes on this machine.
    """
    named = os.environ.get("REODSL_PRODUCTS") and importlib.util.find_spec("torch") is not None
    if named and not machine.address and any(task.kind in COMPUTES for task in tasks):
        from runners.models.products import products

        try:
            products()
        except Problem as caught:
            yield from caught.diagnostics


def multiplies_bfloat16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether this processor has instructions to multiply bfloat16 numbers, according to the kernel and oneDNN.

    Without these instructions oneDNN may emulate bfloat16, which is slower than float32. If torch is not installed, oneDNN
    cannot be asked, and the kernel's list of flags decides; without that list the result is True.

    Args:
        cpuinfo: File with the processor's flags.
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


def _check_gpus(
    request: str, needed: int, nodes: Sequence[RayNode], machine: Machine, where: str | None
) -> Diagnostic | None:
    """Return E0971 if all nodes together have too few GPUs, else None.

    The message says so if this machine has GPUs, but torch was built without CUDA and cannot use them.

    Args:
        request: Beginning of the message, such as `the spec runs on 2x8 H100`.
        needed: Number of GPUs that are needed.
        nodes: Nodes of the cluster, or this machine.
        machine: The machine or cluster of the run.
        where: Name of the cluster for the diagnostic, or None.
    """
    available = int(sum(node.gpus for node in nodes))
    if needed <= available:
        return None
    stock = "no GPU" if not available else f"{available} GPU{'s' if available > 1 else ''}"
    unusable = 0 if machine.address or available else shown_gpus()
    if unusable:
        return error(
            "E0971",
            f"{request}, and torch cannot use the {'GPU' if unusable == 1 else f'{unusable} GPUs'} of this machine:"
            " it was built without CUDA",
            where=where,
            help=f"{CUDA_BUILD}, or start the spec on a Ray cluster: --address HOST:PORT",
        )
    return error(
        "E0971",
        f"{request}, and {'the Ray cluster' if machine.address else 'this machine'} has {stock}",
        where=where,
        notes=[f"{node.name} has {node.gpus:g}" for node in nodes] if machine.address else (),
        help=f"start the spec on a Ray cluster that has {'such GPUs' if needed > 1 else 'a GPU'}: --address HOST:PORT"
        if not machine.address
        else f"add nodes with {needed - available} more GPUs, or write fewer in `cluster`"
        + ("; `--address local` declares GPUs on this machine" if machine.notes is not None else ""),
    )


def _list_nodes(machine: Machine) -> tuple[RayNode, ...]:
    """Return the nodes of the Ray cluster at the machine's address; without an address, this machine as the only node."""
    if machine.address:
        from runners.execute.instance import nodes_at

        return nodes_at(machine.address)
    return (RayNode("this machine", float(len(os.sched_getaffinity(0))), float(gpus()), gpu_here()),)


def _check_models(tasks: Iterable[Task], folder: Path) -> Iterator[Diagnostic]:
    """Yield diagnostics on the model that each task of the kind `model` provides.

    The model's source decides what is checked: an architecture for random weights, a folder, a snapshot of a hub's
    repository, or, for a model behind a server (`served`), its tokenizer.
    """
    for task in tasks:
        if task.kind != "model":
            continue
        source, context = task.payload["model"]["source"], task.payload["model"]["context"]
        if source["kind"] == "architecture":
            yield from filter(None, [check_architecture(Architecture.model_validate(source), task.id)])
        elif source["kind"] == "folder":
            model_folder = folder / source["path"]
            yield from tuple(_check_folder(model_folder, task.id)) or _check_config(model_folder, context)
        elif source["kind"] == "hub":
            yield from _check_hub_model(source, context)
        elif source["kind"] == "served":
            yield from _check_tokenizer(source["tokenizer"], folder, task.id)


def _check_teachers(spec: Spec, folder: Path) -> Iterator[Diagnostic]:
    """Yield E0514 for each teacher whose tokenizer has other tokens than the policy's tokenizer.

    A teacher is skipped if it is the policy's own model, or if the files of either model are not on this machine.
    """
    for experiment in values_of(spec.study, Experiment):
        for stage in experiment.stages:
            teacher = stage.method.teacher if isinstance(stage.method, Ppo) else None
            if teacher is None or digest(teacher.model.source) == digest(experiment.model.source):
                continue
            mine, other = (_find_folder(model.source, folder) for model in (experiment.model, teacher.model))
            if mine and other:
                yield from filter(None, [compare_tokens(mine, other, str(other))])


PROMPTS_TRIED = 200
"""Number of questions whose prompts are tried with each wording: the longest of the data."""


def _check_prompts(tasks: Iterable[Task], spec: Spec, folder: Path) -> Iterator[Diagnostic]:
    """Yield E0933 for wordings that make prompts too long.

    The `PROMPTS_TRIED` longest questions of a stage are tried. A stage is skipped if its questions or tokenizer are not on
    this machine. It is also skipped if a wording is selective, as the wording's condition may read responses.

    Args:
        tasks: Tasks that are about to run; without a training nothing is checked.
        spec: Spec of the tasks.
        folder: The spec's folder, where relative paths start.
    """
    trained_arms = {task.arm for task in tasks if task.kind == "train"}
    if not trained_arms or importlib.util.find_spec("polars") is None:
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
            model_folder = _find_folder(source, folder)
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
                wordings = Wordings.of(method, experiment.model, tokenizer, 0, lambda _: None)
                for question in sorted(fitting, key=lambda q: -len(q.prompt))[:PROMPTS_TRIED]:
                    wordings.require_room(question)
            except Problem as fault:
                # Other mistakes in these files are reported by other checks.
                yield from (diagnostic for diagnostic in fault.diagnostics if diagnostic.code == "E0933")


def _find_folder(source: ModelSource, folder: Path) -> Path | None:
    """Return the folder of a model's files on this machine; None if the hub's cache lacks it or the model has no files.

    A folder that the spec names is returned even if it does not exist.
    """
    match source:
        case Folder(path=path):
            return folder / path
        case Hub(repo=repo, revision=revision):
            return hub_snapshot("models", repo, revision)
    return None


def _check_tokenizer(source: dict[str, Any], folder: Path, name: str) -> Iterator[Diagnostic]:
    """Yield E0803 or E0850 if the tokenizer of a served model is not on this machine.

    Args:
        source: Source of the tokenizer as in a payload.
        folder: The spec's folder, where relative paths start.
        name: Name of the task, for the message.
    """
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
            help="download it on a machine with a network: `reodsl fetch SPEC`",
        )
    if path is None or not (path / "tokenizer.json").is_file():
        yield lack


def _check_results(spec: Spec, folder: Path) -> Iterator[Diagnostic]:
    """Yield the mistakes that `check_arms` finds in tables of imported results, at the lines that name the tables.

    Nothing is checked without polars.
    """
    arms = [arm for arm in spec.study.arms if isinstance(arm.checkpoint, FromResults)]
    if not arms or importlib.util.find_spec("polars") is None:
        return
    from runners.results.arm import check_arms

    for arm, fault in check_arms(spec.study, folder):
        start = spec.study.arm(arm).checkpoint
        path = start.path if isinstance(start, FromResults) else None
        yield place_finding(fault, path, spec, start.given_at.get("path"))


def _check_folder(folder: Path, task_id: str) -> Iterator[Diagnostic]:
    """Yield E0803 if a model's folder is missing, incomplete or unreadable, or has links to files outside the folder.

    A complete folder has `config.json`, `tokenizer.json` and weights in `*.safetensors` files.

    Args:
        folder: The folder.
        task_id: Name of the task that needs the model, for the message.
    """
    exists = os.path.isdir(folder)
    missing = [name for name in ("config.json", "tokenizer.json") if not os.path.isfile(folder / name)]
    if exists and not any(path for path in folder.glob("*.safetensors") if path.name != ADAPTER):
        unreadable = explain_unread(folder)
        if unreadable is not None:
            yield unreadable
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
    """Yield E0803 for the first file of a model's folder that cannot be read."""
    for path in sorted([*folder.glob("*.safetensors"), *folder.glob("*.json")]):
        try:
            open_plain(path).close()
        except OSError as failure:
            is_permission = not isinstance(failure, NotPlain)
            yield error(
                "E0803",
                f"the model folder cannot be read: {failure.strerror}",
                where=str(path),
                help=f"make it readable: `chmod -R u+rX {folder}`"
                if is_permission
                else "replace it by a regular file",
            )
            return


def _check_config(folder: Path, context: int) -> Iterator[Diagnostic]:
    """Yield mistakes in a model's config, such as E0807 for a shorter context than the spec says.

    Args:
        folder: The model's folder.
        context: The model's context in the spec, in tokens.
    """
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
            f"the model's context is {context} tokens in the spec, but {config_context} tokens in its config",
            where=str(folder / "config.json"),
            help=f"write `context = {config_context} tokens` in the model, or take a model with a longer context",
        )


def _check_hub_model(source: dict[str, Any], context: int) -> Iterator[Diagnostic]:
    """Yield E0850 if the weights of a model of a hub are not on this machine, else any mistake in the model's config.

    Args:
        source: Source of the model as in a payload, with repository and revision.
        context: The model's context in the spec, in tokens.
    """
    repo, revision = source["repo"], source.get("revision")
    snapshot = hub_snapshot("models", repo, revision)
    if snapshot is not None and any(snapshot.glob("*.safetensors")):
        yield from _check_config(snapshot, context)
        return
    option = f" --revision {revision}" if revision else ""
    yield error(
        "E0850",
        f"the weights of `{repo}` are not on this machine",
        where=str(hub_cache()),
        help="download them on a machine with a network: `reodsl fetch SPEC`, or "
        f"`hf download {repo}{option}` (to the folder HF_HOME)",
    )
