"""Call functions of the user's in confined processes."""

from runners.own.function import OwnFunction, open_function
from runners.own.source import source_problem

__all__ = ["OwnFunction", "open_function", "source_problem"]
