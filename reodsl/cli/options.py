"""Options that several commands share, the reading of their values, and their completion in a shell."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from reodsl.diagnostics import Problem, problem
from reodsl.diagnostics.model import shorten_text
from reodsl.numbers.curves import ReferenceFrontier

if TYPE_CHECKING:
    from reodsl.store.store import Store

Command = TypeVar("Command", bound=Callable[..., Any])


class PathOption(click.Path):
    """The type of an option whose value is the path of a file or folder.

    An empty path is refused, as it comes from an unset variable of the shell and would mean the present folder.
    """

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value of an option as a path, or refuse an empty value."""
        if value == "":
            self.fail("the path is empty; write `.` for this folder", param, ctx)
        return super().convert(value, param, ctx)


set_option = click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="PARAM=VALUE",
    help="Set a declared param, as in --set n=10. Repeatable.",
)
amend_option = click.option(
    "--amend",
    "amends",
    multiple=True,
    metavar="SETTING=VALUE",
    help="Change any setting of a declaration or of all experiments, as in --amend optim.lr=1e-6 or"
    " --amend reo_exp.steps=12. The report says that it is not in the spec.",
)


def _store(default: str) -> Callable[[Command], Command]:
    """Return the option --store; `default` says in its help where the store is if the option is missing."""
    return click.option(
        "--store",
        "store_dir",
        type=PathOption(),
        envvar="REODSL_STORE",
        metavar="DIR",
        help=f"Where results are kept. Default: REODSL_STORE, or `.reodsl` {default}.",
    )


store_option = _store("beside the spec, or the nearest in a folder above it")
known_store_option = _store("in this folder, the nearest above it, or the only one below it that has results")
"""The option --store for commands that take no spec."""
target_option = click.option(
    "--target", metavar="NAME", help="Which study or experiment to take, if the spec declares several."
)


def spec_options(command: Command) -> Command:
    """Return a command with the options of every command that plans a spec: --set, --amend, --target and --store."""
    for option in (store_option, target_option, amend_option, set_option):
        command = option(command)
    return command


def trust_options(command: Command) -> Command:
    """Return a command with the options of every command that runs tasks: --without-sandbox and --allow-python."""
    for option in (
        click.option(
            "--allow-python",
            is_flag=True,
            help="Allow Python files of the spec that are new to this machine: print each with its checksum, and"
            " remember it. A changed file must be allowed again. All Python except a loss runs in the sandbox.",
        ),
        click.option(
            "--without-sandbox",
            is_flag=True,
            help="Run a package's scorers and your Python without the sandbox, on a machine that cannot confine"
            " them. Unsafe: they may execute what a model wrote. A loss in Python is never confined.",
        ),
    ):
        command = option(command)
    return command


def assignments(option: str, values: Iterable[str]) -> dict[str, str]:
    """Return texts of the form `NAME=VALUE` as a mapping from names to values, in their order.

    Args:
        option: Name of the option, such as `--set`, for error messages.
        values: The texts.

    Raises:
        Problem: E0114 for a text of another form, or for a name that comes twice.
    """
    assigned: dict[str, str] = {}
    for text in values:
        name, sign, value = text.partition("=")
        name, value = name.strip(), value.strip()
        if not (sign and name and value):
            raise problem(
                "E0114",
                f"{option} {shorten_text(text)!r} is not an assignment",
                help=f"write `{option} name=value`",
            )
        if name in assigned:
            raise problem(
                "E0114", f"{option} sets {name!r} twice: {assigned[name]} and {value}", help="set it once"
            )
        assigned[name] = value
    return assigned


def frontier_of(name_or_file: str, base: Sequence[str] = ()) -> ReferenceFrontier:
    """Return a frontier: from a file, or a published frontier by its name, such as `std.paper.qwen3_4b`.

    It is a file if a file has this path, or the name ends in .json, .csv or .parquet.

    Args:
        name_or_file: name of a published frontier, or path of a frontier file.
        base: names of base models, which choose a frontier if the file has several.

    Raises:
        Problem: E0114 for an unknown name, with all known names.
    """
    from reodsl.language.chosen_reward import read_frontier_by_name
    from reodsl.numbers.curve_files import read_reference

    path = Path(name_or_file)
    if path.exists() or path.suffix in {".json", ".csv", ".parquet"}:
        return read_reference(path, base)
    with name_source(name_or_file):
        return read_frontier_by_name(name_or_file)


