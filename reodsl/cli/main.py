"""The command line: from arguments to one command and its exit code. It prints a traceback only with `--debug`."""

from __future__ import annotations

import difflib
import gc
import importlib
import io
import os
import signal
import sys
import traceback
from types import FrameType
from typing import Any

import click

import reodsl
from reodsl.cli import stopping
from reodsl.diagnostics import Problem, first_line, fold, problem, refuse
from reodsl.diagnostics.dropped import refuse_dropped
from reodsl.diagnostics.model import missing_extra, shorten_words

_GROUPS = {
    "Start": ("new", "check", "fmt", "reward", "budgets", "explain", "doctor", "lsp"),
    "Run": ("fetch", "plan", "rehearse", "run", "watch", "graph", "why"),
    "Look": ("report", "view", "reg", "frontier", "diff", "ls"),
    "Share": ("import", "export"),
    "Store": ("accept", "gc"),
}
"""The commands in the order of `--help`, under headings."""
_FILES = {
    **dict.fromkeys(("check", "fmt", "graph", "budgets", "explain", "lsp"), "specs"),
    **dict.fromkeys(("why", "accept"), "plan"),
    **dict.fromkeys(("ls", "gc"), "store"),
    **dict.fromkeys(("fetch", "import", "export"), "share"),
    **dict.fromkeys(("reg", "frontier"), "gap"),
    "view": "report",
}
"""Modules by command, for commands whose module has another name."""
_SHORT = frozenset({"check", "diff", "fmt", "graph", "plan", "why"})
"""Commands that run without garbage collection: they free little before their end, and collecting takes 20% of the time."""
_FIRST = {"rehearse": "reading the spec", "run": "reading the spec", "watch": "looking for the run"}
"""The first line of a command in a terminal, before its imports."""
_LONG = frozenset({"rehearse", "run"})
"""Commands that run code of users and packages, which may hang."""


class Formatter(click.HelpFormatter):
    """The text of `--help`, whose examples are folded to the width of the terminal."""

    def write_text(self, text: str) -> None:
        """Write a text, and fold the lines that click keeps unchanged."""
        start = len(self.buffer)
        super().write_text(text)
        lines = "".join(self.buffer[start:]).split("\n")
        self.buffer[start:] = ["\n".join(piece for line in lines for piece in fold(line, self.width))]


class Context(click.Context):
    """A call of a command, whose help `Formatter` writes."""

    formatter_class = Formatter


