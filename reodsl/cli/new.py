"""`reodsl new FILE`: write a starting spec for a method and a model, which are chosen by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from reodsl.cli.options import complete_files
from reodsl.cli.output import file_to_write, has_error, print_json, show
from reodsl.diagnostics import problem
from reodsl.language import compile_file
from reodsl.language.suggest import nearest
from reodsl.start import JOBS, MODELS, QUICKSTART, cluster_job, starting_spec

_METHODS = MODELS["miniature"].methods
_WIDTH = max(map(len, (*_METHODS, *MODELS)))
_SYNONYMS = dict.fromkeys(("grpo", "ppo", "rl", "rlvr", "outcome"), "vanilla")
"""Method names by synonyms: as `vanilla`, GRPO rewards only correctness, compared with responses to the same question."""


class NameChoice(click.Choice[str]):
    """The type of an option whose value names a method or a model; the error for an unknown name suggests a known name."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the option's value if it is a known name, else fail with a synonym or the most similar known name."""
        if value not in self.choices:
            nearest_name = _SYNONYMS.get(str(value).lower(), nearest(str(value), self.choices))
            nearest_name = nearest_name if nearest_name in self.choices else None
            hint = f"did you mean `{nearest_name}`?" if nearest_name else "`reodsl new --list` shows them"
            self.fail(f"no method or model is called `{value}`; {hint}", param, ctx)
        return str(value)


@click.command(
    short_help="Write a starting spec of a method and a model.",
    epilog="""\b
Examples:
  reodsl new --quickstart                                quickstart.reo: a study that runs unchanged
  reodsl new mine.reo                                    a reward of your own, on the small model
  reodsl new specs/mrt.reo --method mrt --model qwen3_4b
  reodsl new job.sbatch --cluster slurm --spec mine.reo   a job for the cluster that the spec names
  reodsl new --list                                      every method and model
  reodsl new - --method reo                              to standard output
""",
)
@click.argument("file", required=False, shell_complete=complete_files)
@click.option(
    "--method",
    type=NameChoice(list(_METHODS)),
    default="own",
    show_default=True,
    metavar="NAME",
    help="What to train by: `own`, or a published method.",
)
@click.option(
    "--model",
    type=NameChoice(list(MODELS)),
    default="miniature",
    show_default=True,
    metavar="NAME",
    help="What to train, with its data, lengths and benchmarks.",
)
@click.option(
    "--quickstart", is_flag=True, help="The study of the README, which runs in minutes on two cores."
)
@click.option(
    "--cluster",
    "scheduler",
    type=click.Choice(list(JOBS)),
    help="Write a job that runs --spec on the cluster that it names, instead of a spec.",
)
@click.option("--spec", metavar="SPEC", help="With --cluster: what to run.", shell_complete=complete_files)
@click.option("--list", "listed", is_flag=True, help="Print the methods and models, and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="With --list: print them as JSON.")
def new_command(
    file: str | None,
    method: str,
    model: str,
    quickstart: bool,
    scheduler: str | None,
    spec: str | None,
    listed: bool,
    as_json: bool,
) -> None:
    """Write a starting spec to FILE: a study that compares a model before and after training.

    With --quickstart the file is the README's study, by default quickstart.reo. An existing file is never touched.
    Next come `reodsl check FILE`, `reodsl plan FILE` and `reodsl run FILE`.

    Args:
        file: File to write, `-` for standard output, or None.
        method: Name of the method to train by.
        model: Name of the model to train.
        quickstart: Whether to write the README's study.
        scheduler: Scheduler of a cluster, `slurm` or `kuberay`, to write a job instead of a spec; None for a spec.
        spec: Spec that the job runs, or None without a job.
        listed: Whether to print the methods and models, and write nothing.
        as_json: Whether to print JSON instead of text.
    """
    if listed:
        _print_choices(as_json)
        return
    if as_json:
        raise click.UsageError("--json goes with --list")
    if (scheduler is None) != (spec is None):
        raise click.UsageError("--cluster and --spec go together: --cluster slurm --spec SPEC")
    names_method_or_model = (method, model) != ("own", "miniature")
    if spec is not None and (quickstart or names_method_or_model):
        raise click.UsageError(
            "--cluster writes a job for --spec; leave out --quickstart, --method and --model"
        )
    if quickstart and names_method_or_model:
        raise click.UsageError("--quickstart has its own methods and model; leave out --method and --model")
    if file is None and not quickstart:
        raise click.UsageError("name the FILE to write, or `-` for standard output, or ask for --list")
    file = "quickstart.reo" if file is None else file
    if scheduler is not None and spec is not None:
        submit_command = "sbatch" if scheduler == "slurm" else "kubectl create -f"
        text, advice = _make_job(file, scheduler, spec), f"read it, then: {submit_command} {file}"
    elif quickstart:
        text, advice = QUICKSTART.read_text(encoding="utf-8"), f"next: reodsl run {file}"
    else:
        text, advice = starting_spec(method, model, Path(file).stem), f"next: reodsl plan {file}"
    if file == "-":
        click.echo(text, nl=False)
        return
    _write_new(Path(file), text, must_end_in_reo=spec is None)
    click.echo(f"wrote {file}; {advice}")


def _make_job(file: str, scheduler: str, spec: str) -> str:
    """Return the text of a job that runs a spec on the cluster that the spec names.

    Args:
        file: File that the job will be written to.
        scheduler: Kind of the job, `slurm` or `kuberay`.
        spec: Path of the spec; a mistake in it ends the command.
    """
    compiled = compile_file(spec)
    if compiled.spec is None or has_error(compiled.diagnostics):
        show(compiled.diagnostics, compiled.sources)
        raise SystemExit(1)
    return cluster_job(scheduler, compiled.spec, spec, file)


def _print_choices(as_json: bool) -> None:
    """Print the names and descriptions of methods and models, as JSON or as text."""
    methods, models = dict(_METHODS), {name: model.doc for name, model in MODELS.items()}
    if as_json:
        print_json({"methods": methods, "models": models})
        return
    for title, docs in (("Methods", methods), ("Models", models)):
        click.echo(f"{title}:")
        for name, doc in docs.items():
            click.echo(f"  {name:<{_WIDTH}}  {doc}")


def _write_new(path: Path, text: str, must_end_in_reo: bool) -> None:
    """Write a text to a new file, and make its folder.

    Args:
        path: The file.
        text: The text.
        must_end_in_reo: Whether to refuse a name that does not end in `.reo`.

    Raises:
        Problem: E0118 for a refused name, or if the file exists or cannot be written.
    """
    if must_end_in_reo and path.suffix != ".reo":
        nameless = path.name.strip(".") in ("", "reo")
        raise problem(
            "E0118",
            "a spec's name ends in .reo",
            where=str(path),
            help=f"write `{'mine.reo' if nameless else path.with_suffix('.reo')}`",
        )
    target = file_to_write(path, remedy="name a file in another folder")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise problem(
            "E0118",
            "this file exists already, and was not changed",
            where=str(path),
            help="name another file, or move that one away",
        ) from None