@contextmanager
def name_source(source: object) -> Iterator[None]:
    """Name `source`, such as a file, as the place of each diagnostic without a place that the `with` block raises."""
    try:
        yield
    except Problem as caught:
        named = (d if d.labels or d.where else replace(d, where=str(source)) for d in caught.diagnostics)
        raise Problem(*named) from None


def token_count(option: str, text: str) -> int:
    """Return the number of tokens that a text such as `16K` or `16384` means; K is 1024, and M is 1024².

    Args:
        option: Name of the option, such as `--l-max`, for the error message.
        text: The text.

    Raises:
        Problem: E0114 for another text.
    """
    factor = {"K": 1024, "M": 1024**2}.get(text[-1:].upper(), 1)
    digits = text if factor == 1 else text[:-1]
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 9):
        raise problem(
            "E0114",
            f"{option} {shorten_text(text)!r} is not a number of tokens",
            help=f"write a whole number, as in `{option} 16K`",
        )
    return int(digits) * factor


def token_grid(option: str, text: str) -> tuple[int, ...]:
    """Return the numbers of tokens that a text such as `0,64,1K` means.

    Args:
        option: Name of the option, such as `--grid`, for the error message.
        text: The text.

    Raises:
        Problem: E0114 for another text.
    """
    return tuple(token_count(option, word.strip()) for word in text.split(","))


def existing_store(store_dir: Path | None) -> Store:
    """Return the store for a command that takes no spec.

    It is the store that the option names. Without the option it is the store of this folder or of the nearest folder
    above, or else the only store in a folder directly below this folder.

    Args:
        store_dir: Folder of the option --store, or None.

    Raises:
        Problem: E0952 if no store is found, or several.
    """
    from reodsl.store.store import Store, find_store

    folders = [store_dir or find_store(Path().resolve())]
    if store_dir is None and not (folders[0] / "format").is_file():
        folders = sorted(mark.parent for mark in Path().glob("*/.reodsl/format"))
    if len(folders) != 1 or not (folders[0] / "format").is_file():
        raise no_store(folders)
    store = Store(folders[0])
    store.recognise()
    return store


def no_store(folders: list[Path]) -> Problem:
    """Return E0952 for a command that found no store, or several stores.

    Args:
        folders: Several stores, or at most one folder, which is no store.
    """
    if len(folders) > 1:
        return problem(
            "E0952", f"there are several stores: {', '.join(map(str, folders))}", help="add --store DIR"
        )
    return problem(
        "E0952",
        "there is no store here",
        where=str(folders[0] if folders else Path(os.curdir).resolve()),
        help="a spec's store is `.reodsl` beside it: go there, or name it with --store DIR; `reodsl run SPEC` makes one",
    )


def complete_files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return a marker for the shell, which completes file names itself."""
    return [CompletionItem(incomplete, type="file")]


def complete_codes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the codes of diagnostics and topics of documents that start with `incomplete`, in upper or lower case."""
    from reodsl.diagnostics.render import codes, topics

    return [
        CompletionItem(name) for name in (*codes(), *topics()) if name.lower().startswith(incomplete.lower())
    ]


def complete_runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return completions that start with `incomplete`: the studies of the store, and the times at which its runs began.

    The list is empty if no store is found.
    """
    from reodsl.store.runs import began, records

    try:
        runs = records(existing_store(ctx.params.get("store_dir")))
    except (Problem, OSError):
        return []
    names = [*sorted({record.study for record in runs}), *(began(record.name) for record in reversed(runs))]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_runs_or_files(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the completions of file names and of runs."""
    return complete_files(ctx, param, incomplete) + complete_runs(ctx, param, incomplete)


def complete_tasks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of the tasks of the spec on the command line that start with `incomplete`.

    The list is empty if the command line has no spec file, or the spec has a mistake.
    """
    from reodsl.graph.lower import lower
    from reodsl.language import compile_file

    path = ctx.params.get("spec")
    if not path or not Path(path).is_file():
        return []
    compiled = compile_file(path, target=ctx.params.get("target"))
    if compiled.spec is None:
        return []
    return [CompletionItem(task.id) for task in lower(compiled.spec).tasks if task.id.startswith(incomplete)]
