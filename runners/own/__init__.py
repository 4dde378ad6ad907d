"""Functions of the user's, called in confined processes: rows in; the numbers that the function gives, out."""

from runners.own.function import OwnFunction
from runners.own.source import opened, source_problem

__all__ = ["OwnFunction", "opened", "source_problem"]
