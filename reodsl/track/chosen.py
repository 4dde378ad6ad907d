"""Choose a run's trackers by options and the user's configuration: known names, installed packages."""

from __future__ import annotations

import importlib.util
import os
import tomllib
from collections.abc import Sequence
from pathlib import Path

from reodsl.diagnostics import Diagnostic, problem, warning

TRACKERS = ("trackio", "wandb", "mlflow", "tensorboard")
"""The trackers that a run can have, each named as the package that it needs."""


def chosen(asked: Sequence[str]) -> tuple[tuple[str, ...], tuple[Diagnostic, ...]]:
    """The trackers of a run: those asked for, else those of the configuration; and what is wrong with these, as warnings.

    Raises E0984 where one that was asked for is unknown or not installed.
    """
    if asked:
        for name in dict.fromkeys(asked):
            if name not in TRACKERS:
                raise problem(
                    "E0984",
                    f"there is no tracker called `{name}`",
                    help=f"choose from {', '.join(TRACKERS)}",
                )
            if not installed(name):
                raise problem(
                    "E0984",
                    f"the package `{name}` is not installed, which `--track {name}` needs",
                    help=f"pip install 'reodsl[{name}]', or leave out --track {name}",
                )
        return tuple(dict.fromkeys(asked)), ()
    names, findings = configured(configuration())
    there = tuple(name for name in names if installed(name))
    lacking = [name for name in names if name not in there]
    return there, findings + tuple(
        warning(
            "W0806",
            f"nothing is sent to {name}: the package `{name}` is not installed",
            where=str(configuration()),
            help=f"pip install 'reodsl[{name}]'",
        )
        for name in lacking
    )


def configuration() -> Path:
    """The user's configuration file: `$XDG_CONFIG_HOME/reodsl/config.toml`."""
    place = os.environ.get("XDG_CONFIG_HOME")
    return (Path(place) if place else Path.home() / ".config") / "reodsl" / "config.toml"


def configured(place: Path) -> tuple[tuple[str, ...], tuple[Diagnostic, ...]]:
    """The trackers of a configuration file: its line `track = ["wandb"]`. None where there is no file."""
    try:
        data = tomllib.loads(place.read_text("utf-8"))
    except FileNotFoundError:
        return (), ()
    except (OSError, ValueError) as fault:
        return (), (_refused(place, f"it cannot be read: {fault}"),)
    value = data.get("track", [])
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(name in TRACKERS for name in names):
        return (), (_refused(place, f"`track` is {value!r}"),)
    return tuple(dict.fromkeys(names)), ()


def installed(name: str) -> bool:
    """Whether a tracker's package can be imported."""
    return importlib.util.find_spec(name) is not None


def _refused(place: Path, why: str) -> Diagnostic:
    return warning(
        "W0806",
        f"the configuration is left out: {why}",
        where=str(place),
        help=f'write `track = ["wandb"]`; there is {", ".join(TRACKERS)}',
    )
