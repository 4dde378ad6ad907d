"""Call functions of the user's in confined processes."""

from runners.own.function import OwnFunction
from runners.own.source import opened, source_problem

__all__ = ["OwnFunction", "opened", "source_problem"]
