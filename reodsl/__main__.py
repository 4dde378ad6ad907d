"""Start the command, as `reodsl` or `python -P -m reodsl`; an interrupt is quiet from the first import on."""

import sys


def entry() -> None:
    """Run the command `reodsl`; an interrupt ends it with exit code 130 and no traceback."""
    try:
        # Most of a short command's time goes into these imports, and an interrupt in them is no defect either.
        from reodsl.cli.main import entry as run_command

        run_command()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    entry()
