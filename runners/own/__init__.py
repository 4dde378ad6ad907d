"""Call functions of the user's in confined processes."""

from runners.own.function import Failed, OwnFunction, open_function
from runners.own.source import source_problem

__all__ = ["Failed", "OwnFunction", "open_function", "source_problem"]