class Commands(click.Group):
    """The commands: `NAME_command` of the modules of `reodsl.cli`, each imported when it is called."""

    context_class = Context

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands in the order of `--help`."""
        return [name for names in _GROUPS.values() for name in names]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands into the help, in groups with headings and with a short description of each command."""
        for group, names in _GROUPS.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(group):
                formatter.write_dl(
                    [(name.ljust(8), command.get_short_help_str(90)) for name, command in commands if command]
                )

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command called `cmd_name` from its module, which is imported now; None for an unknown name.

        The help of the command is its docstring without the section `Args`, which is for readers of the code.
        """
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"reodsl.cli.{_FILES.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        command.name, command.context_class = cmd_name, Context
        command.help = (command.help or "").partition("\n    Args:")[0]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return (the command's name, the command, the arguments after the name), as click's method does.

        Raises:
            Problem: with the replacement, if an earlier version had the command.
            click.UsageError: with the nearest name, for an unknown command.
        """
        name = args[0] if args else ""
        if (
            name in _FIRST
            and sys.stderr.isatty()
            and not {"-q", "--quiet", "--json", "-h", "--help"} & {*args}
        ):
            # The imports and the plan take seconds on a busy machine.
            click.echo(_FIRST[name], err=True)
        if name and not name.startswith("-") and self.get_command(ctx, name) is None:
            refuse(refuse_dropped(f"reodsl {name}"))
            names = self.list_commands(ctx)
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean `{close[0]}`?" if close else f"choose one of {', '.join(names)}"
            raise click.UsageError(f"no command is called `{name}`; {hint}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Start here:
  reodsl new --quickstart              write quickstart.reo
  reodsl plan quickstart.reo           what it would do, and why
  reodsl run quickstart.reo            train and compare small models, and draw the report
  reodsl explain E0402                 what an error means and how to mend it
""",
)
@click.version_option(reodsl.__version__, prog_name="reodsl")
@click.option("--debug", is_flag=True, help="Show Python tracebacks.")
def cli(debug: bool) -> None:
    """Reinforcement-learning experiments on reasoning efficiency, from short spec files."""


def main(arguments: list[str]) -> int:
    """Run a command and return its exit code.

    An error is printed as a diagnostic. If `--debug` is among the arguments before `--`, an unexpected exception is raised
    again, so that Python prints its traceback.

    Args:
        arguments: The words after `reodsl`, such as `["plan", "quickstart.reo", "--debug"]`.

    Returns:
        0 if done, 1 after an error, 2 for work or a difference, 130 if interrupted.
    """
    # The words after `--` are names of files.
    end = arguments.index("--") if "--" in arguments else len(arguments)
    debug = "--debug" in arguments[:end]
    arguments = [argument for i, argument in enumerate(arguments) if i >= end or argument != "--debug"]
    invoke = cli.main
    if _LONG & set(arguments[:2]):
        from reodsl.interrupts import insist_on_interrupts

        invoke = insist_on_interrupts(importing=0.0)(invoke)
    try:
        code = invoke(args=arguments, prog_name="reodsl", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as caught:
        click.echo(caught.format_message())
        return 0
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return 130
    except click.ClickException as caught:
        context: click.Context | None = getattr(caught, "ctx", None)
        option = caught.option_name if isinstance(caught, click.NoSuchOption) else ""
        diagnostic = refuse_dropped(f"reodsl {context.info_name} {option}") if context and option else None
        if diagnostic:
            _show(Problem(diagnostic))
        else:
            where = f" (see `{context.command_path} --help`)" if context else ""
            click.echo(f"error: {shorten_words(caught.format_message())}{where}", err=True)
        return 1
    except Exception as caught:
        if debug or isinstance(caught, BrokenPipeError):
            raise
        _show(_explain(caught))
        return 1


def entry() -> None:
    """Run the command of `sys.argv`, and end the process with the command's exit code, or with 143 after SIGTERM.

    Short commands (`_SHORT`) run without garbage collection. Commands that run code of users (`_LONG`) are killed if they
    do not end some seconds after a signal.
    """
    stopped: list[int] = []
    _open_streams()
    # Keeps child processes, too, from importing modules of the working folder.
    os.environ["PYTHONSAFEPATH"] = "1"
    if sys.argv[1:2] and sys.argv[1] in _SHORT:
        gc.disable()

    def terminate(number: int, frame: FrameType | None) -> None:
        stopped.append(128 + number)
        raise SystemExit(stopped[0])

    signal.signal(signal.SIGTERM, terminate)
    if _LONG & set(sys.argv[1:3]):
        stopping.end_when_stopped()
    try:
        code: Any = main(sys.argv[1:])
        sys.stdout.flush()
    except SystemExit as caught:
        code = caught.code
        _flush()
    except OSError as caught:
        # The reader of our output closed the pipe, or its disk is full.
        if not isinstance(caught, BrokenPipeError):
            _show(_explain(caught))
        _mute()
        code = 1
    # Ray passes an exit on, but not its code.
    code = stopped[0] if stopped else code
    if isinstance(code, int) and code > 128:
        stopping.leave(code)
    sys.exit(code)


def _open_streams() -> None:
    """Open closed standard streams on the null device, and let every stream print any character.

    If the caller has closed a standard stream, the next opened file would get its number and receive its output.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        # An encoding may lack letters (Latin-1 has no `…`): print their numbers instead of raising an error.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _flush() -> None:
    """Write buffered output to stdout, or drop it if nobody can receive it."""
    try:
        sys.stdout.flush()
    except OSError:
        _mute()


def _mute() -> None:
    """Send stdout to the null device, so that Python's own flush at exit raises nothing."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _explain(caught: Exception) -> Problem:
    """Return an exception as a problem to print.

    Returns:
        The exception itself if it is a problem; E0121 for a missing package of an extra, E0119 for an error of the
        operating system, E0990 for everything else, which is a defect of reodsl.
    """
    if isinstance(caught, Problem):
        return caught
    if isinstance(caught, ModuleNotFoundError) and (missing := missing_extra(caught)) is not None:
        return missing
    if isinstance(caught, OSError):
        return problem(
            "E0119",
            f"the operating system refused: {caught.strerror or caught}",
            where=_find_file(caught),
            help="check the path, its permissions and the space left",
        )
    message = first_line(caught, "")
    return problem(
        "E0990",
        f"reodsl met an error it did not expect: {type(caught).__name__}{f': {message}' if message else ''}",
        help="this is a defect; `--debug` shows where it happened",
    )


def _find_file(caught: OSError) -> str | None:
    """Return the name of the file that an error of the operating system is about.

    If the error has no file, the result is `standard output` if printing raised the error, else None.
    """
    if caught.filename is not None:
        return str(caught.filename)
    *_, (frame, _) = traceback.walk_tb(caught.__traceback__)
    return "standard output" if frame.f_globals["__name__"] in (click.echo.__module__, __name__) else None


def _show(caught: Problem) -> None:
    """Print the diagnostics of a problem."""
    from reodsl.cli.output import show

    show(caught.diagnostics)


if __name__ == "__main__":
    entry()
