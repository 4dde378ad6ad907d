"""`python -m reodsl`: the command, where its script is not on the path."""

from reodsl.cli.main import entry

entry()
