"""Options that several commands share, and the reading of `NAME=VALUE`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from reodsl.diagnostics import problem

Command = TypeVar("Command", bound=Callable[..., Any])


class Place(click.Path):
    """A file or folder by its name. An empty one is a variable that a shell has not set, and not this folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if value == "":
            self.fail("an empty name is not a place; this folder is `.`", param, ctx)
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
    help="Change any setting, or an argument in it, as in --amend optim.lr=1e-6, --amend reo_exp.steps=12 or"
    " --amend eval.samples=4. The report says that it is not in the spec.",
)


def _store(otherwise: str) -> Callable[[Command], Command]:
    return click.option(
        "--store",
        "store_dir",
        type=Place(),
        envvar="REODSL_STORE",
        metavar="DIR",
        help=f"Where results are kept. Default: REODSL_STORE, or `.reodsl` {otherwise}.",
    )


store_option = _store("beside the spec")
known_store_option = _store("in this folder, or in the only one below it that has results")
"""Of commands that are given no spec."""
target_option = click.option(
    "--target", metavar="NAME", help="Which study or experiment, where the spec declares several."
)


def spec_options(command: Command) -> Command:
    """Add the options of every command that plans a spec: --set, --amend, --target and --store."""
    for option in (store_option, target_option, amend_option, set_option):
        command = option(command)
    return command


def trust_options(command: Command) -> Command:
    """Add the options of every command that runs tasks: --without-sandbox and --allow-python, in this order."""
    for option in (
        click.option(
            "--allow-python",
            is_flag=True,
            help="Let the Python that the spec names run where it is new to this machine, and remember it.",
        ),
        click.option(
            "--without-sandbox",
            is_flag=True,
            help="Let a package's scorers evaluate what models wrote even where this machine cannot confine them.",
        ),
    ):
        command = option(command)
    return command


def assignments(option: str, values: Iterable[str]) -> dict[str, str]:
    """`NAME=VALUE` texts as a mapping, in order. Raises `Problem` for a text without `=` and for a name given twice."""
    assigned: dict[str, str] = {}
    for text in values:
        name, equals, value = text.partition("=")
        name, value = name.strip(), value.strip()
        if not (equals and name and value):
            raise problem(
                "E0114", f"{option} {text!r} is not an assignment", help=f"write `{option} name=value`"
            )
        if name in assigned:
            raise problem(
                "E0114", f"{option} gives {name!r} twice: {assigned[name]} and {value}", help="give it once"
            )
        assigned[name] = value
    return assigned
