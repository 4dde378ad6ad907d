"""reodsl: reinforcement-learning experiments on reasoning efficiency, from short spec files."""

__version__ = "0.1.0"
